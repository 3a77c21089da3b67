"""Does the generator reach everything? Each fault, each code that the core can answer with, each row of the
transition tables. What is never hit was never tested.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.simulation.faults import Fault

from kvseal import core
from kvseal.core import decode, dispatch, loading, prefill, requests
from kvseal.core.errors import Code
from kvseal.core.requests import DECODE, GATEWAY, PREFILL, Event, State, Table

TABLES: Final = {"gateway": GATEWAY, "decode": DECODE, "prefill": PREFILL}
NEEDS_ABLATION: Final = frozenset({Fault.REMOTE_WRITE})  # while G3 holds there is nothing to write to
_NAMES: Final = {id(table): name for name, table in TABLES.items()}


def transition(table: str, state: State, event: Event) -> str:
    """The name under which a row of a table is counted."""
    return f"transition {table}: {state.value} + {event.value}"


@contextmanager
def counting_transitions(counts: Counter[str]) -> Iterator[None]:
    """Count each row of the tables that the cores use inside of the block."""
    own = requests.moved

    def counted(table: Table, state: State, event: Event) -> State:
        counts[transition(_NAMES[id(table)], state, event)] += 1
        return own(table, state, event)

    modules = (decode, dispatch, loading, prefill)
    for module in modules:
        module.moved = counted  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in modules:
            module.moved = own  # type: ignore[attr-defined]


def codes_of_core() -> list[Code]:
    """The codes that the core's own text names, outside of the list of all of them."""
    folder = Path(core.__file__).parent
    text = "".join(path.read_text() for path in sorted(folder.glob("*.py")) if path.name != "errors.py")
    return sorted(
        {Code[name] for name in re.findall(r"\bCode\.([A-Z_]+)", text)}, key=lambda code: code.value
    )


def wanted() -> list[str]:
    """The names of everything that must be hit at least once."""
    faults = [f"fault {fault.name}" for fault in Fault if fault not in NEEDS_ABLATION]
    codes = [f"code {code.value}" for code in codes_of_core()]
    rows = [transition(name, *row) for name, table in TABLES.items() for row in table]
    return faults + codes + rows


def hits(counts: Counter[str]) -> dict[str, int]:
    """How often each of :func:`wanted` was hit."""
    found = dict.fromkeys(wanted(), 0)
    for name, count in counts.items():
        if name.startswith("code "):  # "code Failed:worker_lost": by whom it was said does not matter here
            name = f"code {name.partition(':')[2]}"  # noqa: PLW2901
        if name in found:
            found[name] += count
    return found


def missed(counts: Counter[str]) -> list[str]:
    """What was never hit."""
    return [name for name, count in hits(counts).items() if not count]
