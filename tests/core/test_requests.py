"""The transition tables are the drawings, and nothing else is possible (G10)."""

import itertools

import pytest

from kvseal.core.errors import InvariantViolation
from kvseal.core.requests import DECODE, GATEWAY, PREFILL, Event, State, Table, moved

TABLES = {"gateway": GATEWAY, "decode": DECODE, "prefill": PREFILL}

DRAWN = {
    "gateway": "open -first token-> streaming, open -end-> ended, streaming -end-> ended",
    "decode": "waiting -lease-> loading, waiting -end-> ended, loading -loaded-> running, "
    "loading -retry-> waiting, loading -end-> ended, running -retry-> waiting, running -end-> ended",
    "prefill": "waiting -lease-> computing, waiting -end-> ended, computing -computed-> announced, "
    "computing -end-> ended, announced -end-> ended",
}


@pytest.mark.parametrize("role", TABLES)
def test_the_table_is_the_drawing(role: str) -> None:
    rows = [
        f"{before.value} -{event.value}-> {after.value}" for (before, event), after in TABLES[role].items()
    ]
    assert sorted(rows) == sorted(DRAWN[role].split(", "))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_row_of_the_table_is_the_only_way(table: Table) -> None:
    for state, event in itertools.product(State, Event):
        if (state, event) in table:
            assert moved(table, state, event) is table[state, event]
        else:
            text = f"^a request that is {state.value} cannot take '{event.value}'$"
            with pytest.raises(InvariantViolation, match=text):
                moved(table, state, event)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_state_can_end_and_nothing_comes_after(table: Table) -> None:
    """F23: no state is a trap, and the end is final."""
    states = {state for state, _ in table}
    assert all(table[state, Event.END] is State.ENDED for state in states)
    assert State.ENDED not in states
