"""The ends that a one-sided read can have. "In flight" is not an end, and neither is a timeout (F15)."""

from enum import Enum


class Outcome(Enum):
    """What the transport says about a read that it no longer works on. Only DONE proves anything (G4)."""

    DONE = "done"
    ERROR = "error"
