"""Parts of docs/evidence.md that are generated: each between its markers, so that it cannot drift.

::

    <!-- name:begin -->
    ... written by the tool that measured it ...
    <!-- name:end -->

``python -m tools.evidence`` writes the parts that come from reading the tests (which field report is which
test) and from what `make simulate` and `make prove` have left in build/. ``--check`` only says whether the
former are what they should be.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "docs" / "evidence.md"
REPORTS = tuple(f"F{number:02d}" for number in range(1, 27))


class NamedTest(NamedTuple):
    """A test, its own text, and the docstring of its file: where it can name a guard or a field report."""

    path: str
    name: str
    text: str
    about: str = ""

    @property
    def node(self) -> str:
        """What pytest calls it."""
        return f"{self.path}::{self.name}"


def named_tests(root: Path = ROOT) -> Iterator[NamedTest]:
    """Every test function, with its name, docstring, comments and decorators."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        source = path.read_text()
        lines = source.splitlines()
        module = ast.parse(source)
        about = ast.get_docstring(module) or ""
        for node in module.body:
            inner = node.body if isinstance(node, ast.ClassDef) else [node]
            owner = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
            for function in inner:
                if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if function.name.startswith("test"):
                    first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
                    text = "\n".join(lines[first - 1 : function.end_lineno])
                    yield NamedTest(str(path.relative_to(root)), owner + function.name, text, about)


def naming(identity: str, tests: Sequence[NamedTest]) -> list[NamedTest]:
    """The tests that name a guard (G5) or a field report (F05), and those of files in which no test does by
    itself and the docstring says that this is what they are about.
    """
    pattern = re.compile(rf"(?<![A-Za-z0-9]){identity}(?![0-9])|(?<![a-z]){identity.lower()}_")
    own = [test for test in tests if pattern.search(test.text)]
    files = {test.path for test in own}
    return own + [test for test in tests if test.path not in files and pattern.search(test.about)]


def write_section(name: str, text: str, path: Path = EVIDENCE) -> None:
    """Put ``text`` between the markers of this name. Raises ValueError where there are none."""
    path.write_text(with_section(path.read_text(), name, text))


def with_section(document: str, name: str, text: str) -> str:
    """The document with another text between these markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if document.count(begin) != 1 or document.count(end) != 1:
        raise ValueError(f"the document has no single place for '{name}': {begin} … {end}")
    head, rest = document.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n{text.strip()}\n{end}{tail}"


def field_reports(tests: Sequence[NamedTest]) -> str:
    """A table: which row of the field reports is shown by which tests."""
    rows = ["| report | tests |", "|---|---|"]
    for report in REPORTS:
        found = [f"`{test.node.removeprefix('tests/')}`" for test in naming(report, tests)]
        found.sort(
            key=lambda name: not name.startswith("`simulation/test_field_reports")
        )  # the named one first
        shown = "<br>".join(found[:4]) + (f"<br>and {len(found) - 4} more" if len(found) > 4 else "")
        rows.append(f"| {report} | {shown or 'none yet'} |")
    return "\n".join(rows)


def simulated(data: dict[str, Any]) -> str:
    """The last `make simulate`, in a few lines and the table of what it hit."""
    seeds, seconds = data["seeds"], data["seconds"]
    lines = [
        f"Seeds {data['first']:,} to {data['first'] + seeds - 1:,} at commit {data['commit']}: "
        f"{data['events']:,} events, {data['tokens']:,} tokens delivered and judged, "
        f"**{len(data['violations'])} violations**, {seconds:,} s over {data['processes']} cores "
        f"({seeds / seconds:.0f} seeds/s).",
        "",
        "| hit | times | hit | times |",
        "|---|---|---|---|",
    ]
    rows = [f"{name} | {count:,}" for name, count in data["hits"].items()]
    half = -(-len(rows) // 2)
    lines += [f"| {rows[i]} | {rows[half + i] if half + i < len(rows) else ' | '} |" for i in range(half)]
    return "\n".join(lines)


def explored(data: dict[str, Any]) -> str:
    """The last exhaustive search: scope by scope."""
    lines = ["| scope | states | transitions | complete | violation |", "|---|---|---|---|---|"]
    for scope in data["scopes"]:
        complete = "yes" if scope["complete"] else "no"
        lines.append(
            f"| {scope['scope']} | {scope['states']:,} | {scope['transitions']:,} | {complete} | "
            f"{scope['violation'] or 'none'} |"
        )
    return "\n".join(lines)


def modelled(data: list[dict[str, Any]]) -> str:
    """The last run of the Spin model: with all guards, and without each that it knows."""
    lines = ["| guards | states | errors | complete |", "|---|---|---|---|"]
    for verdict in data:
        guards = f"without {' '.join(verdict['removed'])}" if verdict["removed"] else "all"
        complete = "yes" if verdict["complete"] else "stops at the first error"
        lines.append(f"| {guards} | {verdict['states']:,} | {verdict['errors']} | {complete} |")
    return "\n".join(lines)


MEASURED: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "simulation": ("simulation.json", simulated),
    "exhaustive": ("exhaustive.json", explored),
    "spin": ("spin.json", modelled),
}


def main() -> int:
    """Write, or with ``--check`` compare what can be compared without measuring again."""
    document = EVIDENCE.read_text()
    current = with_section(document, "field-reports", field_reports(list(named_tests())))
    if "--check" in sys.argv[1:]:
        return int(current != document)
    for name, (measured, render) in MEASURED.items():
        path = ROOT / "build" / measured
        if path.exists():
            current = with_section(current, name, render(json.loads(path.read_text())))
    EVIDENCE.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
