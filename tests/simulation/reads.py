"""One-sided reads: when and how their bytes land, and what is said about it.

A read takes the bytes that the source page holds at the moment it lands. The pool of a dead source stays
readable (a mapped memfd) or does not (a network). Only the reader's own pages are written; DONE is said
after the last byte, ERROR at any time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.faults import Fault
from tests.simulation.ledger import SLOT
from tests.simulation.setup import PAGE_SIZE

from kvseal.core.effects import Pull
from kvseal.core.ids import AttemptKey
from kvseal.core.pulls import Outcome

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

HALF = PAGE_SIZE * SLOT // 2


@dataclass(slots=True)
class Part:
    """Bytes ``first`` to ``last`` of a source page on their way to a landing page."""

    src: int
    dst: int
    first: int = 0
    last: int = PAGE_SIZE * SLOT
    flip: int = -1  # a bit


@dataclass(slots=True, eq=False)
class Reading:
    """One posted read, its parts that have not landed, and how it will end."""

    transfer: int
    reader: "Process"
    source: "Process"
    key: AttemptKey | None
    parts: list[Part]
    outcome: Outcome = Outcome.DONE
    stalled: list[Part] = field(default_factory=list)


def longest(rng: Random) -> float:
    """A delay of 10 ms to 60 s, each order of magnitude as often as the others (F05)."""
    return 0.01 * float(6000.0 ** rng.random())


Script = Callable[["Reads", Reading], None]  # directed scenarios say how the next read goes


class Reads:
    """The transport of a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.posted = 0
        self.pages = 0
        self.stalled: list[Reading] = []
        self.straying: list[tuple[Reading, Part]] = []  # what may still land at any moment
        self.script: Script | None = None

    def post(self, reader: "Process", pull: Pull, key: AttemptKey | None) -> None:
        """Begin a read, or refuse it."""
        world = self.world
        source = world.processes[pull.source]
        if world.dice.roll(Fault.REFUSED):
            world.agenda.after(0.0, self._refuse, reader, pull.transfer)
            return
        pairs = zip(pull.src.tolist(), pull.dst.tolist(), strict=True)
        reading = Reading(pull.transfer, reader, source, key, [Part(src, dst) for src, dst in pairs])
        self.posted += 1
        self.pages += len(reading.parts)
        if world.trace:
            pages = ", ".join(f"{part.src}>{part.dst}" for part in reading.parts)
            world.note(reader.name, f"pull {pull.transfer} from {source.name}: {pages}")
        if self.script is not None:
            self.script(self, reading)
            return
        self._corrupt(reading)
        self._plan(reading)

    def land(self, reading: Reading, parts: list[Part]) -> None:
        """Bytes arrive in the reader's pool, if the reader still lives."""
        reader, source = reading.reader.pool, reading.source.pool
        if not reading.reader.alive or reader is None or source is None:
            return
        if self.world.trace:
            self.world.note(reading.reader.name, f"lands {reading.transfer}: {[part.dst for part in parts]}")
        for part in parts:
            first, last = part.first, part.last
            reader.bytes[part.dst][first:last] = source.bytes[part.src][first:last]
            if part.flip >= 0:
                reader.flip(part.dst, part.flip)

    def stray(self, reader: "Process", pages: set[int]) -> None:
        """A pass is about to read these pages: the worst moment for bytes that are still on their way."""
        for reading, part in self.straying:
            if reading.reader is reader and part.dst in pages and self.world.rng.random() < 0.5:
                self._land_stray(reading, part)

    def _land_stray(self, reading: Reading, part: Part) -> None:
        before = len(self.straying)
        self.straying = [(r, p) for r, p in self.straying if p is not part]
        if len(self.straying) < before:  # only once
            self.land(reading, [part])

    def _land_all(self, reading: Reading, parts: list[Part]) -> None:
        self.straying = [(r, p) for r, p in self.straying if r is not reading]
        self.land(reading, parts)

    def end(self, reading: Reading) -> None:
        """The transport says that it no longer works on this read."""
        reader = reading.reader
        if reading.outcome is Outcome.DONE:  # said after the last byte
            self.straying = [(r, p) for r, p in self.straying if r is not reading]
        if not reader.alive:
            return
        if self.world.trace:
            self.world.note(reader.name, f"pull {reading.transfer} ends {reading.outcome.name}")
        self.world.touch_key(reading.key)
        reader.on_pull_ended(reading.transfer, reading.outcome)

    def heal(self) -> None:
        """What was stalled lands and ends after all."""
        for reading in self.stalled:
            self.world.agenda.after(0.01, self.land, reading, reading.stalled)
            self.world.agenda.after(0.02, self.end, reading)
        self.stalled = []

    def _refuse(self, reader: "Process", transfer: int) -> None:
        if reader.alive:
            reader.on_pull_refused(transfer)

    def _corrupt(self, reading: Reading) -> None:
        roll, rng, parts = self.world.dice.roll, self.world.rng, reading.parts
        if len(parts) > 1 and roll(Fault.MISPLACED):
            i, j = rng.sample(range(len(parts)), 2)
            parts[i].dst, parts[j].dst = parts[j].dst, parts[i].dst
        if roll(Fault.WRONG_PAGE) and reading.source.pool is not None:
            rng.choice(parts).src = rng.randrange(len(reading.source.pool))
        if roll(Fault.TORN):
            part = rng.choice(parts)
            if rng.random() < 0.5:
                part.first = HALF
            else:
                part.last = HALF
        if roll(Fault.FLIP):
            rng.choice(parts).flip = rng.randrange(8 * PAGE_SIZE * SLOT)
        if roll(Fault.MISSING):
            parts.remove(rng.choice(parts))

    def _plan(self, reading: Reading) -> None:
        world, rng, roll, parts = self.world, self.world.rng, self.world.dice.roll, reading.parts
        agenda, pace = world.agenda, world.pace.read_s
        lands = rng.random() * pace
        ends = lands + rng.random() * pace
        if roll(Fault.LATE):
            lands = longest(rng)
            ends = lands + longest(rng) * rng.random() ** 4
            world.settles(agenda.now + ends)
            self.straying += [(reading, part) for part in parts]
        if not reading.source.alive and rng.random() < 0.5:
            reading.outcome = Outcome.ERROR
        if roll(Fault.STALLED):
            kept = rng.randint(0, len(parts))
            reading.stalled = parts[kept:]
            agenda.after(lands, self.land, reading, parts[:kept])
            self.stalled.append(reading)
        elif roll(Fault.AFTER_ERROR):
            reading.outcome = Outcome.ERROR
            agenda.after(ends, self.end, reading)
            for part in parts:
                late = ends + longest(rng)
                world.settles(agenda.now + late)
                self.straying.append((reading, part))
                agenda.after(late, self._land_stray, reading, part)
        elif roll(Fault.FAILED):
            reading.outcome = Outcome.ERROR
            agenda.after(lands, self.land, reading, parts[: rng.randint(0, len(parts))])
            agenda.after(ends, self.end, reading)
        elif len(parts) > 1 and roll(Fault.SCATTERED):
            for part in parts:
                at = rng.random() * 4 * pace
                ends = max(ends, at)
                agenda.after(at, self.land, reading, [part])
            agenda.after(ends, self.end, reading)
        else:
            agenda.after(lands, self._land_all, reading, parts)
            agenda.after(ends, self.end, reading)
