"""How proven pages come into a decode worker's pool: lease, ask, pull, wait for DONE, digest, prove.

The one place where bytes from elsewhere become bytes that attention may read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from kvseal.core import guards
from kvseal.core.counters import Counters
from kvseal.core.effects import Digest, Effect, Poison, Pull, Send
from kvseal.core.errors import Code
from kvseal.core.ids import ROOT, AttemptKey, InstanceId, Seal, page_id, page_ids
from kvseal.core.job import AttemptFailure, DecodeConfig, Job
from kvseal.core.leases import Lease
from kvseal.core.messages import Hello, Manifest, Prefill, Release, SealedPage
from kvseal.core.pages import PagePool, Pins
from kvseal.core.prefix import Cached, PrefixTree, pins_of
from kvseal.core.pulls import Outcome
from kvseal.core.requests import DECODE, Event, State, moved

EVENTS = (
    "requests",
    "refused",
    "retries",
    "ended_finished",
    "ended_rejected",
    "ended_failed",
    "ended_aborted",
    "tokens",
    "steps",
    "pages_pulled",
    "pages_reused",
    "stale_messages",
    "peer_losses",
    "prefill_timeouts",
    "prefill_failures",
    "pull_errors",
    "bad_manifests",
    "step_failures",
    "nonfinite_by_model",
    "guard_g2",
    "guard_g4",
    "guard_g5",
    "guard_g6",
    "guard_g7",
    "guard_g8",
)


@dataclass(frozen=True, slots=True, eq=False)
class PullJob:
    """A pull on its way: the manifest rows it serves, the lease it is for, and the pages it lands in."""

    key: AttemptKey
    lease: Lease
    rows: tuple[SealedPage, ...]
    dst: NDArray[np.int64]


class Purpose(Enum):
    """Why a digest was asked for."""

    LANDED = "landed"  # pages that a pull brought: prove them
    CACHED = "cached"  # pages of the prefix tree: prove them again
    FILLED = "filled"  # a page that decode filled itself: let it enter the tree
    AUTOPSY = "autopsy"  # logits were not finite: was it the memory or the model?


@dataclass(frozen=True, slots=True, eq=False)
class CheckJob:
    """A digest on its way, of pages of ``lease`` that are ``rows`` of the attempt's prompt. Where prefill
    announced nothing, rows are ours.
    """

    key: AttemptKey
    lease: Lease
    purpose: Purpose
    rows: tuple[SealedPage, ...]


class Loader:
    """The loading half of a decode worker. It appends to ``out`` and calls ``fail`` where an attempt cannot
    go on.
    """

    def __init__(
        self,
        config: DecodeConfig,
        pages: int,
        out: list[Effect],
        fail: Callable[[float, Job, AttemptFailure], None],
    ) -> None:
        self.config = config
        self.pool = PagePool(pages)
        self.counters = Counters(EVENTS)
        self.prefill: dict[InstanceId, Hello] = {}
        self.stopped = False
        self._tree = PrefixTree(self.pool)
        self._out = out
        self._fail = fail
        self._live: dict[AttemptKey, Job] = {}
        self._pulls: dict[int, PullJob] = {}
        self._checks: dict[int, CheckJob] = {}
        self._asked: dict[
            tuple[InstanceId, AttemptKey], float | None
        ] = {}  # None: in use; else when Release was sent
        self._number = 0

    @property
    def cached_pages(self) -> int:
        """Pages that the prefix tree holds."""
        return len(self._tree)

    # --- lease and ask
    # ------------------------------------------------------------------------------------------

    def lease_waiting(self, now: float, jobs: Iterable[Job]) -> None:
        """Lease room for waiting requests, first come, first served: no decode room, no prefill. What is
        held, landing or quarantined is not free, so admission counts it (F12)."""
        if self.stopped:
            return
        for job in list(jobs):
            if job.state is not State.WAITING or (job.to_load and self._choose(job) is None):
                continue
            if not self._lease(now, job):
                break

    def _lease(self, now: float, job: Job) -> bool:
        size = self.config.page_size
        loaded = job.to_load
        job.expected = page_ids(job.page_key, self.config.layout, loaded, size)
        full = len(loaded) // size
        found = self._tree.find(job.expected[:full]) if self.config.prefix_reuse else []
        shared = pins_of(found)
        self.pool.retain(shared)
        wanted = -(-job.room_tokens // size) - len(found)
        fresh = self.pool.lease(wanted) if self._tree.evict(wanted) else None
        if fresh is None:
            self.pool.release(shared)
            return False
        self._out.append(Poison(guards.g8_poison(fresh.pages)))
        job.lease = Lease(job.key, job.tenant, shared + fresh, size, shared=len(found))
        job.names = list(job.expected[:full])
        job.state = moved(DECODE, job.state, Event.LEASE)
        job.progress_s = now
        self._live[job.key] = job
        self._recheck(job, found)
        if len(found) * size < len(loaded):
            self._ask(job, loaded, len(found))
        else:
            job.cached_tokens = len(loaded)
        self._maybe_start(job)
        return True

    def _recheck(self, job: Job, found: Sequence[Cached]) -> None:
        """A cached page is checked against its stored seal again when it is reused (G5)."""
        if found:
            self.counters.add("pages_reused", len(found))
            rows = tuple(SealedPage(i, job.expected[i], c.seal, c.page) for i, c in enumerate(found))
            job.posted.update(range(len(found)))
            self._digest(job, Purpose.CACHED, rows)

    def _choose(self, job: Job) -> InstanceId | None:
        """The prefill worker with the fewest of our attempts, another one than the last attempt's where there
        is one.
        """
        if job.via:
            return job.via if job.via in self.prefill else None
        load = dict.fromkeys(self.prefill, 0)
        for peer, _ in self._asked:
            if peer in load:
                load[peer] += 1
        return min(load, key=lambda peer: (peer == job.avoid, load[peer], peer), default=None)

    def _ask(self, job: Job, tokens: tuple[int, ...], skip_pages: int) -> None:
        source = self._choose(job)
        assert source is not None
        job.source = source
        self._asked[source, job.key] = None
        request = Prefill(
            request=job.request, attempt=job.attempt, tenant=job.tenant, tokens=tokens, skip_pages=skip_pages
        )
        self._out.append(Send(source, request))

    # --- pull, digest, prove
    # ------------------------------------------------------------------------------------

    def on_manifest(self, now: float, job: Job, manifest: Manifest) -> None:
        """Pull the pages that are announced, each once."""
        assert job.lease is not None
        assert job.source is not None
        if any(not 0 <= row.ordinal < len(job.expected) or row.place < 0 for row in manifest.pages):
            failure = AttemptFailure(
                "bad_manifests", Code.INTEGRITY_CHECK_FAILED, "a manifest names unknown pages"
            )
            self._fail(now, job, failure)
            return
        rows = tuple({row.ordinal: row for row in manifest.pages if row.ordinal not in job.posted}.values())
        if not rows:
            return
        job.progress_s = now
        job.posted.update(row.ordinal for row in rows)
        job.cached_tokens = manifest.cached_tokens
        ordinals = np.array([row.ordinal for row in rows], np.int64)
        pins = Pins(job.lease.pins.pages[ordinals], job.lease.pins.generations[ordinals])
        self.pool.pull_posted(pins)
        self._number += 1
        self._pulls[self._number] = PullJob(job.key, job.lease, rows, pins.pages)
        places = np.array([row.place for row in rows], np.int64)
        self._out.append(Pull(self._number, job.source, places, pins.pages))
        self._maybe_start(job)

    def on_pull_ended(self, now: float, transfer: int, outcome: Outcome, detail: str) -> None:
        """Only DONE proves that nothing more will land (G4); then the landed bytes can be digested (G5)."""
        pull = self._pulls.pop(transfer, None)
        if pull is None:
            self.counters.add("stale_messages")
            return
        self.pool.pull_ended(pull.dst, outcome)
        job = self._of(pull)
        if job is None:
            return
        if outcome is not Outcome.DONE:
            self._fail(
                now, job, AttemptFailure("pull_errors", Code.WORKER_LOST, f"a transfer failed: {detail}")
            )
            return
        self.counters.add("pages_pulled", len(pull.rows))
        job.progress_s = now
        self._digest(job, Purpose.LANDED, pull.rows)

    def on_pull_refused(self, now: float, transfer: int, reason: str) -> None:
        """The pull was never posted: its pages are as good as untouched, its attempt is over."""
        pull = self._pulls.pop(transfer)
        self.pool.pull_ended(pull.dst, Outcome.DONE)
        job = self._of(pull)
        if job is not None:
            self._fail(now, job, AttemptFailure("pull_errors", Code.WORKER_LOST, f"no transfer: {reason}"))

    def on_digested(self, now: float, number: int, seals: Sequence[Seal]) -> None:
        """Compare, and prove what fits."""
        check = self._checks.pop(number, None)
        job = self._of(check) if check else None
        if check is None or job is None:
            return
        match check.purpose:
            case Purpose.LANDED | Purpose.CACHED:
                self._prove(now, job, check, seals)
            case Purpose.FILLED:
                self._share(job, check.rows[0].ordinal, seals[0])
            case Purpose.AUTOPSY:
                intact = all(row.seal == seal for row, seal in zip(check.rows, seals, strict=True))
                self._not_finite(now, job, "nonfinite_by_model" if intact else "guard_g8")

    def _of(self, work: PullJob | CheckJob) -> Job | None:
        """The live attempt that the work was begun for. Its name is not enough: after a repeated Generate
        another attempt of the same name has other pages (F08).
        """
        job = self._live.get(work.key)
        return job if job is not None and job.lease is work.lease else None

    def _prove(self, now: float, job: Job, check: CheckJob, seals: Sequence[Seal]) -> None:
        assert job.lease is not None
        loaded = len(job.to_load)
        for row, seal in zip(check.rows, seals, strict=True):
            if not guards.g5_seal(job.expected[row.ordinal], row.page_id, row.seal, seal):
                self._tree.drop(job.expected[row.ordinal])
                message = f"page {row.ordinal} of the prompt is not the page that was sealed"
                self._fail(now, job, AttemptFailure("guard_g5", Code.INTEGRITY_CHECK_FAILED, message))
                return
            job.lease.prove(row.ordinal, loaded)
            job.seals[row.ordinal] = row.seal
            if check.purpose is Purpose.LANDED and row.ordinal < len(job.names):
                self._share(job, row.ordinal, seal)
        job.progress_s = now
        self._maybe_start(job)

    def _maybe_start(self, job: Job) -> None:
        """Decoding starts when the extent is all known tokens but the last, exactly (G6)."""
        assert job.lease is not None
        if job.state is State.LOADING and job.lease.readable(job.known_tokens - 1) is not None:
            job.state = moved(DECODE, job.state, Event.LOADED)
            self._release_source(job)

    def _digest(self, job: Job, purpose: Purpose, rows: tuple[SealedPage, ...]) -> None:
        assert job.lease is not None
        self._number += 1
        self._checks[self._number] = CheckJob(job.key, job.lease, purpose, rows)
        pages = job.lease.pins.pages[np.array([row.ordinal for row in rows], np.int64)]
        ids = tuple(
            job.names[r.ordinal] if r.ordinal < len(job.names) else job.expected[r.ordinal] for r in rows
        )
        self._out.append(Digest(self._number, pages, ids))

    # --- while it runs
    # ------------------------------------------------------------------------------------------

    def share_filled(self, job: Job) -> None:
        """A page that decode filled gets its id from the tokens that were written, and its seal, and enters
        the tree (G9).
        """
        assert job.lease is not None
        size = self.config.page_size
        ordinal = job.lease.extent // size - 1
        if not self.config.prefix_reuse or job.lease.extent % size or ordinal < len(job.names):
            return
        tokens = (*job.prompt, *job.output)[ordinal * size : (ordinal + 1) * size]
        parent = job.names[ordinal - 1] if ordinal else ROOT
        job.names.append(page_id(job.page_key, self.config.layout, parent, tokens))
        job.seals.pop(ordinal, None)  # a seal from when the page was partial says nothing under its new name
        row = SealedPage(ordinal, job.names[ordinal], Seal(b""), int(job.lease.pins.pages[ordinal]))
        self._digest(job, Purpose.FILLED, (row,))

    def autopsy(self, now: float, job: Job) -> None:
        """The logits are not finite. Whose fault it is, the seals of the attempt's full pages can tell
        (G8).
        """
        job.planned = True  # no further pass
        rows = tuple(
            SealedPage(ordinal, job.names[ordinal], seal, 0)
            for ordinal, seal in sorted(job.seals.items())
            if ordinal < len(job.names)
        )
        if rows:
            self._digest(job, Purpose.AUTOPSY, rows)
        else:
            self._not_finite(now, job, "guard_g8")

    def _not_finite(self, now: float, job: Job, event: str) -> None:
        self._fail(now, job, AttemptFailure(event, Code.INTEGRITY_CHECK_FAILED, "the logits were not finite"))

    def _share(self, job: Job, ordinal: int, seal: Seal) -> None:
        assert job.lease is not None
        job.seals[ordinal] = seal
        if self.config.prefix_reuse:
            self._tree.add(job.names[ordinal], job.lease.pins[ordinal : ordinal + 1], seal)

    # --- let go
    # -------------------------------------------------------------------------------------------------

    def drop(self, job: Job) -> None:
        """The attempt has ended: give its pages back, exactly once, and have the source do the same (F07,
        F11, F17).
        """
        self._live.pop(job.key, None)
        if job.lease is not None:
            before = self.pool.count().quarantined
            self.pool.release(job.lease.pins)
            self.counters.add("guard_g4", self.pool.count().quarantined - before)
            job.lease = None
        self._release_source(job)

    def _release_source(self, job: Job) -> None:
        if job.source is not None and self._asked.get((job.source, job.key), 0.0) is None:
            self._asked[job.source, job.key] = job.progress_s
            self._out.append(Send(job.source, Release(request=job.request, attempt=job.attempt)))

    def on_released(self, peer: InstanceId, key: AttemptKey) -> None:
        """The source gave the pages of an attempt back."""
        self._asked.pop((peer, key), None)

    def resend(self, now: float) -> None:
        """Say Release again where it was not acknowledged."""
        for (peer, key), sent_s in self._asked.items():
            if sent_s is not None and now - sent_s > self.config.resend_s:
                self._asked[peer, key] = now
                self._out.append(Send(peer, Release(request=key.request, attempt=key.attempt)))

    def forget(self, peer: InstanceId) -> None:
        """The peer is gone and holds nothing of ours any more."""
        self.prefill.pop(peer, None)
        for known in [known for known in self._asked if known[0] == peer]:
            del self._asked[known]

    def over_bound(self) -> str | None:
        """Said once: so many pages are unproven that this process must be replaced (F06)."""
        quarantined = self.pool.count().quarantined
        if self.stopped or quarantined <= self.config.quarantine_bound_pages:
            return None
        self.stopped = True
        return f"{quarantined} pages are in quarantine, the bound is {self.config.quarantine_bound_pages}"
