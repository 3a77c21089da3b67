"""The decode worker's shell: joins the gateway, dials prefill workers, pulls, generates."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from kvseal.core.batch import Slice, SliceResult
from kvseal.core.decode import DecodeCore
from kvseal.core.effects import Pull
from kvseal.core.errors import ProtocolError
from kvseal.core.ids import InstanceId, short
from kvseal.core.job import DecodeConfig
from kvseal.core.messages import AnyMessage, Hello, Peers
from kvseal.core.peers import mismatch
from kvseal.process import WorkerProcess
from kvseal.transport import Transport, TransportError
from kvseal.wire import Connection, ConnectionLost, backoff, connect, dial_forever
from kvseal.workers.machine import Machine
from kvseal.workers.shell import Events, Shell

_log = logging.getLogger(__name__)
_DIAL_DELAYS_S = backoff(0.05, 0.5)


class DecodeWorker:
    """See the module's text."""

    def __init__(
        self, settings: WorkerProcess, secret: bytes, machine: Machine, transport: Transport
    ) -> None:
        hello = machine.hello
        config = DecodeConfig(
            layout=hello.layout,
            page_size=hello.page_size,
            usable_tokens=hello.usable_tokens,
            secret=secret,
            cache_version=settings.cache_version,
            retries=settings.retries,
            max_batch=settings.max_batch,
            quarantine_bound_pages=max(1, machine.pool.pages // 4),
            prefill_timeout_s=settings.prefill_timeout_s,
            queue_timeout_s=settings.queue_timeout_s,
            prefix_reuse=settings.prefix_reuse,
        )
        self.core = DecodeCore(config, machine.pool.pages)
        self._machine = machine
        self._secret = secret
        self._transport = transport
        self._wanted: dict[InstanceId, Hello] = {}  # prefill workers that the gateway told us of
        self._dialing: dict[InstanceId, asyncio.Task[None]] = {}
        events = Events(
            digested=self.core.on_digested,
            step_done=self.core.on_step_done,
            step_failed=self.core.on_step_failed,
            tick=self.core.on_tick,
        )
        self.shell = Shell(self.core, events, machine.pool.array, self._run, self._pull)

    def on_gateway_message(self, connection: Connection, message: AnyMessage) -> None:
        """Requests go to the core; whom to ask for pages is for the shell to know."""
        if isinstance(message, Peers):
            self._on_peers(message)
        else:
            effects = self.core.on_message(self.shell.now(), connection.peer.instance, message)
            self.shell.carry_out(effects)

    def on_gateway_lost(self, connection: Connection) -> None:
        """Nobody waits for its answers any more."""
        self.shell.carry_out(self.core.on_peer_lost(self.shell.now(), connection.peer.instance))

    def begin_drain(self) -> None:
        """Take no new requests."""
        self.core.drain()

    def poll_transport(self) -> None:
        """Reads may have ended. Called in the loop's thread."""
        for transfer, outcome, detail in self._transport.poll():
            self.shell.carry_out(self.core.on_pull_ended(self.shell.now(), transfer, outcome, detail))

    def _on_peers(self, message: Peers) -> None:
        self._wanted = {hello.instance: hello for hello in message.prefill}
        for instance, task in list(self._dialing.items()):
            if instance not in self._wanted:
                task.cancel()
        for hello in message.prefill:
            if hello.instance not in self._dialing:
                self._dialing[hello.instance] = asyncio.get_running_loop().create_task(
                    self._keep_dialing(hello)
                )

    async def _keep_dialing(self, hello: Hello) -> None:
        """Hold a connection to this instance until cancelled; no failure blacklists it (F09)."""

        def failed(error: ConnectionLost | ProtocolError) -> None:
            _log.warning("prefill %s: %s", short(hello.instance), error)

        async def attend(connection: Connection, _previous: InstanceId | None) -> None:
            try:
                await self._attend(hello, connection)
            except (ConnectionLost, TransportError) as error:
                _log.warning("prefill %s: %s", short(hello.instance), error)

        def dial() -> Awaitable[Connection]:
            return connect(hello.address, self._machine.hello, self._secret)

        try:
            await dial_forever(dial, attend, _DIAL_DELAYS_S, failed)
        finally:
            self._dialing.pop(hello.instance, None)

    async def _attend(self, hello: Hello, connection: Connection) -> None:
        peer = connection.peer
        try:
            if peer.instance != hello.instance:
                raise ConnectionLost(f"another instance answers there: {short(peer.instance)} (F10)")
            difference = mismatch(self._machine.hello, peer)
            if difference is not None:
                raise ConnectionLost(difference)
            await self._connect_transport(peer)
            self.shell.peers[peer.instance] = connection
            self.shell.carry_out(self.core.on_prefill_joined(self.shell.now(), peer))
            _log.info("prefill %s is here", short(peer.instance))
            while True:
                message = await connection.receive()
                self.shell.carry_out(self.core.on_message(self.shell.now(), peer.instance, message))
        finally:
            if self.shell.peers.get(peer.instance) is connection:
                del self.shell.peers[peer.instance]
                self._transport.disconnect(peer.instance)
                self.shell.carry_out(self.core.on_peer_lost(self.shell.now(), peer.instance))

    async def _connect_transport(self, peer: Hello) -> None:
        """In a thread, which goes on when we are cancelled: what it connects then is disconnected again."""
        work = asyncio.to_thread(self._transport.connect, peer.instance, peer.endpoint)
        connecting = asyncio.ensure_future(work)
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(lambda _: self._transport.disconnect(peer.instance))
            raise

    def _run(self, slices: Sequence[Slice]) -> Sequence[SliceResult]:
        return self._machine.engine.run(slices).results

    def _pull(self, pull: Pull) -> None:
        try:
            self._transport.read(pull.source, pull.transfer, pull.src, pull.dst)
        except TransportError as error:
            # Nothing was posted, so nothing can land: this end is a proof. It is told in a later turn of the
            # loop, since the core is not to be called while it is being carried out.
            _log.warning("a pull of %d pages was not posted: %s", len(pull.dst), error)
            asyncio.get_running_loop().call_soon(self._not_posted, pull.transfer, str(error))

    def _not_posted(self, transfer: int, reason: str) -> None:
        self.shell.carry_out(self.core.on_pull_refused(self.shell.now(), transfer, reason))
