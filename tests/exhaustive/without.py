"""What stands in the place of a guard when it is removed: the answer of a system that never had the idea."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvseal.core.guards import Admitted, Order
from kvseal.core.ids import AttemptKey, PageId, Seal, TenantId
from kvseal.core.pulls import Outcome


def _all_proven(unproven_pulls: NDArray[np.int32]) -> NDArray[np.bool_]:
    return np.ones(len(unproven_pulls), np.bool_)


def _everything_proves(outcome: Outcome) -> bool:
    return True


def _any_page(expected: PageId, claimed: PageId, claimed_seal: Seal, landed_seal: Seal) -> bool:
    return True


def _anywhere(extent: int, start: int) -> bool:
    return True


def _any_generation(pinned: NDArray[np.uint64], current: NDArray[np.uint64]) -> bool:
    return True


def _nothing_to_poison(pages: NDArray[np.int64]) -> NDArray[np.int64]:
    return pages[:0]


def _everybody(tenant: TenantId) -> TenantId:
    return TenantId("everybody")


def _admit(prompt: tuple[int, ...], max_tokens: int, context: int) -> Admitted:
    return Admitted(prompt=prompt, room_tokens=len(prompt) + max_tokens)


def _next(attempt: int, current_attempt: int, index: int, delivered: int) -> Order:
    return Order.NEXT


def _all_fail(failed: AttemptKey, running: Sequence[AttemptKey]) -> tuple[AttemptKey, ...]:
    return tuple(running)


WITHOUT: Final[dict[str, dict[str, Callable[..., object]]]] = {
    "G2": {"g2_refusal": _admit},
    "G4": {"g4_proven": _all_proven, "g4_proves": _everything_proves},
    "G5": {"g5_seal": _any_page},
    "G6": {"g6_extent": _anywhere},
    "G7": {"g7_generation": _any_generation},
    "G8": {"g8_poison": _nothing_to_poison},
    "G9": {"g9_scope": _everybody},
    "G10": {"g10_in_order": _next},
    "G12": {"g12_contain": _all_fail},
}


def replacements(removed: tuple[str, ...]) -> dict[str, Callable[..., object]]:
    """The functions to put in the place of these guards."""
    return {name: function for guard in removed for name, function in WITHOUT[guard].items()}
