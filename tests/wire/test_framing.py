"""Frames survive any cut of the stream; what is too long is refused before it is held (G11, F24)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.core import guards
from kvseal.wire.errors import FrameTooLong
from kvseal.wire.framing import HEADER_BYTES, FrameDecoder, encode_frame

LIMIT = 1000


def taken(decoder: FrameDecoder) -> list[bytes]:
    bodies = []
    while (body := decoder.take()) is not None:
        bodies.append(body)
    return bodies


@given(bodies=st.lists(st.binary(max_size=50)), cuts=st.lists(st.integers(1, 70), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(body, LIMIT) for body in bodies)
    decoder, got, at, turn = FrameDecoder(LIMIT), [], 0, 0
    while at < len(stream):
        piece = stream[at : at + cuts[turn % len(cuts)]]
        decoder.feed(piece)
        got += taken(decoder)
        assert decoder.buffered_bytes <= HEADER_BYTES + 50 + len(piece)
        at, turn = at + len(piece), turn + 1
    assert got == bodies


def test_a_frame_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    decoder = FrameDecoder(LIMIT)
    decoder.feed(encode_frame(b"x" * LIMIT, LIMIT))
    assert decoder.take() == b"x" * LIMIT
    with pytest.raises(FrameTooLong, match="1001 bytes is over the limit of 1000"):
        encode_frame(b"x" * (LIMIT + 1), LIMIT)
    decoder.feed((LIMIT + 1).to_bytes(4, "big"))
    with pytest.raises(FrameTooLong):
        decoder.take()


def test_a_frame_too_long_is_refused_by_its_header_alone_and_nothing_is_held_after_it() -> None:
    decoder = FrameDecoder(LIMIT)
    decoder.feed(encode_frame(b"good", LIMIT) + b"\xff\xff\xff\xff")
    assert decoder.take() == b"good"
    with pytest.raises(FrameTooLong):
        decoder.take()
    for _ in range(1000):
        decoder.feed(b"x" * 1000)
    assert decoder.buffered_bytes == 0
    with pytest.raises(FrameTooLong):
        decoder.take()


def test_an_announced_length_allocates_nothing() -> None:
    decoder = FrameDecoder(2**32 - 1)
    decoder.feed(b"\xff\xff\xff\xff" + b"x")
    assert decoder.take() is None
    assert decoder.buffered_bytes == 5


def test_the_limit_can_be_raised_between_two_frames_of_one_read() -> None:
    decoder = FrameDecoder(4)
    decoder.feed(encode_frame(b"tiny", LIMIT) + encode_frame(b"no longer tiny", LIMIT))
    assert decoder.take() == b"tiny"
    decoder.limit = LIMIT
    assert decoder.take() == b"no longer tiny"


def test_the_limit_is_guard_g11_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation replaces the function in core.guards: with it gone, the oversized frame passes."""
    monkeypatch.setattr(guards, "g11_frame", lambda *_: None)
    decoder = FrameDecoder(4)
    decoder.feed(encode_frame(b"longer than four", 4))
    assert decoder.take() == b"longer than four"
