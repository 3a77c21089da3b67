"""Check the Spin model: no error over all states, and a counter-example for every guard that is switched off.

    python spec/check.py [--out build/spin.json]

Needs spin and gcc (Debian: ``apt-get install spin gcc libc6-dev``). Memory and time of each run are bounded.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

MODEL: Final = Path(__file__).with_name("lease.pml")
MEMORY_MB: Final = 3000
TIME_S: Final = 900
ENOUGH_STATES: Final = 2_000_000

MISSED: Final = (("G4",), ("G5",), ("G6",), ("G7",), ("G6", "G8"))  # what leaks when it is switched off
HELD: Final = (("G8",),)  # second lines: nothing happens without them while the first line stands


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one exhaustive run. ``actions`` is the counter-example: what happened, from the first state on."""

    removed: tuple[str, ...]
    faults: int
    states: int
    transitions: int
    depth: int
    errors: int
    complete: bool
    memory_mb: float
    seconds: float
    actions: tuple[str, ...] = ()


class SpinFailed(Exception):
    """Spin, gcc or the verifier did not do its work; the text says which, and what it said."""


def tools_missing() -> list[str]:
    """Which of the programs that are needed are not installed."""
    return [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]


def verify(removed: tuple[str, ...] = (), faults: int = 3) -> Verdict:
    """Search all states of the model without the guards ``removed``: breadth first where that is an error."""
    defines = [f"-DFAULTS={faults}", *(f"-DNO_{guard}" for guard in removed)]
    with tempfile.TemporaryDirectory(prefix="kvseal-spin-") as folder:
        work = Path(folder)
        shutil.copy(MODEL, work)
        _run(["spin", "-a", *defines, MODEL.name], work)
        shortest = ["-DBFS"] if removed in MISSED else ["-DCOLLAPSE"]
        _run(["gcc", "-O1", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", *shortest, "-o", "pan", "pan.c"], work)
        report = _run(["./pan", "-m100000", "-w22", "-E"], work)
        actions: tuple[str, ...] = ()
        if (work / f"{MODEL.name}.trail").exists():
            trail = _run(["spin", "-t", *defines, MODEL.name], work)
            actions = tuple(re.findall(r"ACT (.+)", trail))
    return _verdict(removed, faults, report, actions)


def random_run(seed: int, steps: int, faults: int = 3) -> tuple[str, ...]:
    """The actions of one random run of the model with all guards."""
    with tempfile.TemporaryDirectory(prefix="kvseal-spin-") as folder:
        shutil.copy(MODEL, folder)
        command = ["spin", f"-n{seed}", f"-u{steps}", f"-DFAULTS={faults}", MODEL.name]
        return tuple(re.findall(r"ACT (.+)", _run(command, Path(folder))))


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIME_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SpinFailed(f"{command[0]} was not done within {TIME_S} s") from error
    if done.returncode and command[0] != "spin":  # guided simulation ends with the assertion that failed
        raise SpinFailed(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def _verdict(removed: tuple[str, ...], faults: int, report: str, actions: tuple[str, ...]) -> Verdict:
    def number(pattern: str) -> float:
        found = re.search(pattern, report)
        if found is None:
            raise SpinFailed(f"the verifier's report has no '{pattern}':\n{report}")
        return float(found[1])

    errors = int(number(r"errors: (\d+)"))
    return Verdict(
        removed=removed,
        faults=faults,
        states=int(number(r"(\S+) states, stored")),
        transitions=int(number(r"(\d+) transitions")),
        depth=int(number(r"depth reached (\d+)")),
        errors=errors,
        complete=not errors and "Search not completed" not in report and "max search depth" not in report,
        memory_mb=number(r"([\d.]+)\s+total actual memory usage"),
        seconds=number(r"elapsed time ([\d.]+)"),
        actions=actions,
    )


def line(verdict: Verdict) -> str:
    """One row for the reader."""
    guards = f"without {' '.join(verdict.removed)}" if verdict.removed else "all guards"
    end = "every state, no error" if verdict.complete else f"{verdict.errors} error"
    trace = f"\n    {' · '.join(verdict.actions)}" if verdict.actions else ""
    return (
        f"{guards:14} {verdict.states:>9,} states {verdict.transitions:>10,} transitions "
        f"depth {verdict.depth:>3} {verdict.memory_mb:5.0f} MB {verdict.seconds:6.1f} s  {end}{trace}"
    )


def main() -> int:
    """Exit status 1 where the model has an error, is too small, or a guard is not missed."""
    parser = argparse.ArgumentParser(prog="python spec/check.py", description="Check the Spin model.")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    missing = tools_missing()
    if missing:
        sys.stderr.write(
            f"not installed: {', '.join(missing)}; on Debian: apt-get install spin gcc libc6-dev\n"
        )
        return 1
    verdicts = []
    for removed in ((), *MISSED, *HELD):
        verdicts.append(verify(removed))
        sys.stdout.write(line(verdicts[-1]) + "\n")
        sys.stdout.flush()
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    safe = [verdict for verdict in verdicts if verdict.removed not in MISSED]
    failed = any(not v.complete or v.states < ENOUGH_STATES for v in safe)
    failed |= any(not v.errors or not v.actions for v in verdicts if v.removed in MISSED)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
