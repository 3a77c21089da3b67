"""One life of one process: a core, its pool, and the shell around them that carries out effects."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.engine import run_pass
from tests.simulation.faults import Fault
from tests.simulation.ledger import Pool
from tests.simulation.oracle import Kind, Violation, on_checked
from tests.simulation.trace import recorded
from tests.simulation.wire import Link

from kvseal.core.batch import SliceResult
from kvseal.core.decode import DecodeCore
from kvseal.core.dispatch import GatewayCore
from kvseal.core.effects import (
    Conclude,
    CutPeer,
    Deliver,
    Digest,
    Effect,
    Poison,
    Pull,
    Record,
    Restart,
    Send,
    StepPlan,
)
from kvseal.core.ids import InstanceId, Seal
from kvseal.core.messages import Abort, AnyMessage, Hello, Manifest, Peers, PrefillEnded, Unwelcome, Welcome
from kvseal.core.prefill import PrefillCore
from kvseal.core.pulls import Outcome
from kvseal.core.requests import State
from kvseal.core.seals import seal_of

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(slots=True, eq=False)
class Process:
    """See the module's text. ``skew_s`` is what its clock has jumped; ``ahead`` a pass that was planned while
    another one runs.
    """

    world: "World"
    name: str
    slot: int  # which of its role's places it fills
    hello: Hello
    core: DecodeCore | PrefillCore | GatewayCore
    pool: Pool | None = None
    alive: bool = True
    draining: bool = False
    skew_s: float = 1e5
    links: dict[InstanceId, Link] = field(default_factory=dict)
    dialling: set[InstanceId] = field(default_factory=set)
    running: StepPlan | None = None
    ahead: StepPlan | None = None
    postponed: int = 0

    @property
    def instance(self) -> InstanceId:
        return self.hello.instance

    @property
    def role(self) -> str:
        return self.hello.role

    @property
    def now(self) -> float:
        """What this process's clock says."""
        return self.world.agenda.now + self.skew_s

    # --- events: each is one call of the core, and its effects

    def on_message(self, sender: InstanceId, message: AnyMessage) -> None:
        """A message arrived."""
        core = self.core
        match core:
            case GatewayCore():
                self.carry_out(self.world.guarded(self, core.on_message, self.now, sender, message))
            case DecodeCore():
                if isinstance(message, Peers):
                    self._dial(message)
                elif isinstance(message, Unwelcome):
                    self.world.end_process(self, "not welcome")
                else:
                    self._decode_message(core, sender, message)
            case PrefillCore():
                if isinstance(message, Unwelcome):
                    self.world.end_process(self, "not welcome")
                elif not isinstance(message, Welcome):
                    self.carry_out(self.world.guarded(self, core.on_message, sender, message))

    def _decode_message(self, core: DecodeCore, sender: InstanceId, message: AnyMessage) -> None:
        effects = self.world.guarded(self, core.on_message, self.now, sender, message)
        if isinstance(message, Manifest | PrefillEnded):
            self._judge(effects)
        if isinstance(message, Abort) and self.alive and message.request in core._jobs:
            self.world.found(
                Violation(Kind.ABORT, f"{message.request} goes on at {self.name} after its abort")
            )
        self.carry_out(effects)

    def on_connected(self, other: "Process") -> None:
        """A connection stands, both sides know each other's hello."""
        core = self.core
        if isinstance(core, GatewayCore):
            self.carry_out(self.world.guarded(self, core.on_joined, self.now, other.hello))
        elif isinstance(core, DecodeCore) and other.role == "prefill":
            self.carry_out(self.world.guarded(self, core.on_prefill_joined, self.now, other.hello))

    def on_lost(self, peer: InstanceId) -> None:
        """A connection is gone, and with it perhaps the process behind it."""
        core, guarded = self.core, self.world.guarded
        match core:
            case GatewayCore():
                self.carry_out(guarded(self, core.on_worker_lost, peer))
            case DecodeCore():
                self.dialling.discard(peer)
                self.carry_out(guarded(self, core.on_peer_lost, self.now, peer))
            case PrefillCore():
                self.carry_out(guarded(self, core.on_peer_lost, peer))

    def on_pull_ended(self, transfer: int, outcome: Outcome) -> None:
        """A read ended."""
        assert isinstance(self.core, DecodeCore)
        effects = self.world.guarded(self, self.core.on_pull_ended, self.now, transfer, outcome, "simulated")
        self._judge(effects)
        self.carry_out(effects)

    def on_pull_refused(self, transfer: int) -> None:
        """A read was not even posted."""
        assert isinstance(self.core, DecodeCore)
        self.carry_out(self.world.guarded(self, self.core.on_pull_refused, self.now, transfer, "simulated"))

    def on_digested(self, job: int, seals: list[Seal]) -> None:
        """Digests are there."""
        if not self.alive:
            return
        assert not isinstance(self.core, GatewayCore)
        effects = self.world.guarded(self, self.core.on_digested, self.now, job, seals)
        self._judge(effects)
        self.carry_out(effects)

    def on_tick(self) -> None:
        """Time passed."""
        self.carry_out(self.world.guarded(self, self.core.on_tick, self.now))

    def _judge(self, effects: list[Effect]) -> None:
        try:
            on_checked(effects)
        except Violation as found:
            self.world.found(found)

    def _dial(self, peers: Peers) -> None:
        for hello in peers.prefill:
            if hello.instance in self.links or hello.instance in self.dialling:
                continue
            self.dialling.add(hello.instance)
            other = self.world.processes[hello.instance]
            delay = self.world.rng.random() * self.world.pace.connect_s
            self.world.agenda.after(delay, self.world.wire.connect, self, other)

    # --- effects

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the core wants done, in order; then see whether a pass can be planned."""
        for effect in effects:
            self._do(effect)
        if self.alive and self.ahead is None and self.pool is not None:
            self._plan()

    def _do(self, effect: Effect) -> None:
        world = self.world
        match effect:
            case Send(to=to, message=message):
                world.wire.send(self, to, message)
            case Poison(pages=pages):
                assert self.pool is not None
                self.pool.poison(pages)
            case Pull():
                assert isinstance(self.core, DecodeCore)
                pull = self.core._loader._pulls.get(effect.transfer)
                world.reads.post(self, effect, pull.key if pull else None)
            case Digest():
                self._digest(effect)
            case Deliver(request=request, tokens=tokens):
                world.clients.deliver(request, tokens)
            case Conclude(request=request, end=end):
                world.clients.conclude(request, end)
            case Record():
                world.count(f"record {effect.event}")
                world.note(self.name, recorded(effect))
            case CutPeer() | Restart():
                self._break(effect)

    def _break(self, effect: CutPeer | Restart) -> None:
        world = self.world
        if isinstance(effect, Restart):
            world.count("restart at the quarantine's bound")
            world.crash(self, effect.reason)
            return
        world.count("peer cut off")
        if effect.peer in self.links:
            world.wire.cut(self.links[effect.peer])

    def _digest(self, effect: Digest) -> None:
        pool, world = self.pool, self.world
        assert pool is not None
        pages = effect.pages.tolist()
        delay = world.rng.random() * world.pace.digest_s
        if world.dice.roll(Fault.SLOW_DIGEST):
            delay += 2.0 * world.rng.random()
        if self.role == "decode":
            check = self.core._loader._checks.get(effect.job)  # type: ignore[union-attr]
            world.touch_key(check.key if check else None)
        seals = [seal_of(pool.arrays[page], ident) for page, ident in zip(pages, effect.ids, strict=True)]
        world.agenda.after(delay, self.on_digested, effect.job, seals)

    # --- forward passes: the next one is planned while one runs, and begins when that ends

    def _plan(self) -> None:
        assert not isinstance(self.core, GatewayCore)
        plan = self.world.guarded_step(self, self.core.plan_step)
        if plan is None:
            return
        self.ahead = plan
        if self.world.trace:
            entries = ", ".join(f"{e.key.request}/{e.key.attempt}@{e.slice.start}" for e in plan.entries)
            self.world.note(self.name, f"plans a pass over {entries}")
        for entry in plan.entries:
            self.world.touch_key(entry.key)
            if self.role == "decode":
                self.world.clients.planned(entry.key.request)
        if self.running is None:
            self.world.agenda.after(self._until_begin(), self._begin)

    def _until_begin(self) -> float:
        world = self.world
        if world.dice.roll(Fault.LATE_BEGIN):
            return world.rng.random() * 0.3
        return world.rng.random() * 0.05 * world.pace.step_s

    def _waits_for_the_worst(self, plan: StepPlan) -> bool:
        """A client has left since its pass was planned: the worst moment to begin is when its pages have
        another owner, and that one runs already (G7).
        """
        world, core = self.world, self.core
        if not world.dice.rate(Fault.LATE_BEGIN) or not isinstance(core, DecodeCore):
            return False
        gone = [entry for entry in plan.entries if world.requests[entry.key.request].aborted is not None]
        if not gone or self.postponed > 15 or not (self.postponed or world.rng.random() < 0.8):
            self.postponed = 0
            return False
        pages = {page for entry in gone for page in entry.slice.table.pages}
        keys = {entry.key for entry in gone}
        running = [job for job in core._jobs.values() if job.state is State.RUNNING and job.key not in keys]
        owned = any(pages & set(job.lease.pins.pages.tolist()) for job in running if job.lease)
        if owned or (not self.postponed and not world.dice.strike(Fault.LATE_BEGIN)):
            self.postponed = 0
            return False
        self.postponed += 1
        return True

    def _begin(self) -> None:
        world, core = self.world, self.core
        if not self.alive or self.ahead is None or self.running is not None:
            return
        assert not isinstance(core, GatewayCore)
        if self._waits_for_the_worst(self.ahead):
            world.agenda.after(0.01 + 0.03 * world.rng.random(), self._begin)
            return
        ahead, self.ahead = self.ahead, None
        plan = world.guarded_step(self, core.begin_step, ahead)
        if plan is None:
            if world.processes[self.instance].alive:  # and not ended by what the core found
                self._plan()
            return
        self.running = plan
        if world.trace:
            entries = ", ".join(f"{e.key.request}/{e.key.attempt}@{e.slice.start}" for e in plan.entries)
            world.note(self.name, f"begins a pass over {entries}")
        if world.reads.straying:
            world.reads.stray(self, {page for entry in plan.entries for page in entry.slice.table.pages})
        length = world.rng.random() * world.pace.step_s
        if world.dice.roll(Fault.SLOW_STEP):
            length += 0.5 * world.rng.random()
        results = run_pass(world, self, plan)
        world.agenda.after(length, self._done, plan, results)
        self._plan()

    def _done(self, plan: StepPlan, results: list[SliceResult]) -> None:
        world, core = self.world, self.core
        if not self.alive or self.running is not plan:
            return
        self.running = None
        waits = self.ahead is not None
        for entry in plan.entries:
            world.touch_key(entry.key)
        if world.dice.roll(Fault.STEP_RAISES):
            match core:
                case DecodeCore():
                    self.carry_out(world.guarded(self, core.on_step_failed, self.now, plan, "simulated"))
                case PrefillCore():
                    self.carry_out(world.guarded(self, core.on_step_failed, plan, "simulated"))
                case _:
                    pass
        elif not isinstance(core, GatewayCore):
            self.carry_out(world.guarded(self, core.on_step_done, self.now, plan, results))
        if self.alive and waits:
            world.agenda.after(self._until_begin(), self._begin)
