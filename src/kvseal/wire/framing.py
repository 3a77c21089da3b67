"""Frames: bytes in, bodies out. No sockets, no messages.

::

    | length, 4 bytes, big-endian | body, length bytes |

The length is checked against the limit as soon as it is there, before its body is buffered (G11, F24), and
nothing is allocated on the strength of a length that was merely announced.
"""

from struct import Struct

from kvseal.core import guards
from kvseal.core.errors import ProtocolError
from kvseal.wire.errors import FrameTooLong

_LENGTH = Struct(">I")
HEADER_BYTES = _LENGTH.size
_COPY_TWICE_BYTES = 4096  # below it a second copy costs less than a memoryview


def frame_header(length: int, limit: int) -> bytes:
    """The 4 bytes that go before a body of ``length`` bytes. Raises :class:`FrameTooLong` above ``limit``."""
    _check(length, limit)
    return _LENGTH.pack(length)


def encode_frame(body: bytes, limit: int) -> bytes:
    """One whole frame. Raises :class:`FrameTooLong` for a body of more than ``limit`` bytes."""
    return frame_header(len(body), limit) + body


class FrameDecoder:
    """Cuts a stream of bytes into bodies.

    ``limit`` may be changed between two frames. At most ``limit`` + 4 bytes and what was fed last are held.
    After a frame over the limit the decoder holds nothing and every :meth:`take` raises.
    """

    __slots__ = ("_buffer", "_refused", "_start", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._start = 0  # of the first byte that was not taken yet
        self._refused: FrameTooLong | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are held."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Adds what came from the peer. Ignored after a frame that was refused."""
        if self._refused is not None:
            return
        if self._start:
            del self._buffer[: self._start]  # moves a pointer, not the bytes
            self._start = 0
        self._buffer += data

    def take(self) -> bytes | None:
        """The next body, or None until more is fed. Raises :class:`FrameTooLong`."""
        if self._refused is not None:
            raise FrameTooLong(str(self._refused))
        body_start = self._start + HEADER_BYTES
        if len(self._buffer) < body_start:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._start)
        try:
            _check(length, self.limit)
        except FrameTooLong as refused:
            self._refused = refused
            self._buffer.clear()
            self._start = 0
            raise
        end = body_start + length
        if len(self._buffer) < end:
            return None
        self._start = end
        if length < _COPY_TWICE_BYTES:
            return bytes(self._buffer[body_start:end])
        with memoryview(self._buffer) as view:
            return bytes(view[body_start:end])


def _check(length: int, limit: int) -> None:
    try:
        guards.g11_frame(length, limit)
    except ProtocolError as error:
        raise FrameTooLong(str(error)) from None
