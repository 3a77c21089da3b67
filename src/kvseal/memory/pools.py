"""Three kinds of page memory: uint8 [pages, page_bytes], C-contiguous, page-aligned base, touched lazily.

::

    page:      0                1                          pages-1
    memory:    |<-page_bytes->|<-page_bytes->|  …   |<-page_bytes->|

A page is one contiguous stretch, so that it is one transfer and one digest for every attention family. Core
dumps leave pools out: they hold what tenants wrote.
"""

import contextlib
import mmap
import os
import sys
from typing import Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kvseal.memory import memfd

ADVICE: Final = (mmap.MADV_HUGEPAGE, mmap.MADV_DONTDUMP)


class PageMemory(Protocol):
    """What the owner of a pool, of any kind, can rely on."""

    @property
    def pages(self) -> int:
        """How many pages the pool really holds."""

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""

    @property
    def array(self) -> NDArray[np.uint8]:
        """All pages, [pages, page_bytes]. Raises ValueError once the pool is closed."""


class _Pool:
    """A mapping and its shape. The memory goes away with the last array that shows it, never before."""

    def __init__(self, mapping: mmap.mmap, pages: int, page_bytes: int) -> None:
        self.pages = pages
        self.page_bytes = page_bytes
        self._array: NDArray[np.uint8] | None = np.frombuffer(mapping, np.uint8).reshape(pages, page_bytes)

    @property
    def array(self) -> NDArray[np.uint8]:
        """All pages, uint8 [pages, page_bytes]. Raises ValueError once the pool is closed."""
        if self._array is None:
            raise ValueError("the pool is closed")
        return self._array

    def close(self) -> None:
        """Lets go of the memory; it is unmapped when the last array that shows it goes.

        May be called twice.
        """
        self._array = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class SourcePool(_Pool):
    """What a prefill worker writes and its peers read: a sealed memfd. Only this ``array`` can write it."""

    def __init__(self, fd: int, mapping: mmap.mmap, pages: int, page_bytes: int) -> None:
        super().__init__(mapping, pages, page_bytes)
        self._fd = fd

    @classmethod
    def create(cls, pages: int, page_bytes: int) -> Self:
        """A zeroed pool. Raises ValueError for an impossible shape, OSError where it cannot be mapped."""
        size_bytes = _size_bytes(pages, page_bytes)
        fd = memfd.create_memfd(size_bytes)
        try:
            # The order is the point: the writable mapping first, then the seal that forbids any other (G3).
            mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            memfd.seal(fd)
        except OSError:
            os.close(fd)
            raise
        _advise(mapping)
        return cls(fd, mapping, pages, page_bytes)

    @property
    def fd(self) -> int:
        """The descriptor that peers may have. Raises ValueError once the pool is closed."""
        if self._fd < 0:
            raise ValueError("the pool is closed")
        return self._fd

    def close(self) -> None:
        """Also closes the descriptor. Peers that mapped the pool keep what they mapped."""
        super().close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class PrivatePool(_Pool):
    """Where pulled pages land: anonymous memory, with no descriptor that could be given away (G3)."""

    @classmethod
    def create(cls, pages: int, page_bytes: int) -> Self:
        """A zeroed pool. Raises ValueError for an impossible shape, OSError where it cannot be mapped."""
        mapping = mmap.mmap(-1, _size_bytes(pages, page_bytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _advise(mapping)
        return cls(mapping, pages, page_bytes)


class MappedPool(_Pool):
    """A peer's source pool, mapped read-only. It stays readable, as it was last, when the peer dies."""

    @classmethod
    def open(cls, fd: int, pages: int, page_bytes: int) -> Self:
        """Maps the pool behind ``fd``, which stays the caller's to close.

        Raises PoolRefused unless it is a memfd with all seals and of pages x page_bytes bytes; ValueError
        for an impossible shape; OSError where it cannot be mapped.
        """
        size_bytes = _size_bytes(pages, page_bytes)
        memfd.check_sealed(fd, size_bytes)
        mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        _advise(mapping)
        return cls(mapping, pages, page_bytes)


def _size_bytes(pages: int, page_bytes: int) -> int:
    if pages < 1 or page_bytes < 1:
        raise ValueError(f"a pool has at least one page of one byte, not {pages} pages of {page_bytes} bytes")
    if pages * page_bytes > sys.maxsize:
        raise ValueError(f"{pages} pages of {page_bytes} bytes are more than {sys.maxsize} bytes")
    return pages * page_bytes


def _advise(mapping: mmap.mmap) -> None:
    """Fewer page faults and TLB misses where the kernel has huge pages; without them, only slower."""
    for advice in ADVICE:
        with contextlib.suppress(OSError):
            mapping.madvise(advice)
