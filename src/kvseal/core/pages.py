"""Who may use which page: generations, counts of holders, quarantine.

::

                 lease (generation + 1)
        FREE ──────────────────────────> HELD          held by ≥ 1 lease or running forward pass
          ^                                │ last holder lets go
          │   every pull is proven DONE    v
          └─────────────────────────── (unproven == 0 ?) ──no──> QUARANTINED   until DONE, or until this
          process ends (G4)

A page's state is never stored, it follows from two counters, so that no path can forget to set it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvseal.core import guards
from kvseal.core.errors import InvariantViolation
from kvseal.core.pulls import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Pins:
    """Distinct pages together with the generation in which they were leased: int64[n] and uint64[n]."""

    pages: NDArray[np.int64]
    generations: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.pages)

    def __getitem__(self, part: slice) -> "Pins":
        return Pins(self.pages[part], self.generations[part])

    def __add__(self, other: "Pins") -> "Pins":
        return Pins(
            np.concatenate((self.pages, other.pages)), np.concatenate((self.generations, other.generations))
        )


NO_PINS = Pins(np.empty(0, np.int64), np.empty(0, np.uint64))


@dataclass(frozen=True, slots=True)
class PoolCount:
    """Pages by state; the three sum up to the pool."""

    free: int
    held: int
    quarantined: int


class PagePool:
    """The book of one pool of ``pages`` pages. It knows no bytes.

    All operations are vectorised over pages. Leases come from the pages freed last, so that a lightly used
    pool stays small in memory.
    """

    def __init__(self, pages: int) -> None:
        if pages < 1:
            raise ValueError(f"a pool needs at least one page, not {pages}")
        self.size = pages
        self._generation = np.zeros(pages, np.uint64)
        self._holders = np.zeros(pages, np.int32)
        self._unproven = np.zeros(pages, np.int32)
        self._stack = np.arange(pages - 1, -1, -1, dtype=np.int64)  # free pages, the next one at the top
        self._free = pages  # height of the stack
        self._is_free = np.ones(pages, np.bool_)
        self._quarantined = 0

    def count(self) -> PoolCount:
        """Pages by state, in constant time."""
        return PoolCount(self._free, self.size - self._free - self._quarantined, self._quarantined)

    def lease(self, wanted: int) -> Pins | None:
        """Take ``wanted`` pages off the free list in a new generation, held once; None where there are not as
        many.

        The caller must have the pages overwritten (``guards.g8_poison``) before anything else happens to
        them.
        """
        if wanted < 1:
            raise ValueError(f"a lease needs at least one page, not {wanted}")
        if wanted > self._free:
            return None
        self._free -= wanted
        pages = self._stack[self._free : self._free + wanted][::-1].copy()
        self._is_free[pages] = False
        self._generation[pages] += np.uint64(1)
        self._holders[pages] = 1
        return Pins(pages, self._generation[pages])

    def is_current(self, pins: Pins) -> bool:
        """Are all pages of ``pins`` still leased, in the life that was pinned (G7)?

        A page that was given back keeps its generation until it is leased again, so the count of its holders
        is asked as well.
        """
        if (self._holders[pins.pages] < 1).any():
            return False
        return guards.g7_generation(pins.generations, self._generation[pins.pages])

    def holders(self, page: int) -> int:
        """How many leases, passes and trees hold this page."""
        return int(self._holders[page])

    def retain(self, pins: Pins) -> None:
        """Add a holder to each page. Raises InvariantViolation for pages of another life (G7)."""
        self._require_current(pins)
        self._holders[pins.pages] += 1

    def release(self, pins: Pins) -> None:
        """Remove a holder from each page; those without any become free, or quarantined until proven (G4)."""
        self._require_current(pins)
        self._holders[pins.pages] -= 1
        self._let_go(pins.pages[self._holders[pins.pages] == 0])

    def pull_posted(self, pins: Pins) -> None:
        """A transfer into these pages is about to be posted: from now on its end must be proven."""
        self._require_current(pins)
        self._unproven[pins.pages] += 1

    def pull_ended(self, pages: NDArray[np.int64], outcome: Outcome) -> None:
        """The transport stopped working on a pull into ``pages``. Anything but DONE leaves them unproven for
        good.
        """
        if not guards.g4_proves(outcome):
            return
        self._unproven[pages] -= 1
        waiting = pages[(self._holders[pages] == 0) & (self._unproven[pages] == 0) & ~self._is_free[pages]]
        self._quarantined -= len(waiting)
        self._push(waiting)

    def check(self) -> None:
        """Integrity of the whole book, for idle moments and tests: raises InvariantViolation."""
        free = self._stack[: self._free]
        held = int(np.count_nonzero(self._holders))
        if len(np.unique(free)) != self._free or np.any(self._holders[free]) or np.any(self._unproven[free]):
            raise InvariantViolation("a page on the free list is held, unproven or listed twice")
        if self._free + held + self._quarantined != self.size:
            raise InvariantViolation(
                f"{self._free} free + {held} held + {self._quarantined} quarantined pages are not {self.size}"
            )

    def _let_go(self, pages: NDArray[np.int64]) -> None:
        proven = guards.g4_proven(self._unproven[pages])
        self._push(pages[proven])
        self._quarantined += int(np.count_nonzero(~proven))

    def _push(self, pages: NDArray[np.int64]) -> None:
        self._stack[self._free : self._free + len(pages)] = pages[::-1]
        self._free += len(pages)
        self._is_free[pages] = True

    def _require_current(self, pins: Pins) -> None:
        if not self.is_current(pins):
            raise InvariantViolation("pages were used after they had been given back (G7)")
