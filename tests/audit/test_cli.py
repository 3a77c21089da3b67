"""`kvseal audit` as it is called: exit codes, files, refusals. Never a traceback."""

import json
from pathlib import Path

import pytest
from tests.audit.conftest import CORPUS
from typer.testing import CliRunner, Result

from kvseal.cli import app

RUNNER = CliRunner()
AFFECTED = ["--log", str(CORPUS / "incident/prefill.log"), "--log", str(CORPUS / "incident/decode.log")]
CLEAN = ["--command", str(CORPUS / "kvseal.sh")]
UNKNOWN = ["--log", str(CORPUS / "late-start.log")]


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    result = RUNNER.invoke(app, ["audit", *arguments], input=stdin, env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (AFFECTED, 1),
        (CLEAN, 0),
        ([str(CORPUS / "kvseal.sh")], 0),
        ([str(CORPUS / "combined-0.5.23.log"), str(CORPUS / "vllm-0.29.0.log")], 0),
        ([str(CORPUS / "compose-0.5.18.yaml"), "--accept-unknown"], 1),
        (UNKNOWN, 2),
        ([*UNKNOWN, "--accept-unknown"], 0),
        ([*AFFECTED, "--accept-unknown"], 1),
        (["--command", str(CORPUS / "Dockerfile"), "--fail-on", "critical"], 0),
        (["--command", str(CORPUS / "Dockerfile"), "--fail-on", "low"], 1),
        ([], 2),
        ([*CLEAN, "--json", "--sarif"], 2),
        ([*CLEAN, "--lang", "fr"], 2),
        ([*CLEAN, "--no-such-option"], 2),
        (["--log", "/no/such/file"], 2),
        (["--url", "not a url"], 2),
        ([*CLEAN, "--token-env", "KVSEAL_NO_SUCH_VARIABLE"], 2),
        ([*CLEAN, "--output", "/no/such/folder/report"], 2),
    ],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert run(*arguments).exit_code == code


def test_standard_input_is_a_log() -> None:
    text = (CORPUS / "incident/prefill.log").read_text()
    assert "AFFECTED" in run("--log", "-", stdin=text).output
    assert run("--log", "-", stdin=b"\xff\x00\x1f\x8b").exit_code == 2


@pytest.mark.parametrize(
    ("option", "begins"), [("--json", "{"), ("--sarif", "{"), ("--markdown", "# kvseal audit: ")]
)
def test_reports_go_to_files(tmp_path: Path, option: str, begins: str) -> None:
    target = tmp_path / "report"
    result = run(*AFFECTED, option, "--output", str(target))
    assert result.exit_code == 1
    assert result.output == ""
    assert target.read_text(encoding="utf-8").startswith(begins)


def test_german_by_option() -> None:
    assert "BETROFFEN" in run(*AFFECTED, "--lang", "de").output


def test_baseline_remembers_and_reports_what_moved(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    log = tmp_path / "d.log"
    log.write_text((CORPUS / "good-0.5.23/decode.log").read_text())
    run("--log", str(log), "--baseline", str(numbers))
    first = numbers.read_text()
    assert json.loads(first)["servers"]["sglang-decode-1"]["kv-pool-tokens"] == "2400000"
    assert "nothing moved" in run("--log", str(log), "--baseline", str(numbers)).output
    log.write_text(log.read_text().replace("2400000", "1200000").replace("'tp_size': 8", "'tp_size': 4"))
    output = run("--log", str(log), "--baseline", str(numbers)).output
    assert "kv-pool-tokens: 2400000 → 1200000  (worse)" in output
    assert "tensor-parallel: 8 → 4" in output
    assert numbers.read_text() == first
    run("--log", str(log), "--baseline", str(numbers), "--update-baseline")
    assert "nothing moved" in run("--log", str(log), "--baseline", str(numbers)).output


@pytest.mark.parametrize("content", ["", "{", "[]", '{"servers": 7}', '{"servers": {}, "format": 9}', "\x00"])
def test_a_broken_baseline_is_refused(tmp_path: Path, content: str) -> None:
    numbers = tmp_path / "numbers.json"
    numbers.write_text(content)
    result = run(*CLEAN, "--baseline", str(numbers))
    assert result.exit_code == 2
    assert "no baseline" in result.output
    assert numbers.read_text() == content


def test_help_stays_light() -> None:
    output = run("--help").output
    assert "Exit codes" in output
    assert "--engine-version" in output


def test_every_corpus_file_as_every_option_is_no_traceback() -> None:
    files = sorted(path for path in CORPUS.rglob("*") if path.is_file())[::7]
    for path in files:
        for option in ("--log", "--command", "--packages", "--env"):
            assert run(option, str(path), "--json").exit_code in {0, 1, 2}
