"""Pages that a tenant may find again: full, sealed, named by page id (G9).

Page ids are chained and keyed by tenant, so a flat map from id to page *is* the prefix tree: a prompt's
cached prefix is the longest run of its ids that the map knows, and no id of one tenant can be an id of
another. Partial pages never enter.

The tree is one holder of each of its pages. Evicting takes the pages used least recently that nobody else
holds. A look-up touches the deepest page first and the first page last, so a parent is always younger than
its children and goes after them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvseal.core.ids import PageId, Seal
from kvseal.core.pages import NO_PINS, PagePool, Pins


@dataclass(frozen=True, slots=True)
class Cached:
    """A page of the tree: where it lies, in which life, and the seal it must still have when it is reused."""

    page: int
    generation: int
    seal: Seal


def pins_of(cached: Sequence[Cached]) -> Pins:
    """The pins of these pages, in order."""
    if not cached:
        return NO_PINS
    return Pins(
        np.array([c.page for c in cached], np.int64), np.array([c.generation for c in cached], np.uint64)
    )


class PrefixTree:
    """See the module's text. ``pool`` is the book of the pages that the tree holds."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._known: OrderedDict[PageId, Cached] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._known)

    def find(self, ids: Sequence[PageId]) -> list[Cached]:
        """The longest cached run of ``ids`` from the first on. The caller retains the pages it goes on to
        use.
        """
        found: list[Cached] = []
        for identity in ids:
            cached = self._known.get(identity)
            if cached is None:
                break
            found.append(cached)
        for identity in reversed(ids[: len(found)]):
            self._known.move_to_end(identity)
        return found

    def add(self, identity: PageId, pin: Pins, seal: Seal) -> None:
        """Hold a full page under its id. A second page of the same content is not taken in."""
        if identity in self._known:
            return
        self._pool.retain(pin)
        self._known[identity] = Cached(int(pin.pages[0]), int(pin.generations[0]), seal)

    def drop(self, identity: PageId) -> None:
        """Forget a page, for example because its seal no longer fits. Its other holders keep it."""
        cached = self._known.pop(identity, None)
        if cached is not None:
            self._pool.release(pins_of([cached]))

    def evict(self, wanted_free: int) -> bool:
        """Make at least ``wanted_free`` pages of the pool free. False if that cannot be had; leased pages are
        never touched.
        """
        short = wanted_free - self._pool.count().free
        if short <= 0:
            return True
        victims = []
        for identity, cached in self._known.items():
            if self._pool.holders(cached.page) == 1:
                victims.append(identity)
                if len(victims) == short:
                    break
        if len(victims) < short:
            return False
        for identity in victims:
            self.drop(identity)
        return self._pool.count().free >= wanted_free
