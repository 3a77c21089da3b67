"""Leases: attention reads exactly what is proven, and writes only behind it (G6, F16)."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.machines.profiles import chosen

from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import AttemptKey, RequestId, TenantId
from kvseal.core.leases import Lease
from kvseal.core.pages import PagePool


class LeaseMachine(RuleBasedStateMachine):
    """The model: the set of positions that hold what they must, and how many of them follow one another."""

    @initialize(size=st.integers(1, 4), pages=st.integers(1, 5), data=st.data())
    def begin(self, size: int, pages: int, data: st.DataObject) -> None:
        pins = PagePool(8).lease(pages)
        assert pins is not None
        self.size, self.room = size, size * pages
        self.prompt = data.draw(st.integers(0, self.room - 1), label="tokens to load")
        self.loads = -(-self.prompt // size)
        shared = data.draw(st.integers(0, self.prompt // size), label="shared pages")
        self.lease = Lease(AttemptKey(RequestId("r"), 1), TenantId("t"), pins, size, shared=shared)
        self.proven: set[int] = set()
        self.written = 0

    @property
    def extent(self) -> int:
        held = {p for page in self.proven for p in range(page * self.size, (page + 1) * self.size)}
        run = next(p for p in range(self.room + 1) if p not in held)
        return self.written or min(run, self.prompt)

    @precondition(lambda self: len(self.proven) < self.loads)
    @rule(data=st.data())
    def prove(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from([page for page in range(self.loads) if page not in self.proven]))
        self.lease.prove(page, self.prompt)
        self.proven.add(page)

    @rule(page=st.integers(-1, 6))
    def prove_what_does_not_exist_or_twice(self, page: int) -> None:
        assert self.lease.is_proven(page) == (page in self.proven)
        if page in self.proven or not 0 <= page < len(self.lease.pins):
            with pytest.raises(InvariantViolation):
                self.lease.prove(page, self.prompt)

    @rule(start=st.integers(0, 21), length=st.integers(-1, 9))
    def read_from(self, start: int, length: int) -> None:
        readable = self.lease.readable(start)
        assert (readable is None) == (start != self.extent)
        if readable is None:
            return
        end = start + length
        if length < 1 or end > self.room or start < self.lease.shared * self.size:
            with pytest.raises(InvariantViolation):
                readable.block_table(length)
            return
        table, pins, clear = readable.block_table(length)
        pages = self.lease.pins.pages.tolist()
        assert table.pages == tuple(pages[position // self.size] for position in range(0, end, self.size))
        assert pins.pages.tolist() == list(table.pages)
        assert pins.generations.tolist() == self.lease.pins.generations.tolist()[: len(pins)]
        begun = {pages[position // self.size] for position in range(start)}
        touched = {pages[position // self.size] for position in range(end)}
        assert set(clear) == touched - begun

    @precondition(lambda self: len(self.proven) == self.loads and self.extent < self.room)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        start = self.extent
        length = data.draw(st.integers(1, self.room - start))
        readable = self.lease.readable(start)
        assert readable is not None
        if start >= self.lease.shared * self.size:
            readable.block_table(length)
            self.lease.append(start, length)
            self.written = start + length

    @invariant()
    def the_extent_is_what_the_model_says(self) -> None:
        assert self.lease.extent == self.extent
        assert self.lease.room_tokens == self.room


TestLease = LeaseMachine.TestCase
TestLease.settings = chosen()
