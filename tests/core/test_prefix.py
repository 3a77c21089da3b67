"""Pages that a tenant may find again (G9)."""

from tests.core.rig import ANN, BOB, GATEWAY, LAYOUT, PAGE, SECRET, decode_core, generate, load, step

from kvseal.core.ids import PageId, Seal, derive_page_key, page_ids
from kvseal.core.pages import PagePool
from kvseal.core.prefix import PrefixTree

IDS = [PageId(bytes([number]) * 16) for number in range(4)]


def filled(pool: PagePool, count: int = 3) -> PrefixTree:
    tree = PrefixTree(pool)
    for identity in IDS[:count]:
        pin = pool.lease(1)
        assert pin is not None
        tree.add(identity, pin, Seal(identity))
        pool.release(pin)
    return tree


def test_the_longest_run_from_the_first_page_is_found() -> None:
    tree = filled(PagePool(8))
    assert [cached.seal for cached in tree.find(IDS)] == [Seal(identity) for identity in IDS[:3]]
    tree.drop(IDS[1])
    assert len(tree.find(IDS)) == 1
    assert tree.find(IDS[1:]) == []


def test_the_tree_holds_its_pages_and_a_second_copy_is_not_taken_in() -> None:
    pool = PagePool(8)
    tree = filled(pool)
    other = pool.lease(1)
    assert other is not None
    tree.add(IDS[0], other, Seal(b"x" * 16))
    assert len(tree) == 3
    pool.release(other)
    assert pool.count().held == 3


def test_eviction_takes_the_least_recently_used_and_no_page_in_use() -> None:
    pool = PagePool(4)
    tree = filled(pool)
    cached = tree.find(IDS[:1])
    assert tree.evict(2)
    assert len(tree) == 2
    assert [c.page for c in tree.find(IDS[:1])] == [c.page for c in cached]
    assert tree.evict(4)
    assert len(tree) == 0


def test_eviction_is_all_that_is_needed_or_nothing() -> None:
    pool = PagePool(4)
    tree = filled(pool)
    held = pool.lease(1)
    assert held is not None
    assert not tree.evict(4)
    assert len(tree) == 3
    assert tree.evict(0)


def test_dropping_what_is_not_there_changes_nothing() -> None:
    pool = PagePool(4)
    tree = filled(pool)
    tree.drop(IDS[3])
    assert pool.count().held == 3


def test_the_same_prompt_has_other_page_ids_for_another_tenant() -> None:
    """G9: so no tenant can find another one's pages."""
    ids = [page_ids(derive_page_key(SECRET, tenant, 0), LAYOUT, range(8), PAGE) for tenant in (ANN, BOB)]
    assert not set(ids[0]) & set(ids[1])


def test_a_tenant_reuses_its_own_pages_and_never_anothers() -> None:
    """G9, F25: not even the count of reused pages tells."""
    core = decode_core(prefix_reuse=True)
    load(core, generate("first", range(9), tenant=ANN))
    core.on_message(0.0, GATEWAY, generate("other", range(9), tenant=BOB))
    assert core.counters["pages_reused"] == 0
    core.on_message(0.0, GATEWAY, generate("again", range(9), tenant=ANN))
    assert core.counters["pages_reused"] == 2


def test_a_partial_page_is_never_shared() -> None:
    """G9: its owner goes on writing it."""
    core = decode_core(prefix_reuse=True)
    load(core, generate("first", range(7), tenant=ANN))
    assert core.heartbeat().counters["cached_pages"] == 1
    step(core)
    assert core.heartbeat().counters["cached_pages"] == 1
