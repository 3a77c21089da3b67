"""The clients: they ask, read, stop, vanish; and what they were given is judged."""

from typing import TYPE_CHECKING

from tests.simulation.faults import Fault
from tests.simulation.oracle import Request, Violation, on_concluded, on_delivered, request_of
from tests.simulation.setup import Ask
from tests.simulation.trace import ended

from kvseal.core.dispatch import GatewayCore, Submission
from kvseal.core.errors import Code
from kvseal.core.ids import NOBODY, InstanceId, RequestId, TenantId
from kvseal.core.messages import Finished, Rejected, Terminal
from kvseal.core.sampling import SamplingParams

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

GREEDY = SamplingParams()
BACKLOG = 1  # tokens that a gateway keeps for a client that does not read


class Clients:
    """Everybody outside."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.gateway_of: dict[RequestId, Process] = {}

    def ask(self, ask: Ask, worker: InstanceId | None = None, via: InstanceId = NOBODY) -> None:
        """Submit a request to its gateway, if that is there."""
        world = self.world
        gateway = world.gateways[ask.gateway]
        if gateway is None or not gateway.alive:
            world.count("client found no gateway")
            return
        core = gateway.core
        assert isinstance(core, GatewayCore)
        prompt = self._prompt(ask, core.context)
        request = request_of(world.ledger, ask, prompt, world.layout, core.context)
        name = RequestId(ask.name)
        world.requests[name] = request
        self.gateway_of[name] = gateway
        if not request.fits:
            world.dice.hits[Fault.OVER_LENGTH if prompt else Fault.EMPTY] += 1
        if world.trace:
            world.note(ask.tenant, f"asks {ask.name}: {len(prompt)} tokens, {ask.max_tokens} wanted")
        submission = Submission(
            name, TenantId(ask.tenant), prompt, ask.max_tokens, GREEDY, request.stop_ids, via, worker
        )
        answer = world.guarded_step(gateway, core.submit, submission)
        if isinstance(answer, Rejected):
            self.conclude(name, answer)
        elif answer is not None:
            gateway.carry_out(answer)
        if ask.deadline_s is not None:
            world.agenda.after(ask.deadline_s, self._leave, name, Code.DEADLINE_EXCEEDED, Fault.DEADLINE)

    def deliver(self, name: RequestId, tokens: tuple[int, ...]) -> None:
        """The gateway gives tokens to a client."""
        world = self.world
        request = world.requests[name]
        if world.trace:
            world.note(request.ask.tenant, f"is given {name}: {', '.join(map(str, tokens))}")
        try:
            on_delivered(world.ledger, request, tokens)
        except Violation as found:
            world.found(found)
        world.count("tokens delivered", len(tokens))
        if request.first_s < 0:
            request.first_s = world.agenda.now
        stop_at, now = request.ask.stop_at, world.agenda.now
        if stop_at is not None and request.stopped_at is None and len(request.delivered) > stop_at:
            request.stopped_at = stop_at
            world.agenda.after(0.0, self._stop, name, stop_at)
        if request.ask.reads_every_s:
            read = int((now - request.first_s) / request.ask.reads_every_s)
            if len(request.delivered) - read > BACKLOG:
                world.agenda.after(0.0, self._leave, name, Code.ABORTED, Fault.SLOW_READER)

    def conclude(self, name: RequestId, end: Terminal) -> None:
        """The gateway gives the one terminal answer."""
        world = self.world
        request = world.requests[name]
        if world.trace:
            world.note(request.ask.tenant, f"is told {name}: {ended(end)}")
        try:
            on_concluded(request, end, world.agenda.now)
        except Violation as found:
            world.found(found)
        kind = type(end).__name__
        world.count(f"ended {kind.lower()}")
        if not isinstance(end, Finished):
            world.count(f"code {kind}:{end.code.value}")

    def touched(self, name: RequestId) -> None:
        """Something happened in the life of this request: its client may vanish right now."""
        request = self.world.requests.get(name)
        if request is None:
            return
        request.touches += 1
        if request.touches - 1 == request.ask.gone_after:
            self.world.agenda.after(0.0, self._leave, name, Code.ABORTED, Fault.GONE)

    def planned(self, name: RequestId) -> None:
        """A decoding pass was planned for this request: its client may vanish before it begins."""
        request = self.world.requests[name]
        request.passes += 1
        if request.passes - 1 == request.ask.gone_at_pass:
            self.world.agenda.after(0.0, self._leave, name, Code.ABORTED, Fault.GONE)

    def leave(self, name: RequestId, code: Code = Code.ABORTED) -> None:
        """The client is gone, or its deadline has passed: the gateway ends the request."""
        request, gateway = self.world.requests[name], self.gateway_of[name]
        core = gateway.core
        assert isinstance(core, GatewayCore)
        if request.end is None and gateway.alive:
            request.aborted = code
            gateway.carry_out(self.world.guarded(gateway, core.abort, gateway.now, name, code))

    def gateway_lost(self, gateway: "Process") -> None:
        """Nobody can answer its requests any more: the clients see a broken connection."""
        for name, owner in self.gateway_of.items():
            if owner is gateway and self.world.requests[name].end is None:
                self.world.requests[name].lost = True

    def unanswered(self) -> list[Request]:
        """Who still waits for a terminal answer."""
        return [r for r in self.world.requests.values() if r.end is None and not r.lost]

    def _leave(self, name: RequestId, code: Code, fault: Fault) -> None:
        if self.world.requests[name].end is None and self.world.dice.strike(fault):
            self.leave(name, code)

    def _stop(self, name: RequestId, index: int) -> None:
        gateway = self.gateway_of[name]
        core = gateway.core
        assert isinstance(core, GatewayCore)
        if gateway.alive:
            gateway.carry_out(self.world.guarded(gateway, core.stop, name, index))

    def _prompt(self, ask: Ask, context: int) -> tuple[int, ...]:
        before = self.world.requests.get(RequestId(ask.follows))
        if before is None or not ask.prompt:
            return ask.prompt
        longest = context - max(1, ask.max_tokens)
        return (*before.prompt, *before.answer, *ask.prompt[:3])[: max(1, longest)]
