"""``python -m tests.simulation``: many seeds, or one with its trace.

--seeds 50000 --first 0   all of them; the table at the end says what they hit, and zero hits fail
--seed 4711 --trace       one, with what happened
--without G4,G7           with guards replaced; --source story names another generator
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from tests.simulation.coverage import hits, missed
from tests.simulation.oracle import EVERY_KIND, Kind
from tests.simulation.runner import Findings, cores, cut, run_batches, source_of
from tests.simulation.shrink import shrink
from tests.simulation.world import simulate

from kvseal.lab.ablation import without

ENOUGH = 2000  # seeds from which on everything must have been hit


def main() -> int:
    """0: no violation, and everything was hit."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 120)
    removed = tuple(filter(None, options.without.split(",")))
    judged = frozenset(map(Kind, options.judge.split(","))) if options.judge else EVERY_KIND
    if options.seed is not None:
        return _one(console, options, removed, judged)
    began = time.monotonic()
    findings = Findings()
    batches = cut(options.first, options.seeds, source=options.source, removed=removed, judged=judged)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task("seeds", total=options.seeds)
        for found in run_batches(batches, options.workers):
            findings.add(found)
            progress.update(task, completed=findings.seeds)
            if findings.violations:
                break
    took = time.monotonic() - began
    _table(console, findings.counts)
    console.print(
        f"seeds {options.first} to {options.first + findings.seeds - 1}: {findings.events:,} events, "
        f"{findings.counts['tokens delivered']:,} tokens delivered, {took:.1f} s, "
        f"{findings.seeds / took:.0f} seeds/s, {len(findings.violations)} violations"
    )
    if options.out is not None:
        _record(options.out, options.first, findings, took)
    if findings.violations:
        seed, kind, text = findings.violations[0]
        console.print(f"seed {seed} violates {kind.value}: {text}", highlight=False)
        options.seed, options.shrink = seed, True
        _one(console, options, removed, judged)
        return 1
    never = missed(findings.counts) if options.seeds >= ENOUGH and not removed else []
    if never:
        console.print(f"never hit: {', '.join(never)}", highlight=False)
    return 1 if never else 0


def _one(
    console: Console, options: argparse.Namespace, removed: tuple[str, ...], judged: frozenset[Kind]
) -> int:
    setup = source_of(options.source)(options.seed)
    with without(*removed):
        report = simulate(setup, judged=judged)
        if report.violation is not None and options.shrink:
            setup = shrink(setup, judged)
        report = simulate(setup, judged=judged, traced=True)
    assert report.trace is not None
    if options.trace or report.violation is not None:
        console.print(setup, highlight=False)
        console.print(report.trace.text(), highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"seed {options.seed}: {report.events} events, fingerprint {report.trace.fingerprint:08x}, "
        f"{report.violation or 'no violation'}",
        highlight=False,
        markup=False,
    )
    return 0 if report.violation is None else 1


def _record(path: Path, first: int, findings: Findings, took_s: float) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    data = {
        "first": first,
        "seeds": findings.seeds,
        "events": findings.events,
        "tokens": findings.counts["tokens delivered"],
        "seconds": round(took_s, 1),
        "processes": cores(),
        "commit": commit,
        "violations": [[seed, kind.value, text] for seed, kind, text in findings.violations],
        "hits": hits(findings.counts),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")


def _table(console: Console, counts: Counter[str]) -> None:
    table = Table(title="what the seeds hit", show_edge=False)
    for column in ("what", "times", "what", "times"):
        table.add_column(column, justify="right" if column == "times" else "left")
    rows = list(hits(counts).items())
    half = -(-len(rows) // 2)
    for i in range(half):
        right = rows[half + i] if half + i < len(rows) else ("", 0)
        table.add_row(rows[i][0], f"{rows[i][1]:,}", right[0], f"{right[1]:,}" if right[0] else "")
    console.print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--workers", type=int, default=cores(), help="processes")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    parser.add_argument("--shrink", action="store_true", help="find a smaller world with the same violation")
    parser.add_argument("--without", default="", help="guards to replace, with commas")
    parser.add_argument("--judge", default="", help="kinds of violation that count, with commas")
    parser.add_argument("--source", default="tests.simulation.setup:from_seed", help="module:function")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
