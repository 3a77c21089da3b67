"""JSON that two parsers could read in two ways is refused, whatever it is."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvseal.core.errors import Code
from kvseal.gateway.refusals import Refused
from kvseal.gateway.strict_json import parse

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner),
)


@settings(deadline=None)
@given(_VALUES)
def test_proper_json_is_read_as_the_standard_says(value: object) -> None:
    for ascii_only in (True, False):
        assert parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    # Any other exception fails the test.
    with contextlib.suppress(Refused):
        parse(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1, column 2"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' is there twice"),
        (b'{"x": {"a": 1, "\\u0061": 3}}', "'a' is there twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too large"),
        (b'"\xff"', "not valid UTF-8"),
        (b'"\xed\xa0\x80"', "not valid UTF-8"),  # half a surrogate pair, as bytes
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'["\\ud800\\u0041"]', "surrogate"),
        (b'"a\\u0000b"', "null character"),
        (b'{"a\\u0000b": 1}', "null character"),
        (b'"a\x00b"', "Invalid control character"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        ("\ufeff{}".encode(), "Expecting value"),
    ],
)
def test_refuses(body: bytes, why: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(body)
    assert caught.value.code is Code.INVALID_REQUEST
    assert why in caught.value.message


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse(b'"\\ud83e\\udd8a"') == "🦊"


def test_many_keys_take_no_quadratic_time() -> None:
    body = json.dumps({str(number): 0 for number in range(50_000)})[:-1] + ', "7": 1}'
    with pytest.raises(Refused, match="invalid_request") as caught:
        parse(body.encode())
    assert "'7' is there twice" in caught.value.message
