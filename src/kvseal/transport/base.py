"""What every transport promises, whichever library moves the bytes.

::

    source:   register(pool) ──> describe() ── travels in Hello.endpoint ──┐
    reader:   register_landing(pool) ──> connect(peer, endpoint) <─────────┘
              read(transfer, pages) ──…bytes land…──> wakeup() ──> poll() = [Ended(transfer, DONE | ERROR)]

Only the reader writes its pool: it pulls, and exports no descriptor of its landing pages (G3). A read that
was posted ends exactly once, in `poll`; until then it is in flight, whatever else happened, and neither
`disconnect` nor a timeout changes that (F15). Only DONE proves that nothing more can land (G4): what ERROR
is worth differs between libraries, and no caller should ask.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvseal.core.errors import KvsealError
from kvseal.core.ids import InstanceId
from kvseal.core.pulls import Outcome
from kvseal.memory import PrivatePool, SourcePool


class Cause(Enum):
    """Why a transport refused something: what an operator looks up, and what a counter is named for."""

    UNREACHABLE = "unreachable"  # nobody answers at the address
    TIMED_OUT = "timed_out"  # somebody does, too slowly
    MALFORMED = "malformed"  # an endpoint or a message that is not ours
    UNAUTHENTICATED = "unauthenticated"  # the other side has another user id or another cluster secret
    WRONG_INSTANCE = "wrong_instance"  # another life of the peer, or another peer (F10)
    MISMATCH = "mismatch"  # page sizes or versions differ (F18)
    UNKNOWN_PEER = "unknown_peer"  # not connected, or no longer
    BAD_PAGES = "bad_pages"  # outside a pool, listed twice, or still awaiting another read
    OVERLOADED = "overloaded"  # too many reads in flight
    LOCAL = "local"  # this side is not set up for it: directory, path, missing pool, closed


class TransportError(KvsealError):
    """Nothing was connected or posted. The text names what was found and what was expected."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a transport can prove and do; start-up decides by it what may be served over it."""

    name: str
    proves_read_end: bool  # after DONE of a read, no byte of it can land any more
    crosses_hosts: bool
    device_memory: bool
    encrypted: bool


class Ended(NamedTuple):
    """The one end of a read that was posted. ``detail`` is for the log, empty for DONE."""

    transfer: int
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TransportCounters:
    """Since the transport was made, all of them from zero, one per cause (F26)."""

    reads: int = 0  # posted
    pages: int = 0  # landed by reads that ended DONE
    bytes: int = 0  # landed by reads that ended DONE
    errors: int = 0  # reads that ended ERROR
    refused_reads: int = 0  # not posted: bad pages, unknown peer, overload
    connects: int = 0
    failed_connects: int = 0
    served_peers: int = 0  # readers that were let in
    refused_uid: int = 0  # readers refused: they run as another user
    refused_secret: int = 0  # … they do not know the cluster secret
    refused_instance: int = 0  # … they look for another instance (F10)
    refused_protocol: int = 0  # … they speak another version, or something else
    refused_slow: int = 0  # … they did not finish in time, or vanished

    @property
    def refused_peers(self) -> int:
        """All readers that this source turned away."""
        return (
            self.refused_uid
            + self.refused_secret
            + self.refused_instance
            + self.refused_protocol
            + self.refused_slow
        )


class Transport(ABC):
    """One process's end of a transport.

    ``wakeup``, given to the constructor, is called from any thread when `poll` has something new; it must
    not block. `connect` may take as long as its time limit; nothing else blocks, `close` excepted. All
    methods may be called from different threads.
    """

    capabilities: Capabilities

    @abstractmethod
    def register(self, pool: SourcePool) -> None:
        """Exports ``pool`` for reading, once. Raises TransportError (LOCAL) where that cannot be done."""

    @abstractmethod
    def register_landing(self, pool: PrivatePool) -> None:
        """Names the pool in which reads land, once. It is exported to nobody (G3)."""

    @abstractmethod
    def describe(self) -> bytes:
        """What a reader needs in order to connect. Empty where nothing is exported."""

    @abstractmethod
    def connect(self, peer: InstanceId, endpoint: bytes) -> None:
        """Makes the pool of ``peer`` readable. Does nothing where that very endpoint is connected already.

        Blocks for a bounded time. Raises TransportError; a failure leaves nothing behind, and a later
        attempt is as good as the first one (F09).
        """

    @abstractmethod
    def disconnect(self, peer: InstanceId) -> None:
        """Forgets ``peer``, known or not. Its reads in flight still end, in `poll`."""

    @abstractmethod
    def read(
        self, peer: InstanceId, transfer: int, src_pages: NDArray[np.int64], dst_pages: NDArray[np.int64]
    ) -> None:
        """Posts a read: page ``src_pages[i]`` of the peer lands in ``dst_pages[i]``; both int64 [n], n > 0.

        ``transfer`` names the read in `poll`; it must not be in flight already. Raises TransportError, and
        has posted nothing then.
        """

    @abstractmethod
    def poll(self) -> list[Ended]:
        """The reads that ended since the last call, each exactly once."""

    @abstractmethod
    def counters(self) -> TransportCounters:
        """A snapshot."""

    @abstractmethod
    def close(self) -> None:
        """Stops exporting, posts nothing more, and waits until no read is in flight. May be called twice.

        Every read has ended then, and `poll` still gives the ends that nobody has fetched.
        """
