"""The guards: one small function each. A reader's index, and the seam that ablation replaces.

Callers always write ``guards.g5_seal(...)`` and never import a guard by name, so that the lab's builds and
the simulator's ablation replace *this* function and not a copy of it. G3 and G11 stand here as the decision;
their mechanism is in the transports and in the wire.

=====  ======  ===========  ===========================================================
id     line    behind       what must hold
=====  ======  ===========  ===========================================================
G1     second  G2 G5 G6 G8  the advertised context fits every pool, after reserve
G2     second  G1 G5 G6 G8  a refusal is a value of its own type: no tokens, no lease,
                            no placeholder
G3     first                only the receiver writes its pool: decode pulls and exports
                            nothing
G4     first                landing pages stay out of use until their last transfer is
                            proven DONE
G5     first                a page is accepted by the id that is expected here and by
                            the digest of its own landed bytes
G6     first                attention reads exactly what is proven to be there
G7     first                every use of a page checks its pinned generation
G8     second  G6           freed pages are overwritten with NaN before they are leased
                            again
G9     first                pages are reused inside a tenant only
G10    first                one terminal answer; tokens in order, each once
G11    first                frames are typed and bounded, peers authenticate
G12    first                a failed check ends one request; the worker lives on
=====  ======  ===========  ===========================================================

A first line removed alone leads to a violation. A second line holds even with the guards removed that it
stands behind; removed together with them it leads to a violation. `make ablation` shows both. G3 is a first
line because a digest is taken once: what a peer writes into a decode pool after it, no seal can see.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kvseal.core.errors import CapacityMismatch, Code, ProtocolError
from kvseal.core.ids import AttemptKey, PageId, Seal, TenantId
from kvseal.core.messages import Hello, Rejected, Role
from kvseal.core.pulls import Outcome


@dataclass(frozen=True, slots=True)
class Guard:
    """One row of the table above; ``function`` is the name of the function in this module."""

    id: str
    function: str
    line: Literal["first", "second"]
    behind: tuple[str, ...] = ()


GUARDS = (
    Guard("G1", "g1_capacity", "second", ("G2", "G5", "G6", "G8")),
    Guard("G2", "g2_refusal", "second", ("G1", "G5", "G6", "G8")),
    Guard("G3", "g3_exports", "first"),
    Guard("G4", "g4_proven", "first"),
    Guard("G5", "g5_seal", "first"),
    Guard("G6", "g6_extent", "first"),
    Guard("G7", "g7_generation", "first"),
    Guard("G8", "g8_poison", "second", ("G6",)),
    Guard("G9", "g9_scope", "first"),
    Guard("G10", "g10_in_order", "first"),
    Guard("G11", "g11_frame", "first"),
    Guard("G12", "g12_contain", "first"),
)


@dataclass(frozen=True, slots=True)
class Admitted:
    """What was admitted. Work goes on with ``prompt`` from here and never with the message that asked for it.

    ``room_tokens`` are the slots of the KV cache that prompt and answer occupy at most.
    """

    prompt: tuple[int, ...]
    room_tokens: int


def g1_capacity(context: int, workers: Iterable[Hello]) -> None:
    """The advertised context must fit every pool, by what was allocated and after reserve (F04).

    Raises :class:`CapacityMismatch` that names both numbers and the option to change.
    """
    for hello in workers:
        if context > hello.usable_tokens:
            raise CapacityMismatch(
                f"the advertised context of {context} tokens does not fit the {hello.role} pool, which holds "
                f"{hello.usable_tokens} ({hello.pool_tokens} allocated, {hello.reserve_tokens} in reserve): "
                f"raise --{hello.role}-pool-tokens to at least {context + hello.reserve_tokens}, "
                f"or lower --max-context to {hello.usable_tokens} (or 'auto')"
            )


def g2_refusal(prompt: tuple[int, ...], max_tokens: int, context: int) -> Admitted | Rejected:
    """Admission, the same on the gateway, on decode and on prefill, which do not trust each other's check.

    ``context`` is what this process knows that it can hold, in tokens. Prompt and answer together must fit it
    (F01).
    """
    prompt_tokens = len(prompt)
    limit = f"This model's maximum context length is {context} tokens."
    if prompt_tokens < 1:
        return Rejected(code=Code.EMPTY_PROMPT, message="the prompt has no tokens")
    if prompt_tokens + min(max_tokens, 1) > context:
        return Rejected(
            code=Code.CONTEXT_LENGTH_EXCEEDED,
            message=f"{limit} However, your prompt has {prompt_tokens} tokens"
            + (", which leaves no room for an answer." if prompt_tokens == context else "."),
        )
    if prompt_tokens + max_tokens > context:
        return Rejected(
            code=Code.MAX_TOKENS_EXCEEDED,
            message=f"{limit} Your prompt has {prompt_tokens} tokens, which leaves {context - prompt_tokens} "
            f"for the answer, and you asked for {max_tokens}.",
        )
    return Admitted(prompt=prompt, room_tokens=prompt_tokens + max_tokens)


def g3_exports(role: Role) -> bool:
    """May a process of this role describe its pool to peers? Only prefill may, for reading."""
    return role == "prefill"


def g4_proven(unproven_pulls: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which pages may leave quarantine: those on which every pull ever posted is proven DONE (F05, F06,
    F15).
    """
    return np.equal(unproven_pulls, 0)


def g4_proves(outcome: Outcome) -> bool:
    """Only DONE proves. An error, a cancel or a timeout says nothing about bytes that still travel."""
    return outcome is Outcome.DONE


def g5_seal(expected: PageId, claimed: PageId, claimed_seal: Seal, landed_seal: Seal) -> bool:
    """Is the landed page the page that this prompt needs, byte for byte as prefill sealed it?

    ``expected`` comes from the prompt that decode was given itself; ``landed_seal`` is the digest of decode's
    own bytes, taken after DONE and seeded with ``expected``.
    """
    return claimed == expected and claimed_seal == landed_seal


def g6_extent(extent: int, start: int) -> bool:
    """May a slice start at ``start``? Exactly at the extent: nothing unproven is read, nothing is written
    twice.
    """
    return extent == start


def g7_generation(pinned: NDArray[np.uint64], current: NDArray[np.uint64]) -> bool:
    """Are all pages still in the life in which they were leased (F13)?"""
    return bool((pinned == current).all())


def g8_poison(pages: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pages, of those about to be leased, that must be overwritten with NaN first: all of them."""
    return pages


def g9_scope(tenant: TenantId) -> TenantId:
    """Whose pages a page key is derived for: the tenant's own (F25)."""
    return tenant


class Order(Enum):
    """Where tokens stand in the answer that they say they belong to."""

    NEXT = "next"
    STALE = "stale"
    GAP = "gap"


def g10_in_order(attempt: int, current_attempt: int, index: int, delivered: int) -> Order:
    """May tokens be delivered? No token is skipped, repeated or out of date (F08)."""
    if attempt < current_attempt or index < delivered:
        return Order.STALE
    return Order.NEXT if index == delivered else Order.GAP


def g11_frame(length: int, limit: int) -> None:
    """Raises :class:`ProtocolError` for a frame that is longer than its limit, before any of it is read
    (F24).
    """
    if length > limit:
        raise ProtocolError(f"a frame of {length} bytes is over the limit of {limit}")


def g12_contain(failed: AttemptKey, running: Sequence[AttemptKey]) -> tuple[AttemptKey, ...]:
    """Which of the running attempts a failed check of ``failed`` ends: that one, and no other (F22)."""
    return tuple(key for key in running if key == failed)


_OWN = {guard.id: globals()[guard.function] for guard in GUARDS}


def active() -> tuple[str, ...]:
    """The ids of the guards that are this module's own functions, and not replaced by a lab build."""
    return tuple(guard.id for guard in GUARDS if globals()[guard.function] is _OWN[guard.id])
