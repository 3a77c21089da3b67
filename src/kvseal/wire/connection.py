"""One authenticated peer: send messages, receive messages, and be told once when it is over."""

import asyncio
from collections import deque

from kvseal.core.errors import InvariantViolation, ProtocolError
from kvseal.core.messages import AnyMessage, Hello, decode, encode
from kvseal.wire.errors import ConnectionLost
from kvseal.wire.stream import FrameStream

_BODY_OVERHEAD_BYTES = 64  # what a body costs us beyond its bytes: a flood of empty ones is bounded too


class Connection:
    """Messages to and from ``peer``, which has proved that it knows the cluster secret.

    No task of its own: sends are written together at the end of the event loop's turn, and :meth:`receive`
    decodes what has arrived. The loss of a peer, by whatever death, is seen at once.
    """

    def __init__(self, stream: FrameStream, peer: Hello) -> None:
        self.peer = peer
        self._stream = stream
        self._inbox: deque[bytes] = deque()
        self._unread_bytes = 0
        self._paused = False
        self._reader: asyncio.Future[None] | None = None
        self._end: str | None = None

    @property
    def closed(self) -> bool:
        """True once nothing can be sent any more. What had arrived before can still be received."""
        return self._stream.ended

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait because the peer does not read them; bounded by ``Limits.max_unsent_bytes``."""
        return self._stream.unsent_bytes

    @property
    def unread_bytes(self) -> int:
        """What waits to be received; above ``Limits.max_unread_bytes`` the rest is left in the socket."""
        return self._unread_bytes

    def send(self, message: AnyMessage) -> bool:
        """Takes the message to be sent; never blocks, and may be called many times in a row.

        True says that it was taken, not that it will arrive. False says that the connection is closed,
        perhaps just now, because the peer does not read (counted as ``overflow``); whoever receives is told
        why. Raises :class:`~kvseal.wire.errors.FrameTooLong` for a message over ``max_frame_bytes``: nothing
        is sent then.
        """
        return self._stream.write_frame(encode(message))

    async def receive(self) -> AnyMessage:
        """The next message. For one reader at a time.

        Raises :class:`~kvseal.wire.errors.ConnectionLost` once everything that arrived before the end was
        delivered, and from then on each time.
        """
        while not self._inbox:
            if self._end is not None:
                raise ConnectionLost(self._end)
            if self._reader is not None:
                raise InvariantViolation("two tasks receive from one connection")
            self._stream.flush()  # whoever waits for an answer has said what there was to say
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        body = self._inbox.popleft()
        self._unread_bytes -= len(body) + _BODY_OVERHEAD_BYTES
        if self._paused and 2 * self._unread_bytes <= self._stream.limits.max_unread_bytes:
            self._paused = False
            self._stream.resume_reading()
        try:
            return decode(body)
        except ProtocolError:
            pass  # its text may quote what the peer sent: not for a log, and as long as the peer likes
        self._stream.counters.malformed += 1
        self._inbox.clear()  # whatever comes after it is not to be trusted either
        self._unread_bytes = 0
        lost = ConnectionLost(f"the peer sent a malformed message of {len(body)} bytes")
        self._end = str(lost)
        self._stream.fail(lost)
        raise lost

    def close(self) -> None:
        """Ends the connection. What was sent still goes out, if the peer takes it in ``linger_seconds``."""
        self._stream.close()

    async def wait_closed(self) -> None:
        """Returns when the socket is closed and everything is released."""
        await self._stream.gone.wait()

    # --- the stream's sink --------------------------------------------------------------------------------

    def on_open(self, transport: asyncio.Transport) -> None:
        """Not called: the stream was open long before."""

    def on_frame(self, body: bytes) -> None:
        self._inbox.append(body)
        self._unread_bytes += len(body) + _BODY_OVERHEAD_BYTES
        if not self._paused and self._unread_bytes > self._stream.limits.max_unread_bytes:
            self._paused = True
            self._stream.pause_reading()
        self._wake()

    def on_end(self, cause: Exception) -> None:
        if self._end is None:
            self._end = str(cause)
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
