"""A world: processes, wire, reads, clients, faults and time, from one Setup. Deterministic to the last byte.

::

    safety phase: faults ──heal──> what is delayed arrives ──> everybody has been answered
                                                                └──> probes, each must be answered rightly
                                                                        └──> idle: no page is lost
"""

from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from tests.simulation import mishaps
from tests.simulation.agenda import Agenda
from tests.simulation.clients import Clients
from tests.simulation.faults import Dice, Fault
from tests.simulation.ledger import Ledger, Pool
from tests.simulation.oracle import EVERY_KIND, Kind, Request, Violation
from tests.simulation.process import Process
from tests.simulation.reads import Reads
from tests.simulation.setup import PAGE_SIZE, Ask, Pace, Setup, prompt_of
from tests.simulation.trace import Trace
from tests.simulation.wire import Wire

from kvseal.core.decode import DecodeCore
from kvseal.core.dispatch import GatewayConfig, GatewayCore
from kvseal.core.effects import Effect
from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import AttemptKey, InstanceId, LayoutDigest, RequestId
from kvseal.core.job import DecodeConfig
from kvseal.core.messages import AnyMessage, Finished, Hello, Role
from kvseal.core.pages import Pins
from kvseal.core.prefill import PrefillConfig, PrefillCore

LAYOUT: Final = LayoutDigest(b"simulated layout")
SECRET: Final = b"a secret of thirty-two bytes....".ljust(32, b".")
PATIENCE_S: Final = 600.0  # virtual: all timeouts and retries together take less
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """What one run showed."""

    setup: Setup
    violation: Violation | None
    counts: Counter[str]
    events: int
    trace: Trace | None
    fired: tuple[tuple[Fault, int], ...]


class World:
    """See the module's text. Violations of a kind that is not ``judged`` are counted only (ablation): a core
    that raises, for example, then costs its process the life and no more.
    """

    def __init__(
        self, setup: Setup, trace: Trace | None = None, judged: frozenset[Kind] = EVERY_KIND
    ) -> None:
        self.setup = setup
        self.pace = setup.pace
        self.trace = trace
        self.judged = judged
        self.layout = LAYOUT
        self.counts: Counter[str] = Counter()
        self.agenda = Agenda()
        salt = setup.salt << 64
        self.rng = Random(setup.seed * 4 + 2 + salt)
        self.dice = Dice(Random(setup.seed * 4 + 3 + salt), setup.rates, setup.suppress)
        self.ledger = Ledger()
        self.wire = Wire(self)
        self.reads = Reads(self)
        self.clients = Clients(self)
        self.requests: dict[RequestId, Request] = {}
        self.processes: dict[InstanceId, Process] = {}
        self.gateways: list[Process | None] = []
        self.workers: dict[tuple[str, int], Process] = {}
        self.settled_s = 0.0
        self._lives = 0
        self._interval_s = 0.05
        self._ran = 0
        cluster = setup.cluster
        for slot in range(cluster.gateways):
            self.gateways.append(self.start("gateway", slot))
        for slot in range(len(cluster.prefill_pages)):
            self._join("prefill", slot)
        for slot in range(len(cluster.decode_pages)):
            self._join("decode", slot)
        self.agenda.after(self._interval_s, self._tick)

    # --- processes

    def start(self, role: Role, slot: int, pages: int = 0) -> Process:
        """A new life of a process: another instance id, an empty pool."""
        self._lives += 1
        cluster = self.setup.cluster
        instance = InstanceId(role[0].encode() + self._lives.to_bytes(15, "big"))
        if not pages and role != "gateway":
            pages = (cluster.decode_pages if role == "decode" else cluster.prefill_pages)[slot]
        hello = Hello(
            role=role,
            instance=instance,
            layout=LAYOUT,
            page_size=PAGE_SIZE,
            model_context=4096,
            pool_tokens=pages * PAGE_SIZE,
            reserve_tokens=min(cluster.reserve_pages, pages) * PAGE_SIZE,
        )
        core = self._core(role, hello, pages)
        pool = Pool(pages, PAGE_SIZE) if pages else None
        process = Process(self, f"{role}{slot}.{self._lives}", slot, hello, core, pool)
        self.processes[instance] = process
        if not isinstance(core, GatewayCore) and self.dice.rate(Fault.NO_PAGES):
            self._let_allocations_fail(core)
        return process

    def _core(self, role: Role, hello: Hello, pages: int) -> DecodeCore | PrefillCore | GatewayCore:
        c = self.setup.cluster
        if role == "gateway":
            waits = c.waits_for or (len(c.prefill_pages), len(c.decode_pages))
            return GatewayCore(GatewayConfig(c.context, *waits, resend_s=c.resend_s, max_open=c.max_open))
        if role == "prefill":
            prefill = PrefillConfig(
                LAYOUT,
                PAGE_SIZE,
                hello.usable_tokens,
                SECRET,
                chunk_tokens=c.chunk_tokens,
                max_waiting=c.max_waiting,
                peer_cap_pages=c.peer_cap_pages,
                hold_s=c.hold_s,
                prefix_reuse=c.reuse,
            )
            return PrefillCore(prefill, pages)
        decode = DecodeConfig(
            LAYOUT,
            PAGE_SIZE,
            hello.usable_tokens,
            SECRET,
            retries=c.retries,
            max_batch=c.max_batch,
            max_requests=c.max_requests,
            quarantine_bound_pages=c.quarantine_pages,
            prefill_timeout_s=c.prefill_timeout_s,
            queue_timeout_s=c.queue_timeout_s,
            resend_s=c.resend_s,
            prefix_reuse=c.reuse,
        )
        return DecodeCore(decode, pages)

    def _let_allocations_fail(self, core: DecodeCore | PrefillCore) -> None:
        lease = core.pool.lease

        def failing(wanted: int) -> Pins | None:
            return None if self.dice.roll(Fault.NO_PAGES) else lease(wanted)

        core.pool.lease = failing  # type: ignore[method-assign]

    def _join(self, role: Role, slot: int) -> None:
        process = self.start(role, slot)
        self.workers[role, slot] = process
        for gateway in self.gateways:
            if gateway is not None:
                self.agenda.after(
                    self.rng.random() * self.pace.connect_s, self.wire.connect, gateway, process
                )

    def crash(self, process: Process, why: str) -> None:
        """The process is gone from one moment to the next; its supervisor starts another one."""
        self.end_process(process, why)
        delay = self.rng.random() * self.pace.restart_s
        if process.role == "gateway":
            self.clients.gateway_lost(process)
            self.agenda.after(delay, self._restart_gateway, process.slot)
        elif self.workers.get((process.role, process.slot)) is process:
            self.agenda.after(delay, self._join, process.role, process.slot)

    def end_process(self, process: Process, why: str) -> None:
        """It does nothing any more; its peers will notice."""
        process.alive = False
        if self.trace:
            self.note(process.name, f"ENDS: {why}")
        for link in list(process.links.values()):
            self.wire.cut(link)

    def _restart_gateway(self, slot: int) -> None:
        gateway = self.gateways[slot] = self.start("gateway", slot)
        for worker in self.workers.values():
            delay = self.rng.random() * self.pace.connect_s
            self.agenda.after(delay, self.wire.connect, gateway, worker)

    # --- what the parts of the world tell each other

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        if self.trace is not None:
            self.trace.note(self.agenda.now, who, what)

    def count(self, name: str, amount: int = 1) -> None:
        """One more of something."""
        self.counts[name] += amount

    def touch(self, message: AnyMessage) -> None:
        """A message about a request is under way: a step in its life."""
        name = getattr(message, "request", None)
        if name is not None:
            self.clients.touched(name)

    def touch_key(self, key: AttemptKey | None) -> None:
        """Something else happened to this attempt."""
        if key is not None:
            self.clients.touched(key.request)

    def settles(self, time_s: float) -> None:
        """Something that was begun while there were faults goes on until then."""
        self.settled_s = max(self.settled_s, time_s)

    def guarded(self, process: Process, call: Callable[..., list[Effect]], *args: object) -> list[Effect]:
        """Call a core. One that raises has found itself in a state that must not be."""
        return self.guarded_step(process, call, *args) or []

    def guarded_step(self, process: Process, call: Callable[..., T], *args: object) -> T | None:
        """The same for calls that return something else."""
        if not process.alive:
            return None
        try:
            return call(*args)
        except (InvariantViolation, AssertionError, LookupError, ValueError, TypeError) as error:
            what = f"{process.name}: {type(error).__name__} {error} in {call.__name__}"
            self.found(Violation(Kind.CRASH, what), error)
            self.crash(process, what)
            return None

    def found(self, violation: Violation, cause: Exception | None = None) -> None:
        """A promise was broken. Ends the run, unless this kind is not judged here."""
        if violation.kind in self.judged:
            raise violation from cause
        self.count(f"violation {violation.kind.value}")

    def _tick(self) -> None:
        for process in list(self.processes.values()):
            if process.alive:
                process.on_tick()
        busy = self.agenda.ran > self._ran + 1
        self._interval_s = 0.1 if busy else min(self._interval_s * 2, 10.0)
        self._ran = self.agenda.ran
        self.agenda.after(self._interval_s, self._tick)

    # --- phases

    def run(self) -> None:
        """All phases. Raises Violation."""
        mishaps.plan(self, Random(self.setup.seed * 4))
        if self.dice.rate(Fault.BURST):
            self.dice.strike(Fault.BURST)
        for ask in self.setup.asks:
            self.agenda.at(0.2 + ask.at_s, self.clients.ask, ask)
        self.agenda.run_until(self.setup.heal_s)
        self.heal()
        self.agenda.run_until(max(self.settled_s, self.agenda.now) + 0.5)
        self.run_until_idle()
        probes = self._probe()
        self.run_until_idle()
        for request in probes:
            if not isinstance(request.end, Finished):
                self.found(
                    Violation(Kind.STUCK, f"after the faults {request.ask.name} ended as {request.end}")
                )
        self.check_pages()

    def heal(self) -> None:
        """No new faults; what was lost is found out, what was drained is replaced."""
        self.note("world", "no more faults from here on")
        self.dice.healed = True
        self.pace = Pace()
        self.reads.heal()
        for link in [link for link in self.wire.links if link.lossy]:
            self.wire.cut(link)
        for process in list(self.processes.values()):
            if process.alive and process.draining:
                self.crash(process, "drained")

    def run_until_idle(self) -> None:
        """Until nothing is left to do but to tick. Raises Violation where that takes too long."""
        until = self.agenda.now + (PATIENCE_S if Kind.STUCK in self.judged else PATIENCE_S / 20)
        self._interval_s = 0.05
        while len(self.agenda) > 1 or self.busy():
            if self.agenda.now > until:
                self.found(
                    Violation(Kind.STUCK, f"not idle after {PATIENCE_S:g} s: {', '.join(self.busy())}")
                )
                return
            self.agenda.run_until(self.agenda.now + max(0.2, self._interval_s))

    def busy(self) -> list[str]:
        """Who still has something to do, and what."""
        left = [f"{r.ask.name} waits for an answer" for r in self.clients.unanswered()]
        for process in self.processes.values():
            core = process.core
            if not process.alive:
                continue
            waits: dict[str, Sized]
            match core:
                case GatewayCore():
                    waits = {"open": core._open, "aborts": core._unacknowledged}
                case DecodeCore():
                    loader = core._loader
                    waits = {"jobs": core._jobs, "pulls": loader._pulls, "asked": loader._asked}
                case PrefillCore():
                    waits = {"jobs": core._jobs, "seals": core._seals}
            left += [f"{process.name} has {len(what)} {name}" for name, what in waits.items() if what]
        return left

    def _probe(self) -> list[Request]:
        """A request through each decode worker, where the cluster is whole.

        A worker that a gateway refused (G1: after a gateway's restart, workers of different sizes can meet it
        in an order in which a smaller one comes too late) is not started again, and what is left promises
        safety and one answer each, not room.
        """
        probes: list[Request] = []
        if not all(worker.alive for worker in self.workers.values()):
            return probes
        for slot, worker in enumerate(w for w in self.workers.values() if w.role == "decode"):
            sources = [w for w in self.workers.values() if w.role == "prefill" and w.alive]
            ask = Ask(f"probe{slot}", 0.0, "zoe", prompt_of(7 + slot, PAGE_SIZE + 2), 2)
            self.clients.ask(ask, worker.instance, sources[slot % len(sources)].instance)
            probes.append(self.requests[RequestId(ask.name)])
        return probes

    def check_pages(self) -> None:
        """Idle: every page is free, or in the prefix tree, or in a bounded quarantine (F06, F17)."""
        for process in self.processes.values():
            core = process.core
            if not process.alive or isinstance(core, GatewayCore):
                continue
            try:
                core.pool.check()
            except InvariantViolation as error:
                self.found(Violation(Kind.PAGES, f"{process.name}: {error}"), error)
            beat, bound = core.heartbeat(), self.setup.cluster.quarantine_pages
            if beat.leased_pages != beat.counters["cached_pages"]:
                self.found(
                    Violation(Kind.PAGES, f"{process.name} is idle and {beat.leased_pages} pages are leased")
                )
            if beat.quarantined_pages > bound:
                text = f"{process.name}: {beat.quarantined_pages} pages quarantined, the bound is {bound}"
                self.found(Violation(Kind.PAGES, text))


def simulate(setup: Setup, *, traced: bool = False, judged: frozenset[Kind] = EVERY_KIND) -> Report:
    """Run a Setup. Never raises for what it finds."""
    world = World(setup, Trace() if traced else None, judged)
    violation = None
    try:
        world.run()
    except Violation as found:
        violation = found
        world.note("oracle", f"VIOLATION {found}")
    world.counts.update({f"fault {fault.name}": hits for fault, hits in world.dice.hits.items()})
    fired = tuple(world.dice.fired)
    return Report(setup, violation, world.counts, world.agenda.ran, world.trace, fired)
