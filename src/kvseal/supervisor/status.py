"""What ``kvseal status`` shows: each worker's pool by state, and the counters that are not zero."""

import os
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from kvseal.supervisor.server import run_root


def find_status(port: int) -> dict[str, Any] | None:
    """The status of the server of this user that clients reach on ``port``; None where none answers."""
    for admin in sorted(run_root(os.environ).glob(f"{port}-*/admin.sock")):
        try:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(admin)), timeout=5.0) as client:
                found: dict[str, Any] = client.get("http://admin/status").json()
        except (httpx.HTTPError, ValueError):
            continue
        return found
    return None


def show_status(status: dict[str, Any]) -> None:
    """Print it; it fits 80 columns and reads without colour."""
    console = Console()
    state = "ready" if status["ready"] else f"NOT READY: {status['reason']}"
    console.print(
        f"[bold]{status['model']}[/]  context {status['context']:,}  "
        f"open requests {status['open_requests']}  {state}"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("worker", "instance", "free", "leased", "quarantined", "running", "waiting"):
        table.add_column(name, justify="left" if name in ("worker", "instance") else "right")
    for worker in status["workers"]:
        pool = worker["pool"] or {}
        numbers = ("free_pages", "leased_pages", "quarantined_pages", "running", "waiting")
        table.add_row(
            worker["role"], worker["instance"][:8], *(f"{pool.get(name, '?'):,}" for name in numbers)
        )
    console.print(table)
    raised = [
        f"{worker['role']} {name} {count:,}"
        for worker in status["workers"]
        for name, count in ((worker["pool"] or {}).get("counters") or {}).items()
        if count and name.startswith("guard_")
    ]
    console.print("guard violations: " + (", ".join(raised) or "none"))
