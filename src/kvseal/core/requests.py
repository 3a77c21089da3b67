"""The life of a request, on each of the three roles, as one transition table each.

::

    gateway    OPEN ──first token──> STREAMING ──end──> ENDED
                 └───────────────────────end─────────────^

    decode     WAITING ──lease──> LOADING ──loaded──> RUNNING ──end──> ENDED
                  ^  │               │ │                 │               ^
                  │  └──────end──────│─┴──────end────────│───────────────┤
                  └───────retry──────┴───────retry───────┘   (a new attempt, on other pages)

    prefill    WAITING ──lease──> COMPUTING ──computed──> ANNOUNCED ──end──> ENDED
                  └──────end──────────┴────────────────────────────────────────^

An illegal transition is an InvariantViolation: a bug, never an answer to a client.
"""

from enum import Enum

from kvseal.core.errors import InvariantViolation


class State(Enum):
    """Where a request is. Each role uses the states of its own table."""

    OPEN = "open"
    STREAMING = "streaming"
    WAITING = "waiting"
    LOADING = "loading"
    RUNNING = "running"
    COMPUTING = "computing"
    ANNOUNCED = "announced"
    ENDED = "ended"


class Event(Enum):
    """What moves a request."""

    FIRST_TOKEN = "first token"  # noqa: S105 (no password)
    LEASE = "lease"
    LOADED = "loaded"
    COMPUTED = "computed"
    RETRY = "retry"
    END = "end"


Table = dict[tuple[State, Event], State]

GATEWAY: Table = {
    (State.OPEN, Event.FIRST_TOKEN): State.STREAMING,
    (State.OPEN, Event.END): State.ENDED,
    (State.STREAMING, Event.END): State.ENDED,
}
DECODE: Table = {
    (State.WAITING, Event.LEASE): State.LOADING,
    (State.WAITING, Event.END): State.ENDED,
    (State.LOADING, Event.LOADED): State.RUNNING,
    (State.LOADING, Event.RETRY): State.WAITING,
    (State.LOADING, Event.END): State.ENDED,
    (State.RUNNING, Event.RETRY): State.WAITING,
    (State.RUNNING, Event.END): State.ENDED,
}
PREFILL: Table = {
    (State.WAITING, Event.LEASE): State.COMPUTING,
    (State.WAITING, Event.END): State.ENDED,
    (State.COMPUTING, Event.COMPUTED): State.ANNOUNCED,
    (State.COMPUTING, Event.END): State.ENDED,
    (State.ANNOUNCED, Event.END): State.ENDED,
}


def moved(table: Table, state: State, event: Event) -> State:
    """The state after ``event``. Raises InvariantViolation where the table has no such row."""
    after = table.get((state, event))
    if after is None:
        raise InvariantViolation(f"a request that is {state.value} cannot take '{event.value}'")
    return after
