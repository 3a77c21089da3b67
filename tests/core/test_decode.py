"""The decode worker by hand: what it believes, what it does not, and what it gives back."""

import numpy as np
import pytest
from tests.core.rig import (
    BOB,
    GATEWAY,
    OTHER,
    PREFILL,
    decode_core,
    generate,
    hello,
    load,
    manifest,
    only,
    prove,
    results,
    seal_for,
    sent,
    step,
)

from kvseal.core.decode import DecodeCore
from kvseal.core.effects import Digest, Effect, Poison, Pull, Record, Restart
from kvseal.core.errors import Code, InvariantViolation
from kvseal.core.ids import RequestId, Seal
from kvseal.core.messages import (
    Abort,
    Aborted,
    Ended,
    Failed,
    Finished,
    Manifest,
    Prefill,
    PrefillEnded,
    Rejected,
    Release,
    Released,
    Stop,
    Tokens,
    Welcome,
)
from kvseal.core.pulls import Outcome

PROMPT = tuple(range(10, 20))  # nine tokens to load: two pages and one token of a third
R = RequestId("r")


def end_of(effects: list[Effect]) -> object:
    (ended,) = sent(effects, Ended)
    assert isinstance(ended, Ended)
    return ended.end


def announced(core: DecodeCore, prompt: tuple[int, ...] = PROMPT) -> Pull:
    core.on_message(0.0, GATEWAY, generate("r", prompt))
    return only(core.on_message(0.0, PREFILL, manifest("r", prompt[:-1])), Pull)


def test_a_request_is_loaded_decoded_and_ended_once() -> None:
    core = decode_core()
    asked = core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    (prefill,) = sent(asked, Prefill)
    assert isinstance(prefill, Prefill)
    assert prefill.tokens == PROMPT[:-1]
    loaded = prove(core, core.on_message(0.0, PREFILL, manifest("r", PROMPT[:-1])))
    assert sent(loaded, Release)
    assert [t.tokens for t in sent(step(core, 5), Tokens)] == [(5,)]  # type: ignore[union-attr]
    end = end_of(step(core, 6))
    assert isinstance(end, Finished)
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (10, 2)
    assert core.pool.count().free == 16


def test_a_refused_request_owns_no_pages_and_asks_nobody() -> None:
    """G2, F01: the worker does not trust the gateway's check."""
    core = decode_core(pages=4)
    effects = core.on_message(0.0, GATEWAY, generate("r", range(16)))
    end = end_of(effects)
    assert isinstance(end, Rejected)
    assert end.code is Code.CONTEXT_LENGTH_EXCEEDED
    assert len(effects) == 1
    assert core.pool.count().free == 4


def test_the_advertised_context_lowers_what_a_worker_takes() -> None:
    """F04: the smaller number holds everywhere."""
    core = decode_core(pages=16)
    core.on_message(0.0, GATEWAY, Welcome(context=8))
    assert isinstance(end_of(core.on_message(0.0, GATEWAY, generate("r", range(9)))), Rejected)
    core.on_message(0.0, GATEWAY, Welcome(context=1000))
    assert core.context == 64


def test_pages_are_poisoned_before_anything_else_happens_to_them() -> None:
    """G8: all pages of the lease, first."""
    effects = decode_core().on_message(0.0, GATEWAY, generate("r", PROMPT))
    assert isinstance(effects[0], Poison)
    assert len(effects[0].pages) == 3


def test_a_one_token_prompt_needs_no_prefill() -> None:
    """G6: its extent is 0."""
    core = decode_core()
    assert not sent(core.on_message(0.0, GATEWAY, generate("r", (5,), 1)), Prefill)
    assert isinstance(end_of(step(core)), Finished)


def test_no_pass_is_planned_before_every_page_is_proven() -> None:
    """G6: not after the manifest, not after DONE, only after the digests."""
    core = decode_core()
    pull = announced(core)
    assert core.plan_step() is None
    digest = only(core.on_pull_ended(0.0, pull.transfer, Outcome.DONE), Digest)
    assert core.plan_step() is None
    core.on_digested(0.0, digest.job, [seal_for(page) for page in digest.ids])
    plan = core.plan_step()
    assert plan is not None
    assert plan.entries[0].slice.start == 9
    assert plan.entries[0].slice.tokens == PROMPT[-1:]


def test_a_part_of_the_pages_is_not_enough() -> None:
    """G6, F16: the first chunk came, the rest did not."""
    core = decode_core()
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    whole = manifest("r", PROMPT[:-1])
    prove(core, core.on_message(0.0, PREFILL, Manifest(request=R, attempt=1, pages=whole.pages[:2])))
    assert core.plan_step() is None
    prove(core, core.on_message(0.0, PREFILL, Manifest(request=R, attempt=1, pages=whole.pages[2:])))
    assert core.plan_step() is not None


@pytest.mark.parametrize("damage", ["bytes", "seal", "id", "tenant"])
def test_a_page_that_is_not_the_sealed_one_is_not_accepted(damage: str) -> None:
    """G5, F14: other bytes, another seal, another id, another tenant's page: all fail the same test."""
    core = decode_core(retries=0)
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    rows = list(manifest("r", PROMPT[:-1]).pages)
    row = rows[1]
    match damage:
        case "seal":
            rows[1] = type(row)(row.ordinal, row.page_id, Seal(b"?" * 16), row.place)
        case "id":
            rows[1] = type(row)(row.ordinal, rows[0].page_id, row.seal, row.place)
        case "tenant":
            rows = list(manifest("r", PROMPT[:-1], tenant=BOB).pages)
        case _:
            pass
    told = Manifest(request=R, attempt=1, pages=tuple(rows))
    pull = only(core.on_message(0.0, PREFILL, told), Pull)
    digest = only(core.on_pull_ended(0.0, pull.transfer, Outcome.DONE), Digest)
    seals = [seal_for(page) for page in digest.ids]
    if damage == "bytes":
        seals[1] = Seal(b"!" * 16)
    effects = core.on_digested(0.0, digest.job, seals)
    end = end_of(effects)
    assert isinstance(end, Failed)
    assert end.code is Code.INTEGRITY_CHECK_FAILED
    assert core.counters["guard_g5"] == 1
    assert core.plan_step() is None


def test_a_failed_check_is_tried_once_more_on_other_pages_and_then_ends() -> None:
    """G5, G10: one retry by default, counted, and the client hears one answer."""
    core = decode_core()
    for attempt in (1, 2):
        if attempt == 1:
            core.on_message(0.0, GATEWAY, generate("r", PROMPT))
        pull = only(core.on_message(0.0, PREFILL, manifest("r", PROMPT[:-1], attempt)), Pull)
        digest = only(core.on_pull_ended(0.0, pull.transfer, Outcome.DONE), Digest)
        effects = core.on_digested(0.0, digest.job, [Seal(b"!" * 16)] * 3)
        assert len(sent(effects, Ended)) == attempt - 1
    assert core.counters["retries"] == 1
    assert core.counters["guard_g5"] == 2


def test_landing_pages_of_an_aborted_request_are_not_leased_until_the_read_has_ended() -> None:
    """G4, F05: the abort frees what was never landed in, and no more."""
    core = decode_core(pages=4)
    pull = announced(core)
    aborted = core.on_message(0.0, GATEWAY, Abort(request=R))
    assert isinstance(end_of(aborted), Aborted)
    assert core.pool.count().quarantined == 3
    core.on_message(0.0, GATEWAY, generate("next", PROMPT))
    assert core.heartbeat().waiting == 1
    effects = core.on_pull_ended(1.0, pull.transfer, Outcome.DONE)
    assert sent(effects, Prefill)


def test_pages_of_a_failed_read_stay_in_quarantine_and_the_bound_is_said_once() -> None:
    """G4, F06: an error proves nothing."""
    core = decode_core(retries=0, quarantine_bound_pages=2)
    pull = announced(core)
    effects = core.on_pull_ended(0.0, pull.transfer, Outcome.ERROR, "reset by peer")
    assert core.pool.count().quarantined == 3
    assert "3 pages are in quarantine, the bound is 2" in only(effects, Restart).reason
    refused = end_of(core.on_message(0.0, GATEWAY, generate("next", PROMPT)))
    assert isinstance(refused, Rejected)
    assert refused.code is Code.DRAINING
    assert not [e for e in core.on_tick(1.0) if isinstance(e, Restart)]


def test_a_read_that_was_never_posted_leaves_no_page_in_quarantine() -> None:
    """G4: what was not posted cannot land."""
    core = decode_core(retries=0)
    pull = announced(core)
    assert isinstance(end_of(core.on_pull_refused(0.0, pull.transfer, "no such peer")), Failed)
    assert core.pool.count().free == 16


def test_a_pass_planned_for_an_ended_request_is_dropped() -> None:
    """G7: whether its pages are free or another request's by now."""
    for next_owner in (False, True):
        core = decode_core(pages=3)
        load(core, generate("r", PROMPT))
        plan = core.plan_step()
        assert plan is not None
        core.on_message(0.0, GATEWAY, Abort(request=R))
        if next_owner:
            load(core, generate("next", PROMPT))
        assert core.begin_step(plan) is None
        assert core.counters["guard_g7"] == 1
        core.on_message(0.0, GATEWAY, Abort(request=RequestId("next")))
        assert core.pool.count().free == 3


def test_pages_of_a_running_pass_are_held_until_it_ends() -> None:
    """G7, F13: an abort does not take them from under it."""
    core = decode_core(pages=3)
    load(core, generate("r", PROMPT))
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    core.on_message(0.0, GATEWAY, Abort(request=R))
    assert core.pool.count().free == 0
    assert core.on_step_done(0.0, begun, results(begun)) == []
    assert core.pool.count().free == 3


@pytest.mark.parametrize("event", ["nonfinite_by_model", "guard_g8"])
def test_logits_that_are_not_finite_end_the_attempt_and_the_seals_say_whose_fault_it_was(
    event: str,
) -> None:
    """G8: counted apart."""
    core = decode_core(retries=0)
    load(core, generate("r", PROMPT))
    digest = only(step(core, None), Digest)
    assert core.plan_step() is None
    intact = event == "nonfinite_by_model"
    seals = [seal_for(page) if intact else Seal(b"!" * 16) for page in digest.ids]
    end = end_of(core.on_digested(0.0, digest.job, seals))
    assert isinstance(end, Failed)
    assert end.code is Code.INTEGRITY_CHECK_FAILED
    assert core.counters[event] == 1


def test_a_failed_check_ends_one_request_of_several() -> None:
    """G12, F22: the others go on."""
    core = decode_core(pages=32, retries=0)
    load(core, generate("good", PROMPT))
    pull = announced(core)
    digest = only(core.on_pull_ended(0.0, pull.transfer, Outcome.DONE), Digest)
    effects = core.on_digested(0.0, digest.job, [Seal(b"!" * 16)] * 3)
    assert [record.key.request for record in effects if isinstance(record, Record) and record.key] == ["r"]
    assert [ended.request for ended in sent(effects, Ended)] == ["r"]  # type: ignore[union-attr]
    assert sent(step(core), Tokens)


def test_a_forward_pass_that_raises_ends_its_attempts_and_the_worker_lives() -> None:
    """G12, F18."""
    core = decode_core(retries=0)
    load(core, generate("r", PROMPT))
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    end = end_of(core.on_step_failed(0.0, begun, "out of memory"))
    assert isinstance(end, Failed)
    assert end.code is Code.INTERNAL_ERROR
    assert core.pool.count().free == 16
    load(core, generate("next", PROMPT))
    assert sent(step(core), Tokens)


def test_no_new_attempt_is_made_after_the_first_token() -> None:
    """G10: the client has part of this one."""
    core = decode_core(retries=5)
    load(core, generate("r", PROMPT, 5))
    step(core)
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    assert isinstance(end_of(core.on_step_failed(0.0, begun, "raised")), Failed)
    assert core.counters["retries"] == 0


def test_messages_of_another_attempt_or_another_worker_are_not_heard() -> None:
    """F08, F10."""
    core = decode_core()
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    for peer, attempt in ((PREFILL, 2), (PREFILL, 0), (OTHER, 1)):
        assert core.on_message(0.0, peer, manifest("r", PROMPT[:-1], attempt)) == []
        refusal = Rejected(code=Code.CONTEXT_LENGTH_EXCEEDED, message="no")
        assert core.on_message(0.0, peer, PrefillEnded(request=R, attempt=attempt, end=refusal)) == []
    assert core.counters["stale_messages"] == 6


def test_a_page_that_is_announced_twice_is_pulled_once() -> None:
    core = decode_core()
    announced(core)
    assert core.on_message(0.0, PREFILL, manifest("r", PROMPT[:-1])) == []


def test_a_manifest_of_pages_that_do_not_exist_ends_the_attempt() -> None:
    core = decode_core(retries=0)
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    longer = manifest("r", range(30))
    assert isinstance(end_of(core.on_message(0.0, PREFILL, longer)), Failed)
    assert core.counters["bad_manifests"] == 1


def test_prefills_refusal_is_passed_on_as_what_it_is() -> None:
    """G2, F11: no retry, its own status."""
    core = decode_core()
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    refusal = Rejected(code=Code.CONTEXT_LENGTH_EXCEEDED, message="too long")
    assert end_of(core.on_message(0.0, PREFILL, PrefillEnded(request=R, attempt=1, end=refusal))) == refusal


def test_a_digest_of_an_earlier_life_of_the_same_name_proves_nothing() -> None:
    """F08: a repeated Generate after the abort has other pages under the same name."""
    core = decode_core()
    pull = announced(core)
    digest = only(core.on_pull_ended(0.0, pull.transfer, Outcome.DONE), Digest)
    core.on_message(0.0, GATEWAY, Abort(request=R))
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    assert core.on_digested(0.0, digest.job, [seal_for(page) for page in digest.ids]) == []
    assert core.plan_step() is None


def test_a_pull_of_an_earlier_life_of_the_same_name_is_not_digested() -> None:
    """F08."""
    core = decode_core()
    pull = announced(core)
    core.on_message(0.0, GATEWAY, Abort(request=R))
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    assert core.on_pull_ended(0.0, pull.transfer, Outcome.DONE) == []


def test_losing_prefill_tries_another_and_losing_the_gateway_ends_its_requests() -> None:
    core = decode_core()
    core.on_prefill_joined(0.0, hello("prefill", OTHER))
    core.on_message(0.0, GATEWAY, generate("r", PROMPT))
    (again,) = sent(core.on_peer_lost(0.0, PREFILL), Prefill)
    assert isinstance(again, Prefill)
    assert again.attempt == 2
    assert isinstance(end_of(core.on_peer_lost(0.0, GATEWAY)), Aborted)
    assert core.pool.count().free == 16


def test_a_release_is_repeated_until_it_is_acknowledged() -> None:
    """F06."""
    core = decode_core()
    load(core, generate("r", PROMPT))
    assert core.on_tick(0.5) == []
    assert sent(core.on_tick(1.5), Release)
    core.on_message(1.6, PREFILL, Released(request=R, attempt=1))
    assert core.on_tick(9.0) == []


def test_time_ends_attempts_and_frees_no_page_that_is_not_proven() -> None:
    """F15: 'timed out' means 'still in flight'."""
    core = decode_core(retries=0, prefill_timeout_s=5.0)
    announced(core)
    assert isinstance(end_of(core.on_tick(6.0)), Failed)
    assert core.pool.count().quarantined == 3


def test_a_request_that_finds_no_room_in_time_is_told_so() -> None:
    """F12, F23."""
    core = decode_core(pages=4, queue_timeout_s=5.0)
    load(core, generate("r", PROMPT, 4))
    core.on_message(0.0, GATEWAY, generate("next", PROMPT))
    assert not sent(core.on_tick(4.0), Ended)
    end = end_of(core.on_tick(6.0))
    assert isinstance(end, Failed)
    assert end.code is Code.NO_CAPACITY


def test_a_stop_drops_later_tokens_and_bills_none_of_them() -> None:
    core = decode_core()
    load(core, generate("r", PROMPT, 6))
    for token in (1, 2, 3):
        step(core, token)
    assert core.on_message(0.0, GATEWAY, Stop(request=R, attempt=1, index=3)) == []
    end = end_of(core.on_message(0.0, GATEWAY, Stop(request=R, attempt=1, index=1)))
    assert isinstance(end, Finished)
    assert end.usage.completion_tokens == 2


def test_an_abort_of_an_unknown_request_is_answered_too() -> None:
    """F07: so that the gateway need not ask for ever."""
    assert isinstance(end_of(decode_core().on_message(0.0, GATEWAY, Abort(request=R))), Aborted)


def test_a_drained_worker_finishes_what_it_has_and_takes_nothing_new() -> None:
    core = decode_core()
    load(core, generate("r", PROMPT, 1))
    core.drain()
    refused = end_of(core.on_message(0.0, GATEWAY, generate("next", PROMPT)))
    assert isinstance(refused, Rejected)
    assert isinstance(end_of(step(core)), Finished)


def test_a_pass_that_wrote_other_tokens_than_it_was_given_stops_the_worker() -> None:
    """A bug of ours: the process must not go on serving."""
    core = decode_core()
    load(core, generate("r", PROMPT))
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    (result,) = results(begun)
    wrong = type(result)(result.token, True, np.array([0], np.int64))
    with pytest.raises(InvariantViolation, match="other tokens"):
        core.on_step_done(0.0, begun, [wrong])


def test_ten_thousand_aborts_leave_the_pool_as_full_as_it_began() -> None:
    """F17: waiting, loading, landing, running; freed exactly once."""
    core = decode_core(pages=2)
    short = (1, 2, 3)
    for i in range(10_000):
        name = f"r{i}"
        core.on_message(0.0, GATEWAY, generate(name, short))
        effects: list[Effect] = []
        if i % 4 > 0:
            effects = core.on_message(0.0, PREFILL, manifest(name, short[:-1]))
        if i % 4 > 2:
            prove(core, effects)
        core.on_message(0.0, GATEWAY, Abort(request=RequestId(name)))
        if i % 4 in (1, 2):
            core.on_pull_ended(0.0, only(effects, Pull).transfer, Outcome.DONE)
    core.pool.check()
    assert core.pool.count().free == 2
