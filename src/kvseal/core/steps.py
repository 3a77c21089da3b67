"""What both workers do alike around a forward pass: begin it, and say how full they are."""

from collections.abc import Iterable
from typing import TypeVar

from kvseal.core.counters import Counters
from kvseal.core.effects import StepEntry, StepPlan
from kvseal.core.messages import Heartbeat
from kvseal.core.pages import PagePool
from kvseal.core.requests import State

J = TypeVar("J")


def begin_step(
    plan: StepPlan, pool: PagePool, planned: dict[StepEntry, J], counters: Counters
) -> StepPlan | None:
    """Check the generations of the whole batch, now that it really runs (G7), and hold its pages while it
    does.

    Entries whose pages were given back since planning are dropped, also from ``planned``: their attempts have
    ended, and nobody waits for them. None where nothing is left.
    """
    current = []
    for entry in plan.entries:
        if pool.is_current(entry.pins):
            pool.retain(entry.pins)
            current.append(entry)
            continue
        counters.add("guard_g7")
        del planned[entry]
    return StepPlan(plan.step, tuple(current)) if current else None


def heartbeat(pool: PagePool, states: Iterable[State], counters: Counters, cached_pages: int) -> Heartbeat:
    """How full a worker is: ``states`` are those of its jobs, ``cached_pages`` what its prefix tree holds."""
    count = pool.count()
    waits = [state is State.WAITING for state in states]
    waiting = sum(waits)
    return Heartbeat(
        free_pages=count.free,
        leased_pages=count.held,
        quarantined_pages=count.quarantined,
        running=len(waits) - waiting,
        waiting=waiting,
        counters=counters.snapshot() | {"cached_pages": cached_pages},
    )
