import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFIGURATION = """
[tool.importlinter]
root_package = "toy"
include_external_packages = true
contract_types = ["layers_table: tools.layers.LayersContract"]

[[tool.importlinter.contracts]]
name = "table"
type = "layers_table"
root = "toy"
allowed = ["core:", "memory: core", "later: core", "lab: *"]
only = ["socket: memory"]
"""


def lint(tmp_path: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a package `toy` of these modules."""
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, source in {"core": "", "memory": "", **modules}.items():
        (package / f"{name}.py").write_text(source)
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
        "from importlinter.cli import lint_imports\n"
        "sys.exit(lint_imports(no_cache=True, no_logo=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_what_the_table_allows_passes_and_absent_packages_are_passed_over(tmp_path: Path) -> None:
    done = lint(tmp_path, memory="import socket\nimport toy.core", lab="import toy.memory")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("core", "import toy.memory", "toy.core:1 imports toy.memory: core may import nothing of ours"),
        ("core", "def f():\n    import toy.memory", "toy.core:2 imports toy.memory"),
        ("memory", "import toy.lab", "toy.memory:1 imports toy.lab: memory may import core"),
        ("core", "import socket", "toy.core:1 imports socket: only memory may"),
        ("fresh", "", "toy.fresh: the package fresh is missing from the table"),
    ],
    ids=["upwards", "inside a function", "the lab", "a library", "not in the table"],
)
def test_what_it_does_not_allow_is_named(tmp_path: Path, module: str, source: str, fault: str) -> None:
    modules = {"lab": "", module: source}
    done = lint(tmp_path, **modules)
    assert done.returncode == 1, done.stderr
    assert fault in done.stdout
