"""JSON without its ambiguities: what two parsers could read in two ways is refused.

Duplicate keys, NaN and Infinity, numbers beyond float64, lone surrogates, null characters and bytes that are
not UTF-8 all end in a Refused, and so does nesting that no request needs.
"""

import json
import math
from typing import Any, Final, NoReturn

from kvseal.core.errors import Code
from kvseal.gateway.refusals import Refused

_LONGEST_INTEGER: Final = 20  # characters; int64 and uint64 fit


def parse(body: bytes) -> Any:
    """The value that ``body`` is the JSON of. Raises Refused, whatever the bytes are."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(f"it is not valid UTF-8 at byte {error.start}") from error
    try:
        value = _decoder.decode(text)
    except RecursionError as error:
        raise _refused("it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise _refused(f"{error.msg} at line {error.lineno}, column {error.colno}") from error
    # Both can only be written as escapes: as raw bytes they are not JSON, or not UTF-8.
    if "\\u" in text:
        _check_strings(value)
    return value


def _refused(why: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, f"The body cannot be read as JSON: {why}.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    raise _refused(f"the key {key[:100]!r} is there twice")


def _constant(name: str) -> NoReturn:
    raise _refused(f"{name} is not a number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _refused("a number is too large")
    return value


def _int(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise _refused("a number is too large")
    return int(text)


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
)


def _check_strings(value: Any) -> None:
    """Of keys and values, without recursion."""
    left = [value]
    while left:
        match left.pop():
            case str() as text:
                if "\0" in text:
                    raise _refused("a string holds a null character")
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    raise _refused("a string holds half of a surrogate pair") from error
            case list() as items:
                left.extend(items)
            case dict() as members:
                left.extend(members)
                left.extend(members.values())
            case _:
                pass
