"""What every transport must do, over two real processes. A new transport is one entry in ``kinds.KINDS``.

Each test that moves bytes also asserts over the transport's own counters that it was the transport that
moved them.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.transport.kinds import KINDS, Setup, instance_named
from tests.transport.pattern import pattern
from tests.transport.reader import UNTOUCHED, Reader, pages_of
from tests.transport.source_process import SourceProcess, source_process

from kvseal.core.pulls import Outcome
from kvseal.transport import Cause, TransportError

PAGES, PAGE_BYTES = 64, 16 << 10


def reader(kind: str, directory: Path, *, pages: int = PAGES, page_bytes: int = PAGE_BYTES) -> Reader:
    setup = partial(Setup, instance_named("reader"), directory)
    return Reader(lambda wakeup: KINDS[kind].make(setup(wakeup)), pages=pages, page_bytes=page_bytes)


@pytest.fixture(scope="module")
def source(kind: str, directory: Path) -> Iterator[SourceProcess]:
    """A source that no test harms."""
    with source_process(kind, directory, pages=PAGES, page_bytes=PAGE_BYTES) as process:
        yield process


@pytest.fixture
def connected(kind: str, directory: Path, source: SourceProcess) -> Iterator[Reader]:
    with reader(kind, directory) as made:
        made.transport.connect(source.instance, source.endpoint)
        yield made


@pytest.fixture(scope="module")
def truth() -> NDArray[np.uint8]:
    """What the source's pool holds."""
    return pattern(PAGES, PAGE_BYTES, 0)


# --- contents ---------------------------------------------------------------------------------------------


def test_counters_stand_at_zero_from_the_start(kind: str, directory: Path) -> None:
    """F26: an alert can be written before the first event."""
    with reader(kind, directory) as quiet:
        counters = quiet.transport.counters()
        values = [getattr(counters, name) for name in counters.__dataclass_fields__]
        assert values == [0] * len(values)
        assert (counters.reads, counters.bytes, counters.errors, counters.refused_peers) == (0, 0, 0, 0)


def test_scattered_pages_arrive_and_no_other_landing_page_changes(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    src, dst = pages_of(60, 3, 17, 4, 0), pages_of(1, 63, 30, 31, 5)
    assert connected.pull(source.instance, 7, src, dst) == (7, Outcome.DONE, "")
    np.testing.assert_array_equal(connected.array[dst], truth[src])
    assert (connected.array[np.setdiff1d(np.arange(PAGES), dst)] == UNTOUCHED).all()
    counters = connected.transport.counters()
    assert (counters.reads, counters.pages, counters.bytes) == (1, 5, 5 * PAGE_BYTES)


def test_contiguous_pages_arrive(connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]) -> None:
    every = np.arange(PAGES)
    assert connected.pull(source.instance, 1, every, every).outcome is Outcome.DONE
    np.testing.assert_array_equal(connected.array, truth)
    assert connected.transport.counters().bytes == PAGES * PAGE_BYTES


def test_one_source_page_can_land_twice(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    connected.pull(source.instance, 1, pages_of(9, 9), pages_of(0, 1))
    np.testing.assert_array_equal(connected.array[:2], truth[[9, 9]])


def test_the_callers_lists_may_change_once_the_read_is_posted(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    src, dst = np.arange(PAGES), np.arange(PAGES)
    connected.transport.read(source.instance, 1, src, dst)
    src[:] = dst[:] = 0
    connected.wait(1)
    np.testing.assert_array_equal(connected.array, truth)


@pytest.mark.parametrize("page_bytes", [4 << 10, 16 << 10, 64 << 10, 368_640, 1 << 20])
def test_pages_of_every_size_arrive(kind: str, directory: Path, page_bytes: int) -> None:
    pages = 12
    with (
        source_process(
            kind, directory, pages=pages, page_bytes=page_bytes, name=f"size{page_bytes}"
        ) as source,
        reader(kind, directory, pages=pages, page_bytes=page_bytes) as made,
    ):
        made.transport.connect(source.instance, source.endpoint)
        src = np.arange(pages)[::-1].copy()
        assert made.pull(source.instance, 1, src, np.arange(pages)).outcome is Outcome.DONE
        np.testing.assert_array_equal(made.array, pattern(pages, page_bytes, 0)[src])
        assert made.transport.counters().bytes == pages * page_bytes


def test_a_batch_of_ten_thousand_pages_arrives(kind: str, directory: Path) -> None:
    pages, page_bytes = 10_000, 4 << 10
    order = np.random.default_rng(11).permutation(pages)
    with (
        source_process(kind, directory, pages=pages, page_bytes=page_bytes, name="many") as source,
        reader(kind, directory, pages=pages, page_bytes=page_bytes) as made,
    ):
        made.transport.connect(source.instance, source.endpoint)
        assert made.pull(source.instance, 1, order, np.arange(pages)).outcome is Outcome.DONE
        np.testing.assert_array_equal(made.array, pattern(pages, page_bytes, 0)[order])
        counters = made.transport.counters()
        assert (counters.reads, counters.pages, counters.bytes) == (1, pages, pages * page_bytes)


def test_what_the_source_writes_after_the_connect_is_what_arrives(kind: str, directory: Path) -> None:
    with (
        source_process(kind, directory, pages=2, page_bytes=PAGE_BYTES, name="writer") as source,
        reader(kind, directory, pages=2) as made,
    ):
        made.transport.connect(source.instance, source.endpoint)
        source.tell("fill", page=1, byte=0x5A)
        made.pull(source.instance, 1, pages_of(1), pages_of(0))
        assert (made.array[0] == 0x5A).all()


# --- many reads -------------------------------------------------------------------------------------------


def test_reads_in_flight_together_all_arrive_and_each_ends_once(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    transfers = range(100, 100 + PAGES // 2)
    for place, transfer in enumerate(transfers):
        pair = pages_of(2 * place, 2 * place + 1)
        connected.transport.read(source.instance, transfer, pair[::-1].copy(), pair)
    connected.wait(len(transfers))
    assert connected.outcomes() == dict.fromkeys(transfers, Outcome.DONE)
    swapped = np.arange(PAGES).reshape(-1, 2)[:, ::-1].ravel()
    np.testing.assert_array_equal(connected.array, truth[swapped])
    time.sleep(0.05)
    assert connected.transport.poll() == []
    assert connected.transport.counters().reads == len(transfers)


def test_reads_from_two_sources_do_not_mix(kind: str, directory: Path) -> None:
    pages = 8
    sources = partial(source_process, kind, directory, pages=pages, page_bytes=PAGE_BYTES)
    with (
        sources(seed=1, name="first") as first,
        sources(seed=2, name="second") as second,
        reader(kind, directory, pages=2 * pages) as made,
    ):
        for transfer, source in enumerate((first, second)):
            made.transport.connect(source.instance, source.endpoint)
            made.transport.read(
                source.instance, transfer, np.arange(pages), np.arange(pages) + transfer * pages
            )
        made.wait(2)
        np.testing.assert_array_equal(made.array[:pages], pattern(pages, PAGE_BYTES, 1))
        np.testing.assert_array_equal(made.array[pages:], pattern(pages, PAGE_BYTES, 2))


def test_a_transfer_number_is_free_again_once_its_read_ended(
    connected: Reader, source: SourceProcess
) -> None:
    for _ in range(3):
        assert connected.pull(source.instance, 5, pages_of(1), pages_of(2)).outcome is Outcome.DONE


# --- what is refused before anything is posted ------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "dst", "reason"),
    [
        ([PAGES], [0], f"source page {PAGES} at position 0 is outside the pool of {PAGES} pages"),
        ([0, -1], [0, 1], f"source page -1 at position 1 is outside the pool of {PAGES} pages"),
        ([0], [PAGES], f"landing page {PAGES} at position 0 is outside the pool of {PAGES} pages"),
        ([0, 1], [4, -(2**63)], "landing page -9223372036854775808 at position 1"),
        ([0, 1], [3, 3], "a landing page is listed twice"),
        ([0, 1], [3], "2 source pages for 1 landing pages"),
        ([], [], "source pages must be int64"),
    ],
)
def test_a_read_of_bad_pages_is_refused_and_moves_nothing(
    connected: Reader, source: SourceProcess, src: list[int], dst: list[int], reason: str
) -> None:
    with pytest.raises(TransportError, match=reason) as refused:
        connected.transport.read(source.instance, 1, pages_of(*src), pages_of(*dst))
    assert refused.value.cause is Cause.BAD_PAGES
    counters = connected.transport.counters()
    assert (counters.reads, counters.refused_reads, counters.bytes) == (0, 1, 0)
    connected.pull(source.instance, 1, pages_of(0), pages_of(PAGES - 1))  # nobody is blamed for it (F09)
    assert (connected.array[: PAGES - 1] == UNTOUCHED).all()


def test_a_page_list_of_another_dtype_is_refused(connected: Reader, source: SourceProcess) -> None:
    narrow = np.array([0], np.int32)
    with pytest.raises(TransportError, match="int64"):
        connected.transport.read(source.instance, 1, narrow, pages_of(0))  # type: ignore[arg-type]


def test_a_read_from_an_unknown_peer_is_refused(connected: Reader) -> None:
    with pytest.raises(TransportError, match="not connected") as refused:
        connected.transport.read(instance_named("stranger"), 1, pages_of(0), pages_of(0))
    assert refused.value.cause is Cause.UNKNOWN_PEER


# --- connecting -------------------------------------------------------------------------------------------


def test_connecting_twice_is_connecting_once(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    connected.transport.connect(source.instance, source.endpoint)
    connected.transport.connect(source.instance, source.endpoint)
    assert connected.transport.counters().connects == 1
    connected.pull(source.instance, 1, pages_of(2), pages_of(0))
    np.testing.assert_array_equal(connected.array[0], truth[2])


def test_a_peer_that_was_disconnected_is_unknown_and_can_be_connected_again(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    connected.transport.disconnect(source.instance)
    connected.transport.disconnect(source.instance)
    with pytest.raises(TransportError, match="not connected"):
        connected.transport.read(source.instance, 1, pages_of(0), pages_of(0))
    connected.transport.connect(source.instance, source.endpoint)
    connected.pull(source.instance, 1, pages_of(2), pages_of(0))
    np.testing.assert_array_equal(connected.array[0], truth[2])


def test_another_instance_than_expected_is_refused_by_name(
    kind: str, directory: Path, source: SourceProcess
) -> None:
    """F10: an endpoint is good for one life of a worker, not for an address."""
    with reader(kind, directory) as made:
        with pytest.raises(TransportError) as refused:
            made.transport.connect(instance_named("other"), source.endpoint)
        assert refused.value.cause is Cause.WRONG_INSTANCE
        assert source.instance.hex()[:8] in str(refused.value)
        assert instance_named("other").hex()[:8] in str(refused.value)
        assert made.transport.counters().failed_connects == 1


def test_another_page_size_is_refused_by_both_numbers(
    kind: str, directory: Path, source: SourceProcess
) -> None:
    """F18: before any traffic, by name."""
    with (
        reader(kind, directory, page_bytes=4096) as made,
        pytest.raises(TransportError, match=rf"{PAGE_BYTES} bytes.*4096") as refused,
    ):
        made.transport.connect(source.instance, source.endpoint)
    assert refused.value.cause is Cause.MISMATCH


@pytest.mark.parametrize("garbage", [b"", b"x", b"\x81\xa1a\x01", bytes(100_000), b"\xff" * 64])
def test_an_endpoint_that_is_none_is_refused(kind: str, directory: Path, garbage: bytes) -> None:
    with reader(kind, directory) as made:
        with pytest.raises(TransportError) as refused:
            made.transport.connect(instance_named("source"), garbage)
        assert refused.value.cause is Cause.MALFORMED


def test_a_reader_exports_nothing(connected: Reader) -> None:
    """G3: nobody can be given a way to write, or even to read, the landing pool."""
    assert connected.transport.describe() == b""


# --- sources that die -------------------------------------------------------------------------------------


def test_a_source_killed_in_mid_read_hurts_nobody(kind: str, directory: Path) -> None:
    """Every read ends exactly once; what ended DONE is right, to the byte."""
    pages, page_bytes, batch = 64, 1 << 20, 8
    with (
        source_process(kind, directory, pages=pages, page_bytes=page_bytes, name="doomed") as source,
        reader(kind, directory, pages=pages, page_bytes=page_bytes) as made,
    ):
        made.transport.connect(source.instance, source.endpoint)
        order = np.random.default_rng(3).permutation(pages)
        for transfer in range(pages // batch):
            part = slice(transfer * batch, (transfer + 1) * batch)
            made.transport.read(source.instance, transfer, order[part], np.arange(pages)[part])
        source.kill()
        made.wait(pages // batch)
        outcomes = made.outcomes()
        assert set(outcomes) == set(range(pages // batch))
        truth = pattern(pages, page_bytes, 0)
        for transfer in (t for t, outcome in outcomes.items() if outcome is Outcome.DONE):
            part = slice(transfer * batch, (transfer + 1) * batch)
            np.testing.assert_array_equal(made.array[part], truth[order[part]])
        counters = made.transport.counters()
        done = sum(outcome is Outcome.DONE for outcome in outcomes.values())
        assert counters.bytes == done * batch * page_bytes
        assert counters.errors == len(outcomes) - done


def test_a_source_that_is_gone_cannot_be_connected_in_bounded_time(kind: str, directory: Path) -> None:
    with source_process(kind, directory, pages=4, page_bytes=PAGE_BYTES, name="gone") as source:
        source.kill()
        began = time.monotonic()
        with reader(kind, directory) as made:
            with pytest.raises(TransportError) as refused:
                made.transport.connect(source.instance, source.endpoint)
            assert refused.value.cause in (Cause.UNREACHABLE, Cause.TIMED_OUT)
        assert time.monotonic() - began < 10


def test_a_source_that_closed_cannot_be_connected(kind: str, directory: Path) -> None:
    with source_process(kind, directory, pages=4, page_bytes=PAGE_BYTES, name="closed") as source:
        source.tell("close")
        with reader(kind, directory) as made, pytest.raises(TransportError):
            made.transport.connect(source.instance, source.endpoint)


def test_a_replaced_source_is_usable_at_once_and_the_old_endpoint_is_not(kind: str, directory: Path) -> None:
    """F10: the new worker stands behind the same address where the transport has one."""
    sources = partial(source_process, kind, directory, pages=4, page_bytes=PAGE_BYTES, address="fixed.shm")
    with reader(kind, directory, pages=4) as made:
        with sources(seed=1, name="old") as old:
            made.transport.connect(old.instance, old.endpoint)
            made.pull(old.instance, 1, pages_of(0), pages_of(0))
            old.kill()
        with sources(seed=2, name="new") as new:
            made.transport.disconnect(old.instance)
            with pytest.raises(TransportError):
                made.transport.connect(old.instance, old.endpoint)
            made.transport.connect(new.instance, new.endpoint)
            made.pull(new.instance, 2, pages_of(0), pages_of(1))
        np.testing.assert_array_equal(made.array[0], pattern(1, PAGE_BYTES, 1)[0])
        np.testing.assert_array_equal(made.array[1], pattern(1, PAGE_BYTES, 2)[0])


def test_one_failed_connect_blacklists_nobody(kind: str, directory: Path) -> None:
    """F09: after the fault is gone, the next attempt succeeds."""
    sources = partial(source_process, kind, directory, pages=4, page_bytes=PAGE_BYTES, address="again.shm")
    with reader(kind, directory, pages=4) as made:
        with sources(name="lives twice") as source:
            source.kill()
            with pytest.raises(TransportError):
                made.transport.connect(source.instance, source.endpoint)
        with sources(name="lives twice") as source:
            made.transport.connect(source.instance, source.endpoint)
            assert made.pull(source.instance, 1, pages_of(0), pages_of(0)).outcome is Outcome.DONE


# --- ending -----------------------------------------------------------------------------------------------


def test_disconnecting_with_reads_in_flight_lets_them_end(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    for transfer in range(8):
        connected.transport.read(source.instance, transfer, pages_of(transfer), pages_of(transfer))
    connected.transport.disconnect(source.instance)
    connected.wait(8)
    for transfer, outcome in connected.outcomes().items():
        assert outcome is Outcome.ERROR or (connected.array[transfer] == truth[transfer]).all()


def test_closing_waits_and_every_read_has_ended_then(
    connected: Reader, source: SourceProcess, truth: NDArray[np.uint8]
) -> None:
    for transfer in range(32):
        connected.transport.read(source.instance, transfer, pages_of(transfer), pages_of(transfer))
    connected.transport.close()
    after_close = connected.array.copy()
    connected.ended += connected.transport.poll()  # no waiting: close did that
    outcomes = connected.outcomes()
    assert set(outcomes) == set(range(32))
    for transfer, outcome in outcomes.items():
        assert outcome is Outcome.ERROR or (after_close[transfer] == truth[transfer]).all()
    time.sleep(0.05)
    np.testing.assert_array_equal(connected.array, after_close)


def test_a_closed_transport_takes_nothing_more(connected: Reader, source: SourceProcess) -> None:
    connected.transport.close()
    connected.transport.close()
    with pytest.raises(TransportError, match="closed"):
        connected.transport.read(source.instance, 1, pages_of(0), pages_of(0))
    with pytest.raises(TransportError, match="closed"):
        connected.transport.connect(source.instance, source.endpoint)
    assert connected.transport.poll() == []
