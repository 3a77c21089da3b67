"""Admission on all three roles against one predicate: a refused request leaves no trace (G2, F01, F23)."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.machines.profiles import chosen

from kvseal.core.decode import DecodeCore
from kvseal.core.dispatch import GatewayConfig, GatewayCore, Submission
from kvseal.core.effects import Effect, Record, Send
from kvseal.core.errors import Code
from kvseal.core.ids import InstanceId, LayoutDigest, RequestId, TenantId
from kvseal.core.job import DecodeConfig
from kvseal.core.messages import (
    Abort,
    Aborted,
    AnyMessage,
    Ended,
    Generate,
    Hello,
    Prefill,
    PrefillEnded,
    Rejected,
    Release,
    Role,
)
from kvseal.core.prefill import PrefillConfig, PrefillCore
from kvseal.core.sampling import SamplingParams

LAYOUT = LayoutDigest(b"l" * 16)
GATEWAY, DECODE, PREFILL = (InstanceId(name * 16) for name in (b"g", b"d", b"p"))
TENANT = TenantId("t")
SIZE, PAGES, CONTEXT, QUEUE = 4, 5, 12, 3

lengths = st.integers(0, CONTEXT + 3)
answers = st.integers(0, 6)


def refusal(prompt_tokens: int, max_tokens: int) -> Code | None:
    """The rule, as the documentation of the API states it."""
    if prompt_tokens == 0:
        return Code.EMPTY_PROMPT
    if prompt_tokens > CONTEXT or (max_tokens > 0 and prompt_tokens == CONTEXT):
        return Code.CONTEXT_LENGTH_EXCEEDED
    return Code.MAX_TOKENS_EXCEEDED if prompt_tokens + max_tokens > CONTEXT else None


def hello(role: Role, instance: InstanceId) -> Hello:
    return Hello(role=role, instance=instance, layout=LAYOUT, pool_tokens=CONTEXT + 8, reserve_tokens=8)


class AdmissionMachine(RuleBasedStateMachine):
    """The model: who was let in and has not gone."""

    def __init__(self) -> None:
        super().__init__()
        self.gateway = GatewayCore(GatewayConfig(context=CONTEXT, max_open=QUEUE))
        self.gateway.on_joined(0.0, hello("prefill", PREFILL))
        self.gateway.on_joined(0.0, hello("decode", DECODE))
        self.decode = DecodeCore(DecodeConfig(LAYOUT, SIZE, CONTEXT, b"s" * 32, max_requests=QUEUE), PAGES)
        self.decode.on_prefill_joined(0.0, hello("prefill", PREFILL))
        self.prefill = PrefillCore(PrefillConfig(LAYOUT, SIZE, CONTEXT, b"s" * 32, max_waiting=QUEUE), PAGES)
        self.open: list[RequestId] = []
        self.running: list[RequestId] = []
        self.computing: list[RequestId] = []
        self.number = 0

    def name(self) -> RequestId:
        self.number += 1
        return RequestId(f"r{self.number}")

    def trace(self) -> object:
        """Everything that an admitted request changes somewhere."""
        return (
            self.gateway.open_requests,
            sorted(self.gateway.workers[DECODE].open),
            list(self.decode._jobs),
            list(self.decode._loader._asked),
            self.decode.pool.count(),
            list(self.prefill._jobs),
            self.prefill.pool.count(),
        )

    # --- rules

    @rule(prompt=lengths, max_tokens=answers)
    def submit_to_the_gateway(self, prompt: int, max_tokens: int) -> None:
        before, request = self.trace(), self.name()
        asked = Submission(request, TENANT, (7,) * prompt, max_tokens, SamplingParams())
        result = self.gateway.submit(asked)
        expected = refusal(prompt, max(1, max_tokens))
        if expected is None and len(self.open) >= QUEUE:
            expected = Code.NO_CAPACITY
        if expected is not None:
            assert isinstance(result, Rejected)
            assert result.code is expected
            assert self.trace() == before
            return
        assert not isinstance(result, Rejected)
        (sent,) = self.sent(result, DECODE)
        assert isinstance(sent, Generate)
        assert (sent.request, sent.prompt, sent.max_tokens) == (request, (7,) * prompt, max(1, max_tokens))
        self.open.append(request)

    @rule(prompt=lengths, max_tokens=answers)
    def send_to_decode_what_no_gateway_would(self, prompt: int, max_tokens: int) -> None:
        before, request = self.trace(), self.name()
        generate = Generate(
            request=request,
            tenant=TENANT,
            prompt=(7,) * prompt,
            max_tokens=max_tokens,
            sampling=SamplingParams(),
        )
        effects = self.decode.on_message(0.0, GATEWAY, generate)
        expected = refusal(prompt, max(1, max_tokens))
        if expected is None and len(self.running) >= QUEUE:
            expected = Code.NO_CAPACITY
        if expected is not None:
            (ended,) = self.sent(effects, GATEWAY)
            assert isinstance(ended, Ended)
            assert isinstance(ended.end, Rejected)
            assert ended.end.code is expected
            assert len(effects) == 1
            assert self.trace() == before
            return
        assert not self.sent(effects, GATEWAY)
        self.running.append(request)

    @rule(prompt=lengths)
    def send_to_prefill_what_no_decode_worker_would(self, prompt: int) -> None:
        before, request = self.trace(), self.name()
        counted = self.prefill.counters["guard_g2"]
        message = Prefill(request=request, attempt=1, tenant=TENANT, tokens=(7,) * prompt)
        effects = self.prefill.on_message(DECODE, message)
        by_guard = refusal(prompt, 0)
        expected = Code.NO_CAPACITY if by_guard is None and len(self.computing) >= QUEUE else by_guard
        assert self.prefill.counters["guard_g2"] - counted == (by_guard is not None)  # F26
        if expected is not None:
            (ended,) = self.sent(effects, DECODE)
            assert isinstance(ended, PrefillEnded)
            assert isinstance(ended.end, Rejected)
            assert ended.end.code is expected
            assert all(isinstance(effect, Send | Record) for effect in effects)
            assert self.trace() == before
            return
        assert not self.sent(effects, DECODE)
        self.computing.append(request)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end_at_the_gateway(self, data: st.DataObject) -> None:
        request = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.gateway.on_message(0.0, DECODE, Ended(request=request, attempt=1, end=Aborted()))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def abort_at_decode(self, data: st.DataObject) -> None:
        request = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        effects = self.decode.on_message(0.0, GATEWAY, Abort(request=request))
        (ended,) = self.sent(effects, GATEWAY)
        assert isinstance(ended, Ended)
        assert ended.request == request

    @precondition(lambda self: self.computing)
    @rule(data=st.data())
    def release_at_prefill(self, data: st.DataObject) -> None:
        request = self.computing.pop(data.draw(st.integers(0, len(self.computing) - 1)))
        self.prefill.on_message(DECODE, Release(request=request, attempt=1))

    def sent(self, effects: list[Effect], to: InstanceId) -> list[AnyMessage]:
        return [effect.message for effect in effects if isinstance(effect, Send) and effect.to == to]

    # --- what must hold

    @invariant()
    def only_the_admitted_are_there(self) -> None:
        assert self.gateway.open_requests == len(self.open)
        assert list(self.decode._jobs) == self.running
        assert [key.request for _, key in self.prefill._jobs] == self.computing

    @invariant()
    def nobody_is_admitted_beyond_what_there_is(self) -> None:
        for core in (self.decode, self.prefill):
            core.pool.check()
            leased = sum(len(job.lease.pins) for job in core._jobs.values() if job.lease is not None)
            assert core.pool.count().held == leased <= PAGES

    def teardown(self) -> None:
        """When all are gone, both pools are as full as they began (F17)."""
        for request in self.running:
            self.decode.on_message(0.0, GATEWAY, Abort(request=request))
        for request in self.computing:
            self.prefill.on_message(DECODE, Release(request=request, attempt=1))
        assert self.decode.pool.count().free == self.prefill.pool.count().free == PAGES


TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = chosen()
