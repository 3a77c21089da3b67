"""Values as they stand in logs, JSON, environments and command lines, read without evaluating anything."""

import re
from typing import Final

from kvseal.fleet.facts import Value

_NUMBER: Final = re.compile(r"[-+]?\d{1,18}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?\Z")
_TRUE: Final = frozenset({"true", "1", "yes", "y", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "n", "off"})


def literal(text: str) -> Value:
    """A Python or JSON literal; anything else stays text."""
    stripped = text.strip()
    if len(stripped) >= 2 and stripped[0] == stripped[-1] and stripped[0] in "'\"":
        return stripped[1:-1]
    lowered = stripped.lower()
    if lowered in {"none", "null"}:
        return None
    if lowered in {"true", "false"}:
        return lowered == "true"
    number = number_of(stripped)
    return stripped if number is None else number


def number_of(value: Value) -> int | float | None:
    """1048576, "1,048,576", 3e4 and 1.5; None for anything else, infinities included."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if abs(value) < 1e300 else None  # NaN and infinities fail the comparison
    text = value.strip().replace(",", "").replace("_", "")
    if not _NUMBER.match(text):
        return None
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    number = float(text)
    return number if abs(number) < 1e300 else None


def integer_of(value: Value) -> int | None:
    """A whole number of tokens, ranks or pages; also `131072.0` and vLLM's `128k` and `1M`."""
    if isinstance(value, str):
        # vLLM's human-readable integers: lower case counts in thousands, upper case in powers of 1,024.
        scaled = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([kKmMgG])", value.strip())
        if scaled is not None:
            factor = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}[scaled[2]]
            return int(float(scaled[1]) * factor)
    number = number_of(value)
    return None if number is None else int(number)


def flag_of(value: Value) -> bool | None:
    """A switch as an environment or a flag writes it."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    return False if text in _FALSE else None
