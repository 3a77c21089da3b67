"""The prefill worker's shell: joins the gateway, listens for decode workers, computes what they ask for."""

import logging
from collections.abc import Sequence

from kvseal.core.batch import Slice, SliceResult
from kvseal.core.effects import Effect, Pull
from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import short
from kvseal.core.messages import AnyMessage
from kvseal.core.peers import mismatch
from kvseal.core.prefill import PrefillConfig, PrefillCore
from kvseal.process import WorkerProcess
from kvseal.wire import Connection, Listener, serve
from kvseal.workers.machine import Machine
from kvseal.workers.shell import Events, Shell

_log = logging.getLogger(__name__)


class PrefillWorker:
    """See the module's text."""

    def __init__(self, settings: WorkerProcess, secret: bytes, machine: Machine) -> None:
        hello = machine.hello
        config = PrefillConfig(
            layout=hello.layout,
            page_size=hello.page_size,
            usable_tokens=hello.usable_tokens,
            secret=secret,
            cache_version=settings.cache_version,
            chunk_tokens=settings.chunk_tokens,
            prefix_reuse=settings.prefix_reuse,
        )
        self.core = PrefillCore(config, machine.pool.pages)
        self._machine = machine
        self._secret = secret
        events = Events(
            digested=self.core.on_digested,
            step_done=self.core.on_step_done,
            step_failed=lambda _now, plan, reason: self.core.on_step_failed(plan, reason),
            tick=self.core.on_tick,
        )
        self.shell = Shell(self.core, events, machine.pool.array, self._run, self._pull)

    async def listen(self) -> Listener:
        """Let decode workers in."""
        hello = self._machine.hello
        return await serve(hello.address, lambda: hello, self._secret, self._on_decode)

    def on_gateway_message(self, connection: Connection, message: AnyMessage) -> None:
        """Prefill hears only from decode: of a gateway it only wants to be taken in."""

    def on_gateway_lost(self, connection: Connection) -> None:
        """Decode workers go on without it."""

    def begin_drain(self) -> None:
        """Nothing to refuse: decode workers stop asking when they drain."""

    async def _on_decode(self, connection: Connection) -> None:
        peer = connection.peer
        difference = mismatch(self._machine.hello, peer)
        if peer.role != "decode" or difference is not None:
            _log.error(
                "%s %s is refused: %s",
                peer.role,
                short(peer.instance),
                difference or "prefill hears only from decode",
            )
            return
        self.shell.peers[peer.instance] = connection
        _log.info("decode %s is here", short(peer.instance))
        try:
            while True:
                message = await connection.receive()
                self.shell.carry_out(self.core.on_message(peer.instance, message))
        finally:
            if self.shell.peers.get(peer.instance) is connection:
                del self.shell.peers[peer.instance]
                self.shell.carry_out(self._lost(connection))

    def _lost(self, connection: Connection) -> list[Effect]:
        _log.info("decode %s is gone", short(connection.peer.instance))
        return self.core.on_peer_lost(connection.peer.instance)

    def _run(self, slices: Sequence[Slice]) -> Sequence[SliceResult]:
        return self._machine.engine.run(slices).results

    def _pull(self, _pull: Pull) -> None:
        raise InvariantViolation("prefill pulls nothing")
