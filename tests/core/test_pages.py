"""The book of one pool: free, held, quarantined, and nothing in between."""

import numpy as np
import pytest

from kvseal.core.errors import InvariantViolation
from kvseal.core.pages import NO_PINS, PagePool, Pins, PoolCount
from kvseal.core.pulls import Outcome


def leased(pool: PagePool, pages: int) -> Pins:
    pins = pool.lease(pages)
    assert pins is not None
    return pins


def test_a_pool_hands_out_what_it_has_and_no_more() -> None:
    pool = PagePool(3)
    assert pool.lease(4) is None
    assert sorted(leased(pool, 3).pages.tolist()) == [0, 1, 2]
    assert pool.lease(1) is None
    assert pool.count() == PoolCount(free=0, held=3, quarantined=0)


def test_pages_freed_last_are_leased_first() -> None:
    pool = PagePool(4)
    first = leased(pool, 2)
    pool.release(first)
    assert leased(pool, 2).pages.tolist() == first.pages.tolist()


def test_each_lease_is_another_life_of_its_pages() -> None:
    """G7: the generation is bumped when a page leaves the free list."""
    pool = PagePool(1)
    old = leased(pool, 1)
    assert pool.is_current(old)
    pool.release(old)
    new = leased(pool, 1)
    assert not pool.is_current(old)
    assert pool.is_current(new)
    for use in (pool.retain, pool.release, pool.pull_posted):
        with pytest.raises(InvariantViolation, match="G7"):
            use(old)
    assert pool.count() == PoolCount(free=0, held=1, quarantined=0)


def test_pages_given_back_are_nobodys_before_they_are_leased_again() -> None:
    """G7: the generation alone does not say so yet."""
    pool = PagePool(2)
    pins = leased(pool, 2)
    pool.release(pins)
    assert not pool.is_current(pins)
    with pytest.raises(InvariantViolation):
        pool.retain(pins)
    with pytest.raises(InvariantViolation):
        pool.release(pins)


def test_a_shared_page_is_free_when_its_last_holder_lets_go() -> None:
    pool = PagePool(1)
    pins = leased(pool, 1)
    pool.retain(pins)
    assert pool.holders(0) == 2
    pool.release(pins)
    assert pool.count().free == 0
    pool.release(pins)
    assert pool.count().free == 1


@pytest.mark.parametrize("ends", [[], [Outcome.ERROR], [Outcome.DONE], [Outcome.ERROR, Outcome.DONE]])
def test_landing_pages_are_free_only_when_every_pull_is_proven(ends: list[Outcome]) -> None:
    """G4: with two pulls posted, and whatever else ended."""
    pool = PagePool(2)
    pins = leased(pool, 2)
    pool.pull_posted(pins)
    pool.pull_posted(pins)
    for outcome in ends:
        pool.pull_ended(pins.pages, outcome)
    pool.release(pins)
    assert pool.count() == PoolCount(free=0, held=0, quarantined=2)
    assert pool.lease(1) is None
    pool.check()


def test_a_late_proof_frees_quarantined_pages() -> None:
    """G4."""
    pool = PagePool(3)
    pins = leased(pool, 2)
    pool.pull_posted(pins)
    pool.release(pins)
    pool.pull_ended(pins.pages[:1], Outcome.DONE)
    assert pool.count() == PoolCount(free=2, held=0, quarantined=1)
    pool.pull_ended(pins.pages[1:], Outcome.DONE)
    assert pool.count() == PoolCount(free=3, held=0, quarantined=0)
    pool.check()


def test_an_error_leaves_pages_unproven_for_good() -> None:
    """G4, F15."""
    pool = PagePool(1)
    pins = leased(pool, 1)
    pool.pull_posted(pins)
    pool.pull_ended(pins.pages, Outcome.ERROR)
    pool.release(pins)
    assert pool.count().quarantined == 1


def test_a_proof_of_held_pages_frees_nothing() -> None:
    pool = PagePool(1)
    pins = leased(pool, 1)
    pool.pull_posted(pins)
    pool.pull_ended(pins.pages, Outcome.DONE)
    assert pool.count() == PoolCount(free=0, held=1, quarantined=0)
    pool.release(pins)
    assert pool.count().free == 1


def test_no_pins_are_always_current_and_can_be_given_back() -> None:
    pool = PagePool(1)
    assert pool.is_current(NO_PINS)
    pool.retain(NO_PINS)
    pool.release(NO_PINS)
    pool.check()


def test_pins_are_cut_and_joined_like_sequences() -> None:
    pool = PagePool(4)
    pins = leased(pool, 4)
    assert len(pins[1:3]) == 2
    assert (pins[:1] + pins[1:]).pages.tolist() == pins.pages.tolist()


@pytest.mark.parametrize("pages", [0, -1])
def test_empty_pools_and_leases_are_refused(pages: int) -> None:
    with pytest.raises(ValueError, match="at least one page"):
        PagePool(pages)
    with pytest.raises(ValueError, match="at least one page"):
        PagePool(1).lease(pages)


def test_the_check_finds_a_book_that_does_not_add_up() -> None:
    pool = PagePool(2)
    pool.check()
    pool._holders[0] = 1
    with pytest.raises(InvariantViolation, match="free list"):
        pool.check()
    pool._holders[0] = 0
    pool._quarantined = 1
    with pytest.raises(InvariantViolation, match="are not 2"):
        pool.check()
    pool._quarantined = 0
    pool._stack[0] = pool._stack[1]
    with pytest.raises(InvariantViolation, match="twice"):
        pool.check()
    assert np.count_nonzero(pool._is_free) == 2
