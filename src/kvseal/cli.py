"""The command line `kvseal`: a table of sub-commands, each imported only when it is called.

So `kvseal --help` answers at once and in an environment without the extra `engine`.

Exit codes of every command, unless its help says more: 0 done, 1 failed (the reason is on stderr), 2 wrong
usage or a missing extra, 130 interrupted.
"""

import importlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from kvseal import __version__

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


class Entry(NamedTuple):
    """Where a sub-command lives and what the overview says about it."""

    target: str
    """`module:attribute`: a function that typer can read, or a `typer.Typer` with sub-commands."""
    summary: str
    extra: str | None = None
    """The extra that the command needs in order to run. Its --help must do without."""


# One line per command. The order is the order of the overview.
COMMANDS: Final[dict[str, Entry]] = {
    "serve": Entry(
        "kvseal.supervisor.cli:serve", "Serve a model: gateway, prefill and decode workers.", "engine"
    ),
    "status": Entry(
        "kvseal.supervisor.cli:status", "Show the pools and workers of a running server.", "engine"
    ),
    "keys": Entry("kvseal.gateway.cli:keys", "Make and hash the API keys of tenants."),
    "model": Entry("kvseal.model.cli:app", "Fetch and find the embedded model."),
    "audit": Entry("kvseal.audit.cli:audit", "Check SGLang and vLLM deployments for leaks between requests."),
}


class LazyCommand(TyperCommand):
    """Stands for a command in the overview; becomes the real one when it is called."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.summary, rich_markup_mode=None)
        self._entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        context = self._load().make_context(info_name, args, parent=parent, **extra)
        # Arguments are read by now and --help has been answered, so the check costs help nothing.
        _require_extra(f"kvseal {self.name}", self._entry.extra)
        return context

    def _load(self) -> Any:
        module_name, _, attribute = self._entry.target.partition(":")
        found = getattr(importlib.import_module(module_name), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        single = _plain_typer()
        single.command(name=self.name)(found)
        return typer.main.get_command(single)


class LazyGroup(TyperGroup):
    """The overview, filled from `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, entry in COMMANDS.items():
            self.add_command(LazyCommand(name, entry))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is the library's
        return list(self.commands)


def _plain_typer(**settings: Any) -> typer.Typer:
    # Tracebacks without local variables: a prompt or a key must not end up in a terminal or a log.
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings
    )


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvseal {__version__}")
        raise typer.Exit


app = _plain_typer(cls=LazyGroup, no_args_is_help=True)


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Serve language models to many tenants; no request is answered from another request's memory.

    \b
    Examples:
      kvseal serve
      kvseal serve --help

    \b
    Exit codes: 0 done, 1 failed (reason on stderr), 2 wrong usage or missing extra,
    130 interrupted.
    """


def _missing_distributions(extra: str) -> Iterator[str]:
    """Names of the distributions of an extra that are not installed, from the package's own metadata."""
    for requirement in importlib.metadata.requires("kvseal") or ():
        name, marker = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if name is None or marker is None or marker[1] != extra:
            continue
        try:
            importlib.metadata.distribution(name[0])
        except importlib.metadata.PackageNotFoundError:
            yield name[0]


def _require_extra(command: str, extra: str | None) -> None:
    if extra is None:
        return
    if missing := list(_missing_distributions(extra)):
        typer.echo(
            f"{command} needs the extra `{extra}` (not installed: {', '.join(missing)}): "
            f"pip install 'kvseal[{extra}]'",
            err=True,
        )
        raise typer.Exit(EXIT_USAGE)


def main() -> None:
    """Entry point of the script `kvseal`."""
    if not __debug__:
        # Assertions guard pages in production; a server without them would keep its promise by luck.
        typer.echo(
            "kvseal does not run under python -O or PYTHONOPTIMIZE: its assertions guard memory.", err=True
        )
        sys.exit(EXIT_USAGE)
    try:
        app(prog_name="kvseal")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
