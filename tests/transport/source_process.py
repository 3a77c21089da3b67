"""A prefill worker in miniature: a process that exports a pool with known contents and obeys commands.

Run as a module it is that process: one JSON line in says what to export, one line out says where it is;
then one command per line, each answered by a line. Imported it is the handle that tests hold.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.transport.kinds import KINDS, Setup, instance_named
from tests.transport.pattern import pattern

from kvseal.core.ids import InstanceId
from kvseal.memory import SourcePool

ROOT = Path(__file__).parents[2]


class SourceProcess:
    """The other end of a source process."""

    def __init__(self, process: subprocess.Popen[str], instance: InstanceId, endpoint: bytes) -> None:
        self.process = process
        self.instance = instance
        self.endpoint = endpoint

    def tell(self, command: str, **arguments: int) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        _write(self.process, {"do": command, **arguments})
        return _read(self.process)

    def kill(self) -> None:
        """SIGKILL, and the process is reaped when this returns."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(30) == -signal.SIGKILL


@contextmanager
def source_process(  # noqa: PLR0913 - all but two are named by the caller
    kind: str,
    directory: Path,
    *,
    pages: int,
    page_bytes: int,
    seed: int = 0,
    name: str = "source",
    address: str | None = None,
) -> Iterator[SourceProcess]:
    """A living source whose pool holds ``pattern(pages, page_bytes, seed)``; dead when the block is left."""
    command = [sys.executable, "-m", "tests.transport.source_process"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        command, text=True, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            wanted = {
                "kind": kind,
                "directory": str(directory),
                "pages": pages,
                "page_bytes": page_bytes,
                "seed": seed,
                "name": name,
                "address": address,
            }
            _write(process, wanted)
            answer = _read(process)
            yield SourceProcess(process, instance_named(name), bytes.fromhex(answer["endpoint"]))
        finally:
            process.kill()


def _write(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the source process died; its stderr says why"
    answer: dict[str, Any] = json.loads(line)
    return answer


def _answer(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _serve() -> None:
    wanted = json.loads(sys.stdin.readline())
    pool = SourcePool.create(wanted["pages"], wanted["page_bytes"])
    pool.array[:] = pattern(pool.pages, pool.page_bytes, wanted["seed"])
    setup = Setup(instance_named(wanted["name"]), Path(wanted["directory"]), address=wanted["address"])
    transport = KINDS[wanted["kind"]].make(setup)
    transport.register(pool)
    _answer(endpoint=transport.describe().hex())
    for line in sys.stdin:
        match json.loads(line):
            case {"do": "fill", "page": page, "byte": byte}:
                pool.array[page] = byte
                _answer()
            case {"do": "counters"}:
                counters = transport.counters()
                _answer(served=counters.served_peers, refused=counters.refused_peers)
            case {"do": "close"}:
                transport.close()
                pool.close()
                _answer()
            case unknown:
                raise ValueError(f"no such command: {unknown}")


if __name__ == "__main__":
    _serve()
