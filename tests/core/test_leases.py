"""The way to a block table leads over what is proven (G6)."""

import pytest
from tests.core.rig import ANN, PAGE

from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import AttemptKey, RequestId
from kvseal.core.leases import Lease
from kvseal.core.pages import PagePool

KEY = AttemptKey(RequestId("r"), 1)


def lease(pages: int = 3, shared: int = 0) -> Lease:
    pins = PagePool(8).lease(pages)
    assert pins is not None
    return Lease(KEY, ANN, pins, PAGE, shared)


def test_nothing_of_a_new_lease_can_be_read() -> None:
    """G6."""
    fresh = lease()
    assert fresh.extent == 0
    assert fresh.readable(0) is not None
    assert all(fresh.readable(start) is None for start in range(1, 13))


def test_the_extent_grows_over_pages_without_a_gap() -> None:
    """G6: in whatever order they are proven."""
    partly = lease()
    partly.prove(1, 10)
    assert partly.extent == 0
    partly.prove(0, 10)
    assert partly.extent == 8
    assert partly.readable(10) is None
    partly.prove(2, 10)
    assert partly.extent == 10
    assert partly.readable(10) is not None
    assert partly.is_proven(2)


@pytest.mark.parametrize("ordinal", [-1, 0, 3])
def test_a_page_is_proven_once_and_must_exist(ordinal: int) -> None:
    once = lease()
    once.prove(0, 12)
    with pytest.raises(InvariantViolation, match="proven twice or does not exist"):
        once.prove(ordinal, 12)


def test_a_table_covers_what_is_read_and_written_and_names_what_is_written_first() -> None:
    part = lease()
    part.prove(0, 4)
    part.prove(1, 6)
    readable = part.readable(6)
    assert readable is not None
    table, pins, first = readable.block_table(1)
    assert len(table.pages) == len(pins) == 2
    assert first == ()
    table, _, first = readable.block_table(3)
    assert len(table.pages) == 3
    assert first == table.pages[2:]


def test_a_pass_must_fit_its_lease_and_write_something() -> None:
    readable = lease().readable(0)
    assert readable is not None
    readable.block_table(12)
    for length in (0, -1, 13):
        with pytest.raises(InvariantViolation, match="does not fit"):
            readable.block_table(length)


def test_a_shared_page_is_never_written() -> None:
    """G9: others read it."""
    shared = lease(shared=1)
    readable = shared.readable(0)
    assert readable is not None
    with pytest.raises(InvariantViolation, match="shared page"):
        readable.block_table(1)


def test_writes_are_append_only() -> None:
    """G6: after a pass over positions 0 to 4 the next one starts at 5 and nowhere else."""
    written = lease()
    written.append(0, 5)
    assert [start for start in range(12) if written.readable(start) is not None] == [5]
