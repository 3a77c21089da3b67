"""The start table: what is served, by whom, and what it really holds."""

from typing import Any

from rich.console import Console
from rich.table import Table

from kvseal.core.guards import GUARDS


def facts(status: dict[str, Any], url: str) -> list[tuple[str, str]]:
    """Name and value of each row, from what the processes said of themselves."""
    workers = status["workers"]
    one = workers[0]
    every = {guard.id for guard in GUARDS}
    on = every.intersection(*(worker["guards"] for worker in workers))
    off = sorted(every - on, key=lambda name: int(name[1:]))
    rows = [
        ("model", f"{status['model']} ({one['dtype']})"),
        ("layout", f"{one['layout'][:16]}, pages of {one['page_size']} tokens"),
    ]
    for role in ("prefill", "decode"):
        held = [worker for worker in workers if worker["role"] == role]
        pools = ", ".join(f"{worker['pool_tokens']:,}" for worker in held)
        reserve = held[0]["reserve_tokens"]
        rows.append((f"{role} pool", f"{pools} tokens allocated, {reserve} of each in reserve"))
    rows += [
        ("context", f"{status['context']:,} tokens advertised"),
        ("attention", one["attention"]),
        ("transport", one["transport"]),
        ("guards", f"all {len(every)} on" if not off else f"OFF: {', '.join(off)}"),
        ("url", url),
    ]
    return rows


def show(console: Console, rows: list[tuple[str, str]]) -> None:
    """Print the table; it fits 80 columns and reads without colour."""
    table = Table(title="kvseal", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
