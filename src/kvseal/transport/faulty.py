"""Any transport, with faults on a schedule: for tests of whether the guards hold over it (F05, F14, F15).

Nothing here is random: the n-th read that is posted (from 0) gets the fault that the schedule names for n.
Faults change what *arrived* before its end is reported, so whatever carries the bytes, the reader sees what
a bad library, a bad peer or a bad network would have shown it::

    inner:   read ──…──> bytes land ──> Ended(DONE)
    Delay, Stall, FailAfterLanding            └── later, when told to, or as ERROR
    LandLate                     └── taken away, ERROR at once; and then they land
    FlipBit, SwapPages, WrongSource, TearPage └── other bytes than the source had, and DONE

Positions count within a read and wrap around at its length, so that one schedule fits reads of any length.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from kvseal.core.ids import InstanceId
from kvseal.core.pulls import Outcome
from kvseal.memory import PrivatePool, SourcePool
from kvseal.transport.base import Cause, Ended, Transport, TransportCounters, TransportError


class Fault(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of all faults. They are messages, so that a test can hand a schedule to a worker process."""


class Delay(Fault, frozen=True):
    """The pages are there, and the end is reported ``seconds`` later."""

    seconds: float


class Stall(Fault, frozen=True):
    """The pages are there, and the end is reported when `FaultyTransport.release` or `close` is called."""


class FailAfterLanding(Fault, frozen=True):
    """The pages are there, and the end is reported as ERROR."""

    detail: str = "injected: failed after landing"


class LandLate(Fault, frozen=True):
    """ERROR is reported while nothing has landed; the pages land after ``seconds``, or when `land` is called.

    What is in the landing pages by then is overwritten, whoever owns it: the fault that G4 is there for
    (F05).
    """

    seconds: float | None = None
    detail: str = "injected: lands late"


class FlipBit(Fault, frozen=True):
    """One bit of the page at ``position`` differs: bit 0 to 7 of byte ``byte``."""

    position: int = 0
    byte: int = 0
    bit: int = 0


class SwapPages(Fault, frozen=True):
    """The pages at two positions lie in each other's place."""

    first: int = 0
    second: int = 1


class WrongSource(Fault, frozen=True):
    """The page at ``position`` was read from another page of the peer's pool."""

    position: int = 0
    source_page: int = 0


class TearPage(Fault, frozen=True):
    """Of the page at ``position`` only the first ``bytes`` arrived; the rest is as before.

    0: it never arrived.
    """

    position: int = 0
    bytes: int = 0


AnyFault = Delay | Stall | FailAfterLanding | LandLate | FlipBit | SwapPages | WrongSource | TearPage


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which read gets which fault: by its number, from 0; all others get ``otherwise``."""

    faults: dict[int, AnyFault] = {}
    otherwise: AnyFault | None = None

    def fault_of(self, number: int) -> AnyFault | None:
        """The fault of the read with this number."""
        return self.faults.get(number, self.otherwise)


@dataclass(slots=True)
class _Read:
    """A read that is in flight inside, or reported and not yet over here."""

    number: int
    transfer: int
    fault: AnyFault | None
    pages: NDArray[np.int64]
    before: NDArray[np.uint8] | None  # what the pages held, where the fault needs it
    held: Ended | None = None


class FaultyTransport(Transport):
    """``make`` builds the transport inside, with the wakeup that it is given; ``wakeup`` is the owner's."""

    def __init__(
        self, make: Callable[[Callable[[], None]], Transport], wakeup: Callable[[], None], schedule: Schedule
    ) -> None:
        self._wakeup = wakeup
        self._schedule = schedule
        self._inner = make(wakeup)
        self.capabilities = self._inner.capabilities
        self._landing: PrivatePool | None = None
        self._lock = threading.RLock()
        self._posted = 0
        self._reads: dict[int, _Read] = {}  # by transfer: in flight inside
        self._held: dict[int, _Read] = {}  # by number: Delay, Stall
        self._late: dict[int, tuple[NDArray[np.int64], NDArray[np.uint8]]] = {}  # by number: pages, bytes
        self._ready: list[Ended] = []
        self._timers: list[threading.Timer] = []

    # --- controls of a test -------------------------------------------------------------------------------

    def release(self, number: int | None = None) -> list[int]:
        """Lets the held read with this number end, by default all of them; the numbers of those that did."""
        with self._lock:
            numbers = [n for n in self._held if number in (None, n)]
            for n in numbers:
                held = self._held.pop(n).held
                assert held is not None
                self._ready.append(held)
        if numbers:
            self._wakeup()
        return numbers

    def land(self, number: int | None = None) -> list[int]:
        """Lets late pages land: of the read with this number, by default of all.

        Returns the numbers of the reads whose pages landed.
        """
        with self._lock:
            numbers = [n for n in self._late if number in (None, n)]
            for n in numbers:
                pages, content = self._late.pop(n)
                self._array()[pages] = content
        return numbers

    # --- Transport ----------------------------------------------------------------------------------------

    def register(self, pool: SourcePool) -> None:
        """As the transport inside."""
        self._inner.register(pool)

    def register_landing(self, pool: PrivatePool) -> None:
        """As the transport inside."""
        self._inner.register_landing(pool)
        self._landing = pool

    def describe(self) -> bytes:
        """As the transport inside."""
        return self._inner.describe()

    def connect(self, peer: InstanceId, endpoint: bytes) -> None:
        """As the transport inside."""
        self._inner.connect(peer, endpoint)

    def disconnect(self, peer: InstanceId) -> None:
        """As the transport inside."""
        self._inner.disconnect(peer)

    def read(
        self, peer: InstanceId, transfer: int, src_pages: NDArray[np.int64], dst_pages: NDArray[np.int64]
    ) -> None:
        """Posts the read inside, and counts it only where that succeeded."""
        with self._lock:
            fault = self._schedule.fault_of(self._posted)
            if isinstance(fault, WrongSource) and len(src_pages):
                src_pages = np.array(src_pages)
                src_pages[fault.position % len(src_pages)] = fault.source_page
            if any(read.transfer == transfer for read in self._held.values()):
                raise TransportError(Cause.BAD_PAGES, f"transfer {transfer} is in flight already")
            read = _Read(self._posted, transfer, fault, np.array(dst_pages), None)
            in_range = read.pages.size and read.pages.min() >= 0 and read.pages.max() < len(self._array())
            if isinstance(fault, LandLate | TearPage) and in_range:
                read.before = self._array()[read.pages]
            self._inner.read(peer, transfer, src_pages, dst_pages)
            self._reads[transfer] = read
            self._posted += 1

    def poll(self) -> list[Ended]:
        """Does to the pages what the schedule says, and reports what it lets end."""
        with self._lock:
            for end in self._inner.poll():
                read = self._reads.pop(end.transfer)
                # A read that failed anyway is reported as it is: there is nothing left to spoil.
                reported = self._spoil(read, end) if end.outcome is Outcome.DONE else end
                if reported is not None:
                    self._ready.append(reported)
            ready, self._ready = self._ready, []
            return ready

    def counters(self) -> TransportCounters:
        """Of the transport inside: what really moved."""
        return self._inner.counters()

    def close(self) -> None:
        """Lets everything end that was held back. Pages that would land late never do."""
        self._inner.close()
        with self._lock:
            self._ready = self.poll()
            self._late.clear()
            for timer in self._timers:
                timer.cancel()
        self.release()

    # --- faults -------------------------------------------------------------------------------------------

    def _spoil(self, read: _Read, end: Ended) -> Ended | None:
        """What is reported now, if anything."""
        match read.fault:
            case None | WrongSource():
                return end
            case Delay(seconds=seconds):
                self._hold(read, end)
                self._later(seconds, lambda: self.release(read.number))
                return None
            case Stall():
                self._hold(read, end)
                return None
            case FailAfterLanding(detail=detail):
                return Ended(end.transfer, Outcome.ERROR, detail)
            case LandLate() as late:
                return self._take_away(read, late)
            case FlipBit() | SwapPages() | TearPage() as damage:
                self._damage(read, damage)
                return end
            case never:
                assert_never(never)

    def _damage(self, read: _Read, damage: FlipBit | SwapPages | TearPage) -> None:
        array, pages = self._array(), read.pages
        match damage:
            case FlipBit(position=position, byte=byte, bit=bit):
                array[pages[position % len(pages)], byte % array.shape[1]] ^= 1 << bit
            case SwapPages(first=first, second=second):
                pair = pages[[first % len(pages), second % len(pages)]]
                array[pair] = array[pair[::-1]]
            case TearPage(position=position, bytes=kept):
                assert read.before is not None
                at = position % len(pages)
                array[pages[at], kept:] = read.before[at, kept:]

    def _take_away(self, read: _Read, fault: LandLate) -> Ended:
        assert read.before is not None
        self._late[read.number] = (read.pages, self._array()[read.pages])
        self._array()[read.pages] = read.before
        if fault.seconds is not None:
            self._later(fault.seconds, lambda: self.land(read.number))
        return Ended(read.transfer, Outcome.ERROR, fault.detail)

    def _hold(self, read: _Read, end: Ended) -> None:
        read.held = end
        self._held[read.number] = read

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        self._timers = [*(waiting for waiting in self._timers if waiting.is_alive()), timer]
        timer.start()

    def _array(self) -> NDArray[np.uint8]:
        if self._landing is None:
            raise TransportError(Cause.LOCAL, "no landing pool is registered")
        return self._landing.array
