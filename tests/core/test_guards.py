"""Each guard by itself: what it lets pass and what it does not."""

import numpy as np
import pytest
from tests.core.rig import BOB, DECODE, PREFILL, hello

from kvseal.core import guards
from kvseal.core.errors import CapacityMismatch, Code, ProtocolError
from kvseal.core.guards import Admitted, Order
from kvseal.core.ids import AttemptKey, PageId, RequestId, Seal
from kvseal.core.messages import Rejected
from kvseal.core.pulls import Outcome


def test_g1_names_both_numbers_and_the_option_to_change() -> None:
    workers = [hello("decode", DECODE, 64), hello("prefill", PREFILL, 48, reserve=8)]
    guards.g1_capacity(40, workers)
    with pytest.raises(
        CapacityMismatch, match=r"41 tokens does not fit the prefill pool.*40.*--prefill-pool-tokens"
    ):
        guards.g1_capacity(41, workers)


@pytest.mark.parametrize(
    ("tokens", "wanted", "code"),
    [
        (0, 1, Code.EMPTY_PROMPT),
        (10, 1, Code.CONTEXT_LENGTH_EXCEEDED),
        (11, 0, Code.CONTEXT_LENGTH_EXCEEDED),
        (8, 3, Code.MAX_TOKENS_EXCEEDED),
    ],
)
def test_g2_refuses_with_a_value_that_has_no_tokens(tokens: int, wanted: int, code: Code) -> None:
    refused = guards.g2_refusal(tuple(range(tokens)), wanted, 10)
    assert isinstance(refused, Rejected)
    assert refused.code is code
    assert code.status == 400


def test_g2_admits_what_fits_exactly() -> None:
    assert guards.g2_refusal((1, 2, 3), 7, 10) == Admitted((1, 2, 3), 10)
    assert guards.g2_refusal((1,) * 10, 0, 10) == Admitted((1,) * 10, 10)


def test_g2_says_both_numbers() -> None:
    refused = guards.g2_refusal((1,) * 12, 1, 10)
    assert isinstance(refused, Rejected)
    assert "maximum context length is 10 tokens" in refused.message
    assert "12 tokens" in refused.message


def test_g3_lets_prefill_alone_describe_its_pool() -> None:
    assert guards.g3_exports("prefill")
    assert not guards.g3_exports("decode")
    assert not guards.g3_exports("gateway")


def test_g4_frees_a_page_only_when_every_pull_is_proven() -> None:
    assert guards.g4_proven(np.array([0, 1, 2, 0], np.int32)).tolist() == [True, False, False, True]


def test_g4_takes_nothing_but_done_for_a_proof() -> None:
    assert [outcome for outcome in Outcome if guards.g4_proves(outcome)] == [Outcome.DONE]


def test_g5_wants_the_expected_id_and_the_seal_of_the_landed_bytes() -> None:
    page, other = PageId(b"p" * 16), PageId(b"o" * 16)
    seal, differs = Seal(b"s" * 16), Seal(b"d" * 16)
    assert guards.g5_seal(page, page, seal, seal)
    assert not guards.g5_seal(page, other, seal, seal)
    assert not guards.g5_seal(page, page, seal, differs)


def test_g6_starts_exactly_at_the_extent() -> None:
    assert [start for start in range(5) if guards.g6_extent(3, start)] == [3]


def test_g7_wants_every_page_in_the_life_that_was_pinned() -> None:
    pinned = np.array([4, 9], np.uint64)
    assert guards.g7_generation(pinned, np.array([4, 9], np.uint64))
    assert not guards.g7_generation(pinned, np.array([4, 10], np.uint64))


def test_g8_poisons_all_pages_of_a_lease() -> None:
    pages = np.array([3, 1, 2], np.int64)
    assert guards.g8_poison(pages).tolist() == [3, 1, 2]


def test_g9_keeps_each_tenant_to_itself() -> None:
    assert guards.g9_scope(BOB) == BOB


@pytest.mark.parametrize(
    ("attempt", "index", "order"),
    [(1, 3, Order.STALE), (2, 2, Order.STALE), (2, 3, Order.NEXT), (2, 4, Order.GAP), (3, 3, Order.NEXT)],
)
def test_g10_delivers_the_next_token_only(attempt: int, index: int, order: Order) -> None:
    assert guards.g10_in_order(attempt, 2, index, 3) is order


def test_g11_refuses_a_frame_over_its_limit() -> None:
    guards.g11_frame(100, 100)
    with pytest.raises(ProtocolError, match="101 bytes is over the limit of 100"):
        guards.g11_frame(101, 100)


def test_g12_ends_the_failed_attempt_and_no_other() -> None:
    running = [AttemptKey(RequestId(name), 1) for name in "abc"]
    assert guards.g12_contain(running[1], running) == (running[1],)
    assert guards.g12_contain(AttemptKey(RequestId("b"), 2), running) == ()


def test_the_table_names_functions_of_the_module_and_guards_that_exist() -> None:
    ids = [guard.id for guard in guards.GUARDS]
    assert ids == [f"G{number}" for number in range(1, 13)]
    assert all(callable(getattr(guards, guard.function)) for guard in guards.GUARDS)
    assert all(set(guard.behind) <= set(ids) - {guard.id} for guard in guards.GUARDS)
    assert [guard.id for guard in guards.GUARDS if guard.behind] == ["G1", "G2", "G8"]


def test_all_guards_are_active_unless_a_lab_replaced_them() -> None:
    assert guards.active() == tuple(guard.id for guard in guards.GUARDS)
