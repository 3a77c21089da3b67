"""Carries a core's effects out: messages to the wire, bytes in the pool, digests and forward passes in
threads of their own.

::

    event loop thread     core, wire, poison (in the order of the effects)
    engine thread         one forward pass at a time
    seal thread           digests of complete or landed pages
    transport's threads   copies

The core runs in the event loop's thread only, so it needs no locks.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvseal.core.batch import Slice, SliceResult
from kvseal.core.effects import (
    CutPeer,
    Digest,
    Effect,
    Poison,
    Pull,
    Record,
    Restart,
    Send,
    StepPlan,
)
from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import InstanceId, Seal, short
from kvseal.core.messages import Heartbeat
from kvseal.core.seals import seal_of
from kvseal.memory import fill_pages
from kvseal.wire import Connection

_log = logging.getLogger(__name__)
POISON = 0xFF  # a NaN in every float format that we serve, once a whole element is filled with it


class Core(Protocol):
    """What the shell needs of either core, with the time filled in."""

    def plan_step(self) -> StepPlan | None: ...
    def begin_step(self, plan: StepPlan) -> StepPlan | None: ...
    def heartbeat(self) -> Heartbeat: ...


@dataclass(frozen=True, slots=True)
class Events:
    """How what happened is told to the core."""

    digested: Callable[[float, int, Sequence[Seal]], list[Effect]]
    step_done: Callable[[float, StepPlan, Sequence[SliceResult]], list[Effect]]
    step_failed: Callable[[float, StepPlan, str], list[Effect]]
    tick: Callable[[float], list[Effect]]


class Shell:
    """One worker's. ``run`` computes slices (in the engine thread), ``pull`` posts a read."""

    def __init__(
        self,
        core: Core,
        events: Events,
        pool: NDArray[np.uint8],
        run: Callable[[Sequence[Slice]], Sequence[SliceResult]],
        pull: Callable[[Pull], None],
    ) -> None:
        self.core = core
        self.peers: dict[InstanceId, Connection] = {}
        self.stopping: asyncio.Event = asyncio.Event()
        self.restart_reason: str | None = None
        self.forward_tokens = 0  # that went through the model, as it says itself
        self._events = events
        self._pool = pool
        self._run = run
        self._pull = pull
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.Event()
        self._engine = ThreadPoolExecutor(1, "engine")
        self._seals = ThreadPoolExecutor(1, "seal")
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        """Seconds on the loop's monotonic clock."""
        return self._loop.time()

    @property
    def idle(self) -> bool:
        """No request is here."""
        beat = self.core.heartbeat()
        return beat.running + beat.waiting == 0

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """In order: pages are poisoned before anything later can touch them (G8)."""
        for effect in effects:
            match effect:
                case Send(to, message):
                    connection = self.peers.get(to)
                    if connection is not None:
                        connection.send(message)
                case Poison(pages):
                    fill_pages(self._pool, pages, POISON)
                case Pull():
                    self._pull(effect)
                case Digest():
                    self.spawn(self._digest(effect))
                case Record(event, key, detail):
                    fields = (
                        {"event": event, "request": key.request, "attempt": key.attempt}
                        if key
                        else {"event": event}
                    )
                    _log.warning("%s", detail, extra={"fields": fields})
                case CutPeer(peer, reason):
                    _log.error("peer %s is cut off: %s", short(peer), reason)
                    connection = self.peers.pop(peer, None)
                    if connection is not None:
                        connection.close()
                case Restart(reason):
                    _log.critical("this worker must be replaced: %s", reason)
                    self.restart_reason = reason
                    self.stopping.set()
                case _:
                    raise InvariantViolation(f"a worker cannot carry out {type(effect).__name__}")
        self._work.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it; a failure of it is a bug, and ends the process rather than leaving it half alive."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def steps(self) -> None:
        """Forward passes, one after another, for ever."""
        while True:
            plan = self.core.plan_step()
            if plan is None:
                self._work.clear()
                await self._work.wait()
                continue
            begun = self.core.begin_step(plan)  # G7, at the last moment before the pass
            if begun is None:
                continue
            slices = [entry.slice for entry in begun.entries]
            try:
                results = await self._loop.run_in_executor(self._engine, self._run, slices)
            except InvariantViolation:
                raise
            except Exception as error:
                _log.exception("a forward pass of %d slices failed", len(slices))
                self.carry_out(self._events.step_failed(self.now(), begun, type(error).__name__))
            else:
                self.forward_tokens += sum(len(result.written) for result in results)
                self.carry_out(self._events.step_done(self.now(), begun, results))

    async def ticks(self, every_s: float, beat: Callable[[Heartbeat], None]) -> None:
        """Tell the core the time, and whoever ``beat`` speaks to how full we are."""
        while True:
            self.carry_out(self._events.tick(self.now()))
            beat(self.core.heartbeat())
            await asyncio.sleep(every_s)

    def close(self) -> None:
        """Stop the threads; what they are at is finished first."""
        self._engine.shutdown(wait=True, cancel_futures=True)
        self._seals.shutdown(wait=True, cancel_futures=True)

    async def _digest(self, asked: Digest) -> None:
        seals = await self._loop.run_in_executor(self._seals, self._take_seals, asked)
        self.carry_out(self._events.digested(self.now(), asked.job, seals))

    def _take_seals(self, asked: Digest) -> list[Seal]:
        return [
            seal_of(self._pool[page], identity) for page, identity in zip(asked.pages, asked.ids, strict=True)
        ]

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("a part of this worker failed, so all of it ends", exc_info=error)
            self.restart_reason = "an internal failure"
            self.stopping.set()
