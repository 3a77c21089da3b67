"""The prefill worker: computes the pages of prompts in chunks, seals and announces them, and keeps them until
released.

Plain synchronous code: events come in with the time, effects go out. It hears from decode workers only. What
it seals a page with is derived from the token ids that the forward pass wrote, never from the request (G5).
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvseal.core import guards, steps
from kvseal.core.batch import Slice, SliceResult
from kvseal.core.counters import Counters
from kvseal.core.effects import CutPeer, Digest, Effect, Poison, Record, Send, StepEntry, StepPlan
from kvseal.core.errors import Code
from kvseal.core.ids import (
    ROOT,
    AttemptKey,
    InstanceId,
    LayoutDigest,
    PageId,
    PageKey,
    Seal,
    TenantId,
    derive_page_key,
    page_id,
    page_ids,
    short,
)
from kvseal.core.leases import Lease
from kvseal.core.messages import (
    AnyMessage,
    Failed,
    Heartbeat,
    Manifest,
    Prefill,
    PrefillEnded,
    Rejected,
    Release,
    Released,
    SealedPage,
)
from kvseal.core.pages import PagePool, Pins
from kvseal.core.prefix import Cached, PrefixTree, pins_of
from kvseal.core.requests import PREFILL, Event, State, moved

EVENTS = (
    "prefill_requests",
    "prefill_refused",
    "prefill_tokens_computed",
    "prefill_tokens_reused",
    "pages_sealed",
    "released",
    "peers_cut",
    "stale_messages",
    "queue_full",
    "guard_g2",
    "guard_g5",
    "guard_g6",
    "guard_g7",
    "guard_g8",
    "step_failures",
)


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """``usable_tokens``: what one prompt may occupy. ``chunk_tokens``: budget of one forward pass.

    ``peer_cap_pages``: what one decode worker may leave unreleased of computed attempts, before it is cut
    off; ``hold_s``: how long. Both free memory sooner and permit nothing: early reuse of a source page is
    caught by the seal (G5).
    """

    layout: LayoutDigest
    page_size: int
    usable_tokens: int
    secret: bytes = field(repr=False)
    cache_version: int = 0
    chunk_tokens: int = 512
    max_waiting: int = 1024
    peer_cap_pages: int = 1 << 40
    hold_s: float = 60.0
    prefix_reuse: bool = False


@dataclass(slots=True, eq=False)
class Job:
    """One attempt's prompt. ``written`` are the ids that forward passes really wrote, ``sealing`` counts
    digests on their way.
    """

    key: AttemptKey
    tenant: TenantId
    peer: InstanceId
    tokens: tuple[int, ...]
    skip_pages: int
    page_key: PageKey
    state: State = State.WAITING
    lease: Lease | None = None
    written: list[int] = field(default_factory=list)
    named_pages: int = 0
    parent: PageId = ROOT
    planned: bool = False
    sealing: int = 0
    computed_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SealJob:
    """A digest on its way: pages ``first`` … of the job; ``known`` are the seals that reused pages must still
    have. It belongs to the job itself and not to its name, which a repeated message can give to another job.
    """

    job: Job
    first: int
    pins: Pins
    ids: tuple[PageId, ...]
    known: tuple[Seal, ...] = ()


class PrefillCore:
    """See the module's text. Every ``on_…`` returns the effects to carry out, in order."""

    def __init__(self, config: PrefillConfig, pages: int) -> None:
        self.config = config
        self.pool = PagePool(pages)
        self.counters = Counters(EVENTS)
        self._tree = PrefixTree(self.pool)
        self._jobs: OrderedDict[tuple[InstanceId, AttemptKey], Job] = OrderedDict()
        self._seals: dict[int, SealJob] = {}
        self._planned: dict[StepEntry, Job] = {}
        self._number = 0  # of steps and digests
        self._out: list[Effect] = []

    # --- events
    # -------------------------------------------------------------------------------------------------

    def on_message(self, peer: InstanceId, message: AnyMessage) -> list[Effect]:
        """A message from a decode worker that has authenticated itself."""
        match message:
            case Prefill():
                self._on_prefill(peer, message)
            case Release():
                self._on_release(peer, AttemptKey(message.request, message.attempt))
            case _:
                self._record("stale_messages", None, f"unexpected {type(message).__name__}")
        return self._flush()

    def on_peer_lost(self, peer: InstanceId) -> list[Effect]:
        """The peer is gone, or its connection: nobody will release its pages, and no read of its can be
        believed.
        """
        for job in [job for job in self._jobs.values() if job.peer == peer]:
            self._end(job)
        return self._flush()

    def on_digested(self, now: float, number: int, seals: Sequence[Seal]) -> list[Effect]:
        """Seals of complete pages are there: announce them."""
        asked = self._seals.pop(number, None)
        if asked is None or asked.job.lease is None:  # the job has ended
            return self._flush()
        job, lease = asked.job, asked.job.lease
        job.sealing -= 1
        if asked.known and not self._still_sealed(job, asked, seals):
            return self._flush()
        self.counters.add("pages_sealed", len(seals))
        self._share(job, asked, seals)
        pages = tuple(
            SealedPage(asked.first + i, identity, seal, int(place))
            for i, (identity, seal, place) in enumerate(zip(asked.ids, seals, asked.pins.pages, strict=True))
            if asked.first + i >= job.skip_pages
        )
        if pages:
            cached = lease.shared * self.config.page_size
            manifest = Manifest(
                request=job.key.request, attempt=job.key.attempt, pages=pages, cached_tokens=cached
            )
            self._send(job.peer, manifest)
        self._maybe_announced(now, job)
        return self._flush()

    def on_tick(self, now: float) -> list[Effect]:
        """Cut off peers that hold computed pages for too long. Safe at any time: G5 catches early reuse."""
        late = {
            job.peer
            for job in self._jobs.values()
            if job.state is State.ANNOUNCED
            and not job.sealing  # until its last page is announced, the peer has nothing to release
            and now - job.computed_s > self.config.hold_s
        }
        for peer in sorted(late):
            self._cut(peer, f"a computed prompt was not released within {self.config.hold_s:g} s")
        return self._flush()

    # --- forward passes
    # -----------------------------------------------------------------------------------------

    def plan_step(self) -> StepPlan | None:
        """The next pass: chunks of the oldest prompts, up to the budget. May be called while another pass
        runs.
        """
        budget = self.config.chunk_tokens
        entries: list[StepEntry] = []
        for job in self._jobs.values():
            if budget < 1:
                break
            if job.state is not State.COMPUTING or job.planned or job.lease is None:
                continue
            start = len(job.written)
            readable = job.lease.readable(start)
            if (
                readable is None
            ):  # a reused prefix whose seals are still being checked, or a digest that failed
                continue
            length = self._chunk(start, len(job.tokens), budget)
            table, pins, clear = readable.block_table(length)
            tokens = job.tokens[start : start + length]
            entries.append(StepEntry(job.key, pins, Slice(table, start, tokens, clear=clear)))
            self._planned[entries[-1]] = job
            job.planned = True
            budget -= length
        if not entries:
            return None
        self._number += 1
        return StepPlan(self._number, tuple(entries))

    def begin_step(self, plan: StepPlan) -> StepPlan | None:
        """The part of the plan whose pages are still its own (G7), now that it really runs."""
        return steps.begin_step(plan, self.pool, self._planned, self.counters)

    def on_step_done(self, now: float, plan: StepPlan, results: Sequence[SliceResult]) -> list[Effect]:
        """The pass ended: name what was written and have complete pages sealed."""
        for entry, result in zip(plan.entries, results, strict=True):
            job = self._planned.pop(entry)
            if job.state is State.COMPUTING and job.lease is not None and not result.finite:
                self._fail(job, "guard_g8", Code.INTEGRITY_CHECK_FAILED, "the logits were not finite")
            elif job.state is State.COMPUTING and job.lease is not None:
                job.planned = False
                written = result.written.tolist()
                job.lease.append(entry.slice.start, len(written))
                job.written.extend(written)
                self.counters.add("prefill_tokens_computed", len(written))
                self._seal_complete(job)
                self._maybe_announced(now, job)
            self.pool.release(entry.pins)
        return self._flush()

    def on_step_failed(self, plan: StepPlan, reason: str) -> list[Effect]:
        """The pass raised: its attempts end, the worker goes on (G12, F18)."""
        for entry in plan.entries:
            job = self._planned.pop(entry)
            if job.state is State.COMPUTING:
                self._fail(job, "step_failures", Code.INTERNAL_ERROR, f"the forward pass failed: {reason}")
            self.pool.release(entry.pins)
        return self._flush()

    def heartbeat(self) -> Heartbeat:
        """How full this worker is."""
        states = (job.state for job in self._jobs.values())
        return steps.heartbeat(self.pool, states, self.counters, len(self._tree))

    # --- inner parts
    # --------------------------------------------------------------------------------------------

    def _on_prefill(self, peer: InstanceId, message: Prefill) -> None:
        key = AttemptKey(message.request, message.attempt)
        if (peer, key) in self._jobs:
            self.counters.add("stale_messages")
            return
        self.counters.add("prefill_requests")
        admitted = guards.g2_refusal(message.tokens, 0, self.config.usable_tokens)
        event = "guard_g2"
        if isinstance(admitted, guards.Admitted) and len(self._jobs) >= self.config.max_waiting:
            event = "queue_full"  # one counter per cause (F26)
            admitted = Rejected(code=Code.NO_CAPACITY, message="the prefill worker's queue is full")
        if isinstance(admitted, Rejected):
            self.counters.add("prefill_refused")
            self._record(event, key, admitted.message)
            self._send(peer, PrefillEnded(request=key.request, attempt=key.attempt, end=admitted))
            return
        page_key = derive_page_key(
            self.config.secret, guards.g9_scope(message.tenant), self.config.cache_version
        )
        job = Job(key, message.tenant, peer, admitted.prompt, message.skip_pages, page_key)
        self._jobs[peer, key] = job

    def _on_release(self, peer: InstanceId, key: AttemptKey) -> None:
        job = self._jobs.get((peer, key))
        if job is not None:
            self._end(job)
        self.counters.add("released")
        self._send(peer, Released(request=key.request, attempt=key.attempt))

    def _lease_waiting(self) -> None:
        for job in list(self._jobs.values()):
            if job.state is State.WAITING and not self._lease(job):
                self._enforce_cap()
                break  # first come, first served: a long prompt is not starved by short ones

    def _lease(self, job: Job) -> bool:
        size = self.config.page_size
        found: list[Cached] = []
        ids: tuple[PageId, ...] = ()
        if self.config.prefix_reuse:
            whole = job.tokens[: len(job.tokens) - len(job.tokens) % size]
            ids = page_ids(job.page_key, self.config.layout, whole, size)
            found = self._tree.find(ids)
        shared = pins_of(found)
        wanted = -(-len(job.tokens) // size) - len(found)
        self.pool.retain(shared)
        pins = shared
        if wanted > 0:
            fresh = self.pool.lease(wanted) if self._tree.evict(wanted) else None
            if fresh is None:
                self.pool.release(shared)
                return False
            self._out.append(Poison(guards.g8_poison(fresh.pages)))
            pins = shared + fresh
        job.state = moved(PREFILL, job.state, Event.LEASE)
        job.lease = Lease(job.key, job.tenant, pins, size, shared=len(found))
        if found:
            job.written.extend(job.tokens[: len(found) * size])
            self.counters.add("prefill_tokens_reused", len(found) * size)
            job.named_pages, job.parent = len(found), ids[len(found) - 1]
            self._digest(SealJob(job, 0, shared, ids[: len(found)], tuple(c.seal for c in found)))
            self._seal_complete(job)
        return True

    def _chunk(self, start: int, end: int, budget: int) -> int:
        """Tokens of the next chunk: it ends with a page where it can, so that each chunk completes the pages
        it fills.
        """
        length = min(end - start, budget)
        if start + length < end:
            length -= (start + length) % self.config.page_size
        return length if length > 0 else min(end - start, budget)

    def _seal_complete(self, job: Job) -> None:
        size = self.config.page_size
        assert job.lease is not None
        done = len(job.written) >= len(job.tokens)
        complete = -(-len(job.written) // size) if done else len(job.written) // size
        if done:
            job.state = moved(PREFILL, job.state, Event.COMPUTED)
        if complete <= job.named_pages:
            return
        first, ids = job.named_pages, []
        for ordinal in range(first, complete):
            tokens = job.written[ordinal * size : (ordinal + 1) * size]
            job.parent = page_id(job.page_key, self.config.layout, job.parent, tokens)
            ids.append(job.parent)
        job.named_pages = complete
        self._digest(SealJob(job, first, job.lease.pins[first:complete], tuple(ids)))

    def _digest(self, asked: SealJob) -> None:
        self._number += 1
        self._seals[self._number] = asked
        asked.job.sealing += 1
        self._out.append(Digest(self._number, asked.pins.pages, asked.ids))

    def _still_sealed(self, job: Job, asked: SealJob, seals: Sequence[Seal]) -> bool:
        """A cached page is checked against its stored seal again when it is reused (G5); only then may it be
        read (G6).
        """
        assert job.lease is not None
        for i, (identity, known, seal) in enumerate(zip(asked.ids, asked.known, seals, strict=True)):
            if not guards.g5_seal(identity, identity, known, seal):
                self._tree.drop(identity)
                self._fail(
                    job, "guard_g5", Code.INTEGRITY_CHECK_FAILED, "a cached page no longer fits its seal"
                )
                return False
            job.lease.prove(i, len(asked.ids) * self.config.page_size)
        return True

    def _share(self, job: Job, asked: SealJob, seals: Sequence[Seal]) -> None:
        """Full pages enter the tree, under the id that their written tokens gave them (G9)."""
        if not self.config.prefix_reuse or asked.known:
            return
        full = len(job.written) // self.config.page_size
        for i, (identity, seal) in enumerate(zip(asked.ids, seals, strict=True)):
            if asked.first + i < full:
                self._tree.add(identity, asked.pins[i : i + 1], seal)

    def _maybe_announced(self, now: float, job: Job) -> None:
        if job.state is State.ANNOUNCED and job.sealing == 0:
            job.computed_s = now

    def _enforce_cap(self) -> None:
        held: dict[InstanceId, int] = {}
        for job in self._jobs.values():
            if job.state is State.ANNOUNCED and job.lease is not None:
                held[job.peer] = held.get(job.peer, 0) + len(job.lease.pins)
        for peer, pages in sorted(held.items()):
            if pages > self.config.peer_cap_pages:
                self._cut(
                    peer, f"{pages} computed pages are not released, the cap is {self.config.peer_cap_pages}"
                )

    def _cut(self, peer: InstanceId, reason: str) -> None:
        self._record("peers_cut", None, f"{short(peer)}: {reason}")
        self._out.append(CutPeer(peer, reason))
        for job in [job for job in self._jobs.values() if job.peer == peer]:
            self._end(job)

    def _fail(self, job: Job, event: str, code: Code, message: str) -> None:
        self._record(event, job.key, message)
        end = Failed(code=code, message=message)
        self._send(job.peer, PrefillEnded(request=job.key.request, attempt=job.key.attempt, end=end))
        self._end(job)

    def _end(self, job: Job) -> None:
        """The one way out, whatever the reason: pages go back exactly once (F17)."""
        job.state = moved(PREFILL, job.state, Event.END)
        del self._jobs[job.peer, job.key]
        if job.lease is not None:
            self.pool.release(job.lease.pins)
            job.lease = None

    def _record(self, event: str, key: AttemptKey | None, detail: str) -> None:
        self.counters.add(event)
        self._out.append(Record(event, key, detail))

    def _send(self, peer: InstanceId, message: AnyMessage) -> None:
        self._out.append(Send(peer, message))

    def _flush(self) -> list[Effect]:
        self._lease_waiting()
        out, self._out = self._out, []
        return out
