"""A model folder on disk: what is in it, and the digest that stands for all of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_128

from kvseal.core.ids import ID_BYTES
from kvseal.layout.errors import ModelUnreadable

_READ_BYTES: Final = 4 << 20  # fits the second-level cache's neighbourhood; larger buffers were no faster
_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"

# Written by tools, read by none of the arithmetic. The number format of the cache stands in the layout
# itself.
_BOOKKEEPING: Final = frozenset(
    {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"}
)


def read_config(folder: Path) -> dict[str, Any]:
    """The parsed ``config.json``. Raises :class:`ModelUnreadable`, naming what is wrong with which path."""
    if not folder.is_dir():
        raise ModelUnreadable(
            f"model folder {folder}: {'is not a folder' if folder.exists() else 'does not exist'}"
        )
    config = _read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise ModelUnreadable(f"{folder / 'config.json'}: holds no JSON object")
    return config


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files that make up the weights, in a fixed order.

    Raises :class:`ModelUnreadable` where there are none, or one that the index names is missing. Pickled
    weights are not read: unpickling runs code that the file chooses (G11).
    """
    if (folder / _INDEX).is_file():
        index = _read_json(folder / _INDEX)
        named = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(named, dict) or not named:
            raise ModelUnreadable(f"{folder / _INDEX}: has no weight_map")
        names = sorted({str(name) for name in named.values()})
    else:
        names = [_SINGLE]
    for name in names:
        if Path(name).name != name:
            raise ModelUnreadable(f"{folder / _INDEX}: {name!r} is not a file of this folder")
        if not (folder / name).is_file():
            pickled = any(folder.glob("pytorch_model*.bin"))
            hint = "; its pytorch_model.bin is not read, convert it to safetensors" if pickled else ""
            raise ModelUnreadable(f"model folder {folder}: weights are missing, there is no {name}{hint}")
    return tuple(folder / name for name in names)


def model_digest(folder: Path) -> bytes:
    """16 bytes over the meaning of ``config.json`` and every byte of the weight files.

    Two folders have the same digest when a page means the same in both. Cost: one sequential read of the
    weights, 4 MiB of memory; from the page cache about 0.05 s for 270 MB, from a disk as long as the disk
    takes. xxh3-128 detects accidents (a truncated download, another revision), not a forger. Raises
    :class:`ModelUnreadable`.
    """
    config = {key: value for key, value in read_config(folder).items() if key not in _BOOKKEEPING}
    digest = xxh3_128(b"kvseal-model-1")
    digest.update(json.dumps(config, sort_keys=True, separators=(",", ":")).encode())
    for path in weight_files(folder):
        # Name and size first, so that bytes cannot move from one file to the next unnoticed.
        digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode())
        for block in _blocks(path):
            digest.update(block)
    value = digest.digest()
    assert len(value) == ID_BYTES
    return value


def _blocks(path: Path) -> Iterator[memoryview]:
    """The file's bytes through one buffer: a mapping would crash the process if the file were truncated."""
    view = memoryview(bytearray(_READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(view):
            yield view[:count]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelUnreadable(f"model folder {path.parent}: there is no {path.name}") from None
    except (OSError, ValueError) as error:
        raise ModelUnreadable(f"{path}: cannot be read as JSON: {error}") from error
