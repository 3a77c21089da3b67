"""A small stage for directed scenarios: a quiet world whose reads and messages do what a test says."""

from collections.abc import Callable

from tests.simulation.ledger import POISON
from tests.simulation.oracle import Request
from tests.simulation.process import Process
from tests.simulation.reads import Part, Reading, Reads
from tests.simulation.setup import PAGE_SIZE, Ask, Cluster, Setup, prompt_of
from tests.simulation.world import World

from kvseal.core.decode import DecodeCore
from kvseal.core.dispatch import GatewayCore
from kvseal.core.ids import RequestId
from kvseal.core.prefill import PrefillCore
from kvseal.core.pulls import Outcome


class Stage:
    """One gateway, and as many workers as the cluster says, up and connected, 0.2 virtual seconds in."""

    def __init__(self, cluster: Cluster | None = None, seed: int = 0) -> None:
        self.world = World(Setup(seed, cluster or Cluster(decode_pages=(12,), prefill_pages=(12,))))
        self.run(0.2)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.world.agenda.run_until(self.world.agenda.now + seconds)

    def ask(
        self, name: str, tokens: int, wanted: int = 2, *, tenant: str = "ann", family: int = 0
    ) -> Request:
        """Submit a prompt of so many tokens now."""
        self.world.clients.ask(Ask(name, 0.0, tenant, prompt_of(family, tokens), wanted))
        return self.world.requests[RequestId(name)]

    def answer(
        self, name: str, tokens: int, wanted: int = 2, *, tenant: str = "ann", family: int = 0
    ) -> Request:
        """The same, and wait for its end."""
        request = self.ask(name, tokens, wanted, tenant=tenant, family=family)
        for _ in range(400):
            if request.end is None:
                self.run(0.5)
        return request

    def leave(self, name: str) -> None:
        """The client goes away."""
        self.world.clients.leave(RequestId(name))

    def until(self, condition: Callable[[], bool], within_s: float, step_s: float = 0.001) -> float:
        """Let time pass until the condition holds; how long that took. Raises TimeoutError."""
        began = self.world.agenda.now
        while not condition():
            if self.world.agenda.now - began > within_s:
                raise TimeoutError(f"not within {within_s} virtual seconds")
            self.run(step_s)
        return self.world.agenda.now - began

    def reads_go(self, script: Callable[[Reads, Reading], None] | None) -> None:
        """How each read goes from now on; None: well."""
        self.world.reads.script = script

    @property
    def gateway(self) -> GatewayCore:
        process = self.world.gateways[0]
        assert process is not None
        assert isinstance(process.core, GatewayCore)
        return process.core

    def decode(self, slot: int = 0) -> DecodeCore:
        """The core of a decode worker."""
        core = self.worker("decode", slot).core
        assert isinstance(core, DecodeCore)
        return core

    def prefill(self, slot: int = 0) -> PrefillCore:
        """The core of a prefill worker."""
        core = self.worker("prefill", slot).core
        assert isinstance(core, PrefillCore)
        return core

    def worker(self, role: str, slot: int = 0) -> Process:
        """The process that fills this place now."""
        return self.world.workers[role, slot]

    def untouched(self, role: str, slot: int = 0) -> bool:
        """Has no byte of this worker's pool been written, but for poison?"""
        pool = self.worker(role, slot).pool
        assert pool is not None
        return all(set(page) <= {0} or bytes(page) == POISON * PAGE_SIZE for page in pool.bytes)


def well(reads: Reads, reading: Reading) -> None:
    """The read does what it should."""
    land_at(0.002, 0.004)(reads, reading)


def land_at(
    lands_s: float | None, ends_s: float | None, outcome: Outcome = Outcome.DONE
) -> Callable[[Reads, Reading], None]:
    """All bytes land after ``lands_s`` and the end is said after ``ends_s``; None: never."""

    def script(reads: Reads, reading: Reading) -> None:
        reading.outcome = outcome
        agenda = reads.world.agenda
        if lands_s is not None:
            agenda.after(lands_s, reads.land, reading, reading.parts)
        if ends_s is not None:
            agenda.after(ends_s, reads.end, reading)

    return script


def flipped(reads: Reads, reading: Reading) -> None:
    """One bit of the first page flips on the way."""
    first = reading.parts[0]
    reading.parts[0] = Part(first.src, first.dst, flip=5)
    well(reads, reading)


def once(first: Callable[[Reads, Reading], None]) -> Callable[[Reads, Reading], None]:
    """The first read goes like this, all later ones well."""
    left = [first]

    def script(reads: Reads, reading: Reading) -> None:
        (left.pop() if left else well)(reads, reading)

    return script
