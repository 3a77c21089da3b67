"""The prefill worker by hand: what it computes, seals, announces, and when it lets go."""

import numpy as np
import pytest
from tests.core.rig import (
    ANN,
    BOB,
    DECODE,
    LAYOUT,
    OTHER,
    PAGE,
    SECRET,
    only,
    prefill,
    prefill_core,
    results,
    seal_for,
    sent,
)

from kvseal.core.batch import SliceResult
from kvseal.core.effects import CutPeer, Digest, Effect, Poison
from kvseal.core.errors import Code
from kvseal.core.ids import RequestId, Seal, derive_page_key, page_ids
from kvseal.core.messages import Failed, Manifest, PrefillEnded, Rejected, Release, Released
from kvseal.core.prefill import PrefillCore

TOKENS = tuple(range(10, 19))  # two pages and one token of a third
R = RequestId("r")


def compute(core: PrefillCore, written: tuple[int, ...] | None = None, now: float = 0.0) -> list[Effect]:
    """One pass over everything that can be planned; ``written``: what the engine really took as input."""
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    done = results(begun)
    if written is not None:
        done = [SliceResult(None, True, np.array(written, np.int64))]
    return core.on_step_done(now, begun, done)


def sealed(core: PrefillCore, effects: list[Effect], now: float = 0.0) -> list[Effect]:
    """The digests among the effects come back."""
    out = []
    for digest in [effect for effect in effects if isinstance(effect, Digest)]:
        out += core.on_digested(now, digest.job, [seal_for(page) for page in digest.ids])
    return out


def told(effects: list[Effect]) -> Manifest:
    (message,) = sent(effects, Manifest)
    assert isinstance(message, Manifest)
    return message


def test_pages_are_poisoned_when_they_are_leased() -> None:
    """G8."""
    effects = prefill_core().on_message(DECODE, prefill("r", TOKENS))
    assert len(only(effects, Poison).pages) == 3


def test_a_prompt_is_computed_sealed_announced_and_released() -> None:
    core = prefill_core()
    core.on_message(DECODE, prefill("r", TOKENS))
    message = told(sealed(core, compute(core)))
    expected = page_ids(derive_page_key(SECRET, ANN, 0), LAYOUT, TOKENS, PAGE)
    assert tuple(row.page_id for row in message.pages) == expected
    assert [row.ordinal for row in message.pages] == [0, 1, 2]
    effects = core.on_message(DECODE, Release(request=R, attempt=1))
    assert sent(effects, Released)
    assert core.pool.count().free == 16


def test_long_prompts_are_announced_chunk_by_chunk_at_page_ends() -> None:
    core = prefill_core(chunk_tokens=5)
    core.on_message(DECODE, prefill("r", TOKENS))
    assert [row.ordinal for row in told(sealed(core, compute(core))).pages] == [0]
    assert [row.ordinal for row in told(sealed(core, compute(core))).pages] == [1, 2]
    assert core.plan_step() is None


def test_a_prompt_that_does_not_fit_is_refused_and_owns_nothing() -> None:
    """G2, F01: the incident's engine went on with a placeholder here."""
    core = prefill_core(pages=2)
    effects = core.on_message(DECODE, prefill("r", TOKENS))
    (message,) = sent(effects, PrefillEnded)
    assert isinstance(message, PrefillEnded)
    assert isinstance(message.end, Rejected)
    assert message.end.code is Code.CONTEXT_LENGTH_EXCEEDED
    assert not [effect for effect in effects if isinstance(effect, Poison)]
    assert core.pool.count().free == 2
    assert core.plan_step() is None


def test_page_ids_come_from_what_was_written_and_not_from_the_request() -> None:
    """G5: an engine that took other tokens names what it really computed."""
    core = prefill_core()
    core.on_message(DECODE, prefill("r", TOKENS))
    other = (0, *TOKENS[1:])
    message = told(sealed(core, compute(core, other)))
    key = derive_page_key(SECRET, ANN, 0)
    assert tuple(row.page_id for row in message.pages) == page_ids(key, LAYOUT, other, PAGE)


def test_a_cached_page_is_checked_again_before_it_is_read() -> None:
    """G5, G6, F16: no pass over a reused prefix before its digests are back and fit."""
    core = prefill_core(prefix_reuse=True)
    core.on_message(DECODE, prefill("first", TOKENS))
    sealed(core, compute(core))
    effects = core.on_message(DECODE, prefill("again", (*TOKENS[:8], 99, 98)))
    assert core.plan_step() is None
    core.on_digested(0.0, only(effects, Digest).job, [seal_for(page) for page in only(effects, Digest).ids])
    plan = core.plan_step()
    assert plan is not None
    assert plan.entries[0].slice.start == 8
    assert plan.entries[0].slice.tokens == (99, 98)


def test_a_cached_page_that_no_longer_fits_its_seal_ends_the_attempt_and_leaves_the_tree() -> None:
    """G5, G12."""
    core = prefill_core(prefix_reuse=True)
    core.on_message(DECODE, prefill("first", TOKENS))
    sealed(core, compute(core))
    digest = only(core.on_message(DECODE, prefill("again", TOKENS)), Digest)
    effects = core.on_digested(0.0, digest.job, [Seal(b"!" * 16)] * 2)
    (message,) = sent(effects, PrefillEnded)
    assert isinstance(message, PrefillEnded)
    assert isinstance(message.end, Failed)
    assert core.counters["guard_g5"] == 1
    third = core.on_message(DECODE, prefill("third", TOKENS))
    assert not [effect for effect in third if isinstance(effect, Digest)]


def test_a_prefix_is_not_reused_across_tenants() -> None:
    """G9."""
    core = prefill_core(prefix_reuse=True)
    core.on_message(DECODE, prefill("first", TOKENS, tenant=ANN))
    sealed(core, compute(core))
    core.on_message(DECODE, prefill("other", TOKENS, tenant=BOB))
    assert core.counters["prefill_tokens_reused"] == 0
    core.on_message(DECODE, prefill("again", TOKENS, tenant=ANN))
    assert core.counters["prefill_tokens_reused"] == 8


def test_pages_that_decode_has_are_computed_and_not_announced() -> None:
    core = prefill_core()
    message = prefill("r", TOKENS)
    core.on_message(DECODE, type(message)(request=R, attempt=1, tenant=ANN, tokens=TOKENS, skip_pages=2))
    assert [row.ordinal for row in told(sealed(core, compute(core))).pages] == [2]


def test_a_pass_planned_for_a_released_attempt_is_dropped() -> None:
    """G7: whether its pages are free or another attempt's by now."""
    for next_owner in (False, True):
        core = prefill_core(pages=3)
        core.on_message(DECODE, prefill("r", TOKENS))
        plan = core.plan_step()
        assert plan is not None
        core.on_message(DECODE, Release(request=R, attempt=1))
        if next_owner:
            core.on_message(DECODE, prefill("next", TOKENS))
        assert core.begin_step(plan) is None
        assert core.counters["guard_g7"] == 1


def test_pages_of_a_running_pass_are_held_until_it_ends() -> None:
    """G7, F13."""
    core = prefill_core(pages=3)
    core.on_message(DECODE, prefill("r", TOKENS))
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    core.on_message(DECODE, Release(request=R, attempt=1))
    assert core.pool.count().free == 0
    assert core.on_step_done(0.0, begun, results(begun)) == []
    assert core.pool.count().free == 3


def test_a_forward_pass_that_raises_ends_its_attempts_and_says_so() -> None:
    """G12, F11, F18."""
    core = prefill_core()
    core.on_message(DECODE, prefill("r", TOKENS))
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    (message,) = sent(core.on_step_failed(begun, "raised"), PrefillEnded)
    assert isinstance(message, PrefillEnded)
    assert message.end.code is Code.INTERNAL_ERROR
    assert core.pool.count().free == 16


def test_a_pass_that_was_not_finite_announces_nothing() -> None:
    """G8: what is NaN is not worth a seal."""
    core = prefill_core()
    core.on_message(DECODE, prefill("r", TOKENS))
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    effects = core.on_step_done(0.0, begun, results(begun, None))
    assert sent(effects, PrefillEnded)
    assert not sent(effects, Manifest)
    assert core.pool.count().free == 16


def test_a_lost_decode_worker_frees_what_was_computed_for_it_and_no_more() -> None:
    core = prefill_core()
    core.on_message(DECODE, prefill("r", TOKENS))
    core.on_message(OTHER, prefill("r", TOKENS))
    core.on_peer_lost(DECODE)
    assert core.pool.count().held == 3


@pytest.mark.parametrize("now", [10.0, 100_000.0])
def test_a_peer_is_cut_off_when_it_holds_what_was_announced_for_too_long(now: float) -> None:
    """F06: the clock starts when the last page is announced, whatever it shows then."""
    core = prefill_core(hold_s=5.0)
    core.on_message(DECODE, prefill("r", TOKENS))
    effects = compute(core, now=now)
    assert core.on_tick(now + 1.0) == []  # the digests are still on their way
    sealed(core, effects, now + 2.0)
    assert core.on_tick(now + 6.0) == []
    assert only(core.on_tick(now + 8.0), CutPeer).peer == DECODE
    assert core.pool.count().free == 16


def test_a_peer_is_cut_off_at_its_cap_when_others_wait() -> None:
    """F06: bounded, and it is the peer that pays."""
    core = prefill_core(pages=4, peer_cap_pages=2)
    core.on_message(DECODE, prefill("r", TOKENS))
    sealed(core, compute(core))
    effects = core.on_message(OTHER, prefill("next", TOKENS))
    assert only(effects, CutPeer).peer == DECODE
    assert [e for e in core.on_tick(1.0) if isinstance(e, Poison)]


def test_a_digest_of_an_earlier_life_of_the_same_name_is_not_announced() -> None:
    """F08: the attempt was released and asked for again."""
    core = prefill_core()
    core.on_message(DECODE, prefill("r", TOKENS))
    effects = compute(core)
    core.on_message(DECODE, Release(request=R, attempt=1))
    core.on_message(DECODE, prefill("r", TOKENS))
    assert sealed(core, effects) == []
    assert len(told(sealed(core, compute(core))).pages) == 3


def test_a_repeated_request_is_computed_once() -> None:
    core = prefill_core()
    core.on_message(DECODE, prefill("r", TOKENS))
    assert core.on_message(DECODE, prefill("r", TOKENS)) == []
    assert core.pool.count().held == 3


def test_first_come_is_first_served_when_room_is_short() -> None:
    core = prefill_core(pages=4)
    core.on_message(DECODE, prefill("first", TOKENS))
    core.on_message(DECODE, prefill("large", TOKENS))
    core.on_message(DECODE, prefill("small", (1,)))
    assert core.heartbeat().waiting == 2


def test_a_full_queue_refuses_with_a_code_that_may_be_tried_again() -> None:
    core = prefill_core(max_waiting=1)
    core.on_message(DECODE, prefill("r", TOKENS))
    (message,) = sent(core.on_message(DECODE, prefill("next", TOKENS)), PrefillEnded)
    assert isinstance(message, PrefillEnded)
    assert message.end.code is Code.NO_CAPACITY
