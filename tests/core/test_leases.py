"""Leases, by example; `machines/test_lease_machine.py` searches for what nobody thought of."""

import pytest

from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import AttemptKey, RequestId, TenantId
from kvseal.core.leases import Lease, Readable
from kvseal.core.pages import PagePool

SIZE = 4


def lease_of(pages: int, shared: int = 0) -> Lease:
    pins = PagePool(8).lease(pages)
    assert pins is not None
    return Lease(AttemptKey(RequestId("r"), 1), TenantId("t"), pins, SIZE, shared=shared)


def readable(lease: Lease, start: int) -> Readable:
    found = lease.readable(start)
    assert found is not None
    return found


def test_a_new_lease_has_room_and_proves_nothing() -> None:
    lease = lease_of(3)
    assert (lease.room_tokens, lease.extent, lease.shared) == (12, 0, 0)
    assert not any(lease.is_proven(page) for page in range(3))


def test_the_extent_grows_over_pages_without_a_gap() -> None:
    """F16: received and cached together are the prompt, to the token."""
    lease = lease_of(4)
    lease.prove(1, 15)
    assert lease.extent == 0
    lease.prove(3, 15)
    assert lease.extent == 0
    lease.prove(0, 15)
    assert lease.extent == 8
    assert isinstance(lease.extent, int)
    lease.prove(2, 15)
    assert lease.extent == 15
    assert all(lease.is_proven(page) for page in range(4))


def test_a_partial_page_counts_for_its_tokens_only() -> None:
    lease = lease_of(2)
    lease.prove(0, 6)
    assert lease.extent == 4
    lease.prove(1, 6)
    assert lease.extent == 6
    assert isinstance(lease.extent, int)


def test_the_extent_never_shrinks() -> None:
    lease = lease_of(2)
    lease.append(0, 7)
    lease.prove(1, 2)
    assert lease.extent == 7


@pytest.mark.parametrize("page", [-1, 2, 3])
def test_a_page_that_does_not_exist_cannot_be_proven(page: int) -> None:
    with pytest.raises(InvariantViolation, match=f"^page {page} of 2 was proven twice or does not exist$"):
        lease_of(2).prove(page, 8)


def test_a_page_is_proven_once() -> None:
    lease = lease_of(2)
    lease.prove(0, 8)
    with pytest.raises(InvariantViolation, match=r"^page 0 of 2 was proven twice or does not exist$"):
        lease.prove(0, 8)


def test_two_leases_prove_nothing_for_one_another() -> None:
    one, other = lease_of(1), lease_of(1)
    one.prove(0, 4)
    assert not other.is_proven(0)


def test_only_the_extent_itself_is_readable() -> None:
    """G6: neither less, which would write twice, nor more, which would read what is not proven."""
    lease = lease_of(2)
    lease.prove(0, 8)
    assert lease.readable(3) is None
    assert lease.readable(5) is None
    found = readable(lease, 4)
    assert (found.lease, found.start) == (lease, 4)


def test_writes_are_appended() -> None:
    lease = lease_of(2)
    lease.append(0, 3)
    assert lease.extent == 3
    lease.append(3, 2)
    assert lease.extent == 5


def test_a_block_table_covers_what_is_read_and_written_and_no_more() -> None:
    lease = lease_of(4)
    lease.append(0, 5)
    table, pins, clear = readable(lease, 5).block_table(4)
    assert table.pages == (0, 1, 2)
    assert pins.pages.tolist() == [0, 1, 2]
    assert pins.generations.tolist() == [1, 1, 1]
    assert clear == (2,)


@pytest.mark.parametrize(
    ("start", "length", "pages", "clear"),
    [
        (0, 1, 1, (0,)),
        (0, 4, 1, (0,)),
        (0, 5, 2, (0, 1)),
        (4, 1, 2, (1,)),
        (3, 1, 1, ()),
        (3, 6, 3, (1, 2)),
        (11, 1, 3, ()),
    ],
)
def test_a_pass_clears_the_pages_that_it_writes_first(
    start: int, length: int, pages: int, clear: tuple[int, ...]
) -> None:
    """G8: what stands behind the first written token is nobody's."""
    lease = lease_of(3)
    lease.append(0, start)
    table, _, cleared = readable(lease, start).block_table(length)
    assert (len(table.pages), cleared) == (pages, clear)


@pytest.mark.parametrize("length", [0, -1])
def test_a_pass_writes_something(length: int) -> None:
    with pytest.raises(
        InvariantViolation, match=f"^a pass to position {length} does not fit a lease of 8 slots$"
    ):
        readable(lease_of(2), 0).block_table(length)


def test_a_pass_stays_in_its_lease() -> None:
    lease = lease_of(2)
    lease.append(0, 3)
    assert len(readable(lease, 3).block_table(5)[0].pages) == 2
    with pytest.raises(InvariantViolation, match=r"^a pass to position 9 does not fit a lease of 8 slots$"):
        readable(lease, 3).block_table(6)


def test_a_shared_page_is_never_written() -> None:
    lease = lease_of(3, shared=1)
    lease.append(0, 3)
    with pytest.raises(InvariantViolation, match=r"^position 3 lies in a shared page$"):
        readable(lease, 3).block_table(1)
    lease.append(3, 1)
    assert readable(lease, 4).block_table(1)[2] == (1,)


def test_a_lease_without_shared_pages_is_written_from_its_first_slot() -> None:
    assert readable(lease_of(1), 0).block_table(1)[0].pages == (0,)
