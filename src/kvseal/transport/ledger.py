"""Reads in flight, the landing pages that they fill, and the ends that wait to be polled.

The same for all transports.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from kvseal.core.counters import Counters
from kvseal.core.errors import InvariantViolation
from kvseal.core.pulls import Outcome
from kvseal.transport.base import Cause, Ended, TransportCounters, TransportError

logger = logging.getLogger(__name__)


def checked_pages(pages: NDArray[np.int64], limit: int, role: str) -> NDArray[np.int64]:
    """A copy of one side's pages of a read: the caller may reuse its array at once.

    Raises TransportError unless ``pages`` is int64 [n], n > 0, each in [0, limit).
    """
    if pages.dtype != np.int64 or pages.ndim != 1 or not len(pages):
        raise TransportError(Cause.BAD_PAGES, f"{role} pages must be int64 of shape [n], n > 0")
    copy = np.array(pages)
    outside = np.flatnonzero((copy < 0) | (copy >= limit))
    if outside.size:
        at = int(outside[0])
        raise TransportError(
            Cause.BAD_PAGES, f"{role} page {copy[at]} at position {at} is outside the pool of {limit} pages"
        )
    return copy


class Ledger:
    """Thread-safe. The one place where a read begins and ends, so that it ends exactly once."""

    def __init__(self, wakeup: Callable[[], None], max_reads_in_flight: int) -> None:
        self._wakeup = wakeup
        self._limit = max_reads_in_flight
        self._counters = Counters(field.name for field in fields(TransportCounters))
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._in_flight: dict[int, NDArray[np.int64]] = {}
        self._landing = np.zeros(0, dtype=np.bool_)  # per landing page: a read in flight fills it
        self._page_bytes = 0
        self._ended: list[Ended] = []

    def set_landing(self, pages: int, page_bytes: int) -> None:
        """Says how large the landing pool is."""
        self._landing = np.zeros(pages, dtype=np.bool_)
        self._page_bytes = page_bytes

    def begin(self, transfer: int, pages: NDArray[np.int64]) -> None:
        """Puts a read into landing ``pages`` (checked) in flight.

        Raises TransportError where it may not be posted.
        """
        if len(np.unique(pages)) != len(pages):
            raise TransportError(Cause.BAD_PAGES, "a landing page is listed twice")
        with self._lock:
            if transfer in self._in_flight:
                raise TransportError(Cause.BAD_PAGES, f"transfer {transfer} is in flight already")
            if len(self._in_flight) >= self._limit:
                raise TransportError(Cause.OVERLOADED, f"{self._limit} reads are in flight already")
            # Two reads into one page would make DONE of either worthless as a proof (G4).
            if self._landing[pages].any():
                page = int(pages[self._landing[pages]][0])
                raise TransportError(Cause.BAD_PAGES, f"landing page {page} still awaits another read")
            self._landing[pages] = True
            self._in_flight[transfer] = pages
            self._counters.add("reads")

    def end(self, transfer: int, outcome: Outcome, detail: str = "") -> None:
        """Ends a read and wakes whoever polls. Raises InvariantViolation for a read that is not in flight."""
        with self._lock:
            pages = self._in_flight.pop(transfer, None)
            if pages is None:
                raise InvariantViolation(f"transfer {transfer} ended, and is not in flight")
            self._landing[pages] = False
            if outcome is Outcome.DONE:
                self._counters.add("pages", len(pages))
                self._counters.add("bytes", len(pages) * self._page_bytes)
            else:
                self._counters.add("errors")
            self._ended.append(Ended(transfer, outcome, detail))
            self._idle.notify_all()
        try:
            self._wakeup()
        except Exception:
            # The end is queued and the next poll finds it; a thread that moves bytes must not die of its
            # listener.
            logger.exception("the wakeup of a transport failed")

    def poll(self) -> list[Ended]:
        """The ends that nobody has fetched yet, in the order in which they came."""
        with self._lock:
            ended, self._ended = self._ended, []
            return ended

    def wait_until_idle(self) -> None:
        """Returns when no read is in flight."""
        with self._idle:
            self._idle.wait_for(lambda: not self._in_flight)

    def count(self, name: str) -> None:
        """Adds one to a counter of TransportCounters."""
        with self._lock:
            self._counters.add(name)

    def counters(self) -> TransportCounters:
        """A snapshot."""
        with self._lock:
            return TransportCounters(**self._counters.snapshot())
