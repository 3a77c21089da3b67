"""Reads over ``shm``: why a dead source hurts nobody, and what closing leaves behind."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.transport.pattern import pattern
from tests.transport.reader import UNTOUCHED, pages_of
from tests.transport.shm_pair import PAGE_BYTES, PAGES, QUICK, SOURCE, make_reader, open_fds, soon, source
from tests.transport.source_process import source_process

from kvseal.core.pulls import Outcome
from kvseal.memory import copy_pages
from kvseal.transport import Capabilities, Cause, ShmOptions, ShmTransport, TransportError, shm


@contextmanager
def held_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Copies that wait before they move a byte: (a copy has begun, let them go)."""
    begun, go = threading.Event(), threading.Event()

    def copy(*arguments: Any) -> None:
        begun.set()
        assert go.wait(20)
        copy_pages(*arguments)

    monkeypatch.setattr(shm, "copy_pages", copy)
    try:
        yield begun, go
    finally:
        go.set()


def test_posting_does_not_wait_for_the_copy(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with source(directory) as exporting, make_reader(directory) as made, held_copies(monkeypatch) as (_, go):
        made.transport.connect(SOURCE, exporting.describe())
        for transfer in range(3):
            made.transport.read(SOURCE, transfer, pages_of(transfer), pages_of(transfer))
        assert made.transport.poll() == []
        assert (made.array == UNTOUCHED).all()
        go.set()
        assert [end.transfer for end in made.wait(3)] == [0, 1, 2]  # one thread keeps the order


def test_a_source_killed_while_the_copy_runs_leaves_the_bytes_readable(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mapping outlives its maker: the read ends DONE with the source's bytes, and nothing crashes."""
    with (
        source_process("shm", directory, pages=PAGES, page_bytes=PAGE_BYTES, name="victim") as victim,
        make_reader(directory) as made,
        held_copies(monkeypatch) as (begun, go),
    ):
        made.transport.connect(victim.instance, victim.endpoint)
        made.transport.read(victim.instance, 1, np.arange(PAGES), np.arange(PAGES))
        assert begun.wait(20)
        victim.kill()
        go.set()
        assert made.wait(1) == [(1, Outcome.DONE, "")]
        np.testing.assert_array_equal(made.array, pattern(PAGES, PAGE_BYTES, 0))


def test_a_disconnect_while_the_copy_runs_takes_no_memory_away(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        source(directory) as exporting,
        make_reader(directory) as made,
        held_copies(monkeypatch) as (begun, go),
    ):
        made.transport.connect(SOURCE, exporting.describe())
        made.transport.read(SOURCE, 1, np.arange(PAGES), np.arange(PAGES))
        assert begun.wait(20)
        made.transport.disconnect(SOURCE)
        go.set()
        assert made.wait(1) == [(1, Outcome.DONE, "")]
        np.testing.assert_array_equal(made.array, pattern(PAGES, PAGE_BYTES, 0))


def test_a_disconnected_pool_is_unmapped_once_its_reads_ended(directory: Path) -> None:
    """A decode worker outlives many prefill workers; their memory must not add up."""

    def mapped() -> int:
        gc.collect()
        with open("/proc/self/maps") as maps:
            return sum("kvseal-source-pool" in line for line in maps)

    with (
        source_process("shm", directory, pages=PAGES, page_bytes=PAGE_BYTES, name="brief") as brief,
        make_reader(directory) as made,
    ):
        made.transport.connect(brief.instance, brief.endpoint)
        made.pull(brief.instance, 1, pages_of(0), pages_of(0))
        assert mapped() == 1
        made.transport.disconnect(brief.instance)
        assert soon(lambda: mapped() == 0)


def test_closing_waits_for_the_copy_that_runs_and_ends_those_that_have_not_begun(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        source(directory) as exporting,
        make_reader(directory) as made,
        held_copies(monkeypatch) as (begun, go),
    ):
        made.transport.connect(SOURCE, exporting.describe())
        made.transport.read(SOURCE, 1, pages_of(1), pages_of(1))
        made.transport.read(SOURCE, 2, pages_of(2), pages_of(2))
        assert begun.wait(20)
        closing = threading.Thread(target=made.transport.close)
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()  # a copy is running
        go.set()
        closing.join(20)
        made.ended += made.transport.poll()
        assert made.outcomes() == {1: Outcome.DONE, 2: Outcome.ERROR}
        np.testing.assert_array_equal(made.array[1], pattern(PAGES, PAGE_BYTES, 0)[1])
        assert (made.array[2] == UNTOUCHED).all()


def test_a_copy_that_fails_ends_as_an_error_and_the_next_one_works(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22, G12: one read ends, with a reason; the thread lives on."""

    def fail(*arguments: Any) -> None:
        raise MemoryError("no room for the batch")

    with source(directory) as exporting, make_reader(directory) as made:
        made.transport.connect(SOURCE, exporting.describe())
        monkeypatch.setattr(shm, "copy_pages", fail)
        end = made.pull(SOURCE, 1, pages_of(0), pages_of(0))
        assert end == (1, Outcome.ERROR, "MemoryError: no room for the batch")
        assert made.transport.counters().errors == 1
        monkeypatch.undo()
        assert made.pull(SOURCE, 2, pages_of(0), pages_of(0)).outcome is Outcome.DONE


def test_several_copier_threads_move_everything_once(directory: Path) -> None:
    with source(directory) as exporting, make_reader(directory, options=replace(QUICK, threads=3)) as made:
        made.transport.connect(SOURCE, exporting.describe())
        for transfer in range(PAGES):
            made.transport.read(SOURCE, transfer, pages_of(transfer), pages_of(transfer))
        made.wait(PAGES)
        assert made.outcomes() == dict.fromkeys(range(PAGES), Outcome.DONE)
        np.testing.assert_array_equal(made.array, pattern(PAGES, PAGE_BYTES, 0))


def test_reads_beyond_the_limit_are_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(QUICK, max_reads_in_flight=2)
    with (
        source(directory) as exporting,
        make_reader(directory, options=options) as made,
        held_copies(monkeypatch),
    ):
        made.transport.connect(SOURCE, exporting.describe())
        for transfer in range(2):
            made.transport.read(SOURCE, transfer, pages_of(transfer), pages_of(transfer))
        with pytest.raises(TransportError, match="2 reads are in flight") as refused:
            made.transport.read(SOURCE, 2, pages_of(2), pages_of(2))
        assert refused.value.cause is Cause.OVERLOADED


def test_a_closed_transport_leaves_no_thread_and_no_descriptor(directory: Path) -> None:
    before = open_fds(), threading.active_count()
    with source(directory) as exporting, make_reader(directory) as made:
        made.transport.connect(SOURCE, exporting.describe())
        made.pull(SOURCE, 1, pages_of(0), pages_of(0))
    assert (open_fds(), threading.active_count()) == before


@pytest.mark.parametrize("options", [{"threads": 0}, {"max_reads_in_flight": 0}])
def test_impossible_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        ShmOptions(**options)  # type: ignore[arg-type]


def test_the_record_says_what_shm_proves() -> None:
    assert ShmTransport.capabilities == Capabilities(
        name="shm", proves_read_end=True, crosses_hosts=False, device_memory=False, encrypted=False
    )
