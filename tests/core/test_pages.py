"""The book of a pool, by example; `machines/test_pool_machine.py` searches for what nobody thought of."""

import numpy as np
import pytest

from kvseal.core.errors import InvariantViolation
from kvseal.core.pages import NO_PINS, PagePool, Pins, PoolCount
from kvseal.core.pulls import Outcome


def leased(pool: PagePool, wanted: int) -> Pins:
    pins = pool.lease(wanted)
    assert pins is not None
    return pins


def pages(pins: Pins) -> list[int]:
    return list(map(int, pins.pages))


TORN = r"^a page on the free list is held, unproven or listed twice$"
GIVEN_BACK = r"^pages were used after they had been given back \(G7\)$"


def test_pins_are_pages_with_their_lives() -> None:
    pins = leased(PagePool(4), 3)
    assert len(pins) == 3
    assert pages(pins[1:]) == [1, 2]
    assert pins[1:].generations.tolist() == [1, 1]
    joined = pins[2:] + pins[:1]
    assert pages(joined) == [2, 0]
    assert joined.generations.tolist() == [1, 1]
    assert len(NO_PINS) == 0
    for pins_or_none in (NO_PINS, joined, NO_PINS + joined):
        assert pins_or_none.pages.dtype == np.dtype(np.int64)
        assert pins_or_none.generations.dtype == np.dtype(np.uint64)
    assert pages(NO_PINS + pins) == pages(pins)


def test_generations_stay_with_their_pages() -> None:
    pool = PagePool(2)
    pool.release(leased(pool, 1))
    pins = leased(pool, 2)
    assert (pages(pins), pins.generations.tolist()) == ([0, 1], [2, 1])
    assert (pages(pins[1:] + pins[:1]), (pins[1:] + pins[:1]).generations.tolist()) == ([1, 0], [1, 2])


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_has_pages(size: int) -> None:
    with pytest.raises(ValueError, match=rf"^a pool needs at least one page, not {size}$"):
        PagePool(size)


def test_a_pool_of_one_page_works() -> None:
    pool = PagePool(1)
    assert pool.count() == PoolCount(free=1, held=0, quarantined=0)
    assert pages(leased(pool, 1)) == [0]


@pytest.mark.parametrize("wanted", [0, -1])
def test_a_lease_has_pages(wanted: int) -> None:
    with pytest.raises(ValueError, match=rf"^a lease needs at least one page, not {wanted}$"):
        PagePool(2).lease(wanted)


def test_a_lease_gets_all_that_it_wants_or_nothing() -> None:
    pool = PagePool(3)
    assert pool.lease(4) is None
    assert pool.count() == PoolCount(free=3, held=0, quarantined=0)
    assert pages(leased(pool, 3)) == [0, 1, 2]
    assert pool.lease(1) is None
    pool.check()


def test_pages_freed_last_are_leased_first() -> None:
    pool = PagePool(4)
    first, second = leased(pool, 2), leased(pool, 1)
    pool.release(second)
    pool.release(first)
    assert pages(leased(pool, 4)) == [0, 1, 2, 3]


def test_a_page_begins_a_new_life_with_each_lease() -> None:
    pool = PagePool(1)
    for life in range(1, 4):
        pins = leased(pool, 1)
        assert pins.generations.tolist() == [life]
        pool.release(pins)


def test_a_page_is_free_only_when_its_last_holder_lets_go() -> None:
    pool = PagePool(2)
    pins = leased(pool, 2)
    pool.retain(pins[:1])
    assert [pool.holders(0), pool.holders(1)] == [2, 1]
    pool.release(pins)
    assert pool.count() == PoolCount(free=1, held=1, quarantined=0)
    assert pool.is_current(pins[:1])
    pool.release(pins[:1])
    assert pool.count() == PoolCount(free=2, held=0, quarantined=0)


def test_what_was_given_back_is_not_current() -> None:
    pool = PagePool(2)
    pins = leased(pool, 2)
    pool.release(pins[:1])
    assert not pool.is_current(pins)
    assert not pool.is_current(pins[:1])
    assert pool.is_current(pins[1:])


def test_what_was_leased_again_is_not_current_for_the_one_before() -> None:
    pool = PagePool(1)
    old = leased(pool, 1)
    pool.release(old)
    new = leased(pool, 1)
    assert not pool.is_current(old)
    assert pool.is_current(new)


@pytest.mark.parametrize("use", ["retain", "release", "pull_posted"])
def test_every_use_of_a_page_of_another_life_is_refused(use: str) -> None:
    """F13: a read after the lease ended fails the request."""
    pool = PagePool(1)
    old = leased(pool, 1)
    pool.release(old)
    with pytest.raises(InvariantViolation, match=GIVEN_BACK):
        getattr(pool, use)(old)
    new = leased(pool, 1)
    with pytest.raises(InvariantViolation, match=GIVEN_BACK):
        getattr(pool, use)(old)
    assert pool.holders(0) == 1
    pool.release(new)
    assert pool.count().free == 1


def test_a_landing_page_is_not_free_before_its_pull_is_done() -> None:
    """F05, F15: whatever a timeout or a cancel says."""
    pool = PagePool(2)
    pins = leased(pool, 2)
    pool.pull_posted(pins)
    pool.release(pins)
    assert pool.count() == PoolCount(free=0, held=0, quarantined=2)
    assert pool.lease(1) is None
    pool.check()
    pool.pull_ended(pins.pages[:1], Outcome.DONE)
    assert pool.count() == PoolCount(free=1, held=0, quarantined=1)
    pool.pull_ended(pins.pages[1:], Outcome.DONE)
    assert pool.count() == PoolCount(free=2, held=0, quarantined=0)
    assert pages(leased(pool, 2)) == [1, 0]
    pool.check()


def test_a_failed_pull_keeps_its_page_in_quarantine_for_good() -> None:
    """F06: nothing but proof gives a landing page back, and no second end of the transfer is proof."""
    pool = PagePool(1)
    pins = leased(pool, 1)
    pool.pull_posted(pins)
    pool.pull_ended(pins.pages, Outcome.ERROR)
    pool.release(pins)
    assert pool.count() == PoolCount(free=0, held=0, quarantined=1)
    pool.check()


@pytest.mark.parametrize("ends", [[], [Outcome.ERROR], [Outcome.DONE], [Outcome.ERROR, Outcome.DONE]])
def test_of_two_pulls_both_must_be_done(ends: list[Outcome]) -> None:
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


def test_no_pins_are_always_current_and_can_be_given_back() -> None:
    pool = PagePool(1)
    assert pool.is_current(NO_PINS)
    pool.retain(NO_PINS)
    pool.release(NO_PINS)
    assert pool.count() == PoolCount(free=1, held=0, quarantined=0)


def test_a_page_waits_for_every_pull_that_was_ever_posted() -> None:
    pool = PagePool(1)
    pins = leased(pool, 1)
    pool.pull_posted(pins)
    pool.pull_posted(pins)
    pool.release(pins)
    pool.pull_ended(pins.pages, Outcome.DONE)
    assert pool.count().quarantined == 1
    pool.pull_ended(pins.pages, Outcome.DONE)
    assert pool.count() == PoolCount(free=1, held=0, quarantined=0)


def test_a_pull_that_is_done_in_time_changes_nothing() -> None:
    pool = PagePool(2)
    pins = leased(pool, 2)
    pool.pull_posted(pins)
    pool.pull_ended(pins.pages, Outcome.DONE)
    assert pool.count() == PoolCount(free=0, held=2, quarantined=0)
    pool.release(pins)
    assert pool.count() == PoolCount(free=2, held=0, quarantined=0)
    assert pages(leased(pool, 2)) == [0, 1]


def test_a_page_that_is_free_already_is_not_freed_again() -> None:
    pool = PagePool(2)
    pins = leased(pool, 1)
    pool.pull_posted(pins)
    pool._unproven[pins.pages] += 1  # as if the book had been torn: nothing may double a page
    pool.pull_ended(pins.pages, Outcome.DONE)
    pool.pull_ended(pins.pages, Outcome.DONE)
    pool.release(pins)
    pool._unproven[pins.pages] += 1
    pool.pull_ended(pins.pages, Outcome.DONE)
    assert pool.count() == PoolCount(free=2, held=0, quarantined=0)
    pool.check()


def test_a_mixed_release_frees_what_is_proven_and_keeps_the_rest() -> None:
    pool = PagePool(3)
    pins = leased(pool, 3)
    pool.pull_posted(pins[1:2])
    pool.release(pins)
    assert pool.count() == PoolCount(free=2, held=0, quarantined=1)
    assert pages(leased(pool, 2)) == [0, 2]
    pool.check()


def test_quarantine_adds_up_over_releases() -> None:
    """F12: admission counts what is in quarantine, all of it."""
    pool = PagePool(3)
    for quarantined in (1, 2, 3):
        pins = leased(pool, 1)
        pool.pull_posted(pins)
        pool.release(pins)
        assert pool.count().quarantined == quarantined
    pool.check()


def test_the_check_sees_a_page_that_is_free_and_held() -> None:
    pool = PagePool(2)
    pool._holders[1] = 1
    with pytest.raises(InvariantViolation, match=TORN):
        pool.check()


def test_the_check_sees_a_page_that_is_free_and_unproven() -> None:
    pool = PagePool(2)
    pool._unproven[0] = 1
    with pytest.raises(InvariantViolation, match=TORN):
        pool.check()


def test_the_check_sees_a_page_that_is_listed_twice() -> None:
    pool = PagePool(2)
    pool._stack[0] = 0
    with pytest.raises(InvariantViolation, match=TORN):
        pool.check()


def test_the_check_sees_a_lost_page() -> None:
    pool = PagePool(3)
    leased(pool, 1)
    pool._holders[0] = 0
    with pytest.raises(InvariantViolation, match=r"^2 free \+ 0 held \+ 0 quarantined pages are not 3$"):
        pool.check()


def test_the_check_sees_a_page_too_many() -> None:
    pool = PagePool(2)
    pool._quarantined = 1
    with pytest.raises(InvariantViolation, match=r"^2 free \+ 0 held \+ 1 quarantined pages are not 2$"):
        pool.check()
