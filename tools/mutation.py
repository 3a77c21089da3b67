"""Mutation testing of the modules that guard pages: are the tests of `tests/core` able to fail?

    python tools/mutation.py            from the repository's root; see `make mutation`

Works in `build/mutation`: an environment of its own with mutmut, a copy of the core and of six test files.
Writes `docs/mutation.md`. Exit status 1 where less than 90 % of the mutants are killed, where one survives
without a reason in `tools/mutation.toml`, or where that file gives a reason for one that is killed.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
WORK: Final = ROOT / "build" / "mutation"
REPORT: Final = ROOT / "docs" / "mutation.md"
REASONS: Final = ROOT / "tools" / "mutation.toml"

MODULES: Final = ("pages", "leases", "seals", "guards", "requests", "ids")
TARGET: Final = 0.9
TIME_S: Final = 1800
DEAD: Final = ("killed", "timeout")  # a mutant that never ends is noticed, too


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed line. ``where`` is module and function."""

    where: str
    status: str
    before: str = ""
    after: str = ""

    @property
    def module(self) -> str:
        return self.where.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why it does no harm that nobody notices a mutant."""

    where: str
    after: str
    text: str


def run(command: list[str], folder: Path) -> str:
    """Run to the end within its time, and give back what it said. Raises with that text where it failed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIME_S, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def environment() -> Path:
    """The folder of programs of an environment with mutmut in it, made once."""
    programs = WORK / "venv" / "bin"
    if not (programs / "mutmut").exists():
        run([sys.executable, "-m", "venv", str(WORK / "venv")], ROOT)
        wanted = ["-c", "constraints.txt", "-r", "tools/mutation.txt"]
        run([str(programs / "pip"), "install", "--quiet", *wanted], ROOT)
    return programs


def lay_out(folder: Path) -> None:
    """A project that holds the core, its six test files, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "kvseal" / "core", folder / "src" / "kvseal" / "core", ignore=skip)
    shutil.copy(ROOT / "src" / "kvseal" / "__init__.py", folder / "src" / "kvseal")
    (folder / "tests" / "core").mkdir(parents=True)
    for module in MODULES:
        shutil.copy(ROOT / "tests" / "core" / f"test_{module}.py", folder / "tests" / "core")
    mutated = ", ".join(f'"src/kvseal/core/{module}.py"' for module in MODULES)
    (folder / "pyproject.toml").write_text(
        "[tool.mutmut]\n"
        'source_paths = ["src"]\n'
        f"only_mutate = [{mutated}]\n"
        'pytest_add_cli_args_test_selection = ["tests/core"]\n'
        "[tool.pytest.ini_options]\n"
        'addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]\n'
    )


def mutants() -> list[Mutant]:
    """Make all mutants, run the tests against each, and say what became of them."""
    mutmut, folder = str(environment() / "mutmut"), WORK / "work"
    lay_out(folder)
    run([mutmut, "run", "--max-children", "2"], folder)
    found = []
    for name, status in re.findall(
        r"^\s+(\S+): (.+)$", run([mutmut, "results", "--all", "true"], folder), re.MULTILINE
    ):
        where = readable(name)
        if status in DEAD:
            found.append(Mutant(where, status))
            continue
        shown = run([mutmut, "show", name], folder).splitlines()
        changed = [line for line in shown if re.match(r"[-+](?![-+])", line)]
        before = " ".join(line[1:].strip() for line in changed if line.startswith("-"))
        after = " ".join(line[1:].strip() for line in changed if line.startswith("+"))
        found.append(Mutant(where, status, before, after))
    return found


def readable(name: str) -> str:
    """``kvseal.core.pages.xǁPagePoolǁlease__mutmut_3`` is ``pages.PagePool.lease``."""
    name = name.removeprefix("kvseal.core.").rpartition("__mutmut_")[0]
    module, _, function = name.partition(".")
    return f"{module}.{function.removeprefix('x').strip('ǁ').removeprefix('_').replace('ǁ', '.')}"


def report(found: list[Mutant], reasons: list[Reason]) -> tuple[str, list[str]]:
    """The document, and what is wrong with the result."""
    given = {(reason.where, reason.after): reason.text for reason in reasons}
    survivors = [mutant for mutant in found if mutant.status not in DEAD]
    killed = len(found) - len(survivors)
    wrong = [
        f"{mutant.where}: {mutant.after} ({mutant.status}) has no reason"
        for mutant in survivors
        if (mutant.where, mutant.after) not in given
    ]
    alive = {(mutant.where, mutant.after) for mutant in survivors}
    wrong += [
        f"{where}: {after} has a reason, and does not survive"
        for where, after in given
        if (where, after) not in alive
    ]
    if killed < TARGET * len(found):
        wrong.append(f"{killed} of {len(found)} mutants are killed, {TARGET:.0%} are wanted")
    total, dead = Counter(m.module for m in found), Counter(m.module for m in found if m.status in DEAD)
    rows = [
        f"| {module} | {total[module]} | {dead[module]} | {dead[module] / total[module]:.1%} |"
        for module in MODULES
        if total[module]
    ]
    lines = [
        "# Mutation testing",
        "",
        "Written by `make mutation`; do not edit. mutmut changes one thing in one function at a time,",
        "and the example tests in `tests/core` must notice. Tables at module level are not mutated:",
        "`test_requests.py` and `test_guards.py` compare them with the drawings. A mutant that never ends",
        "counts as killed.",
        "",
        "| module | mutants | killed | |",
        "|---|---:|---:|---:|",
        *rows,
        f"| **all** | **{len(found)}** | **{killed}** | **{killed / len(found):.1%}** |",
        "",
        "## Survivors",
        "",
        "The reasons stand in `tools/mutation.toml`; the check fails for a survivor without one.",
        "",
    ]
    for mutant in survivors:
        why = given.get((mutant.where, mutant.after), "**no reason given**")
        lines += [
            f"- `{mutant.where}`: {why}",
            "",
            "  ```diff",
            f"  - {mutant.before}",
            f"  + {mutant.after}",
            "  ```",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n", wrong


def main() -> int:
    """Run all, write the report, say what is wrong."""
    table = tomllib.loads(REASONS.read_text()).get("harmless", [])
    text, wrong = report(mutants(), [Reason(row["where"], row["after"], row["reason"]) for row in table])
    REPORT.write_text(text)
    sys.stdout.write("\n".join([line for line in text.splitlines() if line.startswith("|")] + wrong) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
