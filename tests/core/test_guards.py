"""Each guard says yes where it must and no everywhere else; what it is for is shown by taking it away."""

import numpy as np
import pytest

from kvseal.core import guards
from kvseal.core.errors import CapacityMismatch, Code, ProtocolError
from kvseal.core.guards import GUARDS, Admitted, Guard, Order
from kvseal.core.ids import AttemptKey, InstanceId, PageId, RequestId, Seal, TenantId
from kvseal.core.messages import Hello, Rejected, Role
from kvseal.core.pulls import Outcome

ID, OTHER_ID = PageId(b"i" * 16), PageId(b"o" * 16)
SEAL, OTHER_SEAL = Seal(b"s" * 16), Seal(b"t" * 16)
CONTEXT = 10


def worker(role: Role, pool: int, reserve: int) -> Hello:
    return Hello(role=role, instance=InstanceId(b"w" * 16), pool_tokens=pool, reserve_tokens=reserve)


def refused(prompt: int, max_tokens: int) -> Rejected:
    answer = guards.g2_refusal((7,) * prompt, max_tokens, CONTEXT)
    assert isinstance(answer, Rejected)
    return answer


# --- the table
# ---------------------------------------------------------------------------------------------------------


def test_the_table_names_every_guard_and_its_function() -> None:
    assert [guard.id for guard in GUARDS] == [f"G{number}" for number in range(1, 13)]
    for guard in GUARDS:
        assert guard.function.startswith(guard.id.lower() + "_")
        assert callable(getattr(guards, guard.function))


def test_a_second_line_stands_behind_others_and_a_first_line_behind_none() -> None:
    ids = {guard.id for guard in GUARDS}
    for guard in GUARDS:
        assert set(guard.behind) <= ids - {guard.id}
        assert bool(guard.behind) == (guard.line == "second")


def test_a_guard_is_first_or_second_line_behind_nothing_by_itself() -> None:
    assert Guard("G0", "g0_none", "first").behind == ()


def test_the_table_is_the_text_above_it() -> None:
    text = guards.__doc__ or ""
    rows = {
        line.split()[0]: line.split()
        for line in text.splitlines()
        if line.startswith("G") and line[1].isdigit()
    }
    assert {name: row[1] for name, row in rows.items()} == {guard.id: guard.line for guard in GUARDS}
    for guard in GUARDS:
        assert tuple(rows[guard.id][2 : 2 + len(guard.behind)]) == guard.behind


def test_active_guards_are_those_that_nobody_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert guards.active() == tuple(guard.id for guard in GUARDS)
    monkeypatch.setattr(guards, "g5_seal", lambda *_: True)
    assert guards.active() == tuple(guard.id for guard in GUARDS if guard.id != "G5")


# --- one by one
# ---------------------------------------------------------------------------------------------------------


def test_g1_takes_a_context_that_every_pool_holds() -> None:
    guards.g1_capacity(100, [worker("prefill", 100, 0), worker("decode", 108, 8)])
    guards.g1_capacity(100, [])


def test_g1_refuses_a_context_above_a_pool_and_names_both_numbers() -> None:
    """F04."""
    pools = [worker("prefill", 200, 0), worker("decode", 108, 9)]
    with pytest.raises(CapacityMismatch) as caught:
        guards.g1_capacity(100, pools)
    assert str(caught.value) == (
        "the advertised context of 100 tokens does not fit the decode pool, which holds 99 "
        "(108 allocated, 9 in reserve): raise --decode-pool-tokens to at least 109, "
        "or lower --max-context to 99 (or 'auto')"
    )


@pytest.mark.parametrize(("prompt", "max_tokens"), [(1, 9), (9, 1), (5, 5), (10, 0), (1, 0)])
def test_g2_admits_what_fits(prompt: int, max_tokens: int) -> None:
    tokens = tuple(range(prompt))
    assert guards.g2_refusal(tokens, max_tokens, CONTEXT) == Admitted(tokens, prompt + max_tokens)


def test_g2_refuses_an_empty_prompt() -> None:
    answer = refused(0, 5)
    assert (answer.code, answer.message) == (Code.EMPTY_PROMPT, "the prompt has no tokens")


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_g2_refuses_a_prompt_that_is_too_long(max_tokens: int) -> None:
    """F01: with its true count."""
    answer = refused(11, max_tokens)
    assert answer.code is Code.CONTEXT_LENGTH_EXCEEDED
    assert answer.message == (
        "This model's maximum context length is 10 tokens. However, your prompt has 11 tokens."
    )


def test_g2_refuses_a_prompt_that_leaves_no_room_for_an_answer() -> None:
    answer = refused(10, 1)
    assert answer.code is Code.CONTEXT_LENGTH_EXCEEDED
    assert answer.message == (
        "This model's maximum context length is 10 tokens. "
        "However, your prompt has 10 tokens, which leaves no room for an answer."
    )
    assert refused(10, 2).code is Code.CONTEXT_LENGTH_EXCEEDED


def test_g2_refuses_an_answer_that_is_too_long() -> None:
    answer = refused(7, 4)
    assert answer.code is Code.MAX_TOKENS_EXCEEDED
    assert answer.message == (
        "This model's maximum context length is 10 tokens. Your prompt has 7 tokens, which leaves 3 "
        "for the answer, and you asked for 4."
    )


def test_g2_says_what_is_too_long_the_prompt_or_the_answer() -> None:
    assert refused(9, 2).code is Code.MAX_TOKENS_EXCEEDED
    assert refused(10, 2).code is Code.CONTEXT_LENGTH_EXCEEDED


def test_a_refusal_has_no_tokens() -> None:
    assert not {"prompt", "tokens", "room_tokens"} & set(Rejected.__struct_fields__)


def test_g3_lets_only_prefill_export_its_pool() -> None:
    assert [guards.g3_exports(role) for role in ("prefill", "decode", "gateway")] == [True, False, False]


def test_g4_frees_only_pages_without_an_unproven_pull() -> None:
    """F05, F06."""
    assert guards.g4_proven(np.array([0, 1, 2, 0], np.int32)).tolist() == [True, False, False, True]


def test_g4_believes_done_and_nothing_else() -> None:
    """F15."""
    assert {outcome: guards.g4_proves(outcome) for outcome in Outcome} == {
        Outcome.DONE: True,
        Outcome.ERROR: False,
    }


def test_g5_accepts_the_expected_page_with_its_own_seal_only() -> None:
    """F14: neither another page, however intact, nor the right page with other bytes."""
    assert guards.g5_seal(ID, ID, SEAL, SEAL)
    assert not guards.g5_seal(ID, OTHER_ID, SEAL, SEAL)
    assert not guards.g5_seal(ID, ID, SEAL, OTHER_SEAL)
    assert not guards.g5_seal(ID, OTHER_ID, SEAL, OTHER_SEAL)


def test_g6_reads_exactly_what_is_proven() -> None:
    """F16."""
    assert guards.g6_extent(5, 5)
    assert not guards.g6_extent(4, 5)
    assert not guards.g6_extent(6, 5)


def test_g7_sees_one_page_of_another_life() -> None:
    """F13."""
    pinned = np.array([1, 2, 3], np.uint64)
    assert guards.g7_generation(pinned, pinned.copy())
    assert not guards.g7_generation(pinned, np.array([1, 3, 3], np.uint64))
    assert guards.g7_generation(pinned[:0], pinned[:0])


def test_g8_poisons_all_pages_of_a_new_lease() -> None:
    assert guards.g8_poison(np.array([3, 1], np.int64)).tolist() == [3, 1]


def test_g9_keeps_a_tenant_to_itself() -> None:
    """F25."""
    assert guards.g9_scope(TenantId("a")) == "a"


@pytest.mark.parametrize(
    ("attempt", "index", "order"),
    [
        (2, 5, Order.NEXT),
        (3, 5, Order.NEXT),
        (1, 5, Order.STALE),
        (2, 4, Order.STALE),
        (2, 6, Order.GAP),
        (1, 6, Order.STALE),
    ],
)
def test_g10_delivers_each_token_once_and_in_order(attempt: int, index: int, order: Order) -> None:
    """F08."""
    assert guards.g10_in_order(attempt, 2, index, 5) is order


def test_g11_refuses_a_frame_above_its_limit() -> None:
    """F24."""
    guards.g11_frame(0, 10)
    guards.g11_frame(10, 10)
    with pytest.raises(ProtocolError, match=r"^a frame of 11 bytes is over the limit of 10$"):
        guards.g11_frame(11, 10)


def test_g12_ends_the_request_that_failed_and_no_other() -> None:
    """F22."""
    keys = [AttemptKey(RequestId(name), 1) for name in ("a", "b", "c")]
    assert guards.g12_contain(keys[1], keys) == (keys[1],)
    assert guards.g12_contain(AttemptKey(RequestId("b"), 2), keys) == ()
