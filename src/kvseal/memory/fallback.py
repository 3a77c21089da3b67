"""The numpy twin of ``_native.c``: the same functions, checks and errors, for machines without a compiler."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def copy_pages(
    dst: NDArray[np.uint8],
    src: NDArray[np.uint8],
    dst_pages: NDArray[np.int64],
    src_pages: NDArray[np.int64],
    /,
) -> None:
    """Copies page ``src_pages[i]`` of ``src`` to page ``dst_pages[i]`` of ``dst``, for all i, as one batch.

    ``dst`` and ``src`` are C-contiguous uint8 [pages, page_bytes], of equal ``page_bytes``; both lists are
    contiguous int64 [n]. The two pools may be one pool, if no page is both read and written. The order of the
    copies is not defined.

    Raises IndexError for a page outside its pool; ValueError for wrong dtypes, shapes or lengths, for a
    read-only destination, for a destination page that is listed twice, and for pools that overlap in
    memory. No byte has moved then.
    """
    _check_pool(dst, "destination")
    if not dst.flags.writeable:
        raise ValueError("destination is read-only")
    _check_pool(src, "source")
    _check_list(dst_pages, "destination pages")
    _check_list(src_pages, "source pages")
    if dst.shape[1] != src.shape[1]:
        raise ValueError(f"destination pages have {dst.shape[1]} bytes, source pages {src.shape[1]}")
    if len(dst_pages) != len(src_pages):
        raise ValueError(f"{len(dst_pages)} destination pages for {len(src_pages)} source pages")
    # A private copy: what was checked must be what is used, whatever other threads do to the lists meanwhile.
    to, origin = dst_pages.copy(), src_pages.copy()
    _check_bounds(to, dst, "destination")
    _check_bounds(origin, src, "source")
    _check_overlap(dst, src, to, origin)
    for first, end in _runs(to, origin):
        low, high = to[first], origin[first]
        dst[low : low + end - first] = src[high : high + end - first]


def fill_pages(dst: NDArray[np.uint8], pages: NDArray[np.int64], byte: int, /) -> None:
    """Sets every byte of the listed pages to ``byte``, 0 to 255. A page may be listed twice.

    Errors as in copy_pages.
    """
    if not 0 <= byte <= 255:
        raise ValueError(f"a byte is in 0 to 255, not {byte}")
    _check_pool(dst, "destination")
    if not dst.flags.writeable:
        raise ValueError("destination is read-only")
    _check_list(pages, "destination pages")
    snapshot = pages.copy()
    _check_bounds(snapshot, dst, "destination")
    for page in snapshot:
        dst[page] = byte


def _check_pool(pool: NDArray[Any], role: str) -> None:
    if pool.dtype != np.uint8 or pool.ndim != 2:
        raise ValueError(f"{role} must be uint8 of shape [pages, page_bytes]")
    if not pool.flags.c_contiguous:
        raise ValueError(f"{role} must be C-contiguous")


def _check_list(pages: NDArray[Any], role: str) -> None:
    if pages.dtype != np.int64 or pages.ndim != 1 or not pages.flags.c_contiguous:
        raise ValueError(f"{role} must be contiguous int64 of shape [n]")


def _check_bounds(pages: NDArray[np.int64], pool: NDArray[np.uint8], role: str) -> None:
    limit = len(pool)
    outside = np.flatnonzero((pages < 0) | (pages >= limit))
    if outside.size:
        position = int(outside[0])
        raise IndexError(
            f"{role} page {pages[position]} at position {position} is outside the pool of {limit} pages"
        )


def _check_overlap(
    dst: NDArray[np.uint8], src: NDArray[np.uint8], to: NDArray[np.int64], origin: NDArray[np.int64]
) -> None:
    same = dst.ctypes.data == src.ctypes.data and dst.nbytes == src.nbytes
    if not same and np.may_share_memory(dst, src):
        raise ValueError("the pools overlap in memory")
    seen: set[int] = set()
    for position, page in enumerate(to.tolist()):
        if page in seen:
            raise ValueError(f"destination page {page} at position {position} is listed twice")
        seen.add(page)
    for position, page in enumerate(origin.tolist() if same else ()):
        if page in seen:
            raise ValueError(f"page {page} at position {position} is both read and written")


def _runs(to: NDArray[np.int64], origin: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Stretches [first, end) of the batch in which both lists count up by one: each moves as one slice."""
    broken = np.flatnonzero((np.diff(to) != 1) | (np.diff(origin) != 1)) + 1
    return list(pairwise([0, *broken.tolist(), len(to)])) if len(to) else []
