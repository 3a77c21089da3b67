"""Where every byte comes from.

::

    trie     root(tenant, layout) ──token──> node ──token──> node ...      a node *is* a scope, a layout and a
                                                                           token prefix, and so a position
    slot     8 bytes that occur nowhere else ──> Written(node, writer, cause)

The KV of one token is one slot. Its bytes are a number that was never used before, so that a slot which is
torn, flipped or cleared is in no book, and one that is stale, foreign or misplaced is booked under another
node. ``cause`` is not empty where the pass that wrote it had itself read bytes that were not its own: such a
slot is tainted, wherever it goes.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

SLOT: Final = 8  # bytes of one token's KV
POISON: Final = b"\xff" * SLOT
TAINTED: Final = 1 << 31  # token ids from here on were drawn from bytes of other provenance
_ODD: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_NAN: Final = b"\xff\xff"  # a half-precision NaN: one is enough to make a row not finite


class Written(NamedTuple):
    """A slot holds the KV of this node, written by this process, tainted by ``cause`` (empty: clean)."""

    node: int
    writer: str
    cause: str


class Read(NamedTuple):
    """What a pass read: NaN somewhere, or the first byte of other provenance (empty: all its own)."""

    nan: bool
    cause: str


class Ledger:
    """All nodes, all slots and all tainted tokens of one world."""

    def __init__(self) -> None:
        self._roots: dict[tuple[str, bytes], int] = {}
        self._children: dict[tuple[int, int], int] = {}
        self._hashes: list[int] = []
        self._names: list[tuple[str, int]] = []  # tenant, position
        self._written: dict[bytes, Written] = {}
        self._serial = 0
        self._taints: list[str] = []

    def root(self, tenant: str, layout: bytes) -> int:
        """The empty prefix of a tenant in a layout."""
        key = (tenant, layout)
        if key not in self._roots:
            self._roots[key] = self._new(_ODD, tenant, -1)
        return self._roots[key]

    def child(self, node: int, token: int) -> int:
        """The prefix that ``token`` continues."""
        key = (node, token)
        found = self._children.get(key)
        if found is None:
            mixed = ((self._hashes[node] ^ (token + 1)) * _ODD) & _MASK
            tenant, position = self._names[node]
            found = self._children[key] = self._new(mixed ^ (mixed >> 29), tenant, position + 1)
        return found

    def path(self, node: int, tokens: tuple[int, ...]) -> list[int]:
        """The nodes of ``tokens`` after ``node``."""
        nodes = []
        for token in tokens:
            node = self.child(node, token)
            nodes.append(node)
        return nodes

    def answer(self, node: int) -> int:
        """The model: the greedy token after this prefix. It depends on the tokens only, not on the tenant."""
        return 1000 + (self._hashes[node] >> 17) % (1 << 20)

    def taint(self, cause: str) -> int:
        """A token that was drawn from bytes of other provenance."""
        self._taints.append(cause)
        return TAINTED + len(self._taints) - 1

    def cause(self, token: int) -> str:
        """Why ``token`` is tainted; empty for a clean one."""
        return self._taints[token - TAINTED] if token >= TAINTED else ""

    def write(self, node: int, writer: str, cause: str) -> bytes:
        """New bytes for the KV of a token."""
        while True:
            self._serial += 1
            raw = ((self._serial * _ODD) & _MASK).to_bytes(SLOT, "little")
            if _NAN not in raw and raw not in self._written:
                self._written[raw] = Written(node, writer, cause)
                return raw

    def read(self, pool: "Pool", table: tuple[int, ...], start: int, own: list[int]) -> Read:
        """What attention over positions 0 to ``start - 1`` sees; ``own`` are the request's own nodes."""
        size, cause, position = pool.page_size, "", 0
        written = self._written
        for page in table:
            data = pool.bytes[page]
            for offset in range(0, size * SLOT, SLOT):
                if position >= start:
                    return Read(False, cause)
                raw = bytes(data[offset : offset + SLOT])
                found = written.get(raw)
                if found is None:
                    if is_nan(raw):
                        return Read(True, cause)
                    cause = cause or f"position {position}: bytes {raw.hex()} that no pass wrote"
                elif position >= len(own) or found.node != own[position]:
                    cause = cause or f"position {position}: {self.describe(found)}"
                elif found.cause:
                    cause = cause or found.cause
                position += 1
        return Read(False, cause)

    def describe(self, found: Written) -> str:
        """For traces."""
        tenant, position = self._names[found.node]
        return f"the KV of a token at position {position} of tenant {tenant}, written by {found.writer}"

    def _new(self, mixed: int, tenant: str, position: int) -> int:
        self._hashes.append(mixed)
        self._names.append((tenant, position))
        return len(self._hashes) - 1


def is_nan(raw: bytes) -> bool:
    """Is one of the half-precision words of the slot a NaN?"""
    return any(raw[i : i + 2] == _NAN for i in range(0, SLOT, 2))


class Pool:
    """The bytes of one process's pages. ``bytes`` and ``arrays`` are two views of the same memory."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.bytes = [bytearray(page_size * SLOT) for _ in range(pages)]
        self.arrays: list[NDArray[np.uint8]] = [np.frombuffer(page, np.uint8) for page in self.bytes]
        self._poison = POISON * page_size
        self._zero = bytes(page_size * SLOT)

    def __len__(self) -> int:
        return len(self.bytes)

    def poison(self, pages: NDArray[np.int64]) -> None:
        """Overwrite with NaN (G8)."""
        for page in pages.tolist():
            self.bytes[page][:] = self._poison

    def clear(self, pages: tuple[int, ...]) -> None:
        """Overwrite with zeroes: what a pass does to the pages that it writes first (G8)."""
        for page in pages:
            self.bytes[page][:] = self._zero

    def put(self, page: int, offset: int, raw: bytes) -> None:
        """Write one slot."""
        self.bytes[page][offset * SLOT : (offset + 1) * SLOT] = raw

    def flip(self, page: int, bit: int) -> None:
        """Flip one bit."""
        bit %= 8 * len(self.bytes[page])
        self.bytes[page][bit // 8] ^= 1 << bit % 8
