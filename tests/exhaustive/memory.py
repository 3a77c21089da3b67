"""Pages whose every slot says whose token it holds: provenance instead of numbers.

A slot is ``POISON`` (NaN), ``CLEARED`` (zeroed by the owner's first write), or a :class:`Slot`. A page
is a tuple of slots, so that states can share it and a copy of a pool costs nothing but a list.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from kvseal.core.ids import PageId, Seal, TenantId
from kvseal.core.seals import seal_of


class Slot(NamedTuple):
    """K/V of the last of ``tokens``, written by a pass of ``tenant`` that read exactly the K/V before it.

    ``clean`` is False where the pass read anything else: what depends on a foreign byte is foreign itself.
    """

    tenant: TenantId
    tokens: tuple[int, ...]
    clean: bool = True


class Filler(NamedTuple):
    """What no token left behind."""

    name: str


Cell = Slot | Filler
Page = tuple[Cell, ...]

POISON: Final = Filler("NaN")
CLEARED: Final = Filler("zero")
SLOT_BYTES: Final = 8


def _slot_bytes(cell: Cell) -> bytes:
    """Equal K/V for equal tokens, whoever wrote them: two tenants' equal prompts leave equal bytes (G9)."""
    match cell:
        case Slot(_, tokens, clean):
            return blake2b(repr((tokens, clean)).encode(), digest_size=SLOT_BYTES).digest()
        case Filler(name):
            return (b"\xff" if name == "NaN" else b"\0") * SLOT_BYTES


class Sealer:
    """Takes real seals over the bytes that pages stand for, and remembers what it sealed. Worlds share it."""

    def __init__(self, tokens_of: dict[PageId, tuple[TenantId, int]]) -> None:
        self.tokens_of = tokens_of.get  # (tenant, tokens up to the page's end) of every id that is expected
        self._seals: dict[tuple[Page, PageId], Seal] = {}
        self._pages: dict[Seal, Page] = {}

    def seal(self, page: Page, identity: PageId) -> Seal:
        """``seal_of`` over the page's bytes."""
        seal = self._seals.get((page, identity))
        if seal is None:
            content = b"".join(map(_slot_bytes, page))
            seal = self._seals[page, identity] = seal_of(np.frombuffer(content, np.uint8), identity)
            self._pages[seal] = page
        return seal

    def page_of(self, seal: Seal) -> Page | None:
        """What was sealed so."""
        return self._pages.get(seal)


class Reading(NamedTuple):
    """What a pass found before its first position."""

    clean: bool  # all of it is what the sequence itself left behind
    finite: bool  # none of it is NaN


def read(pages: list[Page], table: tuple[int, ...], tenant: TenantId, tokens: tuple[int, ...]) -> Reading:
    """Read the slots of all ``tokens`` through a block table, as attention does."""
    clean = finite = True
    for position in range(len(tokens)):
        cell = pages[table[position // len(pages[0])]][position % len(pages[0])]
        if cell == POISON:
            finite = clean = False
        elif cell != Slot(tenant, tokens[: position + 1]):
            clean = False
    return Reading(clean, finite)


def write(pages: list[Page], page: int, offset: int, cell: Cell) -> None:
    """Replace one slot."""
    old = pages[page]
    pages[page] = (*old[:offset], cell, *old[offset + 1 :])
