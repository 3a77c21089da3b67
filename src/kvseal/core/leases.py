"""The only right to touch pages, and the only way to a block table (G6).

::

    Lease ──prove(...)──> extent grows ──readable(start)──> Readable ──block_table(length)──> BlockTable ──>
    forward pass

A lease says whose pages they are and how many tokens of them are proven to be there. A ``Readable`` exists
only for a start that is exactly the extent, and a ``BlockTable`` can be made from nothing else.
"""

from dataclasses import dataclass, field

from kvseal.core import guards
from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import AttemptKey, TenantId
from kvseal.core.pages import Pins


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The pages of one sequence in order, for one forward pass. Only :meth:`Readable.block_table` makes
    one.
    """

    pages: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Lease:
    """The pages of one attempt: the ``i``-th page holds positions ``i * page_size`` to ``(i + 1) * page_size
    - 1``.

    ``shared`` is the number of leading pages that others may hold too (a prefix of the same tenant): they are
    never written, and like all others they count for nothing until they are proven.
    """

    key: AttemptKey
    tenant: TenantId
    pins: Pins
    page_size: int
    shared: int = 0
    extent: int = 0
    _proven: set[int] = field(default_factory=set)

    @property
    def room_tokens(self) -> int:
        """Slots of the leased pages."""
        return len(self.pins) * self.page_size

    def prove(self, ordinal: int, upto: int) -> None:
        """Page ``ordinal`` holds what it must. The extent grows over pages without a gap, to ``upto`` tokens
        at most.
        """
        if not 0 <= ordinal < len(self.pins) or ordinal in self._proven:
            raise InvariantViolation(f"page {ordinal} of {len(self.pins)} was proven twice or does not exist")
        self._proven.add(ordinal)
        whole = self.extent // self.page_size
        while whole in self._proven:
            whole += 1
        self.extent = max(self.extent, min(whole * self.page_size, upto))

    def is_proven(self, ordinal: int) -> bool:
        """Was this page proven already?"""
        return ordinal in self._proven

    def append(self, start: int, count: int) -> None:
        """A forward pass wrote ``count`` tokens at ``start``; writes are append-only (G6)."""
        self.extent = start + count

    def readable(self, start: int) -> "Readable | None":
        """The right to read everything before ``start`` and to write from there; None while it is not exactly
        proven (G6).
        """
        return Readable(self, start) if guards.g6_extent(self.extent, start) else None


@dataclass(frozen=True, slots=True, eq=False)
class Readable:
    """A lease whose extent was found to be ``start``. Made by :meth:`Lease.readable` only."""

    lease: Lease
    start: int

    def block_table(self, length: int) -> tuple[BlockTable, Pins, tuple[int, ...]]:
        """For a pass that writes ``length`` tokens from ``start``: the table, its pins, and the pages it
        writes first.

        Raises InvariantViolation where the lease has no room for them, or where a shared page would be
        written.
        """
        size = self.lease.page_size
        end = self.start + length
        if not length > 0 or end > self.lease.room_tokens:
            raise InvariantViolation(
                f"a pass to position {end} does not fit a lease of {self.lease.room_tokens} slots"
            )
        if self.start < self.lease.shared * size:
            raise InvariantViolation(f"position {self.start} lies in a shared page")
        used = -(-end // size)
        pins = self.lease.pins[:used]
        table = BlockTable(tuple(pins.pages.tolist()))
        return table, pins, table.pages[-(-self.start // size) :]
