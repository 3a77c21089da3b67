"""One server on this machine: its run directory, its children, and what they say of themselves.

::

    supervisor ──starts──> gateway, prefill workers, decode workers      (each in a session of its own)
               <──/status on a unix socket── gateway
    SIGTERM, Ctrl-C: the gateway drains first, then decode, then prefill
"""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kvseal.core.errors import StartRefused
from kvseal.process import write_settings
from kvseal.supervisor.child import Child, Command
from kvseal.supervisor.config import ServeConfig
from kvseal.supervisor.plan import Plan, make_plan
from kvseal.wire import make_secret, secret_descriptor

_POLL_S = 0.1
_START_PATIENCE_S = 300.0
_KILL_MARGIN_S = 5.0
_START_TRIES = 3


@dataclass(frozen=True, slots=True)
class Modules:
    """What runs in a worker's and in the gateway's process. The lab puts its own builds here; nobody else
    does.
    """

    worker: str = "kvseal.workers"
    gateway: str = "kvseal.gateway"
    worker_faults: tuple[str, ...] = ()
    gateway_faults: tuple[str, ...] = ()


class Server:
    """Made by :func:`running`. All its processes are there; whether they are ready, :meth:`status` says."""

    def __init__(self, plan: Plan, config: ServeConfig, run_dir: Path, port: int) -> None:
        self.plan = plan
        self.config = config
        self.run_dir = run_dir
        self.port = port
        self.children: list[Child] = []
        self.refused: str | None = None
        self.failed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._admin = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(plan.gateway.admin)),
            base_url="http://admin",
            timeout=5.0,
        )

    @property
    def url(self) -> str:
        """Where clients reach it."""
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"http://{host}:{self.port}"

    def start(self, modules: Modules, secret_fd: int) -> None:
        """Start every process."""
        gateway = self.plan.gateway
        names = self._worker_names()
        settings: list[tuple[str, str, Any]] = [
            ("gateway", modules.gateway, _faulty(gateway, modules.gateway_faults))
        ]
        for name, worker in zip(names, self.plan.workers, strict=True):
            settings.append((name, modules.worker, _faulty(worker, modules.worker_faults)))
        for name, module, process in settings:
            path = self.run_dir / f"{name}.json"
            write_settings(path, process)
            fds = (gateway.listen_fd,) if name == "gateway" else ()
            child = Child(Command(name, module, path, secret_fd, fds), self._on_refused)
            self.children.append(child)
            self._tasks.append(asyncio.get_running_loop().create_task(child.run()))

    async def status(self) -> dict[str, Any] | None:
        """What the gateway says of all of them; None while it does not answer."""
        try:
            answer = await self._admin.get("/status")
            found: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError):
            return None
        return found

    async def wait_ready(self, patience_s: float = _START_PATIENCE_S) -> dict[str, Any]:
        """The status, once every pair of workers has proven itself. Raises StartRefused where that cannot
        be.
        """
        deadline_s = asyncio.get_running_loop().time() + patience_s
        why = "the gateway does not answer"
        while asyncio.get_running_loop().time() < deadline_s:
            status = await self.status()
            if status is not None:
                if status["ready"]:
                    return status
                why = str(status["reason"])
                if status["refused"]:
                    raise StartRefused(str(status["refused"]))
            if self.refused is not None:
                raise StartRefused(self.refused)
            for child in self.children:
                if child.restarts >= _START_TRIES:
                    raise StartRefused(
                        f"{child.command.name} ended {child.restarts} times before the server was ready, "
                        f"at last with status {child.last_status}; its log is above"
                    )
            await asyncio.sleep(_POLL_S)
        raise StartRefused(f"not ready within {patience_s:g} s: {why}")

    async def stop(self) -> None:
        """Drain and end: the gateway first, so that nothing new comes in, and prefill last, so that nothing
        hangs.
        """
        patience_s = self.config.drain_timeout_s + _KILL_MARGIN_S
        for role in ("gateway", "decode", "prefill"):
            ending = [child for child in self.children if child.command.name.startswith(role)]
            await asyncio.gather(*(child.stop(patience_s) for child in ending))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._admin.aclose()

    def _worker_names(self) -> list[str]:
        seen: dict[str, int] = {}
        names = []
        for worker in self.plan.workers:
            seen[worker.role] = seen.get(worker.role, -1) + 1
            names.append(f"{worker.role}-{seen[worker.role]}")
        return names

    def _on_refused(self, reason: str) -> None:
        self.refused = reason
        self.failed.set()


def _faulty(process: Any, faults: tuple[str, ...]) -> Any:
    return type(process)(
        **{name: getattr(process, name) for name in process.__struct_fields__} | {"faults": faults}
    )


@contextlib.asynccontextmanager
async def running(config: ServeConfig, model: Path, modules: Modules | None = None) -> AsyncIterator[Server]:
    """A server whose processes have been started; drained and gone at the end. Raises StartRefused."""
    listening = _listen(config.host, config.port)
    run_dir = Path(tempfile.mkdtemp(prefix=f"{listening.getsockname()[1]}-", dir=run_root(os.environ)))
    secret_fd = secret_descriptor(make_secret())
    try:
        plan = make_plan(config, model, run_dir, listening.fileno())
        server = Server(plan, config, run_dir, listening.getsockname()[1])
        server.start(modules or Modules(), secret_fd)
        try:
            yield server
        finally:
            await server.stop()
    finally:
        os.close(secret_fd)
        listening.close()
        shutil.rmtree(run_dir, ignore_errors=True)


def run_root(environ: Mapping[str, str]) -> Path:
    """Where the run directories of this user's servers are: short, since a unix socket's path may have 107
    bytes.
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    root = Path(runtime) / "kvseal" if runtime else Path(tempfile.gettempdir()) / f"kvseal-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = root.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StartRefused(
            f"{root} must be ours alone (mode 0700): it is of user {found.st_uid}, "
            f"mode {found.st_mode & 0o777:o}"
        )
    return root


def _listen(host: str, port: int) -> socket.socket:
    """The socket that clients reach; it stays the same over restarts of the gateway."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise StartRefused(
            f"cannot listen on {host} port {port}: {error.strerror} (choose another --port)"
        ) from error
    listening.listen(1024)
    listening.setblocking(False)
    return listening
