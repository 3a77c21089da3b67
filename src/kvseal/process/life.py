"""What every process of ours does at its start and at its end."""

import argparse
import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from kvseal.core.errors import InvariantViolation, StartRefused
from kvseal.process.settings import Settings, SettingsUnreadable, read_settings

EXIT_REFUSED = 78  # must not be started again with these settings (EX_CONFIG)
EXIT_RESTART = 75  # must be started again (EX_TEMPFAIL)
_PR_SET_PDEATHSIG = 1
Refusals = tuple[type[Exception], ...]


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its supervisor dies, whatever it dies of: no orphan keeps a
    pool.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we could ask
        sys.exit(EXIT_RESTART)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, process, text, and the fields of a core Record. Never any
    content.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(process: str, level: str) -> None:
    """Structured logs of this process, ids only."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(process))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpx", "uvicorn.access", "transformers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def leave(status: int) -> NoReturn:
    """End now, with flushed output. Transfer libraries crash in the interpreter's own exit."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask for an orderly end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def end_on_bugs(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> list[str]:
    """An exception that nobody handles is a bug, and a process with one must not go on serving: ``stop`` is
    set, and the list that is returned says why.
    """
    why: list[str] = []

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        logging.getLogger(__name__).critical("%s", context.get("message"), exc_info=error)
        if isinstance(error, InvariantViolation | AssertionError):
            why.append(str(context.get("message")))
            stop.set()

    loop.set_exception_handler(handle)
    return why


def live(
    program: str, kind: type[Settings], run: Callable[[Settings, int], int], refusals: Refusals = ()
) -> NoReturn:
    """A process of ours from its first word to its last.

    ``run`` gets its settings and the descriptor of the cluster secret, and gives the exit status. What it
    raises of ``refusals``, StartRefused, SettingsUnreadable and OSError says that it must not be started
    again as it is; anything else is a bug, and the process may try again.
    """
    path, secret_fd, parent = parse_arguments(program)
    die_with_parent(parent)
    log = logging.getLogger(program)
    final: Refusals = (StartRefused, SettingsUnreadable, OSError, *refusals)
    status = EXIT_REFUSED
    try:
        settings = read_settings(path, kind)
        log_to_stderr(f"{settings.role}/{os.getpid()}", settings.log_level)
        status = run(settings, secret_fd)
    except final as error:
        log.error("%s", str(error) or type(error).__name__)
    except Exception:
        log.critical("the process failed", exc_info=True)
        status = EXIT_RESTART
    leave(status)


def parse_arguments(program: str) -> tuple[Path, int, int]:
    """Settings file, descriptor of the cluster secret, and the supervisor's pid, from argv: nothing else."""
    parser = argparse.ArgumentParser(program, description="Started by `kvseal serve`, not by hand.")
    parser.add_argument("--settings", type=Path, required=True, help="JSON file written by the supervisor")
    parser.add_argument(
        "--secret-fd", type=int, required=True, help="inherited descriptor of the cluster secret"
    )
    parser.add_argument("--parent", type=int, required=True, help="process id of the supervisor")
    arguments = parser.parse_args()
    return arguments.settings, arguments.secret_fd, arguments.parent
