"""The decode worker: owns a request from its lease to its one terminal answer.

::

    Generate ──> WAITING ──lease, poison──> LOADING ──Prefill──> prefill worker
                                              │  <──Manifest── (chunk by chunk)
                                              │  pull ──DONE──> digest ──G5──> prove ──> extent
                                              │                        ... until extent == prompt - 1 (G6)
                                              └──Release──> RUNNING ──forward passes──> Tokens ... Ended

Plain synchronous code: events come in with the time, effects go out. A failure ends one attempt; a new one,
on other pages, is made at most ``retries`` times, and only while nothing was delivered (G10). Loading stands
in :mod:`kvseal.core.loading`, what both share in :mod:`kvseal.core.job`.
"""

from collections.abc import Sequence

from kvseal.core import guards, steps
from kvseal.core.batch import Slice, SliceResult
from kvseal.core.effects import Effect, Record, Restart, Send, StepEntry, StepPlan
from kvseal.core.errors import Code, InvariantViolation
from kvseal.core.ids import AttemptKey, InstanceId, RequestId, Seal
from kvseal.core.job import AttemptFailure, DecodeConfig, Job
from kvseal.core.loading import Loader
from kvseal.core.messages import (
    Abort,
    Aborted,
    AnyMessage,
    Ended,
    Failed,
    Finished,
    Generate,
    Heartbeat,
    Hello,
    Manifest,
    PrefillEnded,
    Rejected,
    Released,
    Stop,
    Terminal,
    Tokens,
    Usage,
    Welcome,
)
from kvseal.core.pulls import Outcome
from kvseal.core.requests import DECODE, Event, State, moved


class DecodeCore:
    """See the module's text. Every ``on_…`` returns the effects to carry out, in order."""

    def __init__(self, config: DecodeConfig, pages: int) -> None:
        self.config = config
        self.context = config.usable_tokens
        self.draining = False
        self._jobs: dict[RequestId, Job] = {}
        self._planned: dict[StepEntry, Job] = {}
        self._number = 0
        self._out: list[Effect] = []
        self._loader = Loader(config, pages, self._out, self._attempt_failed)
        self.pool = self._loader.pool
        self.counters = self._loader.counters

    # --- events
    # -------------------------------------------------------------------------------------------------

    def on_message(self, now: float, peer: InstanceId, message: AnyMessage) -> list[Effect]:
        """A message from a gateway or a prefill worker that has authenticated itself."""
        match message:
            case Generate():
                self._on_generate(now, peer, message)
            case Stop():
                self._on_stop(peer, message)
            case Abort():
                self._on_abort(peer, message)
            case Manifest():
                job = self._live(peer, AttemptKey(message.request, message.attempt))
                if job is not None:
                    self._loader.on_manifest(now, job, message)
            case PrefillEnded():
                job = self._live(peer, AttemptKey(message.request, message.attempt))
                if job is not None:
                    self._on_prefill_ended(now, job, message.end)
            case Released():
                self._loader.on_released(peer, AttemptKey(message.request, message.attempt))
            case Welcome():
                self.context = min(message.context, self.config.usable_tokens)
            case _:
                self.counters.add("stale_messages")
        return self._flush(now)

    def on_prefill_joined(self, now: float, hello: Hello) -> list[Effect]:
        """A prefill worker can be asked from now on, over an authenticated connection and a connected
        transport.
        """
        self._loader.prefill[hello.instance] = hello
        return self._flush(now)

    def on_peer_lost(self, now: float, peer: InstanceId) -> list[Effect]:
        """The peer is gone, or its connection. Of a gateway's requests nobody wants the answer; of a prefill
        worker's pages no more will come. What is still landing stays held: a dead peer proves nothing about
        our buffers (G4)."""
        self._loader.forget(peer)
        for job in list(self._jobs.values()):
            if job.gateway == peer:
                self._end(job, Aborted(message="the gateway went away"))
            elif job.source == peer and job.state is State.LOADING:
                lost = AttemptFailure("peer_losses", Code.WORKER_LOST, "the prefill worker was lost")
                self._attempt_failed(now, job, lost)
        return self._flush(now)

    def on_pull_ended(self, now: float, transfer: int, outcome: Outcome, detail: str = "") -> list[Effect]:
        """The transport no longer works on this pull."""
        self._loader.on_pull_ended(now, transfer, outcome, detail)
        return self._flush(now)

    def on_pull_refused(self, now: float, transfer: int, reason: str) -> list[Effect]:
        """The transport did not post this pull at all. Nothing can land, so that alone is a proof."""
        self._loader.on_pull_refused(now, transfer, reason)
        return self._flush(now)

    def on_digested(self, now: float, number: int, seals: Sequence[Seal]) -> list[Effect]:
        """The digests of landed pages are there."""
        self._loader.on_digested(now, number, seals)
        return self._flush(now)

    def on_tick(self, now: float) -> list[Effect]:
        """Time passed: give up on what takes too long. Time ends attempts; it never frees a page that is not
        proven.
        """
        for job in list(self._jobs.values()):
            waited = now - job.progress_s
            if job.state is State.LOADING and waited > self.config.prefill_timeout_s:
                late = AttemptFailure(
                    "prefill_timeouts", Code.WORKER_LOST, "the prefill worker did not answer in time"
                )
                self._attempt_failed(now, job, late)
            elif job.state is State.WAITING and waited > self.config.queue_timeout_s:
                self._end(
                    job, Failed(code=Code.NO_CAPACITY, message="no room for the request came free in time")
                )
        self._loader.resend(now)
        return self._flush(now)

    def drain(self) -> None:
        """Take no new requests; those that are here go on."""
        self.draining = True

    # --- forward passes
    # -----------------------------------------------------------------------------------------

    def plan_step(self) -> StepPlan | None:
        """The next pass: one token for each running request. May be called before the pass can begin."""
        entries: list[StepEntry] = []
        for job in self._jobs.values():
            if len(entries) >= self.config.max_batch:
                break
            if job.state is not State.RUNNING or job.planned or job.lease is None:
                continue
            start = job.known_tokens - 1
            readable = job.lease.readable(start)
            if readable is None:
                raise InvariantViolation(
                    f"a running request's extent is {job.lease.extent}, not {start} (G6)"
                )
            table, pins, clear = readable.block_table(1)
            work = Slice(table, start, (job.last_token,), job.sampling, len(job.output), clear)
            entries.append(StepEntry(job.key, pins, work))
            self._planned[entries[-1]] = job
            job.planned = True
        if not entries:
            return None
        self._number += 1
        return StepPlan(self._number, tuple(entries))

    def begin_step(self, plan: StepPlan) -> StepPlan | None:
        """The part of the plan whose pages are still its own (G7), now that it really runs."""
        return steps.begin_step(plan, self.pool, self._planned, self.counters)

    def on_step_done(self, now: float, plan: StepPlan, results: Sequence[SliceResult]) -> list[Effect]:
        """The pass ended: deliver its tokens, end what is complete."""
        self.counters.add("steps")
        for entry, result in zip(plan.entries, results, strict=True):
            job = self._planned.pop(entry)
            if job.state is State.RUNNING and job.key == entry.key:
                job.planned = False
                self._on_result(now, job, entry, result)
            self.pool.release(entry.pins)
        return self._flush(now)

    def on_step_failed(self, now: float, plan: StepPlan, reason: str) -> list[Effect]:
        """The pass raised: its attempts end, the worker goes on (G12)."""
        for entry in plan.entries:
            job = self._planned.pop(entry)
            if job.state is State.RUNNING and job.key == entry.key:
                job.planned = False
                message = f"the forward pass failed: {reason}"
                self._attempt_failed(now, job, AttemptFailure("step_failures", Code.INTERNAL_ERROR, message))
            self.pool.release(entry.pins)
        return self._flush(now)

    def heartbeat(self) -> Heartbeat:
        """How full this worker is."""
        states = (job.state for job in self._jobs.values())
        return steps.heartbeat(self.pool, states, self.counters, self._loader.cached_pages)

    # --- requests
    # -----------------------------------------------------------------------------------------------

    def _on_generate(self, now: float, gateway: InstanceId, message: Generate) -> None:
        if message.request in self._jobs:
            self.counters.add("stale_messages")
            return
        self.counters.add("requests")
        admitted = guards.g2_refusal(message.prompt, max(1, message.max_tokens), self.context)
        if isinstance(admitted, Rejected):
            self.counters.add("guard_g2")
        elif self.draining or self._loader.stopped:
            admitted = Rejected(code=Code.DRAINING, message="this worker takes no new requests")
        elif len(self._jobs) >= self.config.max_requests:
            admitted = Rejected(code=Code.NO_CAPACITY, message="the decode worker's queue is full")
        if isinstance(admitted, Rejected):
            self.counters.add("refused")
            self._out.append(Send(gateway, Ended(request=message.request, attempt=1, end=admitted)))
            return
        self._jobs[message.request] = Job.admitted(self.config, now, gateway, message, admitted)

    def _on_stop(self, gateway: InstanceId, message: Stop) -> None:
        job = self._jobs.get(message.request)
        if job is None or job.gateway != gateway or not 0 <= message.index < len(job.output):
            self.counters.add("stale_messages")
            return
        del job.output[message.index + 1 :]  # later tokens were dropped by the gateway and are not billed
        self._end(job, Finished(reason="stop", usage=self._usage(job)))

    def _on_abort(self, gateway: InstanceId, message: Abort) -> None:
        job = self._jobs.get(message.request)
        if job is not None and job.gateway == gateway:
            self._end(job, Aborted(code=message.code))
            return
        end = Ended(
            request=message.request, attempt=0, end=Aborted(code=message.code, message="not known here")
        )
        self._out.append(Send(gateway, end))

    def _on_prefill_ended(self, now: float, job: Job, end: Rejected | Failed) -> None:
        """A refusal is final and travels on as what it is; a failure may be tried again elsewhere (G2,
        F11).
        """
        if isinstance(end, Rejected) and end.code is not Code.NO_CAPACITY:
            self._end(job, end)
            return
        self._attempt_failed(now, job, AttemptFailure("prefill_failures", end.code, end.message))

    def _on_result(self, now: float, job: Job, entry: StepEntry, result: SliceResult) -> None:
        assert job.lease is not None
        if tuple(result.written.tolist()) != entry.slice.tokens:
            raise InvariantViolation("the forward pass wrote other tokens than it was given")
        job.lease.append(entry.slice.start, 1)
        if not result.finite or result.token is None:
            self._loader.autopsy(now, job)
            return
        index = len(job.output)
        job.output.append(result.token)
        job.progress_s = now
        self.counters.add("tokens")
        token = Tokens(request=job.request, attempt=job.attempt, index=index, tokens=(result.token,))
        self._out.append(Send(job.gateway, token))
        if result.token in job.stop_ids:
            self._end(job, Finished(reason="stop", usage=self._usage(job)))
        elif len(job.output) >= job.max_tokens:
            self._end(job, Finished(reason="length", usage=self._usage(job)))
        else:
            self._loader.share_filled(job)

    def _attempt_failed(self, now: float, job: Job, failure: AttemptFailure) -> None:
        """A check or a leg failed. Ends this attempt, and no other request (G12); tries again where that is
        allowed.
        """
        live = [other.key for other in self._jobs.values()]
        for key in guards.g12_contain(job.key, live):
            self._out.append(Record(failure.event, key, failure.message))
            self.counters.add(failure.event)
            self._fail_one(now, self._jobs[key.request], failure)

    def _fail_one(self, now: float, job: Job, failure: AttemptFailure) -> None:
        if job.output or job.attempt > self.config.retries or job.state is State.WAITING:
            self._end(job, Failed(code=failure.code, message=failure.message))
            return
        self.counters.add("retries")
        job.state = moved(DECODE, job.state, Event.RETRY)
        self._loader.drop(job)
        job.begin_attempt(now)

    def _end(self, job: Job, end: Terminal) -> None:
        """The one way out, whatever the reason: one terminal answer, pages back exactly once (G10, F17)."""
        job.state = moved(DECODE, job.state, Event.END)
        del self._jobs[job.request]
        self._loader.drop(job)
        self.counters.add(f"ended_{type(end).__name__.lower()}")
        self._out.append(Send(job.gateway, Ended(request=job.request, attempt=job.attempt, end=end)))

    def _usage(self, job: Job) -> Usage:
        return Usage(
            prompt_tokens=len(job.prompt), completion_tokens=len(job.output), cached_tokens=job.cached_tokens
        )

    def _live(self, peer: InstanceId, key: AttemptKey) -> Job | None:
        """The job that a prefill worker speaks of, if it is the live attempt and that worker was asked
        (F08).
        """
        job = self._jobs.get(key.request)
        if job is None or job.attempt != key.attempt or job.source != peer or job.state is State.WAITING:
            self.counters.add("stale_messages")
            return None
        return job

    def _flush(self, now: float) -> list[Effect]:
        self._loader.lease_waiting(now, self._jobs.values())
        stop = self._loader.over_bound()
        if stop is not None:
            self._out.append(Restart(stop))
        out = list(self._out)
        self._out.clear()
        return out
