"""Reads bodies within bounds of size, time and memory, before anything in them is believed."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive

from kvseal.core.errors import Code
from kvseal.gateway.refusals import Refused

# A byte of a prompt takes at most so many in JSON: \u0061.
ESCAPED_BYTES_PER_BYTE: Final = 6


class ClientGone(Exception):
    """Nobody is there to be answered."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """``context`` and ``longest_token_bytes`` bound the prompt, ``fields_bytes`` what stands around it."""

    context: int
    longest_token_bytes: int
    fields_bytes: int
    timeout_s: float

    @property
    def bytes(self) -> int:
        """No body with a prompt that fits the context is longer."""
        return self.context * self.longest_token_bytes * ESCAPED_BYTES_PER_BYTE + self.fields_bytes

    def refusal(self) -> Refused:
        """For a body that is longer."""
        return Refused(
            Code.REQUEST_TOO_LARGE,
            f"This model's maximum context length is {self.context} tokens. The longest prompt that fits, "
            f"however it is written, takes a body of at most {self.bytes} bytes, and this body is longer.",
        )


class Memory:
    """What bodies take, all requests together."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """One request's part, given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self._held_bytes -= share.bytes

    def take(self, share: "Share", count: int) -> None:
        """Adds to a share. Raises Refused where memory is short; a request alone always gets what it
        needs.
        """
        others = self._held_bytes - share.bytes
        if others and self._held_bytes + count > self._limit_bytes:
            raise Refused(Code.NO_CAPACITY, "The server holds too many large requests: try again later.")
        self._held_bytes += count
        share.bytes += count


class Share:
    """The bytes that one request holds."""

    def __init__(self, memory: Memory) -> None:
        self.bytes = 0
        self._memory = memory

    def take(self, count: int) -> None:
        """See :meth:`Memory.take`."""
        self._memory.take(self, count)


async def read_body(headers: Mapping[str, str], receive: Receive, limits: BodyLimits, share: Share) -> bytes:
    """The whole body. Raises Refused, or ClientGone.

    A body that says itself that it is too long is not read at all; one that does not say is cut off at the
    limit.
    """
    _check_headers(headers, limits)
    chunks: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(limits.timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                length += len(chunk)
                if length > limits.bytes:
                    raise limits.refusal()
                share.take(len(chunk))
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError as error:
        raise Refused(
            Code.REQUEST_TIMEOUT, f"The body did not arrive within {limits.timeout_s:g} s."
        ) from error


def _check_headers(headers: Mapping[str, str], limits: BodyLimits) -> None:
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limits.bytes:
        raise limits.refusal()
    # A web page can post anything but this to a server on the reader's machine without asking.
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(
            Code.INVALID_REQUEST, f"The content-type must be application/json, and is {kind or 'missing'}."
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(Code.INVALID_REQUEST, "The body must not be compressed (content-encoding).")
