"""Explore all scopes with all guards, then without some until something leaks; print and export the figures.

python -m tests.exhaustive [--prove] [--out build/exhaustive.json]
"""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.exhaustive.explore import ANY, BROKEN, Explorer, Result, replaced
from tests.exhaustive.scopes import CI, HELD, MISSED, PROVE, Scope
from tests.exhaustive.without import replacements

LIMIT = 1_500_000  # states of one scope: about 6 GB


def say(text: str) -> None:
    """One line for the reader, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def line(result: Result) -> str:
    """One row of the printed table."""
    end = "every state" if result.complete else "stopped"
    if result.violation is not None:
        end = result.violation.text + "\n    " + " · ".join(result.violation.trace)
    guards = "without " + " ".join(result.removed) if result.removed else "all guards"
    return (
        f"{guards:16} {result.scope:8} {result.states:>9,} states {result.transitions:>10,} transitions "
        f"depth {result.depth:>2} {result.seconds:6.1f} s  {end}"
    )


def explored(scopes: Iterable[Scope]) -> list[Result]:
    """All scopes with all guards in force."""
    results = []
    for scope in scopes:
        results.append(Explorer(scope, ANY, LIMIT).run())
        say(line(results[-1]))
    return results


def ablated() -> list[Result]:
    """Without guards, until something leaks or all is seen."""
    results = []
    for removed, scope in {**MISSED, **HELD}.items():
        with replaced(replacements(removed)):
            results.append(Explorer(scope, BROKEN, LIMIT).run(removed))
        say(line(results[-1]))
    return results


def main() -> int:
    """Exit status 1 where a scope is not safe, or where a guard is not missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("--prove", action="store_true", help="larger scopes, for many minutes")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    safe, without = explored(PROVE if options.prove else CI), ablated()
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "states": sum(result.states for result in safe),
            "transitions": sum(result.transitions for result in safe),
            "until_caught": {
                "+".join(r.removed): r.violation and r.violation.states
                for r in without
                if r.removed in MISSED
            },
            "held": {"+".join(r.removed): r.states for r in without if r.removed in HELD},
            "scopes": [asdict(result) for result in safe],
            "without": [asdict(result) for result in without],
        }
        options.out.write_text(json.dumps(data, indent=1) + "\n")
    failed = any(result.violation for result in safe)
    failed |= any((result.violation is None) == (result.removed in MISSED) for result in without)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
