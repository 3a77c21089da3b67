"""One child process: started, watched, started anew when it dies."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvseal.process.life import EXIT_REFUSED

_log = logging.getLogger(__name__)
_DELAYS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
# Must be there before torch is loaded: threads that spin at OpenMP's barriers slow a step on busy cores 3 to
# 17 times.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}
_STEADY_S = 30.0  # a life that lasted this long starts the delays over


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: a module of ours, its settings file, and the descriptors that it inherits."""

    name: str
    module: str
    settings: Path
    secret_fd: int
    other_fds: tuple[int, ...] = ()

    @property
    def argv(self) -> list[str]:
        return [
            *(sys.executable, "-m", self.module),
            *("--settings", str(self.settings), "--secret-fd", str(self.secret_fd)),
            *("--parent", str(os.getpid())),
        ]


class Child:
    """Keeps one process alive. ``on_refused`` is called when it says that it cannot be started as
    configured.
    """

    def __init__(self, command: Command, on_refused: Callable[[str], None]) -> None:
        self.command = command
        self.restarts = 0
        self.last_status = 0
        self._on_refused = on_refused
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def run(self) -> None:
        """Start it, again and again, until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        failures = 0
        while not self._is_stopping():
            began = loop.time()
            command = self.command
            self._process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                env=os.environ | _ENVIRONMENT,
                pass_fds=(command.secret_fd, *command.other_fds),
                start_new_session=True,  # a Ctrl-C is for the supervisor, which drains in the right order
            )
            status = await self._process.wait()
            if self._is_stopping():
                return
            if status == EXIT_REFUSED:
                self._on_refused(f"{command.name} cannot be started as configured")
                return
            failures = 0 if loop.time() - began > _STEADY_S else failures
            delay_s = _DELAYS_S[min(failures, len(_DELAYS_S) - 1)]
            failures += 1
            self.restarts += 1
            self.last_status = status
            _log.warning("%s ended with status %d, is started again in %g s", command.name, status, delay_s)
            await asyncio.sleep(delay_s)

    def _is_stopping(self) -> bool:
        return self._stopping

    async def stop(self, patience_s: float) -> None:
        """Ask it to end, and after ``patience_s`` see to it."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(patience_s):
                    await process.wait()
            except TimeoutError:
                _log.warning("%s did not end within %g s and is killed", self.command.name, patience_s)
                process.kill()
                await process.wait()
