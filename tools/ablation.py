"""Take each guard away and see whether it is missed: ``python -m tools.ablation``.

A first line removed alone must lead to a violation within 5,000 seeds, from ten different starts. A second
line must hold in its story without the guards that stand before it, and be violated without them and itself.
G11 stands in front of the wire, which the simulator does not have: its own tests must fail without it. For
each guard the ordinary tests that name it are run without it too, and some must fail.

Writes the table into docs/evidence.md. Exit status 1 if any guard is not missed.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from tests.simulation.oracle import Kind
from tests.simulation.runner import Batch, Findings, cores, run_batch
from tests.simulation.stories import STORIES, Story
from tools.evidence import ROOT, named_tests, naming, write_section

from kvseal.core.guards import GUARDS, Guard
from kvseal.lab.ablation import REMOVALS, removal

STARTS = 10
LIMIT = 5000  # seeds from each start
APART = 1_000_000  # between two starts
HOLDS = 2000  # seeds in which a second line must hold
SWARM = "tests.simulation.setup:from_seed"
JUDGED = {"G10": frozenset({Kind.ORDER}), "G12": frozenset({Kind.CONTAINMENT})}
LEAK = frozenset({Kind.PROVENANCE})
NO_SIMULATION = {"G11"}
EXHAUSTIVE, SPIN = ROOT / "build" / "exhaustive.json", ROOT / "build" / "spin.json"
QUICK = ("tests/core/", "tests/wire/test_framing.py")  # where tests are run without the guard that they name


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``caught``: seeds until caught from each start (empty: never asked)."""

    removed: str
    what: str
    line: str
    caught: tuple[int | None, ...]
    holds: str
    states: str
    missed_by: tuple[str, ...]
    named_by: int

    @property
    def missed(self) -> bool:
        """Is the guard missed wherever it must be?"""
        return (
            None not in self.caught
            and self.holds != "VIOLATED"
            and (bool(self.missed_by) or ":" in self.removed)
        )


class Ablation:
    """Runs what the table needs, over all cores."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.tests = list(named_tests())

    def rows(self) -> list[Row]:
        """Every way to be without a guard."""
        guards = {guard.id: guard for guard in GUARDS}
        stories = {story.guard: story for story in STORIES}
        rows = []
        for way in (way for way in REMOVALS if way.alone):
            began = time.monotonic()
            guard = guards[way.guard]
            row = self._row(way.id, guard, stories.get(guard.id))
            rows.append(row)
            self.say(
                f"{way.id:<11} {_seeds(row):<32} {'missed' if row.missed else 'NOT MISSED'}  "
                f"({time.monotonic() - began:.0f} s)"
            )
        return rows

    def _row(self, way: str, guard: Guard, story: Story | None) -> Row:
        caught: tuple[int | None, ...] = ()
        holds = ""
        if guard.line == "second" and story is not None:
            caught = self._until_caught(story.source, (*story.behind, way), LEAK)
            worst = max((seeds for seeds in caught if seeds), default=LIMIT)
            seeds = max(HOLDS, 10 * worst)
            held = self._holds(story, seeds)
            holds = f"{seeds:,} seeds without {', '.join(story.behind)}" if held else "VIOLATED"
        elif guard.id not in NO_SIMULATION:
            caught = self._until_caught(SWARM, (way,), JUDGED.get(guard.id, LEAK))
        named = naming(guard.id, self.tests)
        quick = [test.node for test in named if test.path.startswith(QUICK)]
        missed_by = failing_without(way, quick) if ":" not in way else ()
        line = guard.line if not guard.behind else f"second, behind {' '.join(guard.behind)}"
        return Row(
            way, removal(way).what, line, caught, holds, states_until_caught(way), missed_by, len(named)
        )

    def _until_caught(
        self, source: str, removed: tuple[str, ...], judged: frozenset[Kind]
    ) -> tuple[int | None, ...]:
        batches = [Batch(start * APART, LIMIT, source, removed, judged) for start in range(STARTS)]
        return tuple(
            found.violations[0][0] - batch.first + 1 if found.violations else None
            for batch, found in zip(batches, _over_cores(batches), strict=True)
        )

    def _holds(self, story: Story, seeds: int) -> bool:
        part = 200
        batches = [
            Batch(first, min(part, seeds - first), story.source, story.behind, LEAK)
            for first in range(0, seeds, part)
        ]
        return not any(found.violations for found in _over_cores(batches))


def _over_cores(batches: list[Batch]) -> Iterable[Findings]:
    with multiprocessing.get_context("fork").Pool(cores()) as pool:
        return pool.map(run_batch, batches, chunksize=1)


def failing_without(way: str, nodes: list[str]) -> tuple[str, ...]:
    """Which of these tests fail when the guard is replaced: run in a process of its own."""
    if not nodes:
        return ()
    code = (
        "import sys, pytest\n"
        "from kvseal.lab.ablation import remove\n"
        f"remove({way!r})\n"
        "sys.exit(pytest.main(['-q', '--no-header', '-p', 'no:cacheprovider', *sys.argv[1:]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *nodes], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return tuple(sorted({line.split()[1].partition("[")[0] for line in lines}))


def states_until_caught(way: str) -> str:
    """What `make prove` found out, if it has run: states of the core's own code, and of the Spin model."""
    found = []
    if EXHAUSTIVE.exists():
        for removed, states in json.loads(EXHAUSTIVE.read_text())["until_caught"].items():
            if way == removed or (removed.endswith(f"+{way}") and states):
                together = "" if way == removed else f" (with {removed.removesuffix(f'+{way}')})"
                found.append(f"{states:,}{together}")
    if SPIN.exists():
        verdicts = json.loads(SPIN.read_text())
        caught = [v for v in verdicts if v["removed"] == [way] and v["errors"]]
        found += [f"{verdict['states']:,} in Spin" for verdict in caught]
    return ", ".join(found)


def _seeds(row: Row) -> str:
    if not row.caught:
        return "not simulated"
    if None in row.caught:
        return f"not caught in {LIMIT:,} from {row.caught.count(None)} of {STARTS} starts"
    known = [seeds for seeds in row.caught if seeds is not None]
    return f"{median(known):.0f} / {max(known)}"


def table(rows: list[Row]) -> str:
    """The table of docs/evidence.md."""
    lines = [
        f"Seeds until caught: median / worst of {STARTS} starts. A second line is removed together with the "
        "guards that it stands behind; how long it holds without those, alone, is said beside it. States: of "
        "the exhaustive search and of the Spin model, until caught.",
        "",
        "| guard | removed means | line | seeds | holds alone | states | tests name it | miss it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        failing = str(len(row.missed_by)) if ":" not in row.removed else ""
        example = f", such as `{row.missed_by[0].rpartition('::')[2]}`" if row.missed_by else ""
        lines.append(
            f"| {row.removed} | {row.what} | {row.line} | {_seeds(row)} | {row.holds} | {row.states} | "
            f"{row.named_by} | {failing}{example} |"
        )
    return "\n".join(lines)


def main() -> int:
    """0: every guard is missed."""
    parser = argparse.ArgumentParser(prog="python -m tools.ablation", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="do not write docs/evidence.md")
    options = parser.parse_args()

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    rows = Ablation(say).rows()
    if not options.dry:
        write_section("ablation", table(rows))
    not_missed = [row.removed for row in rows if not row.missed]
    say(f"not missed: {', '.join(not_missed)}" if not_missed else "every guard is missed")
    return int(bool(not_missed))


if __name__ == "__main__":
    sys.exit(main())
