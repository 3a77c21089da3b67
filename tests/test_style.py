"""What a reader may count on, checked over the whole tree. The numbers are a little above the house rules."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 70

# Spelt in parts, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a path of one machine": re.compile("/" + r"(work|root|home/\w+)/"),
    "the host of a package registry": re.compile(
        r"pypi\." + r"org|files\.python" + r"hosted|registry\." + "npmjs"
    ),
    "a note to somebody": re.compile(r"\b(FIX" + r"ME|XX" + r"X|HA" + r"CK)\b"),
}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def python_files() -> list[Path]:
    return tracked("src/*.py", "tools/*.py", "setup.py")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_can_be_read_in_one_sitting() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in python_files()
        if (lines := len(path.read_text().splitlines())) > MAX_FILE_LINES
    }
    assert too_long == {}


def test_functions_fit_a_screen() -> None:
    too_long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": lines
        for path in python_files()
        for node in functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert too_long == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if (tree := ast.parse(path.read_text())).body and ast.get_docstring(tree) is None
    ]
    assert silent == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_tree_speaks_only_of_the_project(what: str) -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:  # pictures, recorded bytes
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if FORBIDDEN[what].search(line):
                found.append(f"{path.relative_to(ROOT)}:{number} {line.strip()}")
    assert found == []


def test_no_built_or_cached_file_is_tracked() -> None:
    assert (
        tracked("*.so", "*.pyc", "*.egg-info/*", "build/*", ".venv/*", "*.whl", "*.gguf", "*.safetensors")
        == []
    )
