"""Many seeds over several processes: ``python -m tests.simulation --seeds 50000``.

Each process takes a batch of seeds at a time and gives counts back; a violation ends the whole run and is
replayed with its trace, and shrunk.
"""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module

from tests.simulation.coverage import counting_transitions
from tests.simulation.oracle import EVERY_KIND, Kind
from tests.simulation.setup import Setup
from tests.simulation.world import simulate

from kvseal.lab.ablation import remove, restore

BATCH = 50


@dataclass(frozen=True, slots=True)
class Batch:
    """Seeds ``first`` to ``first + count - 1`` of a source ("module:function"), without these guards."""

    first: int
    count: int
    source: str = "tests.simulation.setup:from_seed"
    removed: tuple[str, ...] = ()
    judged: frozenset[Kind] = EVERY_KIND
    stop: bool = True  # at the first violation


@dataclass(slots=True)
class Findings:
    """What a batch showed: counts, and each violation as (seed, kind, text)."""

    seeds: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, Kind, str]] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        """Take in another batch's."""
        self.seeds += other.seeds
        self.events += other.events
        self.counts.update(other.counts)
        self.violations += other.violations


def source_of(name: str) -> Callable[[int], Setup]:
    """The function that makes a Setup of a seed."""
    module, _, function = name.partition(":")
    found: Callable[[int], Setup] = getattr(import_module(module), function)
    return found


def run_batch(batch: Batch) -> Findings:
    """Run the seeds of a batch in this process."""
    make, findings = source_of(batch.source), Findings()
    restore()
    remove(*batch.removed)
    try:
        with counting_transitions(findings.counts):
            for seed in range(batch.first, batch.first + batch.count):
                report = simulate(make(seed), judged=batch.judged)
                findings.seeds += 1
                findings.events += report.events
                findings.counts.update(report.counts)
                found = report.violation
                if found is not None:
                    findings.violations.append((seed, found.kind, found.text))
                    if batch.stop:
                        break
    finally:
        restore()
    return findings


def run_batches(batches: list[Batch], workers: int) -> Iterator[Findings]:
    """Run batches over processes, in order, so that what is found first is the same each time."""
    if workers < 2:
        yield from map(run_batch, batches)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(workers, _ignore_interrupts) as pool:
        yield from pool.imap(run_batch, batches)


def cut(first: int, count: int, **rest: object) -> list[Batch]:
    """Seeds as batches."""
    last = first + count
    return [
        Batch(start, min(BATCH, last - start), **rest)  # type: ignore[arg-type]
        for start in range(first, last, BATCH)
    ]


def cores() -> int:
    """How many processes to use."""
    return len(os.sched_getaffinity(0))


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool
