"""Frames over one asyncio transport: coalesced writes, a bounded out-buffer, one end with one cause.

A :class:`FrameStream` knows nothing of handshakes or messages. What arrives goes to its ``sink``,
synchronously and in order; who the sink is changes once, from the :class:`~kvseal.wire.greeting.Greeting` to
the :class:`~kvseal.wire.connection.Connection`. It is written against asyncio's transport interface alone, so
TLS goes underneath without a change here.
"""

import asyncio
import os
from contextlib import suppress
from typing import Protocol

from kvseal.wire.errors import ConnectionLost, FrameTooLong
from kvseal.wire.framing import HEADER_BYTES, FrameDecoder, frame_header
from kvseal.wire.limits import KIB, Limits, WireCounters

READ_BYTES = 256 * KIB
FLUSH_BYTES = 256 * KIB  # this much is written at once, without waiting for more


class Sink(Protocol):
    """What happens to what arrives."""

    def on_open(self, transport: asyncio.Transport) -> None:
        """The transport is there. Called once, before anything else."""

    def on_frame(self, body: bytes) -> None:
        """One frame arrived."""

    def on_end(self, cause: Exception) -> None:
        """Nothing comes and nothing goes any more. Called exactly once."""


class FrameStream(asyncio.BufferedProtocol):
    """One stream of frames in each direction."""

    def __init__(self, limits: Limits, counters: WireCounters) -> None:
        self.limits = limits
        self.counters = counters
        self.sink: Sink  # set by its owner before the transport is there
        self.gone = asyncio.Event()  # the transport is closed, everything is released
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._max_body_bytes = limits.max_handshake_bytes
        self._decoder = FrameDecoder(self._max_body_bytes)
        self._read_buffer = memoryview(bytearray(READ_BYTES))
        self._out: list[bytes] = []  # headers and bodies that were not given to the transport yet
        self._out_bytes = 0
        self._room_bytes = 0  # how large _out_bytes may become
        self._ended = False
        self._linger: asyncio.TimerHandle | None = None

    # --- for the sink -------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Was the sink told the end?"""
        return self._ended

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait here because the peer does not read them."""
        assert self._transport is not None
        return self._out_bytes + self._transport.get_write_buffer_size()

    def trust(self) -> None:
        """The peer has authenticated: from the next frame on, both ways, the larger limit holds."""
        self._max_body_bytes = self._decoder.limit = self.limits.max_frame_bytes

    def write_frame(self, body: bytes) -> bool:
        """Takes one frame to be sent, never blocks. False where the stream has ended, now or before.

        Many frames that are written in one turn of the event loop go out in one system call. Raises
        :class:`FrameTooLong` for a body over the limit, and then nothing is sent.
        """
        header = frame_header(len(body), self._max_body_bytes)
        if self._ended:
            return False
        if not self._out:
            assert self._transport is not None
            self._loop.call_soon(self.flush)
            # Until the next flush the transport's buffer can only shrink.
            self._room_bytes = self.limits.max_unsent_bytes - self._transport.get_write_buffer_size()
        self._out += (header, body)
        self._out_bytes += HEADER_BYTES + len(body)
        if self._out_bytes > self._room_bytes:
            self.counters.overflow += 1
            self.fail(
                ConnectionLost(f"the peer does not read: {self.unsent_bytes} bytes were waiting for it")
            )
        elif self._out_bytes >= FLUSH_BYTES:
            self.flush()
        return not self._ended

    def flush(self) -> None:
        """Gives what was written to the transport now, instead of at the end of the event loop's turn."""
        if self._out and not self._ended:
            assert self._transport is not None
            out, self._out, self._out_bytes = self._out, [], 0
            self._transport.writelines(out)

    def pause_reading(self) -> None:
        """Takes no more bytes from the socket, so that the peer's buffers fill up and not ours."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Takes bytes again."""
        assert self._transport is not None
        self._transport.resume_reading()

    def close(self) -> None:
        """Ends the stream; what was written before still goes out, if the peer takes it soon."""
        if self._ended:
            return
        assert self._transport is not None
        self.flush()
        self._end(ConnectionLost("closed on this side"))
        self._linger = self._loop.call_later(self.limits.linger_seconds, self._transport.abort)
        self._transport.close()

    def fail(self, cause: Exception) -> None:
        """Ends the stream at once; what was not sent yet is dropped."""
        self._end(cause)
        self._out.clear()
        self._out_bytes = 0
        if self._transport is not None:
            self._transport.abort()

    # --- for asyncio --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._ended:  # before it began
            transport.abort()
        else:
            self.sink.on_open(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the signature is asyncio's
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._decoder.feed(self._read_buffer[:nbytes])
        try:
            while not self._ended and (body := self._decoder.take()) is not None:
                self.sink.on_frame(body)
        except FrameTooLong as error:
            self.counters.oversized += 1
            self.fail(error)

    def eof_received(self) -> None:
        # Nobody of ours closes one direction only: the peer is gone, and what we still had for it is useless.
        self.fail(ConnectionLost("the peer closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        if exc is not None:
            self._read_the_rest()
        self._end(ConnectionLost(f"the connection broke: {exc or 'closed'}"))
        self._out.clear()
        self.gone.set()

    def _end(self, cause: Exception) -> None:
        if not self._ended:
            self._ended = True
            self.sink.on_end(cause)

    def _read_the_rest(self) -> None:
        """Reads what the peer had sent before a write of ours found it gone.

        asyncio gives a transport up when a write fails, with bytes of the peer still unread: they may hold
        the one terminal answer of a request (G10). Its socket is still open while it tells us so. Under TLS
        the bytes on the socket are of no use to us.
        """
        assert self._transport is not None
        if self._ended or self._transport.get_extra_info("sslcontext") is not None:
            return
        descriptor = self._transport.get_extra_info("socket").fileno()
        with suppress(OSError):
            while not self._ended and (count := os.readv(descriptor, [self._read_buffer])):
                self.buffer_updated(count)
