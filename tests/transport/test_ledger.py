"""Reads begin and end in one place: each ends exactly once, and no landing page awaits two."""

import threading

import numpy as np
import pytest
from tests.transport.reader import pages_of

from kvseal.core.errors import InvariantViolation
from kvseal.core.pulls import Outcome
from kvseal.transport import Cause, Ended, TransportError
from kvseal.transport.ledger import Ledger


def ledger(limit: int = 8) -> Ledger:
    made = Ledger(lambda: None, limit)
    made.set_landing(16, 100)
    return made


def test_an_end_is_polled_once_and_in_order() -> None:
    book = ledger()
    book.begin(1, pages_of(0))
    book.begin(2, pages_of(1))
    book.end(2, Outcome.ERROR, "lost")
    book.end(1, Outcome.DONE)
    assert book.poll() == [Ended(2, Outcome.ERROR, "lost"), Ended(1, Outcome.DONE, "")]
    assert book.poll() == []


def test_only_done_counts_as_landed() -> None:
    book = ledger()
    book.begin(1, pages_of(0, 1, 2))
    book.begin(2, pages_of(4))
    book.end(1, Outcome.DONE)
    book.end(2, Outcome.ERROR)
    counters = book.counters()
    assert (counters.reads, counters.pages, counters.bytes, counters.errors) == (2, 3, 300, 1)


def test_a_read_that_is_not_in_flight_cannot_end() -> None:
    book = ledger()
    book.begin(1, pages_of(0))
    book.end(1, Outcome.DONE)
    for transfer in (1, 2):
        with pytest.raises(InvariantViolation, match="not in flight"):
            book.end(transfer, Outcome.DONE)
    assert len(book.poll()) == 1


def test_a_landing_page_awaits_one_read_at_most() -> None:
    """G4: with two reads into one page, DONE of the first would prove nothing about the page."""
    book = ledger()
    book.begin(1, pages_of(3, 4))
    with pytest.raises(TransportError, match="landing page 4 still awaits another read") as refused:
        book.begin(2, pages_of(5, 4))
    assert refused.value.cause is Cause.BAD_PAGES
    book.begin(2, pages_of(5))  # the refused attempt took nothing
    book.end(1, Outcome.ERROR)
    book.begin(3, pages_of(4))


def test_a_transfer_number_is_in_flight_once() -> None:
    book = ledger()
    book.begin(1, pages_of(0))
    with pytest.raises(TransportError, match="transfer 1 is in flight already"):
        book.begin(1, pages_of(1))
    assert book.counters().reads == 1


def test_more_reads_than_the_limit_are_refused_until_one_ends() -> None:
    book = ledger(limit=2)
    book.begin(1, pages_of(0))
    book.begin(2, pages_of(1))
    with pytest.raises(TransportError, match="2 reads are in flight already") as refused:
        book.begin(3, pages_of(2))
    assert refused.value.cause is Cause.OVERLOADED
    book.end(1, Outcome.DONE)
    book.begin(3, pages_of(2))


def test_the_wakeup_finds_the_end_queued() -> None:
    seen: list[Ended] = []
    book = Ledger(lambda: seen.extend(book.poll()), 8)
    book.set_landing(16, 100)
    book.begin(1, pages_of(0))
    book.end(1, Outcome.DONE)
    assert seen == [Ended(1, Outcome.DONE, "")]


def test_a_wakeup_that_fails_loses_no_end(caplog: pytest.LogCaptureFixture) -> None:
    """F22: what goes wrong around a transfer must not take the thread that moves bytes with it."""

    def broken() -> None:
        raise RuntimeError("the loop is closed")

    book = Ledger(broken, 8)
    book.set_landing(16, 100)
    book.begin(1, pages_of(0))
    book.end(1, Outcome.DONE)
    assert book.poll() == [Ended(1, Outcome.DONE, "")]
    assert "wakeup" in caplog.text


def test_ends_from_many_threads_are_each_polled_once() -> None:
    book = Ledger(lambda: None, 4096)
    book.set_landing(4096, 1)
    for transfer in range(4000):
        book.begin(transfer, np.array([transfer]))

    def finish(first: int) -> None:
        for transfer in range(first, 4000, 4):
            book.end(transfer, Outcome.DONE)

    threads = [threading.Thread(target=finish, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    polled: list[Ended] = []
    while any(thread.is_alive() for thread in threads):
        polled += book.poll()
    polled += book.poll()
    book.wait_until_idle()
    assert sorted(end.transfer for end in polled) == list(range(4000))
