"""What the system is without a guard: each function of :mod:`kvseal.core.guards`, and what stands in for it.

A registry, never a production switch: :func:`without` replaces the very functions that the server and the
simulator call through ``guards.…`` and puts them back. Where a guard was missing in the field, the stand-in
does what was done there, because that is what the guard must hold against::

    with without("G5", "G6"):
        ...
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvseal.core import guards
from kvseal.core.guards import Admitted, Order
from kvseal.core.ids import AttemptKey, TenantId
from kvseal.core.messages import Rejected

PLACEHOLDER = (0,)  # what the engine of the incident put in the place of a prompt that it had refused
_OWN: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: value for name, value in vars(guards).items() if name[0] == "g" and name[1:2].isdigit()}
)


@dataclass(frozen=True, slots=True)
class Removal:
    """A way to be without a guard: ``id`` is the guard's, or the guard's and a variant's ("G4:outcome")."""

    id: str
    what: str
    functions: Mapping[str, Callable[..., Any]]
    alone: bool = True  # leads to a violation by itself or in its guard's story; if not, it is a part of one

    @property
    def guard(self) -> str:
        """The guard that is removed, at least in part."""
        return self.id.partition(":")[0]


def _no_capacity_check(context: int, workers: object) -> None:
    del context, workers


def _refusal_as_data(prompt: tuple[int, ...], max_tokens: int, context: int) -> Admitted | Rejected:
    own: Admitted | Rejected = _OWN["g2_refusal"](prompt, max_tokens, context)
    if isinstance(own, Admitted) or not prompt:
        return own
    if max_tokens:  # gateway and decode: everything passes
        return Admitted(prompt, len(prompt) + max_tokens)
    return Admitted(PLACEHOLDER, len(PLACEHOLDER))  # prefill: rejected, and yet it goes on (F01)


def _export_all(role: str) -> bool:
    del role
    return True


def _all_proven(unproven_pulls: NDArray[np.int32]) -> NDArray[np.bool_]:
    return np.ones(len(unproven_pulls), np.bool_)


def _any_outcome(outcome: object) -> bool:
    del outcome
    return True


def _any_page(*_: object) -> bool:
    return True


def _any_extent(extent: int, start: int) -> bool:
    del extent, start
    return True


def _something_arrived(extent: int, start: int) -> bool:
    return extent > 0 or start == 0


def _any_generation(pinned: object, current: object) -> bool:
    del pinned, current
    return True


def _no_poison(pages: NDArray[np.int64]) -> NDArray[np.int64]:
    return pages[:0]


def _one_scope(tenant: TenantId) -> TenantId:
    del tenant
    return TenantId("everybody")


def _always_next(attempt: int, current_attempt: int, index: int, delivered: int) -> Order:
    del attempt, current_attempt, index, delivered
    return Order.NEXT


def _any_frame(length: int, limit: int) -> None:
    del length, limit


def _end_all(failed: AttemptKey, running: Sequence[AttemptKey]) -> tuple[AttemptKey, ...]:
    del failed
    return tuple(running)


REMOVALS: tuple[Removal, ...] = (
    Removal("G1", "a worker joins whatever it holds", {"g1_capacity": _no_capacity_check}),
    Removal("G2", "a refused prompt goes on as a placeholder of one token", {"g2_refusal": _refusal_as_data}),
    Removal("G3", "decode exports its pool too", {"g3_exports": _export_all}),
    Removal(
        "G4",
        "pages return at once, whatever is in flight",
        {"g4_proven": _all_proven, "g4_proves": _any_outcome},
    ),
    Removal("G4:flight", "pages return while a pull is in flight", {"g4_proven": _all_proven}),
    Removal("G4:outcome", "an error counts as a proof", {"g4_proves": _any_outcome}),
    Removal("G5", "every landed page is accepted", {"g5_seal": _any_page}),
    Removal("G6", "something arrived, so everything did", {"g6_extent": _something_arrived}),
    # Alone this fails closed: each pass begins before anything has come, and reads NaN (G8).
    Removal("G6:all", "attention reads whatever is leased", {"g6_extent": _any_extent}, alone=False),
    Removal("G7", "a page is used without asking whose it is now", {"g7_generation": _any_generation}),
    Removal("G8", "pages are leased as they were left", {"g8_poison": _no_poison}),
    Removal("G9", "one scope for all tenants", {"g9_scope": _one_scope}),
    Removal("G10", "tokens are delivered as they come", {"g10_in_order": _always_next}),
    Removal("G11", "frames of any length are read", {"g11_frame": _any_frame}),
    Removal("G12", "one failed check ends all requests", {"g12_contain": _end_all}),
)
_BY_ID: Mapping[str, Removal] = MappingProxyType({removal.id: removal for removal in REMOVALS})


def removal(identity: str) -> Removal:
    """The removal of this id. Raises KeyError, which names those that exist."""
    if identity not in _BY_ID:
        raise KeyError(f"no way to be without '{identity}'; there are {', '.join(_BY_ID)}")
    return _BY_ID[identity]


def remove(*identities: str) -> None:
    """Replace guards for the rest of this process's life: what a lab build does at its start."""
    for identity in identities:
        for name, stand_in in removal(identity).functions.items():
            setattr(guards, name, stand_in)


def restore() -> None:
    """All guards are the module's own again."""
    for name, own in _OWN.items():
        setattr(guards, name, own)


@contextmanager
def without(*identities: str) -> Iterator[None]:
    """The guards of these ids are replaced inside of the block. Blocks do not nest."""
    if any(getattr(guards, name) is not own for name, own in _OWN.items()):
        raise RuntimeError("guards are replaced already")
    try:
        remove(*identities)
        yield
    finally:
        restore()
