"""The reports in docs/auditing.md are real: every shown line is printed, in this order."""

import re
import shlex
from pathlib import Path

import pytest
from tests.audit.conftest import CORPUS
from typer.testing import CliRunner

from kvseal.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "auditing.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ (kvseal audit[^\n]*)\n(kvseal audit ·.*?)\n```", PAGE, re.DOTALL)


def test_there_is_one_example_for_each_verdict() -> None:
    words = {body.splitlines()[2].strip() for _, body in EXAMPLES}
    assert words == {"AFFECTED", "AT RISK", "NOT AFFECTED", "CANNOT TELL"}


@pytest.mark.parametrize(("command", "body"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_example_is_what_is_printed(command: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CORPUS)
    result = CliRunner().invoke(app, shlex.split(command)[1:], env={"COLUMNS": "80", "NO_COLOR": "1"})
    printed = iter(result.output.splitlines())
    for line in body.splitlines():
        assert line == "…" or line in printed, line
