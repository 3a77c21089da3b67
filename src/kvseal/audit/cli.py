"""`kvseal audit`: am I affected, and what do I do?"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kvseal.audit.advisories import load_advisories
from kvseal.audit.baseline import UnreadableBaseline, compare, load, save, snapshot
from kvseal.audit.documents import to_json, to_markdown, to_sarif
from kvseal.audit.judge import Report, Verdict, judge
from kvseal.audit.rule import Severity
from kvseal.audit.rules import load_rules
from kvseal.audit.terminal import TerminalReport
from kvseal.audit.texts import Language
from kvseal.fleet.gather import Inputs, Options, gather
from kvseal.fleet.streams import Progress as Advance

EXIT_CLEAN: Final = 0
EXIT_FOUND: Final = 1
EXIT_UNKNOWN: Final = 2
_BAR_FROM_BYTES: Final = 64 << 20


class Level(StrEnum):
    """For --fail-on."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"


Logs = Annotated[list[str], typer.Option("--log", metavar="[ROLE=]FILE", help="Start-up log; - is stdin.")]
Commands = Annotated[
    list[str],
    typer.Option(
        "--command", metavar="[ROLE=]FILE", help="Shell script, Compose file, manifest, unit, Dockerfile."
    ),
]
Urls = Annotated[list[str], typer.Option("--url", metavar="[ROLE=]URL", help="A live server.")]
Versions = Annotated[
    list[str],
    typer.Option(
        "--engine-version", metavar="NAME==VERSION", help="Or an image, such as lmsysorg/sglang:v0.5.20."
    ),
]
Packages = Annotated[
    list[str], typer.Option("--packages", metavar="[ROLE=]FILE", help="Output of pip freeze or pip list.")
]
Environments = Annotated[
    list[str], typer.Option("--env", metavar="[ROLE=]FILE", help="Output of env, or an .env file.")
]


def audit(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Launch commands or logs, found out by reading."),
    ] = None,
    logs: Logs = [],  # noqa: B006 - typer reads defaults, nobody changes them
    commands: Commands = [],  # noqa: B006
    urls: Urls = [],  # noqa: B006
    engine_versions: Versions = [],  # noqa: B006
    packages: Packages = [],  # noqa: B006
    environments: Environments = [],  # noqa: B006
    fail_on: Annotated[
        Level, typer.Option(help="Exit 1 at findings of this severity or above.")
    ] = Level.HIGH,
    accept_unknown: Annotated[
        bool, typer.Option("--accept-unknown", help="Exit 0 where the facts do not suffice to tell.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Report as SARIF 2.1.0.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Report as Markdown.")] = False,
    lang: Annotated[Language, typer.Option(help="Language of the report.")] = Language.EN,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Remember the effective numbers here, and say what moved since.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Remember today's numbers.")
    ] = False,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Variable with the API key for --url.")
    ] = None,
) -> None:
    """Check SGLang, vLLM and kvseal deployments for leaks between requests. Offline, read-only, no GPU.

    Give whatever you have; every option repeats. ROLE is prefill, decode, router or combined and says whom a
    file is about; usually it is found out.

    \b
    Examples:
      kvseal audit --log prefill.log --log decode.log --engine-version sglang==0.5.20
      kvseal audit --command compose.yaml --env decode=decode.env
      kvseal audit --url http://10.0.0.5:30000 --baseline numbers.json
      kubectl logs deploy/prefill | kvseal audit --log -

    \b
    Exit codes: 0 nothing at or above --fail-on, 1 findings at or above it,
    2 the facts given do not suffice to tell (or wrong usage).
    """
    inputs = Inputs(logs, commands, urls, engine_versions, packages, environments, files or [])
    if inputs.empty:
        _refuse(
            "Nothing to audit: give at least one of --log, --command, --url, --engine-version. See --help."
        )
    if as_json + as_sarif + as_markdown > 1:
        _refuse("Choose one of --json, --sarif and --markdown.")
    headers = _headers(token_env)
    with _bars() as progress:
        fleet = gather(inputs, Options(headers, None, progress))
    report = judge(fleet, (*load_rules(), *load_advisories()), datetime.now(UTC).date())
    if baseline is not None:
        report = _with_baseline(report, baseline, update=update_baseline)
    form = "json" if as_json else "sarif" if as_sarif else "markdown" if as_markdown else "terminal"
    _print(report, form, lang, output)
    raise typer.Exit(exit_code(report, Severity[fail_on.name], accept_unknown=accept_unknown))


def exit_code(report: Report, fail_on: Severity, *, accept_unknown: bool) -> int:
    """Findings come first: what is known to be wrong is not made better by what is unknown."""
    worst = report.worst()
    if worst is not None and worst >= fail_on and worst > Severity.INFO:
        return EXIT_FOUND
    if report.verdict is Verdict.CANNOT_TELL and not accept_unknown:
        return EXIT_UNKNOWN
    return EXIT_CLEAN


def _refuse(message: str) -> NoReturn:
    typer.echo(f"kvseal audit: {message}", err=True)
    raise typer.Exit(EXIT_UNKNOWN)


def _headers(token_env: str | None) -> dict[str, str]:
    if token_env is None:
        return {}
    token = os.environ.get(token_env, "").strip()
    if not token or not token.isprintable() or not token.isascii():
        _refuse(f"the variable {token_env} holds no key")
    return {"Authorization": f"Bearer {token}"}


def _with_baseline(report: Report, path: Path, *, update: bool) -> Report:
    now = snapshot(report.fleet)
    try:
        before = load(path)
        if before is None or update:
            save(path, now)
    except (UnreadableBaseline, OSError) as problem:
        _refuse(f"{path} is no baseline of this command ({problem}); move it away to start anew")
    changes = compare(before, now) if before is not None else []
    return replace(report, changes=tuple(changes), baseline=str(path))


def _print(report: Report, form: str, language: Language, output: Path | None) -> None:
    try:
        target = output.open("w", encoding="utf-8") if output is not None else None
    except OSError as problem:
        _refuse(f"cannot write {output}: {problem.strerror}")
    try:
        if form == "terminal":
            console = Console(file=target, highlight=False, markup=False, emoji=False)
            TerminalReport(console, language).print(report)
            return
        write = {"json": to_json, "sarif": to_sarif, "markdown": to_markdown}[form]
        print(write(report, language), file=target or sys.stdout)
    finally:
        if target is not None:
            target.close()


@contextmanager
def _bars() -> Iterator[Callable[[str], Advance | None]]:
    """Progress bars on stderr for large logs, only where somebody looks."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:

        def start(name: str) -> Advance | None:
            task = None

            def advance(done: int, size: int) -> None:
                nonlocal task
                if size < _BAR_FROM_BYTES:
                    return
                if task is None:
                    task = shown.add_task(Path(name).name, total=size)
                shown.update(task, completed=done)

            return advance

        yield start
