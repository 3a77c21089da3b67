"""The number formats that a page may hold, known by name, so that nothing here needs torch."""

from pathlib import Path
from typing import Final

ITEM_BYTES: Final = {"float32": 4, "bfloat16": 2}

_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # "bf16" is what an ARM kernel calls it


def item_bytes(dtype: str) -> int:
    """Bytes of one number. Raises ValueError for a format that pages cannot hold."""
    try:
        return ITEM_BYTES[dtype]
    except KeyError:
        raise ValueError(f"dtype is one of {', '.join(ITEM_BYTES)}, not {dtype!r}") from None


def default_dtype(cpuinfo: Path = _CPUINFO) -> str:
    """``bfloat16`` where the processor multiplies it in hardware, else ``float32``.

    Without such instructions bfloat16 is converted number by number and slower than float32. An unreadable
    ``cpuinfo`` means float32: correct everywhere.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "float32"
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return "bfloat16" if _BFLOAT16_FLAGS.intersection(value.split()) else "float32"
    return "float32"
