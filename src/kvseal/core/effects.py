"""What the core wants done. A shell carries effects out in order; the simulator does the same with virtual
memory.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvseal.core.batch import Slice
from kvseal.core.ids import AttemptKey, InstanceId, PageId, RequestId
from kvseal.core.messages import AnyMessage, Terminal
from kvseal.core.pages import Pins


@dataclass(frozen=True, slots=True)
class Send:
    """Give ``message`` to the wire. Whether it arrives is not known."""

    to: InstanceId
    message: AnyMessage


@dataclass(frozen=True, slots=True, eq=False)
class Poison:
    """Overwrite these pages with NaN before any later effect is carried out (G8)."""

    pages: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pull:
    """Post a one-sided read of pages ``src`` of the peer's pool into our pages ``dst``. Its end comes back as
    an event.
    """

    transfer: int
    source: InstanceId
    src: NDArray[np.int64]
    dst: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Digest:
    """Take the seals of our own pages, seeded with ``ids``, and bring them back as an event."""

    job: int
    pages: NDArray[np.int64]
    ids: tuple[PageId, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One structured record without content: what happened, to which attempt, where. Its counter is raised
    already (G12).
    """

    event: str
    key: AttemptKey | None
    detail: str


@dataclass(frozen=True, slots=True)
class CutPeer:
    """End the connection to this peer: it holds more than it may."""

    peer: InstanceId
    reason: str


@dataclass(frozen=True, slots=True)
class Restart:
    """This process must end and be started anew by its supervisor: it can prove too little about its own
    pages (G4).
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Gateway only: give these tokens to the client."""

    request: RequestId
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conclude:
    """Gateway only: give the client its one terminal answer (G10)."""

    request: RequestId
    end: Terminal


Effect = Send | Poison | Pull | Digest | Record | CutPeer | Restart | Deliver | Conclude


@dataclass(frozen=True, slots=True, eq=False)
class StepEntry:
    """One slice of a planned forward pass, and the pages that it will touch."""

    key: AttemptKey
    pins: Pins
    slice: Slice


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """A forward pass. Planned ahead, so it must be begun (``begin_step``) before it is run: G7 is checked
    there.
    """

    step: int
    entries: tuple[StepEntry, ...]
