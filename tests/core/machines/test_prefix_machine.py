"""Prefix reuse: requests of several tenants over one pool, with sharing and eviction (G9, F16, F25)."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.machines.profiles import chosen

from kvseal.core.ids import LayoutDigest, PageId, Seal, TenantId, derive_page_key, page_ids
from kvseal.core.pages import PagePool, Pins
from kvseal.core.prefix import PrefixTree, pins_of

LAYOUT = LayoutDigest(b"l" * 16)
TENANTS = [TenantId("a"), TenantId("b")]
PAGES, SIZE = 7, 2

tenants = st.sampled_from(TENANTS)
prompts = st.lists(st.integers(0, 1), max_size=8)  # two tokens, so that prompts share prefixes


@dataclass
class Request:
    """One lease: shared pages in front, its own behind."""

    tenant: TenantId
    ids: tuple[PageId, ...]
    pins: Pins
    shared: int


def ids_of(tenant: TenantId, prompt: list[int]) -> tuple[PageId, ...]:
    """Of the full pages."""
    whole = prompt[: len(prompt) // SIZE * SIZE]
    return page_ids(derive_page_key(b"s" * 32, tenant, 0), LAYOUT, whole, SIZE)


class PrefixMachine(RuleBasedStateMachine):
    """The model: what is cached for whom, by the text itself, least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES)
        self.tree = PrefixTree(self.pool)
        self.requests: list[Request] = []
        self.cached: list[PageId] = []
        self.page: dict[PageId, int] = {}
        self.text: dict[PageId, tuple[TenantId, tuple[int, ...]]] = {}

    def holders(self, page: int) -> int:
        shares = sum(page in request.pins.pages.tolist() for request in self.requests)
        return shares + (page in [self.page[identity] for identity in self.cached])

    def look_up(self, ids: tuple[PageId, ...]) -> list[int]:
        found = list(ids[: next((i for i, known in enumerate(ids) if known not in self.cached), len(ids))])
        for identity in reversed(found):
            self.cached.remove(identity)
            self.cached.append(identity)
        return [self.page[identity] for identity in found]

    @rule(tenant=tenants, prompt=prompts, extra=st.integers(1, 3))
    def start(self, tenant: TenantId, prompt: list[int], extra: int) -> None:
        """As a worker does it: look up, retain, make room, lease the rest."""
        ids = ids_of(tenant, prompt)
        for i, identity in enumerate(ids):
            self.text[identity] = tenant, tuple(prompt[: (i + 1) * SIZE])
        found = self.tree.find(ids)
        assert [cached.page for cached in found] == self.look_up(ids)
        assert all(cached.seal == Seal(ids[i]) for i, cached in enumerate(found))
        shared = pins_of(found)
        self.pool.retain(shared)
        request = Request(tenant, ids, shared, len(found))
        self.requests.append(request)
        wanted = len(ids) - len(found) + extra
        possible = self.make_room(wanted)
        assert self.tree.evict(wanted) == possible
        fresh = self.pool.lease(wanted)
        assert (fresh is not None) == possible
        if fresh is None:
            self.requests.remove(request)
            self.pool.release(shared)
        else:
            request.pins = shared + fresh

    def make_room(self, wanted: int) -> bool:
        """The model evicts what nobody else holds, least recently used first: all that is needed or none."""
        free = sum(self.holders(page) == 0 for page in range(PAGES))
        victims = [identity for identity in self.cached if self.holders(self.page[identity]) == 1]
        if free + len(victims) < wanted:
            return False
        for identity in victims[: max(0, wanted - free)]:
            self.cached.remove(identity)
        return True

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        """Pages of a request are complete and sealed: they enter the tree, each once."""
        request = data.draw(st.sampled_from(self.requests))
        for i, identity in enumerate(request.ids):
            self.tree.add(identity, request.pins[i : i + 1], Seal(identity))
            if identity not in self.cached:
                self.cached.append(identity)
                self.page[identity] = int(request.pins.pages[i])

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        self.pool.release(request.pins)

    @rule(tenant=tenants, prompt=prompts)
    def drop(self, tenant: TenantId, prompt: list[int]) -> None:
        """A seal no longer fits."""
        for identity in ids_of(tenant, prompt)[-1:]:
            self.tree.drop(identity)
            if identity in self.cached:
                self.cached.remove(identity)

    @rule(wanted=st.integers(0, PAGES + 1))
    def evict(self, wanted: int) -> None:
        assert self.tree.evict(wanted) == self.make_room(wanted)

    @rule(tenant=tenants, prompt=prompts)
    def find_no_more_than_ones_own(self, tenant: TenantId, prompt: list[int]) -> None:
        ids = ids_of(tenant, prompt)
        found = self.tree.find(ids)
        assert [cached.page for cached in found] == self.look_up(ids)
        for i in range(len(found)):
            assert self.text[ids[i]] == (tenant, tuple(prompt[: (i + 1) * SIZE]))

    @invariant()
    def holders_are_those_of_the_model(self) -> None:
        self.pool.check()
        assert len(self.tree) == len(self.cached)
        assert [self.pool.holders(page) for page in range(PAGES)] == [
            self.holders(page) for page in range(PAGES)
        ]

    @invariant()
    def no_page_is_shared_across_tenants(self) -> None:
        for page in range(PAGES):
            holders = {r.tenant for r in self.requests if page in r.pins.pages.tolist()}
            holders |= {self.text[i][0] for i in self.cached if self.page[i] == page}
            assert len(holders) <= 1

    @invariant()
    def leased_pages_stay(self) -> None:
        assert all(self.pool.is_current(request.pins) for request in self.requests)


TestPrefix = PrefixMachine.TestCase
TestPrefix.settings = chosen()
