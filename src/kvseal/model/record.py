"""What a converted model's folder must hold: a list of files with their sizes and digests, kept beside them.

The record is written last, so that a folder without one is not a model. The digests detect accidents (a full
disk, a crash, a file that somebody edited), not a forger.
"""

from pathlib import Path
from typing import Final

import msgspec
from xxhash import xxh3_128

RECORD_NAME: Final = "kvseal.json"
_READ_BYTES: Final = 4 << 20


class FileRecord(msgspec.Struct, frozen=True):
    """One file of the folder: its size and the xxh3-128 of its bytes in hexadecimal."""

    bytes: int
    xxh3: str


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a folder came from (`source_sha256`) and what is in it."""

    source_sha256: str
    files: dict[str, FileRecord]


def write(folder: Path, source_sha256: str) -> None:
    """Record every file of `folder` as it is now. Raises OSError."""
    files = {path.name: _measure(path) for path in sorted(folder.iterdir()) if path.name != RECORD_NAME}
    encoded = msgspec.json.format(msgspec.json.encode(Record(source_sha256, files)), indent=1)
    (folder / RECORD_NAME).write_bytes(encoded + b"\n")


def find_fault(folder: Path, source_sha256: str) -> str | None:
    """What is wrong with `folder`, or None where every file is as it was recorded.

    Reading costs about 0.1 s for the embedded model when it is in the page cache; when it is not, the worker
    that loads the weights next finds it there.
    """
    try:
        record = msgspec.json.decode((folder / RECORD_NAME).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError) as error:
        return f"{RECORD_NAME} cannot be read ({error})"
    if record.source_sha256 != source_sha256:
        return f"it was made from {record.source_sha256}"
    for name, expected in record.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
            if size != expected.bytes:
                return f"{name} has {size} bytes instead of {expected.bytes}"
            if _measure(path) != expected:
                return f"the content of {name} has changed"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


def _measure(path: Path) -> FileRecord:
    digest = xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
        return FileRecord(file.tell(), digest.hexdigest())
