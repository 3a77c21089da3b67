"""No bytes of a peer do more than end its connection (G11, F24); every message survives the wire."""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect
from tests.wire import fuzz

from kvseal.core import messages
from kvseal.core.errors import ProtocolError
from kvseal.core.ids import InstanceId
from kvseal.core.messages import Hello, decode, decode_hello, encode
from kvseal.wire.handshake import Answer, Handshake, Side

SEED = 20261201
COUNT = 20_000


class HypothesisSource:
    """Values that Hypothesis chooses and can shrink. No NaN: it does not equal itself."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self) -> int:
        return self._draw(st.integers(-(2**63), 2**64 - 1))

    def number(self) -> float:
        return self._draw(st.floats(allow_nan=False))

    def text(self) -> str:
        return self._draw(st.text(max_size=20))

    def blob(self) -> bytes:
        return self._draw(st.binary(max_size=20))

    def length(self) -> int:
        return self._draw(st.integers(0, 5))

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))


@st.composite
def instances(draw: st.DrawFn, kind: type[msgspec.Struct]) -> Any:
    return fuzz.value(inspect.type_info(kind), HypothesisSource(draw))


# Anything that msgpack can say, some of it in the dress of a message.
NAMES = [kind.__name__ for kind in fuzz.MESSAGE_TYPES]
FIELDS = sorted({field for kind in fuzz.MESSAGE_TYPES for field in kind.__struct_fields__})
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
)
DRESSED = st.builds(
    lambda name, fields: {"type": name, **fields},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(FIELDS), PLAIN, max_size=6),
)


def test_every_message_type_is_on_the_wire_or_inside_one_that_is() -> None:
    """A message that was defined and forgotten in the union would be refused by every peer."""
    inside = set(get_args(messages.Terminal))
    assert set(fuzz.MESSAGE_TYPES) | inside == set(messages.Message.__subclasses__())


@pytest.mark.parametrize("kind", fuzz.MESSAGE_TYPES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_message_comes_back_as_it_was_sent(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    message = data.draw(instances(kind))
    back = decode(encode(message))
    assert type(back) is kind
    assert back == message


@given(hello=instances(Hello))
def test_a_hello_comes_back_as_it_was_sent(hello: Hello) -> None:
    assert decode_hello(encode(hello)) == hello


@pytest.mark.parametrize("read", [decode, decode_hello])
@given(body=st.binary(max_size=200) | (PLAIN | DRESSED).map(msgspec.msgpack.encode))
def test_any_other_body_is_a_protocol_error_and_nothing_worse(read: Any, body: bytes) -> None:
    try:
        message = read(body)
    except ProtocolError:
        return
    assert encode(read(encode(message))) == encode(message)


@pytest.mark.parametrize("side", list(Side))
@given(bodies=st.lists(st.binary(max_size=100) | st.just(b"opening"), min_size=2, max_size=2))
def test_no_two_bodies_get_in_without_the_secret(side: Side, bodies: list[bytes]) -> None:
    me = Hello(role="decode", instance=InstanceId(b"d" * 16))
    victim = Handshake(side, fuzz.SECRET, me, b"n" * 32)
    with pytest.raises(ProtocolError):  # noqa: PT012 - at the first or at the second
        for body in bodies:
            reply = victim.receive(victim.opening if body == b"opening" else body)
            assert isinstance(reply, Answer)


def test_a_million_damaged_inputs_in_small() -> None:
    """A part of what `python tests/wire/fuzz.py` runs; every target is hit and both answers occur."""
    outcomes = fuzz.run(SEED, range(COUNT))
    assert sum(outcomes.values()) == COUNT
    assert {name for name, count in outcomes.items() if count > 20} == {
        "fuzz_decode accepted",
        "fuzz_decode refused",
        "fuzz_frames accepted",
        "fuzz_frames refused",
        "fuzz_handshake refused",
        "fuzz_hello accepted",
        "fuzz_hello refused",
    }


def test_an_input_depends_on_seed_and_index_alone() -> None:
    assert fuzz.run(1, [77]) == fuzz.run(1, [77])
    whole = fuzz.run(1, range(5))
    assert whole == sum((fuzz.run(1, [index]) for index in range(5)), start=type(whole)())


def test_a_broken_reader_is_found_and_can_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer can fail: a decoder that raises something else is caught, and the index leads back to it."""

    def broken(body: bytes) -> Any:
        if b"\xc1" in body:
            raise IndexError(body)
        return decode(body)

    monkeypatch.setattr(fuzz, "decode", broken)
    with pytest.raises(fuzz.Failure, match=r"fuzz_decode: replay with --seed 3 --only \d+") as caught:
        fuzz.run(3, range(COUNT))
    index = int(str(caught.value).rsplit(maxsplit=1)[-1])
    with pytest.raises(fuzz.Failure):
        fuzz.run(3, [index])
