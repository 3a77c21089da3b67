"""What went wrong in the field, row by row, on the real cores: the simulator's oracles judge each delivered
token.
"""

from dataclasses import replace

import pytest
from tests.simulation.oracle import Request
from tests.simulation.reads import Reading, Reads
from tests.simulation.setup import PAGE_SIZE, Cluster
from tests.simulation.stage import Stage, flipped, land_at, once, well

from kvseal.core.effects import Send
from kvseal.core.errors import Code
from kvseal.core.ids import InstanceId, PageId, RequestId, Seal
from kvseal.core.messages import (
    Aborted,
    Ended,
    Failed,
    Finished,
    Hello,
    Manifest,
    Rejected,
    SealedPage,
    Terminal,
    Unwelcome,
)
from kvseal.core.pulls import Outcome

ONE = Cluster(decode_pages=(12,), prefill_pages=(12,), chunk_tokens=64)


def finished(request: Request) -> bool:
    """Answered completely and, as the oracle has judged, rightly."""
    return isinstance(request.end, Finished)


def code_of(end: Terminal | None) -> Code | None:
    return end.code if isinstance(end, Rejected | Failed | Aborted) else None


@pytest.mark.parametrize(
    "pools", [(6, 12), (9, 9), (12, 6)], ids=["prefill<decode", "equal", "prefill>decode"]
)
def test_prompts_around_the_pool_are_answered_rightly_or_refused_untouched(pools: tuple[int, int]) -> None:
    """F01: the true count or a 4xx; what is refused writes and transfers nothing."""
    prefill_pages, decode_pages = pools
    context = min(pools) * PAGE_SIZE
    for length in sorted({context + delta for delta in range(-8, 2)}):
        stage = Stage(Cluster(decode_pages=(decode_pages,), prefill_pages=(prefill_pages,)))
        request = stage.answer("r", length, 1)
        if length + 1 <= context:
            assert isinstance(request.end, Finished)
            assert request.end.usage.prompt_tokens == length
            continue
        assert code_of(request.end) is Code.CONTEXT_LENGTH_EXCEEDED
        assert stage.world.reads.posted == 0
        assert stage.untouched("prefill")
        assert stage.untouched("decode")


@pytest.mark.parametrize("trouble", ["F01", "F05", "F09"])
def test_a_canary_of_one_tenant_never_reaches_another(trouble: str) -> None:
    """F02, under the conditions of F01, F05 and F09: what ann planted is in every pool when bob comes."""
    stage = Stage(replace(ONE, quarantine_pages=12))
    assert finished(stage.answer("canary", 40, 4, tenant="ann"))
    match trouble:
        case "F01":
            stage.answer("long", 48, 4, tenant="bob", family=1)
        case "F05":
            stage.reads_go(once(land_at(3.0, 3.1)))
            stage.ask("gone", 40, 4, tenant="ann", family=2)
            stage.run(0.1)
            stage.leave("gone")
        case _:
            stage.reads_go(once(land_at(0.5, 0.01, Outcome.ERROR)))
    quiet = Stage(ONE).answer("b", 12, 4, tenant="bob", family=1)
    request = stage.answer("b", 12, 4, tenant="bob", family=1)
    assert finished(request)
    assert request.delivered == quiet.delivered


def test_an_abort_beats_a_transfer_that_succeeds() -> None:
    """F03: the client left while the read was under way; its success changes nothing."""
    stage = Stage(ONE)
    stage.reads_go(land_at(0.05, 0.1))
    request = stage.ask("r", 20)
    stage.until(lambda: stage.world.reads.posted > 0, 1.0)
    stage.leave("r")
    stage.run(5.0)
    assert isinstance(request.end, Aborted)
    assert request.delivered == []


def test_a_worker_that_cannot_hold_the_context_is_refused_with_both_numbers() -> None:
    """F04: not found out in production."""
    stage = Stage(Cluster(decode_pages=(12,), prefill_pages=(12, 6), context=48, waits_for=(1, 1)))
    small = stage.worker("prefill", 1)
    assert not small.alive
    assert [hello.instance for hello in stage.gateway.of_role("prefill")] == [
        stage.worker("prefill").instance
    ]
    effects = stage.gateway.on_joined(0.0, replace_instance(small.hello))
    told = [effect.message for effect in effects if isinstance(effect, Send)]
    (reason,) = [message.reason for message in told if isinstance(message, Unwelcome)]
    assert "48" in reason
    assert "24" in reason


def replace_instance(hello: Hello) -> Hello:
    return Hello(
        role=hello.role,
        instance=InstanceId(b"another instance"),
        layout=hello.layout,
        page_size=hello.page_size,
        model_context=hello.model_context,
        pool_tokens=hello.pool_tokens,
    )


def test_on_request_the_context_is_lowered_wherever_it_is_advertised() -> None:
    """F04: 'auto' advertises what the smallest pool holds, and every decode worker refuses by that number."""
    stage = Stage(Cluster(decode_pages=(12, 8), prefill_pages=(6, 12)))
    assert stage.gateway.context == 6 * PAGE_SIZE
    assert stage.decode(0).context == stage.decode(1).context == 6 * PAGE_SIZE


@pytest.mark.parametrize("late_s", [0.0, 0.01, 0.3, 5.0, 60.0])
def test_a_late_read_never_lands_in_the_next_owners_pages(late_s: float) -> None:
    """F05: no page is leased again before its read has ended, and the next owner's answer is that of a quiet
    run.
    """
    stage = Stage(replace(ONE, quarantine_pages=12))
    stage.reads_go(once(land_at(late_s, late_s + 0.01)))
    stage.ask("gone", 20, tenant="ann")
    stage.until(lambda: stage.world.reads.posted > 0, 1.0)
    landing = set(stage.decode()._loader._pulls[1].dst.tolist())
    stage.leave("gone")
    stage.run(0.02)
    other = stage.ask("next", 12, 4, tenant="bob", family=1)
    stage.until(lambda: bool(stage.decode()._jobs) or other.end is not None, 1.0)
    in_flight = 1 in stage.decode()._loader._pulls
    for job in stage.decode()._jobs.values():
        assert job.lease is not None
        assert not in_flight or not landing & set(job.lease.pins.pages.tolist())
    stage.run(late_s + 5.0)
    assert finished(other)
    assert other.delivered == Stage(ONE).answer("next", 12, 4, tenant="bob", family=1).delivered


def test_without_a_proof_landing_pages_are_never_reused_however_long_it_takes() -> None:
    """F06: no 'releasing anyway' after 30 s, nor after an hour."""
    stage = Stage(replace(ONE, quarantine_pages=12))
    stage.reads_go(once(land_at(None, None)))
    stage.ask("r", 20)
    stage.until(lambda: stage.world.reads.posted > 0, 1.0)
    stage.leave("r")
    stage.run(3600.0)
    assert stage.decode().pool.count().quarantined == 5


def test_a_worker_at_the_bound_of_its_quarantine_is_replaced() -> None:
    """F06: bounded, and the replacement serves."""
    stage = Stage(replace(ONE, quarantine_pages=4))
    before = stage.worker("decode").instance
    stage.reads_go(once(land_at(None, 0.01, Outcome.ERROR)))
    stage.answer("r", 20)
    stage.run(5.0)
    assert stage.worker("decode").instance != before
    assert finished(stage.answer("next", 20))


def test_a_lost_release_keeps_source_pages_until_it_is_said_again() -> None:
    """F06: source pages wait for their Release; it is repeated until it is acknowledged."""
    stage = Stage(ONE)
    stage.reads_go(land_at(0.01, 0.02))
    request = stage.ask("r", 20, 1)
    stage.until(lambda: stage.world.reads.posted > 0, 1.0)
    stage.world.wire.held = []
    stage.run(0.2)  # Release is on its way, and does not come
    assert stage.prefill().heartbeat().running == 1
    held, stage.world.wire.held = stage.world.wire.held, None
    assert held
    for link, receiver, message in held:  # everything but the Release arrives now
        if receiver.role != "prefill":
            stage.world.wire.deliver(link, receiver, message)
    stage.run(5.0)
    assert finished(request)
    assert stage.prefill().heartbeat().running == 0


def test_decode_room_is_free_within_a_second_of_an_abort() -> None:
    """F07: whatever the request was doing."""
    for after_s in (0.0, 0.003, 0.006, 0.01, 0.02, 0.03, 0.05):
        stage = Stage(replace(ONE, reuse=False))
        stage.ask("r", 40, 6)
        stage.run(after_s)
        stage.leave("r")
        stage.run(1.0)
        assert stage.decode().pool.count().free == 12
        assert stage.prefill().pool.count().free == 12


def test_healthy_requests_survive_an_abort_storm() -> None:
    """F07: nine of ten clients leave; the tenth is served within ten virtual seconds."""
    stage = Stage(Cluster(decode_pages=(12, 12), prefill_pages=(12, 12), max_open=200, max_requests=200))
    requests = [stage.ask(f"r{i}", 9, 2, tenant=("ann", "bob")[i % 2], family=i % 3) for i in range(100)]
    for i in range(100):
        stage.run(0.002)
        if i % 10:
            stage.leave(f"r{i}")
    stage.until(lambda: all(request.end is not None for request in requests), 10.0, 0.1)
    assert all(finished(request) for request in requests[::10])


def test_a_manifest_of_an_older_attempt_is_neither_accepted_nor_held_against_the_live_one() -> None:
    """F08: every message is keyed by request and attempt."""
    stage = Stage(replace(ONE, retries=1))
    stage.reads_go(once(flipped))
    request = stage.ask("r", 20)
    decode = stage.decode()
    stage.until(lambda: any(job.attempt == 2 for job in decode._jobs.values()), 2.0)
    stale = Manifest(
        request=RequestId("r"), attempt=1, pages=(SealedPage(0, PageId(bytes(16)), Seal(bytes(16)), 0),)
    )
    before = decode.counters["stale_messages"]
    assert decode.on_message(0.0, stage.worker("prefill").instance, stale) == []
    assert decode.counters["stale_messages"] == before + 1
    stage.run(5.0)
    assert finished(request)


def test_one_failed_transfer_blacklists_nobody() -> None:
    """F09: after the fault is gone the same pair serves, without a restart."""
    stage = Stage(replace(ONE, retries=0, quarantine_pages=12))
    instances = [process.instance for process in stage.world.workers.values()]
    stage.reads_go(once(land_at(None, 0.01, Outcome.ERROR)))
    assert code_of(stage.answer("first", 12).end) is Code.WORKER_LOST
    assert finished(stage.answer("second", 12))
    assert instances == [process.instance for process in stage.world.workers.values()]


def test_a_replaced_prefill_worker_is_used_and_the_old_one_is_not_heard() -> None:
    """F10: another instance behind the same place; traffic recovers within two seconds."""
    stage = Stage(ONE)
    assert finished(stage.answer("before", 12))
    old = stage.worker("prefill")
    stage.world.crash(old, "replaced")
    stage.run(2.0)
    assert stage.worker("prefill").instance != old.instance
    request = stage.ask("after", 20)
    decode = stage.decode()
    stage.until(lambda: bool(decode._jobs), 1.0)
    before = decode.counters["stale_messages"]
    decode.on_message(0.0, old.instance, Manifest(request=RequestId("after"), attempt=1, pages=()))
    assert decode.counters["stale_messages"] == before + 1
    stage.until(lambda: request.end is not None, 2.0)
    assert finished(request)


def test_a_failed_prefill_leg_ends_the_request_at_once_with_its_own_status() -> None:
    """F11: not 1,800 s later, and not as something else."""
    stage = Stage(replace(ONE, retries=0))
    request = stage.ask("r", 40)
    prefill = stage.worker("prefill")
    stage.until(lambda: prefill.running is not None, 1.0)
    plan, prefill.running, prefill.ahead = prefill.running, None, None
    assert plan is not None
    prefill.carry_out(stage.prefill().on_step_failed(plan, "simulated"))
    assert stage.until(lambda: request.end is not None, 1.0) < 1.0
    assert code_of(request.end) is Code.INTERNAL_ERROR
    stage.run(1.0)
    assert stage.decode().pool.count().free == 12


def test_a_failed_decode_leg_has_prefill_stop_within_a_second() -> None:
    """F11: the other way round."""
    stage = Stage(replace(ONE, reuse=False))
    stage.ask("r", 40)
    stage.until(lambda: stage.prefill().heartbeat().running == 1, 1.0)
    stage.leave("r")
    assert stage.until(lambda: stage.prefill().pool.count().free == 12, 1.0) < 1.0


def test_what_is_in_quarantine_is_not_room() -> None:
    """F12: admission counts running, reserved, landing and quarantined pages."""
    stage = Stage(replace(ONE, quarantine_pages=12, queue_timeout_s=3.0, reuse=False))
    stage.reads_go(once(land_at(None, None)))
    stage.ask("gone", 28, 4)
    stage.until(lambda: stage.world.reads.posted > 0, 1.0)
    stage.leave("gone")
    stage.run(0.5)
    assert stage.decode().pool.count().free == 5
    assert finished(stage.answer("small", 10, 2))
    assert code_of(stage.answer("large", 28, 4).end) is Code.NO_CAPACITY


def test_a_pass_planned_before_its_lease_ended_touches_nothing() -> None:
    """F13: the pages have another owner when the pass begins (G7)."""
    stage = Stage(replace(ONE, reuse=False))
    process = stage.worker("decode")
    stage.ask("old", 12, 4)
    stage.until(lambda: process.ahead is not None, 1.0, 0.0001)
    plan, process.ahead = process.ahead, None
    assert plan is not None
    stage.leave("old")
    stage.run(0.05)
    other = stage.ask("new", 12, 4, tenant="bob", family=1)
    stage.until(lambda: bool(other.delivered), 1.0)
    (job,) = stage.decode()._jobs.values()
    assert job.lease is not None
    assert set(plan.entries[0].pins.pages.tolist()) & set(job.lease.pins.pages.tolist())
    assert stage.decode().begin_step(plan) is None
    assert stage.decode().counters["guard_g7"] == 1
    stage.run(2.0)
    assert finished(other)


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_transfer_that_reports_success_is_believed_only_by_its_digest(at_once: int) -> None:
    """F14: bits flip, DONE is said; nobody is given a token of it, and the next attempt is right."""
    stage = Stage(Cluster(decode_pages=(24,), prefill_pages=(24,), retries=1, reuse=False))
    left = [flipped] * at_once

    def script(reads: Reads, reading: Reading) -> None:
        (left.pop() if left and reading.key and reading.key.attempt == 1 else well)(reads, reading)

    stage.reads_go(script)
    requests = [stage.ask(f"r{i}", 9, 2, family=i % 3) for i in range(at_once)]
    stage.run(5.0)
    assert all(finished(request) for request in requests)
    assert stage.decode().counters["guard_g5"] == at_once


def test_a_timeout_means_still_in_flight() -> None:
    """F15: the attempt ends, its landing pages come back only when the read has."""
    stage = Stage(replace(ONE, prefill_timeout_s=1.0, retries=0, quarantine_pages=12, reuse=False))
    stage.reads_go(once(land_at(9.0, 10.0)))
    request = stage.answer("r", 20)
    assert code_of(request.end) is Code.WORKER_LOST
    assert stage.decode().pool.count().quarantined == 5
    stage.run(9.0)
    assert stage.decode().pool.count().free == 12


def test_prefix_and_received_pages_make_up_the_prompt() -> None:
    """F16: to the token."""
    stage = Stage(ONE)
    assert finished(stage.answer("first", 17, 1))
    before = stage.world.reads.pages
    second = stage.answer("second", 27, 1)
    assert finished(second)
    assert stage.world.reads.pages - before == 7 - 4


def test_a_prefix_that_is_still_loading_is_not_reused() -> None:
    """F16: what is not proven is in no tree."""
    stage = Stage(ONE)
    stage.reads_go(once(land_at(1.0, 1.1)))
    first = stage.ask("first", 17, 1)
    stage.until(lambda: stage.world.reads.posted > 0, 1.0)
    second = stage.ask("second", 17, 1)
    stage.run(0.5)
    assert stage.decode().counters["pages_reused"] == 0
    stage.run(3.0)
    assert finished(first)
    assert finished(second)


def test_a_cached_page_that_rotted_is_not_read_again() -> None:
    """F16: it is checked against its seal when it is reused, and computed anew."""
    stage = Stage(ONE)
    assert finished(stage.answer("first", 17, 1))
    tree = stage.decode()._loader._tree
    pool = stage.worker("decode").pool
    assert pool is not None
    pool.flip(next(iter(tree._known.values())).page, 3)
    assert finished(stage.answer("second", 17, 1))
    assert stage.decode().counters["guard_g5"] == 1


def test_an_abort_at_every_step_of_loading_loses_no_page() -> None:
    """F17: freed exactly once."""
    stage = Stage(replace(ONE, reuse=False, quarantine_pages=12))
    for i in range(60):
        stage.ask(f"r{i}", 30, 2, family=i % 3)
        stage.run(0.001 * i)
        stage.leave(f"r{i}")
        stage.run(1.0)
        assert stage.decode().pool.count().free == stage.prefill().pool.count().free == 12
    stage.decode().pool.check()
    stage.prefill().pool.check()


def test_a_failed_check_ends_one_request_and_the_worker_lives() -> None:
    """F22: bounded, counted, and everybody else is served."""
    stage = Stage(Cluster(decode_pages=(24,), prefill_pages=(24,), retries=1, reuse=False))

    def script(reads: Reads, reading: Reading) -> None:
        (flipped if reading.key and reading.key.request == "bad" else well)(reads, reading)

    stage.reads_go(script)
    bad = stage.ask("bad", 12, 2)
    good = [stage.ask(f"good{i}", 9, 3, family=i) for i in range(3)]
    stage.run(5.0)
    assert code_of(bad.end) is Code.INTEGRITY_CHECK_FAILED
    assert all(finished(request) for request in good)
    assert stage.decode().counters["guard_g5"] == 2


@pytest.mark.parametrize("tokens", [47, 48, 49, 480])
def test_an_over_long_request_gets_exactly_one_terminal_answer(tokens: int) -> None:
    """F23: the oracle raises on a second one; here is the first, at once."""
    stage = Stage(ONE)
    request = stage.ask("r", tokens, 2)
    assert isinstance(request.end, Rejected)
    stage.run(60.0)
    assert request.delivered == []


def test_an_answer_for_a_request_that_ended_is_dropped() -> None:
    """F23: a second end, from whatever late message, changes nothing."""
    stage = Stage(ONE)
    request = stage.answer("r", 12)
    assert finished(request)
    late = Ended(request=RequestId("r"), attempt=1, end=Failed(code=Code.INTERNAL_ERROR, message="late"))
    effects = stage.gateway.on_message(0.0, stage.worker("decode").instance, late)
    assert effects == []
