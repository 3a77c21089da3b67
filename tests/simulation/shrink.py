"""From a seed that shows a violation to the smallest world that still shows it.

Requests, kinds of fault, single faults and features are left out one after the other, and what still shows
the same kind of violation is kept. Leaving something out shifts all later draws, so each smaller world is
tried with a few salts. Nothing else is random: a try is one run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.simulation.oracle import EVERY_KIND, Kind
from tests.simulation.setup import Setup
from tests.simulation.world import Report, simulate

TRIES = 2000
SALTS = 12  # a smaller world draws other numbers; some of them may still show it


@dataclass(slots=True)
class Shrinker:
    """Tries setups, as long as there are tries left."""

    judged: frozenset[Kind]
    kind: Kind
    tries: int = TRIES

    def shows(self, setup: Setup) -> Report | None:
        """The report, if this world still shows the violation."""
        if self.tries < 1:
            return None
        self.tries -= 1
        report = simulate(setup, judged=self.judged)
        return report if report.violation is not None and report.violation.kind is self.kind else None


def shrink(setup: Setup, judged: frozenset[Kind] = EVERY_KIND) -> Setup:
    """The smallest Setup found. ``setup`` must show a violation; the caller replaces guards."""
    first = simulate(setup, judged=judged)
    if first.violation is None:
        raise ValueError(f"seed {setup.seed} shows no violation")
    shrinker = Shrinker(judged, first.violation.kind)
    while True:
        smaller = _pass(setup, shrinker)
        if smaller is setup or shrinker.tries < 1:
            return smaller
        setup = smaller


def _pass(setup: Setup, shrinker: Shrinker) -> Setup:
    for step in (_fewer_requests, _fewer_kinds, _fewer_faults, _simpler):
        setup = _while_it_shows(setup, shrinker, step)
    return setup


def _while_it_shows(
    setup: Setup, shrinker: Shrinker, step: Callable[[Setup, Shrinker], Iterator[Setup]]
) -> Setup:
    progress = True
    while progress:
        progress = False
        candidates = list(step(setup, shrinker))
        for salt in range(SALTS):
            for candidate in candidates:
                salted = replace(candidate, salt=setup.salt + salt)
                if shrinker.shows(salted) is not None:
                    setup, progress = salted, True
                    break
            if progress:
                break
    return setup


def _fewer_requests(setup: Setup, shrinker: Shrinker) -> Iterator[Setup]:
    del shrinker
    for i in range(len(setup.asks)):
        yield replace(setup, asks=setup.asks[:i] + setup.asks[i + 1 :])


def _fewer_kinds(setup: Setup, shrinker: Shrinker) -> Iterator[Setup]:
    del shrinker
    for kind in setup.rates:
        yield replace(setup, rates={fault: rate for fault, rate in setup.rates.items() if fault is not kind})


def _fewer_faults(setup: Setup, shrinker: Shrinker) -> Iterator[Setup]:
    report = shrinker.shows(setup)
    for hit in report.fired if report is not None else ():
        if hit not in setup.suppress:
            yield replace(setup, suppress=setup.suppress | {hit})


def _simpler(setup: Setup, shrinker: Shrinker) -> Iterator[Setup]:
    del shrinker
    for i, ask in enumerate(setup.asks):
        plain = replace(
            ask,
            stop_after=None,
            stop_at=None,
            deadline_s=None,
            gone_after=None,
            gone_at_pass=None,
            reads_every_s=0.0,
        )
        shorter = replace(ask, max_tokens=1) if ask.max_tokens > 1 else ask
        for other in (plain, shorter):
            if other != ask:
                yield replace(setup, asks=(*setup.asks[:i], other, *setup.asks[i + 1 :]))
    if setup.codec:
        yield replace(setup, codec=False)
