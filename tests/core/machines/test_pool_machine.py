"""The book of a pool against dictionaries: pages are given back once, and never early (F05, F06, F15)."""

import contextlib
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.machines.profiles import chosen

from kvseal.core.errors import InvariantViolation
from kvseal.core.pages import PagePool, Pins
from kvseal.core.pulls import Outcome


class Share(NamedTuple):
    """One holder's pages."""

    pins: Pins


class Pull(NamedTuple):
    """A transfer that has not ended."""

    pages: list[int]


class PoolMachine(RuleBasedStateMachine):
    """The model: for each page a life, a count of holders, and a count of pulls that are not proven."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(5)
        self.stack = [4, 3, 2, 1, 0]
        self.life = dict.fromkeys(range(5), 0)
        self.holders = dict.fromkeys(range(5), 0)
        self.unproven = dict.fromkeys(range(5), 0)
        self.shares: list[Share] = []
        self.returned: list[Pins] = []
        self.pulls: list[Pull] = []

    # --- rules

    @rule(wanted=st.integers(1, 6))
    def lease(self, wanted: int) -> None:
        pins = self.pool.lease(wanted)
        if wanted > len(self.stack):
            assert pins is None
            return
        assert pins is not None
        taken = [self.stack.pop() for _ in range(wanted)]
        for page in taken:
            self.life[page] += 1
            self.holders[page] = 1
        assert pins.pages.tolist() == taken
        assert pins.generations.tolist() == [self.life[page] for page in taken]
        self.shares.append(Share(pins))

    @precondition(lambda self: self.shares)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        pins = self.part(data)
        self.pool.retain(pins)
        for page in pins.pages.tolist():
            self.holders[page] += 1
        self.shares.append(Share(pins))

    @precondition(lambda self: self.shares)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        share = self.shares.pop(data.draw(st.integers(0, len(self.shares) - 1)))
        self.pool.release(share.pins)
        pages = share.pins.pages.tolist()
        for page in pages:
            self.holders[page] -= 1
        self.stack.extend(p for p in reversed(pages) if not self.holders[p] and not self.unproven[p])
        self.returned.append(share.pins)

    @precondition(lambda self: self.shares)
    @rule(data=st.data())
    def post_pull(self, data: st.DataObject) -> None:
        pins = self.part(data)
        self.pool.pull_posted(pins)
        for page in pins.pages.tolist():
            self.unproven[page] += 1
        self.pulls.append(Pull(pins.pages.tolist()))

    @precondition(lambda self: self.pulls)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def end_pull(self, data: st.DataObject, outcome: Outcome) -> None:
        pull = self.pulls.pop(data.draw(st.integers(0, len(self.pulls) - 1)))
        self.pool.pull_ended(np.array(pull.pages, np.int64), outcome)
        if outcome is Outcome.DONE:
            for page in pull.pages:
                self.unproven[page] -= 1
            self.stack.extend(p for p in reversed(pull.pages) if not self.holders[p] and not self.unproven[p])

    @precondition(lambda self: self.returned)
    @rule(data=st.data())
    def use_what_was_given_back(self, data: st.DataObject) -> None:
        pins = data.draw(st.sampled_from(self.returned))
        pages, lives = pins.pages.tolist(), pins.generations.tolist()
        good = all(self.holders[p] and self.life[p] == life for p, life in zip(pages, lives, strict=True))
        assert self.pool.is_current(pins) == good
        if not good:
            for use in (self.pool.retain, self.pool.release, self.pool.pull_posted):
                with pytest.raises(InvariantViolation):
                    use(pins)

    def part(self, data: st.DataObject) -> Pins:
        """Some of the pages of one holder, in order."""
        pins = data.draw(st.sampled_from(self.shares)).pins
        chosen = data.draw(st.sets(st.integers(0, len(pins) - 1), min_size=1))
        index = np.array(sorted(chosen), np.int64)
        return Pins(pins.pages[index], pins.generations[index])

    # --- what must hold

    @invariant()
    def the_book_is_whole(self) -> None:
        self.pool.check()

    @invariant()
    def every_page_is_where_the_model_says(self) -> None:
        count = self.pool.count()
        assert count.free == len(self.stack) == len(set(self.stack))
        assert count.held == sum(holders > 0 for holders in self.holders.values())
        assert count.free + count.held + count.quarantined == self.pool.size
        assert {page: self.pool.holders(page) for page in self.holders} == self.holders

    @invariant()
    def what_is_held_is_current(self) -> None:
        assert all(self.pool.is_current(share.pins) for share in self.shares)

    @invariant()
    def no_unproven_page_is_free(self) -> None:
        assert not any(self.unproven[page] for page in self.stack)

    def teardown(self) -> None:
        """Whatever happened, pages come back: all but those on which a pull is not proven."""
        with contextlib.suppress(IndexError):
            while True:
                self.pool.release(self.shares.pop().pins)
        assert self.pool.count().quarantined == sum(n > 0 for n in self.unproven.values())
        assert self.pool.count().held == 0


TestPool = PoolMachine.TestCase
TestPool.settings = chosen()
