"""What answers look like in OpenAI's API, as bytes. Chunks are put together by hand: one is made for each
token.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import msgspec

from kvseal.core.messages import Usage

DONE: Final = b"data: [DONE]\n\n"
Reason = Literal["stop", "length"]
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Heading:
    """What all objects of one answer have in common."""

    request: str
    model: str
    created: int
    """Seconds since 1970."""


class Form:
    """One endpoint's shape of an answer, whole or in server-sent events."""

    _id_prefix: ClassVar[str]
    _whole_object: ClassVar[str]
    _chunk_object: ClassVar[str]
    _before_text: ClassVar[bytes]
    _after_text: ClassVar[bytes]

    def __init__(self, heading: Heading, *, include_usage: bool) -> None:
        self._heading = heading
        self._include_usage = include_usage
        self._start = b"data: " + self._head(self._chunk_object) + b',"choices":['
        self._end = (b',"usage":null' if include_usage else b"") + b"}\n\n"
        self._piece_start = self._start + b'{"index":0,' + self._before_text
        self._piece_end = self._after_text + b',"logprobs":null,"finish_reason":null}]' + self._end

    def opening(self) -> bytes:
        """The event before the first piece of text, where there is one."""
        return b""

    def piece(self, text: str) -> bytes:
        """The event that delivers ``text``."""
        return self._piece_start + _encode(text) + self._piece_end

    def closing(self, reason: Reason, usage: Usage) -> bytes:
        """The last events of a complete answer."""
        last = self._start + self._last_choice(reason) + b"]" + self._end
        if self._include_usage:
            last += self._start + b'],"usage":' + usage_json(usage) + b"}\n\n"
        return last + DONE

    def whole(self, text: str, reason: Reason, usage: Usage) -> bytes:
        """The body of an answer in one piece."""
        choice = self._whole_choice(_encode(text), reason)
        head = self._head(self._whole_object)
        return head + b',"choices":[' + choice + b'],"usage":' + usage_json(usage) + b"}"

    def _head(self, kind: str) -> bytes:
        head = {
            "id": self._id_prefix + self._heading.request,
            "object": kind,
            "created": self._heading.created,
            "model": self._heading.model,
        }
        return _encode(head)[:-1]

    def _last_choice(self, reason: Reason) -> bytes:
        raise NotImplementedError

    def _whole_choice(self, text: bytes, reason: Reason) -> bytes:
        raise NotImplementedError


class ChatForm(Form):
    """``/v1/chat/completions``."""

    _id_prefix = "chatcmpl-"
    _whole_object = "chat.completion"
    _chunk_object = "chat.completion.chunk"
    _before_text = b'"delta":{"content":'
    _after_text = b"}"

    def opening(self) -> bytes:
        """Says whose turn it is."""
        delta = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return self._start + delta + self._end

    def _last_choice(self, reason: Reason) -> bytes:
        return b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"%b"}' % reason.encode()

    def _whole_choice(self, text: bytes, reason: Reason) -> bytes:
        message = b'{"role":"assistant","content":%b,"refusal":null}' % text
        return b'{"index":0,"message":%b,"logprobs":null,"finish_reason":"%b"}' % (message, reason.encode())


class CompletionForm(Form):
    """``/v1/completions``."""

    _id_prefix = "cmpl-"
    _whole_object = "text_completion"
    _chunk_object = "text_completion"
    _before_text = b'"text":'
    _after_text = b""

    def _last_choice(self, reason: Reason) -> bytes:
        return self._whole_choice(b'""', reason)

    def _whole_choice(self, text: bytes, reason: Reason) -> bytes:
        return b'{"index":0,"text":%b,"logprobs":null,"finish_reason":"%b"}' % (text, reason.encode())


def usage_json(usage: Usage) -> bytes:
    """The usage object."""
    return _encode(
        {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }
    )
