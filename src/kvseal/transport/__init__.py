"""How pages travel: one-sided reads behind one interface (G3)."""

from kvseal.transport.base import (
    Capabilities,
    Cause,
    Ended,
    Transport,
    TransportCounters,
    TransportError,
)
from kvseal.transport.faulty import FaultyTransport, Schedule
from kvseal.transport.shm import ShmOptions, ShmTransport

__all__ = [
    "Capabilities",
    "Cause",
    "Ended",
    "FaultyTransport",
    "Schedule",
    "ShmOptions",
    "ShmTransport",
    "Transport",
    "TransportCounters",
    "TransportError",
]
