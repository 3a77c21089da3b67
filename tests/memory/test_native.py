"""Batched copies: the C extension and its numpy twin keep one contract."""

import threading
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from kvseal.memory import BACKEND, PrivatePool, SourcePool, fallback, native

try:
    from kvseal.memory import _native
except ImportError:
    C_BACKEND: ModuleType | None = None
else:
    C_BACKEND = _native

PAGE_BYTES = 300  # not a multiple of a vector, a cache line or a machine page


@pytest.fixture(params=["c", "numpy"])
def backend(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "numpy":
        return fallback
    if C_BACKEND is None:
        pytest.skip("the C extension was not built")
    return C_BACKEND


def pages_of(*pages: int) -> NDArray[np.int64]:
    return np.array(pages, dtype=np.int64)


def numbered(pages: int, page_bytes: int = PAGE_BYTES) -> NDArray[np.uint8]:
    """Pages that differ in every byte position from each other."""
    rows = np.arange(pages, dtype=np.int64)[:, None] * 7 + np.arange(page_bytes, dtype=np.int64)[None, :]
    return (rows % 251).astype(np.uint8)


def test_the_extension_is_used_where_it_was_built() -> None:
    assert (BACKEND == "c") == (C_BACKEND is not None)
    assert native.copy_pages is (C_BACKEND or fallback).copy_pages


def test_scattered_pages_arrive_and_no_other_page_changes(backend: ModuleType) -> None:
    src, dst = numbered(10), np.full((8, PAGE_BYTES), 255, np.uint8)
    backend.copy_pages(dst, src, pages_of(5, 0, 7), pages_of(9, 3, 0))
    np.testing.assert_array_equal(dst[[5, 0, 7]], src[[9, 3, 0]])
    assert (dst[[1, 2, 3, 4, 6]] == 255).all()


def test_contiguous_stretches_arrive_like_scattered_ones(backend: ModuleType) -> None:
    src, dst = numbered(100), np.zeros((100, PAGE_BYTES), np.uint8)
    to, origin = pages_of(10, 11, 12, 50, 51, 13), pages_of(20, 21, 22, 23, 24, 25)
    backend.copy_pages(dst, src, to, origin)
    np.testing.assert_array_equal(dst[to], src[origin])
    assert not dst[np.setdiff1d(np.arange(100), to)].any()


def test_a_random_batch_equals_plain_indexing(backend: ModuleType) -> None:
    draw = np.random.default_rng(7)
    src, dst = numbered(400, 64), np.zeros((500, 64), np.uint8)
    to, origin = draw.permutation(500)[:400], draw.integers(0, 400, 400)
    backend.copy_pages(dst, src, to, origin)
    np.testing.assert_array_equal(dst[to], src[origin])


@pytest.mark.parametrize(
    ("page_bytes", "pages"),
    [(1, 999), (15, 999), (64, 999), (9, 940_000), (65, 130_000), (100, 84_000), (4099, 2100), (65536, 130)],
)
def test_pages_of_any_length_and_alignment_arrive(backend: ModuleType, page_bytes: int, pages: int) -> None:
    """From 8 MiB on, batches are written by another loop, with a head and a tail at every alignment."""
    draw = np.random.default_rng(page_bytes)
    src = np.frombuffer(draw.bytes(pages * page_bytes), np.uint8).reshape(pages, page_bytes)
    room = np.full((pages + 2) * page_bytes + 1, 0xAB, np.uint8)
    dst = room[1 : 1 + (pages + 2) * page_bytes].reshape(-1, page_bytes)  # nothing about it is aligned
    to, origin = np.arange(pages, 0, -1), np.arange(pages)  # no two of them are one stretch
    backend.copy_pages(dst, src, to, origin)
    np.testing.assert_array_equal(dst[to], src[origin])
    assert (room[0], set(dst[0].tolist()), set(dst[-1].tolist())) == (0xAB, {0xAB}, {0xAB})


def test_an_empty_batch_copies_nothing(backend: ModuleType) -> None:
    dst = np.zeros((2, PAGE_BYTES), np.uint8)
    backend.copy_pages(dst, numbered(2), pages_of(), pages_of())
    backend.fill_pages(dst, pages_of(), 1)
    assert not dst.any()


def test_one_source_page_can_be_read_twice(backend: ModuleType) -> None:
    src, dst = numbered(3), np.zeros((3, PAGE_BYTES), np.uint8)
    backend.copy_pages(dst, src, pages_of(0, 2), pages_of(1, 1))
    np.testing.assert_array_equal(dst[[0, 2]], src[[1, 1]])


def test_a_page_is_copied_within_its_own_pool(backend: ModuleType) -> None:
    pool = numbered(4)
    before = pool.copy()
    backend.copy_pages(pool, pool, pages_of(0, 1), pages_of(2, 3))
    np.testing.assert_array_equal(pool, before[[2, 3, 2, 3]])


@pytest.mark.parametrize("page", [-1, 8, 2**62, -(2**63)])
def test_a_destination_outside_the_pool_is_refused_before_any_byte_moves(
    backend: ModuleType, page: int
) -> None:
    dst = np.zeros((8, PAGE_BYTES), np.uint8)
    expected = rf"destination page {page} at position 1 is outside the pool of 8 pages"
    with pytest.raises(IndexError, match=expected):
        backend.copy_pages(dst, numbered(8), pages_of(0, page), pages_of(1, 2))
    with pytest.raises(IndexError, match=expected):
        backend.fill_pages(dst, pages_of(0, page), 9)
    assert not dst.any()


@pytest.mark.parametrize("page", [-1, 4, 2**62])
def test_a_source_outside_the_pool_is_refused_before_any_byte_moves(backend: ModuleType, page: int) -> None:
    dst = np.zeros((8, PAGE_BYTES), np.uint8)
    with pytest.raises(IndexError, match=rf"source page {page} at position 2 is outside the pool of 4 pages"):
        backend.copy_pages(dst, numbered(4), pages_of(0, 1, 2), pages_of(1, 2, page))
    assert not dst.any()


def test_a_destination_listed_twice_is_refused(backend: ModuleType) -> None:
    dst = np.zeros((8, PAGE_BYTES), np.uint8)
    with pytest.raises(ValueError, match="destination page 3 at position 2 is listed twice"):
        backend.copy_pages(dst, numbered(8), pages_of(3, 1, 3), pages_of(0, 1, 2))
    assert not dst.any()


def test_a_page_both_read_and_written_is_refused(backend: ModuleType) -> None:
    pool = numbered(4)
    before = pool.copy()
    with pytest.raises(ValueError, match="page 1 at position 0 is both read and written"):
        backend.copy_pages(pool, pool, pages_of(0, 1), pages_of(1, 2))
    with pytest.raises(ValueError, match="page 2 at position 0 is both read and written"):
        backend.copy_pages(pool, pool, pages_of(2), pages_of(2))
    np.testing.assert_array_equal(pool, before)


def test_pools_that_overlap_in_memory_are_refused(backend: ModuleType) -> None:
    memory = numbered(10)
    with pytest.raises(ValueError, match="the pools overlap in memory"):
        backend.copy_pages(memory[:6], memory[5:], pages_of(0), pages_of(4))
    with pytest.raises(ValueError, match="the pools overlap in memory"):
        backend.copy_pages(memory[:6], memory, pages_of(0), pages_of(9))
    np.testing.assert_array_equal(memory, numbered(10))


def test_adjacent_pools_do_not_overlap(backend: ModuleType) -> None:
    memory = numbered(10)
    backend.copy_pages(memory[:5], memory[5:], pages_of(0), pages_of(4))
    np.testing.assert_array_equal(memory[0], memory[9])


def test_unequal_page_sizes_are_refused_by_both_numbers(backend: ModuleType) -> None:
    with pytest.raises(ValueError, match="destination pages have 64 bytes, source pages 32"):
        backend.copy_pages(np.zeros((2, 64), np.uint8), np.zeros((2, 32), np.uint8), pages_of(0), pages_of(0))


def test_unequal_lists_are_refused_by_both_numbers(backend: ModuleType) -> None:
    with pytest.raises(ValueError, match="2 destination pages for 1 source pages"):
        backend.copy_pages(np.zeros((4, 64), np.uint8), numbered(4, 64), pages_of(0, 1), pages_of(0))


@pytest.mark.parametrize(
    "pages",
    [
        np.array([0], np.int32),
        np.array([0], np.uint64),
        np.array([0.0]),
        np.array([[0]], np.int64),
        np.array([0, 9, 1, 9], np.int64)[::2],
    ],
    ids=["int32", "uint64", "float", "two dimensions", "strided"],
)
def test_a_page_list_must_be_contiguous_int64(backend: ModuleType, pages: NDArray[np.int64]) -> None:
    dst = np.zeros((4, 64), np.uint8)
    good = np.zeros(len(pages), np.int64)
    with pytest.raises(ValueError, match="destination pages must be contiguous int64"):
        backend.copy_pages(dst, numbered(4, 64), pages, good)
    with pytest.raises(ValueError, match="source pages must be contiguous int64"):
        backend.copy_pages(dst, numbered(4, 64), good, pages)
    with pytest.raises(ValueError, match="destination pages must be contiguous int64"):
        backend.fill_pages(dst, pages, 1)
    assert not dst.any()


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        (np.zeros((4, 64), np.int8), "must be uint8 of shape"),
        (np.zeros((4, 64), np.bool_), "must be uint8 of shape"),
        (np.zeros((4, 8), np.uint64), "must be uint8 of shape"),
        (np.zeros(256, np.uint8), "must be uint8 of shape"),
        (np.zeros((4, 64), np.uint8, order="F"), "must be C-contiguous"),
        (np.zeros((4, 128), np.uint8)[:, ::2], "must be C-contiguous"),
    ],
    ids=["int8", "bool", "uint64", "one dimension", "column-major", "strided"],
)
def test_a_pool_must_be_contiguous_uint8(backend: ModuleType, pool: NDArray[np.uint8], reason: str) -> None:
    good = np.ones((4, 64), np.uint8)
    with pytest.raises(ValueError, match=f"destination {reason}"):
        backend.copy_pages(pool, good, pages_of(0), pages_of(0))
    with pytest.raises(ValueError, match=f"source {reason}"):
        backend.copy_pages(good, pool, pages_of(0), pages_of(0))
    with pytest.raises(ValueError, match=f"destination {reason}"):
        backend.fill_pages(pool, pages_of(0), 1)
    assert not pool.any()


def test_a_read_only_destination_is_refused(backend: ModuleType) -> None:
    dst = np.zeros((4, 64), np.uint8)
    dst.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        backend.copy_pages(dst, numbered(4, 64), pages_of(0), pages_of(1))
    with pytest.raises(ValueError, match="read-only"):
        backend.fill_pages(dst, pages_of(0), 1)
    assert not dst.any()


def test_a_read_only_source_is_fine(backend: ModuleType) -> None:
    src = numbered(4)
    src.flags.writeable = False
    dst = np.zeros((4, PAGE_BYTES), np.uint8)
    backend.copy_pages(dst, src, pages_of(0), pages_of(1))
    np.testing.assert_array_equal(dst[0], src[1])


def test_filled_pages_hold_the_byte_and_no_other_page_changes(backend: ModuleType) -> None:
    dst = numbered(5)
    backend.fill_pages(dst, pages_of(4, 0, 4), 255)
    assert (dst[[0, 4]] == 255).all()
    np.testing.assert_array_equal(dst[1:4], numbered(5)[1:4])


@pytest.mark.parametrize("byte", [-1, 256])
def test_what_is_no_byte_is_refused(backend: ModuleType, byte: int) -> None:
    dst = np.zeros((2, 64), np.uint8)
    with pytest.raises(ValueError, match=f"a byte is in 0 to 255, not {byte}"):
        backend.fill_pages(dst, pages_of(0), byte)
    assert not dst.any()


def test_every_byte_of_nan_poison_is_nan_in_every_float_width(backend: ModuleType) -> None:
    """G8: a page of 0xFF bytes reads as NaN whatever float type the pool is viewed as."""
    pool = np.zeros((2, 64), np.uint8)
    backend.fill_pages(pool, pages_of(1), 0xFF)
    assert np.isnan(pool[1].view(np.float16)).all()
    assert np.isnan(pool[1].view(np.float32)).all()
    assert ((pool[1].view(np.uint16) & 0x7F80) == 0x7F80).all()  # bfloat16: all exponent bits
    assert pool[1].view(np.uint16).all()  # … and a mantissa, so NaN and not infinity


def test_other_threads_run_while_bytes_move(backend: ModuleType) -> None:
    """The copy releases the GIL: a thread that takes it now and then sees the batch half done."""
    pages, page_bytes = 64, 1 << 20
    src = np.ones((pages, page_bytes), np.uint8)
    dst = np.zeros((pages, page_bytes), np.uint8)
    # Descending sources, so that the pages stay single copies and the last one is late.
    batch = (np.arange(pages), np.arange(pages)[::-1].copy())
    seen_half_done = False
    for _ in range(50):
        dst[0, 0] = dst[-1, -1] = 0
        worker = threading.Thread(target=backend.copy_pages, args=(dst, src, *batch))
        worker.start()
        while worker.is_alive() and not seen_half_done:
            first, last = int(dst[0, 0]), int(dst[-1, -1])
            seen_half_done = (first, last) == (1, 0)
        worker.join()
        if seen_half_done:
            break
    assert seen_half_done


def test_a_page_list_changed_during_the_copy_changes_nothing(backend: ModuleType) -> None:
    """The batch is snapshot before the GIL is released: what was checked is what is used."""
    pages, page_bytes = 64, 1 << 19
    src, dst = np.ones((pages, page_bytes), np.uint8), np.zeros((pages, page_bytes), np.uint8)
    in_time = False
    for _ in range(50):
        dst[:] = 0
        to, origin = np.arange(pages), np.arange(pages)[::-1].copy()
        worker = threading.Thread(target=backend.copy_pages, args=(dst, src, to, origin))
        worker.start()
        while worker.is_alive() and not dst[0, 0]:
            pass
        to[:] = 2**40  # where memory is certainly not ours
        origin[:] = -(2**40)
        in_time = not dst[-1, -1]
        worker.join()
        assert dst.all()
        if in_time:
            break
    assert in_time


def test_pool_memory_works_as_destination_and_source(backend: ModuleType) -> None:
    with SourcePool.create(3, PAGE_BYTES) as source, PrivatePool.create(4, PAGE_BYTES) as landing:
        source.array[:] = numbered(3)
        backend.copy_pages(landing.array, source.array, pages_of(3, 1), pages_of(0, 2))
        np.testing.assert_array_equal(landing.array[[3, 1]], source.array[[0, 2]])
        assert not landing.array[[0, 2]].any()
