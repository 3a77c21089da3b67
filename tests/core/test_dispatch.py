"""The gateway's part: who is taken in, what is admitted, one answer each (G1, G2, G10)."""

import msgspec
import pytest
from tests.core.rig import ANN, DECODE, OTHER, PREFILL, hello, only, sent

from kvseal.core.dispatch import GatewayConfig, GatewayCore, Submission
from kvseal.core.effects import Conclude, Deliver, Effect
from kvseal.core.errors import Code
from kvseal.core.ids import LayoutDigest, RequestId
from kvseal.core.messages import (
    Abort,
    Aborted,
    Ended,
    Failed,
    Finished,
    Generate,
    Peers,
    Rejected,
    Stop,
    Tokens,
    Unwelcome,
    Usage,
    Welcome,
)
from kvseal.core.sampling import SamplingParams

R = RequestId("r")


def gateway(context: int | None = None, prefill: int = 64, decode: int = 64) -> GatewayCore:
    """A gateway that one worker of each role has joined."""
    core = GatewayCore(GatewayConfig(context))
    core.on_joined(0.0, hello("prefill", PREFILL, prefill))
    core.on_joined(0.0, hello("decode", DECODE, decode))
    return core


def submission(name: str, tokens: int = 5, wanted: int = 3) -> Submission:
    return Submission(RequestId(name), ANN, tuple(range(tokens)), wanted, SamplingParams())


def submit(core: GatewayCore, name: str = "r", tokens: int = 5, wanted: int = 3) -> list[Effect]:
    effects = core.submit(submission(name, tokens, wanted))
    assert not isinstance(effects, Rejected)
    return effects


def token(index: int, attempt: int = 1, name: str = "r") -> Tokens:
    return Tokens(request=RequestId(name), attempt=attempt, index=index, tokens=(100 + index,))


def end_of(effects: list[Effect]) -> object:
    return only(effects, Conclude).end


def test_a_worker_too_small_for_the_context_is_refused_with_both_numbers() -> None:
    """G1, F04: by what it allocated, after reserve."""
    core = GatewayCore(GatewayConfig(48))
    (message,) = sent(core.on_joined(0.0, hello("prefill", PREFILL, 50, reserve=4)), Unwelcome)
    assert isinstance(message, Unwelcome)
    assert "48" in message.reason
    assert "46" in message.reason
    assert core.workers == {}
    core.on_joined(0.0, hello("prefill", OTHER, 52, reserve=4))
    assert list(core.workers) == [OTHER]


def test_a_late_joiner_must_hold_what_is_advertised_already() -> None:
    """G1, F04."""
    core = gateway(prefill=40, decode=64)
    assert core.context == 40
    assert sent(core.on_joined(1.0, hello("decode", OTHER, 39)), Unwelcome)
    assert core.counters["guard_g1"] == 1


def test_a_worker_that_holds_nothing_after_its_reserve_is_refused() -> None:
    """G1, F04: 'auto' would advertise a context of nothing, and the gateway would wait for ever."""
    core = GatewayCore(GatewayConfig())
    (message,) = sent(core.on_joined(0.0, hello("prefill", PREFILL, 4, reserve=4)), Unwelcome)
    assert isinstance(message, Unwelcome)
    assert "4 tokens" in message.reason
    assert core.workers == {}


def test_auto_advertises_the_smaller_number_everywhere() -> None:
    """G1, F04."""
    core = GatewayCore(GatewayConfig())
    core.on_joined(0.0, hello("prefill", PREFILL, 40))
    effects = core.on_joined(0.0, hello("decode", DECODE, 64))
    assert [message.context for message in sent(effects, Welcome)] == [40, 40]  # type: ignore[union-attr]


def test_a_worker_with_other_pages_is_refused_by_name() -> None:
    """F18."""
    core = gateway()
    other = msgspec.structs.replace(hello("decode", OTHER), layout=LayoutDigest(b"another layout.."))
    (message,) = sent(core.on_joined(0.0, other), Unwelcome)
    assert isinstance(message, Unwelcome)
    assert "layout digest" in message.reason


def test_nothing_is_admitted_or_called_too_long_before_the_workers_are_there() -> None:
    core = GatewayCore(GatewayConfig())
    refused = core.submit(submission("r"))
    assert isinstance(refused, Rejected)
    assert refused.code is Code.NO_CAPACITY


def test_decode_workers_hear_of_every_prefill_worker() -> None:
    core = gateway()
    effects = core.on_joined(0.0, hello("prefill", OTHER))
    (peers,) = sent(effects, Peers)
    assert isinstance(peers, Peers)
    assert [known.instance for known in peers.prefill] == [PREFILL, OTHER]


@pytest.mark.parametrize(("tokens", "wanted"), [(64, 1), (65, 0), (60, 5), (0, 1)])
def test_a_refused_request_leaves_no_trace_but_a_counter(tokens: int, wanted: int) -> None:
    """G2, F01, F23: at once, and nothing is sent."""
    core = gateway()
    assert isinstance(core.submit(submission("r", tokens, wanted)), Rejected)
    assert core.open_requests == 0
    assert core.counters["guard_g2"] == 1


def test_a_request_goes_to_the_least_loaded_decode_worker() -> None:
    core = gateway()
    core.on_joined(0.0, hello("decode", OTHER))
    first = core.submit(submission("a"))
    second = core.submit(submission("b"))
    assert not isinstance(first, Rejected)
    assert not isinstance(second, Rejected)
    assert sent(first, Generate)
    assert {effect.to for effect in (*first, *second) if hasattr(effect, "to")} == {DECODE, OTHER}


def test_tokens_are_delivered_in_order_each_once() -> None:
    """G10, F08."""
    core = gateway()
    submit(core)
    assert only(core.on_message(0.0, DECODE, token(0)), Deliver).tokens == (100,)
    assert core.on_message(0.0, DECODE, token(0)) == []
    assert only(core.on_message(0.0, DECODE, token(1)), Deliver).tokens == (101,)


def test_a_token_that_is_missing_fails_the_request() -> None:
    """G10, F21: never an answer with a hole."""
    core = gateway()
    submit(core)
    effects = core.on_message(0.0, DECODE, token(1))
    assert isinstance(end_of(effects), Failed)
    assert sent(effects, Abort)
    assert core.on_message(0.0, DECODE, token(0)) == []


def test_tokens_of_an_older_attempt_are_dropped() -> None:
    """G10, F08."""
    core = gateway()
    submit(core)
    core.on_message(0.0, DECODE, token(0, attempt=2))
    assert core.on_message(0.0, DECODE, token(1, attempt=1)) == []


def test_an_answer_is_not_complete_before_all_its_tokens_came() -> None:
    """G10, F21: 'finished' with tokens missing is a failure."""
    core = gateway()
    submit(core)
    core.on_message(0.0, DECODE, token(0))
    end = Finished(reason="length", usage=Usage(prompt_tokens=5, completion_tokens=3))
    assert isinstance(end_of(core.on_message(0.0, DECODE, Ended(request=R, attempt=1, end=end))), Failed)


def test_a_request_ends_once_whatever_comes_later() -> None:
    """G10, F23."""
    core = gateway()
    submit(core)
    end = Ended(request=R, attempt=1, end=Failed(code=Code.WORKER_LOST, message=""))
    assert isinstance(end_of(core.on_message(0.0, DECODE, end)), Failed)
    assert core.on_message(0.0, DECODE, end) == []
    assert core.abort(0.0, R, Code.ABORTED) == []
    assert core.on_worker_lost(DECODE) == [] or not only_conclusions(core.on_worker_lost(DECODE))


def test_what_has_begun_cannot_be_refused_only_fail() -> None:
    """G2, F08: Generate was repeated on the way, and the repetition was refused after the first life had
    ended.
    """
    core = gateway()
    submit(core)
    core.on_message(0.0, DECODE, token(0))
    refused = Rejected(code=Code.NO_CAPACITY, message="the queue is full")
    end = end_of(core.on_message(0.0, DECODE, Ended(request=R, attempt=1, end=refused)))
    assert isinstance(end, Failed)
    assert end.code is Code.WORKER_LOST


def only_conclusions(effects: list[Effect]) -> list[Conclude]:
    return [effect for effect in effects if isinstance(effect, Conclude)]


def test_a_lost_worker_ends_its_requests_and_no_others() -> None:
    """F21, F23."""
    core = gateway()
    core.on_joined(0.0, hello("decode", OTHER))
    submit(core, "a")
    submit(core, "b")
    (concluded,) = only_conclusions(core.on_worker_lost(DECODE))
    assert isinstance(concluded.end, Failed)
    assert core.open_requests == 1


def test_an_abort_ends_the_request_at_once_and_is_repeated_until_it_is_acknowledged() -> None:
    """F03, F07: what the worker says later does not matter."""
    core = gateway()
    submit(core)
    effects = core.abort(0.0, R, Code.DEADLINE_EXCEEDED)
    assert isinstance(end_of(effects), Aborted)
    assert sent(core.on_tick(2.0), Abort)
    done = Finished(reason="length", usage=Usage(prompt_tokens=5, completion_tokens=0))
    assert core.on_message(2.5, DECODE, Ended(request=R, attempt=1, end=done)) == []
    assert core.on_tick(9.0) == []


def test_messages_of_a_worker_that_is_not_in_are_not_heard() -> None:
    """F10: an old instance."""
    core = gateway()
    submit(core)
    assert core.on_message(0.0, OTHER, token(0)) == []
    core.on_joined(0.0, hello("decode", OTHER))
    assert core.on_message(0.0, OTHER, token(0)) == []


def test_tokens_for_nobody_end_their_request_at_the_worker() -> None:
    """F07: nothing runs on for a client that is gone."""
    core = gateway()
    effects = core.on_message(0.0, DECODE, token(0))
    assert sent(effects, Abort)
    assert core.on_message(0.0, DECODE, token(1)) == []


def test_a_stop_goes_to_the_worker_that_owns_the_request() -> None:
    core = gateway()
    submit(core)
    core.on_message(0.0, DECODE, token(0))
    (stop,) = sent(core.stop(R, 0), Stop)
    assert isinstance(stop, Stop)
    assert stop.index == 0
    assert core.stop(RequestId("unknown"), 0) == []
