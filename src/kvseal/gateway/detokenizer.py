"""From tokens to text while they come, never showing half a character.

::

    tokens   … prefix … | pending …
    text                  delivered ▏ settled ▏ may still change

A character's bytes may lie in several tokens, and until the last of them came, a decoder shows U+FFFD in
their place: text is settled once it no longer ends so. Some decoders treat the first token of a text
differently (they drop its space), so pending tokens are always decoded behind a prefix of tokens whose text
is out.
"""

from collections.abc import Callable, Sequence
from typing import Final

_UNKNOWN: Final = "\ufffd"
_MOST_PENDING: Final = 16  # tokens; a character has four bytes, so such a run is no text


class Detokenizer:
    """One answer's. ``decode`` turns token ids into text and leaves special tokens out."""

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt_end: Sequence[int] = ()) -> None:
        """``prompt_end``: the last tokens of a prompt that the answer continues in mid-text; its text is
        not delivered.
        """
        self._decode = decode
        self._prefix: list[int] = []
        self._prefix_length = 0
        self._pending: list[int] = []
        self._delivered = 0
        if prompt_end:
            text = decode(prompt_end)
            if text and not text.endswith(_UNKNOWN):
                self._prefix, self._prefix_length = list(prompt_end), len(text)

    def push(self, token: int) -> str:
        """The text that ``token`` settles; often that of the token itself, sometimes none."""
        self._pending.append(token)
        text = self._pending_text()
        settled = text.rstrip(_UNKNOWN)
        if len(settled) < len(text) and len(self._pending) >= _MOST_PENDING:
            settled = text
        new = settled[self._delivered :]
        self._delivered = max(self._delivered, len(settled))
        if len(settled) == len(text):
            self._advance(text)
        return new

    def flush(self) -> str:
        """What is left when no more tokens come. A character that was never completed becomes U+FFFD."""
        new = self._pending_text()[self._delivered :]
        self._pending.clear()
        self._delivered = 0
        return new

    def _pending_text(self) -> str:
        return self._decode(self._prefix + self._pending)[self._prefix_length :]

    def _advance(self, text: str) -> None:
        """All pending text is out: the pending tokens become the prefix, unless they show nothing."""
        if text:
            self._prefix = self._pending
            self._prefix_length = len(self._decode(self._prefix))
        elif len(self._pending) < _MOST_PENDING:
            return  # special tokens, or a space that shows only before the next token
        self._pending = []
        self._delivered = 0
