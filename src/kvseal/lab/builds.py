"""Faulty builds of the workers and the gateway, put together from named faults.

A fault is a string in a process's settings, which only the modules of the lab accept:

``placeholder``        the engine fault of 2026: a prompt that does not fit prefill's pool becomes a one-token
                       placeholder whose page is sent, and decode starts with all the pages that it reserved
``without:G5``         the guard lets everything pass
``transport:{…}``      a :class:`kvseal.transport.Schedule` as JSON: what goes wrong with which read
"""

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from kvseal.core import guards
from kvseal.core.errors import Code
from kvseal.core.guards import Admitted
from kvseal.core.ids import PageId, Seal
from kvseal.core.messages import Rejected
from kvseal.process import SettingsUnreadable
from kvseal.transport import FaultyTransport, Schedule, Transport
from kvseal.workers.process import Wakeup, Wrap, plain

PLACEHOLDER_TOKEN = 0


def replace(guard_id: str, function: Callable[..., object]) -> None:
    """Put ``function`` in the guard's place, for the life of this process."""
    guard = next(guard for guard in guards.GUARDS if guard.id == guard_id)
    setattr(guards, guard.function, function)


def no_capacity_check(_context: int, _workers: object) -> None:
    """G1 as it was: the mismatch was known, and the engine was trusted to refuse what does not fit."""


def placeholder(
    original: Callable[[tuple[int, ...], int, int], Admitted | Rejected],
) -> Callable[[tuple[int, ...], int, int], Admitted | Rejected]:
    """G2 as it was: the refusal is data, the prompt is swapped for one token, and the request travels on."""

    def admit(prompt: tuple[int, ...], max_tokens: int, context: int) -> Admitted | Rejected:
        admitted = original(prompt, max_tokens, context)
        if isinstance(admitted, Rejected) and admitted.code is Code.CONTEXT_LENGTH_EXCEEDED:
            return Admitted(prompt=(PLACEHOLDER_TOKEN,), room_tokens=1)
        return admitted

    return admit


def any_seal(_expected: PageId, _claimed: PageId, _claimed_seal: Seal, _landed_seal: Seal) -> bool:
    """G5 as it was: nothing is compared."""
    return True


def something_arrived(extent: int, start: int) -> bool:
    """G6 as it was: the transfer reported success, and nobody counts pages."""
    return extent > 0 or start == 0


def no_poison(pages: NDArray[np.int64]) -> NDArray[np.int64]:
    """G8 as it was: pages are overwritten by their next use only."""
    return pages[:0]


def build_worker(faults: tuple[str, ...]) -> Wrap:
    """Put the faults in. Raises SettingsUnreadable for one that is not known."""
    wrap: Wrap = plain
    for fault in faults:
        kind, _, detail = fault.partition(":")
        match kind:
            case "placeholder":
                replace("G2", placeholder(guards.g2_refusal))
                replace("G5", any_seal)
                replace("G6", something_arrived)
                replace("G8", no_poison)
            case "without":
                _without(detail)
            case "transport":
                wrap = _scheduled(msgspec.json.decode(detail, type=Schedule))
            case _:
                raise SettingsUnreadable(f"no fault is called {fault!r}")
    return wrap


def build_gateway(faults: tuple[str, ...]) -> None:
    """The gateway's part: it advertises what it was told to."""
    for fault in faults:
        if fault != "placeholder":
            raise SettingsUnreadable(f"no fault of a gateway is called {fault!r}")
        replace("G1", no_capacity_check)


def _without(guard_id: str) -> None:
    passing: dict[str, Callable[..., object]] = {
        "G1": no_capacity_check,
        "G5": any_seal,
        "G6": something_arrived,
        "G8": no_poison,
    }
    if guard_id not in passing:
        raise SettingsUnreadable(
            f"no lab build without {guard_id!r}; there is one without {', '.join(passing)}"
        )
    replace(guard_id, passing[guard_id])


def _scheduled(schedule: Schedule) -> Wrap:
    def wrap(make: Callable[[Wakeup], Transport], wakeup: Wakeup) -> Transport:
        return FaultyTransport(make, wakeup, schedule)

    return wrap
