import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(
        line.lower().replace("_", "-").split("==") for line in lines if line and not line.startswith("#")
    )


def direct_dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [
        re.split(r"[<>=~!\[]", line)[0].lower()
        for line in [*project["dependencies"], *chain.from_iterable(extras)]
    ]


def test_every_constraint_is_an_exact_version() -> None:
    for name, version in pins().items():
        assert re.fullmatch(r"\d[\w.]*", version), f"{name}=={version}"


@pytest.mark.parametrize("name", direct_dependencies())
def test_every_direct_dependency_is_pinned(name: str) -> None:
    assert name in pins()


def test_every_direct_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for name in direct_dependencies():
        (line,) = (
            line for line in text.splitlines() if re.match(rf'  "{name}[<>=~!\["]', line, re.IGNORECASE)
        )
        assert re.search(r'",\s+# \S+', line), line


def test_a_light_install_has_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    light = {re.split(r"[<>=]", line)[0] for line in project["dependencies"]}
    assert light.isdisjoint({"torch", "transformers", "tokenizers", "accelerate", "fastapi", "uvicorn"})
