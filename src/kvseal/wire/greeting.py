"""Takes a new stream through the handshake, in limited time, and makes a connection of it."""

import asyncio
import os
from collections.abc import Callable

from kvseal.core.errors import KvsealError
from kvseal.core.messages import Hello
from kvseal.wire.connection import Connection
from kvseal.wire.errors import ConnectionLost, HandshakeTimeout, NotAuthenticated, VersionMismatch
from kvseal.wire.handshake import NONCE_BYTES, Answer, Established, Handshake, Side
from kvseal.wire.stream import FrameStream

Admit = Callable[[asyncio.BaseTransport], bytes]


class Greeting:
    """The first sink of a stream. :attr:`result` becomes the connection, or the error that says why not.

    ``admit`` looks at the transport before a byte is sent; it raises what speaks against the peer, and
    returns what ties the handshake to the channel.
    """

    def __init__(self, stream: FrameStream, side: Side, secret: bytes, hello: Hello, admit: Admit) -> None:
        self.result: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._stream = stream
        self._side = side
        self._secret = secret
        self._hello = hello
        self._admit = admit
        self._handshake: Handshake  # once there is a channel to tie it to
        self._timer: asyncio.TimerHandle | None = None

    def on_open(self, transport: asyncio.Transport) -> None:
        try:
            binding = self._admit(transport)
            nonce = os.urandom(NONCE_BYTES)
            self._handshake = Handshake(self._side, self._secret, self._hello, nonce, binding)
            self._stream.write_frame(self._handshake.opening)
        except KvsealError as error:
            self._refuse(error)
            return
        seconds = self._stream.limits.handshake_seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)

    def on_frame(self, body: bytes) -> None:
        try:
            reply = self._handshake.receive(body)
        except (NotAuthenticated, VersionMismatch) as error:
            self._refuse(error)
            return
        match reply:
            case Answer():
                self._stream.write_frame(reply.body)
            case Established():
                self._hand_over(Connection(self._stream, reply.peer))

    def on_end(self, cause: Exception) -> None:
        self._stop_timer()
        if self.result.done():
            return
        if isinstance(cause, ConnectionLost):
            # Went away in the middle. Any other cause has its own counter: one for each (F26).
            self._stream.counters.unauthenticated += 1
            cause = ConnectionLost(f"{cause}, before it had authenticated")
        self.result.set_exception(cause)

    def _hand_over(self, connection: Connection) -> None:
        self._stop_timer()
        self._stream.trust()
        self._stream.sink = connection
        if self.result.done():  # nobody waits for it any more
            connection.close()
        else:
            self.result.set_result(connection)

    def _time_out(self) -> None:
        self._stream.counters.timeouts += 1
        seconds = self._stream.limits.handshake_seconds
        self._refuse(HandshakeTimeout(f"the handshake took longer than {seconds} s"))

    def _refuse(self, error: KvsealError) -> None:
        match error:
            case NotAuthenticated():
                self._stream.counters.unauthenticated += 1
            case VersionMismatch():
                self._stream.counters.version_mismatch += 1
            case _:
                pass  # counted where it was raised
        if not self.result.done():
            self.result.set_exception(error)
        self._stream.fail(error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
