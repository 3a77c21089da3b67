"""Lets peers in, one task for each that has authenticated."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kvseal.core.messages import Hello
from kvseal.wire.address import Address, parse_address
from kvseal.wire.connection import Connection
from kvseal.wire.errors import ConnectionLost
from kvseal.wire.greeting import Greeting
from kvseal.wire.handshake import Side
from kvseal.wire.limits import Limits, WireCounters
from kvseal.wire.secret import check_secret
from kvseal.wire.stream import FrameStream

_log = logging.getLogger(__name__)
OnPeer = Callable[[Connection], Awaitable[None]]


class Listener:
    """An address that is being served; made by :func:`serve`."""

    def __init__(
        self,
        address: Address,
        hello: Callable[[], Hello],
        secret: bytes,
        on_peer: OnPeer,
        limits: Limits,
        counters: WireCounters,
    ) -> None:
        self.address = address
        self.counters = counters
        self._hello = hello
        self._secret = check_secret(secret)
        self._on_peer = on_peer
        self._limits = limits
        self._greetings: set[FrameStream] = set()  # not authenticated yet
        self._peers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begins to accept. Raises :class:`~kvseal.wire.errors.AddressRefused`."""
        self._server = await self.address.start_server(self._accept)

    async def close(self) -> None:
        """Stops accepting, ends every connection and its task, removes the socket file."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self.address.release()
        greetings = tuple(self._greetings)
        for stream in greetings:
            stream.fail(ConnectionLost("the listener closed"))
        for task in self._peers:
            task.cancel()
        await asyncio.gather(
            *(stream.gone.wait() for stream in greetings), *self._peers, return_exceptions=True
        )

    def _accept(self) -> FrameStream:
        stream = FrameStream(self._limits, self.counters)
        greeting = Greeting(stream, Side.LISTENER, self._secret, self._hello(), self._admit)
        stream.sink = greeting
        self._greetings.add(stream)
        greeting.result.add_done_callback(lambda result: self._greeted(stream, result))
        return stream

    def _admit(self, transport: asyncio.BaseTransport) -> bytes:
        if len(self._greetings) > self._limits.max_unauthenticated:  # the newcomer is among them already
            self.counters.crowded += 1
            raise ConnectionLost("too many connections that have not authenticated")
        return self.address.admit(transport)

    def _greeted(self, stream: FrameStream, result: asyncio.Future[Connection]) -> None:
        self._greetings.discard(stream)
        if (error := result.exception()) is not None:
            _log.warning("%s: a connection was refused: %s", self.address, error)
            return
        task = asyncio.get_running_loop().create_task(self._attend(result.result()))
        self._peers.add(task)
        task.add_done_callback(self._attended)

    async def _attend(self, connection: Connection) -> None:
        try:
            await self._on_peer(connection)
        except ConnectionLost:
            pass  # the usual way in which a connection ends
        finally:
            connection.close()
            await connection.wait_closed()

    def _attended(self, task: asyncio.Task[None]) -> None:
        self._peers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Ends this connection only (G12); the loop's handler decides whether more has to end.
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"{self.address}: the handler of a peer failed", "exception": error, "task": task}
            )


async def serve(
    address: str,
    hello: Callable[[], Hello],
    secret: bytes,
    on_peer: OnPeer,
    limits: Limits | None = None,
    counters: WireCounters | None = None,
) -> Listener:
    """Serves ``address`` until :meth:`Listener.close`.

    ``on_peer`` runs in a task of its own for every peer that has authenticated; the connection ends when it
    returns. It may let ConnectionLost pass; any other exception goes to the event loop's exception handler.
    ``hello`` is asked anew for each connection. Raises :class:`~kvseal.wire.errors.AddressRefused` and
    :class:`~kvseal.wire.errors.SecretRefused`.
    """
    listener = Listener(
        parse_address(address), hello, secret, on_peer, limits or Limits(), counters or WireCounters()
    )
    await listener.start()
    return listener
