"""The faults are the ones that the schedule names, at the reads that it names, and nothing else changes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.transport.kinds import SECRET
from tests.transport.pattern import pattern
from tests.transport.reader import UNTOUCHED, Reader, pages_of
from tests.transport.shm_pair import PAGE_BYTES, PAGES, QUICK, READER, SOURCE, soon, source

from kvseal.core.pulls import Outcome
from kvseal.transport import FaultyTransport, Schedule, ShmTransport, TransportError
from kvseal.transport.faulty import (
    AnyFault,
    Delay,
    FailAfterLanding,
    FlipBit,
    LandLate,
    Stall,
    SwapPages,
    TearPage,
    WrongSource,
)

TRUTH = pattern(PAGES, PAGE_BYTES, 0)
SRC, DST = pages_of(4, 9, 2), pages_of(10, 0, 7)


@contextmanager
def faulty(
    directory: Path, faults: dict[int, AnyFault], otherwise: AnyFault | None = None
) -> Iterator[tuple[Reader, FaultyTransport]]:
    """A connected reader whose transport does what the schedule says."""
    made: list[FaultyTransport] = []

    def make(wakeup: object) -> FaultyTransport:
        assert callable(wakeup)
        inner = lambda wake: ShmTransport(SECRET, READER, wake, directory, QUICK)  # noqa: E731
        made.append(FaultyTransport(inner, wakeup, Schedule(faults, otherwise)))
        return made[0]

    with source(directory) as exporting, Reader(make, pages=PAGES, page_bytes=PAGE_BYTES) as reader:
        reader.transport.connect(SOURCE, exporting.describe())
        yield reader, made[0]


def landed(reader: Reader) -> NDArray[np.uint8]:
    return reader.array[DST]


def test_without_a_fault_the_wrapper_changes_nothing(directory: Path) -> None:
    with faulty(directory, {}) as (reader, transport):
        assert transport.capabilities == ShmTransport.capabilities
        assert reader.pull(SOURCE, 1, SRC, DST) == (1, Outcome.DONE, "")
        np.testing.assert_array_equal(landed(reader), TRUTH[SRC])
        assert transport.counters().pages == 3


def test_a_fault_strikes_the_read_that_the_schedule_names(directory: Path) -> None:
    with faulty(directory, {1: FailAfterLanding()}) as (reader, _):
        outcomes = [reader.pull(SOURCE, transfer, SRC, DST).outcome for transfer in range(3)]
        assert outcomes == [Outcome.DONE, Outcome.ERROR, Outcome.DONE]


def test_a_refused_read_has_no_number(directory: Path) -> None:
    with faulty(directory, {0: FailAfterLanding()}) as (reader, _):
        with pytest.raises(TransportError):
            reader.transport.read(SOURCE, 1, pages_of(PAGES), pages_of(0))
        assert reader.pull(SOURCE, 1, SRC, DST).outcome is Outcome.ERROR


def test_otherwise_strikes_all_the_rest(directory: Path) -> None:
    with faulty(directory, {0: FlipBit()}, otherwise=FailAfterLanding("no")) as (reader, _):
        ends = [reader.pull(SOURCE, transfer, SRC, DST) for transfer in range(3)]
        assert [end.detail for end in ends] == ["", "no", "no"]


def test_one_bit_flips_in_one_page(directory: Path) -> None:
    """F14: success is reported, and one bit is not what the source has."""
    with faulty(directory, {0: FlipBit(position=1, byte=100, bit=5)}) as (reader, _):
        assert reader.pull(SOURCE, 1, SRC, DST).outcome is Outcome.DONE
        difference = landed(reader) ^ TRUTH[SRC]
        assert np.flatnonzero(difference).tolist() == [PAGE_BYTES + 100]
        assert difference[1, 100] == 1 << 5


def test_two_pages_lie_in_each_others_place(directory: Path) -> None:
    with faulty(directory, {0: SwapPages(0, 2)}) as (reader, _):
        assert reader.pull(SOURCE, 1, SRC, DST).outcome is Outcome.DONE
        np.testing.assert_array_equal(landed(reader), TRUTH[[2, 9, 4]])


def test_a_page_comes_from_another_page_of_the_source(directory: Path) -> None:
    with faulty(directory, {0: WrongSource(position=1, source_page=15)}) as (reader, _):
        given = SRC.copy()
        assert reader.pull(SOURCE, 1, given, DST).outcome is Outcome.DONE
        np.testing.assert_array_equal(landed(reader), TRUTH[[4, 15, 2]])
        np.testing.assert_array_equal(given, SRC)  # the caller's list is left alone


def test_a_torn_page_ends_with_what_was_there_before(directory: Path) -> None:
    with faulty(directory, {0: TearPage(position=2, bytes=1000)}) as (reader, _):
        assert reader.pull(SOURCE, 1, SRC, DST).outcome is Outcome.DONE
        np.testing.assert_array_equal(landed(reader)[:2], TRUTH[[4, 9]])
        np.testing.assert_array_equal(landed(reader)[2, :1000], TRUTH[2, :1000])
        assert (landed(reader)[2, 1000:] == UNTOUCHED).all()


def test_a_page_torn_at_zero_never_arrived(directory: Path) -> None:
    with faulty(directory, {0: TearPage()}) as (reader, _):
        reader.pull(SOURCE, 1, SRC, DST)
        assert (landed(reader)[0] == UNTOUCHED).all()


def test_positions_wrap_around_at_the_length_of_the_read(directory: Path) -> None:
    with faulty(directory, {0: FlipBit(position=100, byte=PAGE_BYTES, bit=0)}) as (reader, _):
        reader.pull(SOURCE, 1, pages_of(3), pages_of(3))
        assert np.flatnonzero(reader.array[3] ^ TRUTH[3]).tolist() == [0]


def test_pages_that_landed_can_be_reported_as_an_error(directory: Path) -> None:
    with faulty(directory, {0: FailAfterLanding("link lost")}) as (reader, _):
        assert reader.pull(SOURCE, 1, SRC, DST) == (1, Outcome.ERROR, "link lost")
        np.testing.assert_array_equal(landed(reader), TRUTH[SRC])


def test_a_late_page_overwrites_whatever_is_there_by_then(directory: Path) -> None:
    """F05: the error comes first, the bytes afterwards, into pages that may have another owner."""
    with faulty(directory, {0: LandLate()}) as (reader, transport):
        assert reader.pull(SOURCE, 1, SRC, DST).outcome is Outcome.ERROR
        assert (reader.array == UNTOUCHED).all()
        reader.array[DST] = 0x11  # the next owner's
        reader.transport.disconnect(SOURCE)  # the peer being gone stops nothing
        assert transport.land(7) == []
        assert transport.land(0) == [0]
        np.testing.assert_array_equal(landed(reader), TRUTH[SRC])
        assert transport.land() == []


def test_a_late_page_lands_by_itself_after_its_time(directory: Path) -> None:
    with faulty(directory, {0: LandLate(seconds=0.1)}) as (reader, _):
        assert reader.pull(SOURCE, 1, SRC, DST).outcome is Outcome.ERROR
        assert (reader.array == UNTOUCHED).all()
        deadline = time.monotonic() + 5
        while (landed(reader) != TRUTH[SRC]).any():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_late_pages_do_not_land_after_the_close(directory: Path) -> None:
    with faulty(directory, {0: LandLate()}) as (reader, transport):
        reader.pull(SOURCE, 1, SRC, DST)
        transport.close()
        assert transport.land() == []
        assert (reader.array == UNTOUCHED).all()


def test_a_delayed_end_comes_later_and_wakes_its_listener(directory: Path) -> None:
    with faulty(directory, {0: Delay(0.2)}) as (reader, _):
        began = time.monotonic()
        assert reader.pull(SOURCE, 1, SRC, DST).outcome is Outcome.DONE
        assert time.monotonic() - began >= 0.2
        np.testing.assert_array_equal(landed(reader), TRUTH[SRC])


def test_a_stalled_read_ends_when_it_is_released(directory: Path) -> None:
    """F15: as long as nothing is known about a read, it is in flight, however long that takes."""
    with faulty(directory, {0: Stall()}) as (reader, transport):
        reader.transport.read(SOURCE, 1, SRC, DST)
        assert reader.pull(SOURCE, 2, pages_of(0), pages_of(1)).outcome is Outcome.DONE  # others go on
        assert transport.poll() == []
        with pytest.raises(TransportError, match="transfer 1 is in flight already"):
            reader.transport.read(SOURCE, 1, SRC, DST)
        assert transport.release(5) == []
        assert transport.release(0) == [0]
        assert reader.wait(2)[-1] == (1, Outcome.DONE, "")
        assert transport.release() == []


def test_closing_lets_every_read_end_once(directory: Path) -> None:
    faults: dict[int, AnyFault] = {0: Stall(), 1: Delay(60), 2: LandLate(60), 3: FailAfterLanding()}
    with faulty(directory, faults) as (reader, transport):
        for transfer in range(5):
            reader.transport.read(SOURCE, transfer, pages_of(transfer), pages_of(transfer))
        transport.close()
        reader.ended += transport.poll()
        assert set(reader.outcomes()) == set(range(5))
        assert soon(lambda: not any(isinstance(t, threading.Timer) for t in threading.enumerate()))


def test_a_schedule_travels_as_json() -> None:
    """To a worker process of an end-to-end test."""
    schedule = Schedule({3: TearPage(1, 64), 9: LandLate(0.5)}, otherwise=Delay(0.01))
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="Melt"):
        msgspec.json.decode(b'{"faults": {"0": {"type": "Melt"}}}', type=Schedule)
