"""Text to tokens and back, with work bounded by the limit and not by the text.

The answer to "how many tokens" is exact for every text that fits: such a text is encoded in one piece. A
text that is much larger than the limit is counted from its beginning, piece by piece, and given up soon
after the limit::

    text   ├── piece ──┼── piece ──┼─ … ─┤ counted > limit: TooLong(at least so many)
                       ^ a cut: between words for the tokenizer too, wherever the text goes on

Tokens never reach across the words that a pre-tokenizer makes, and it makes them from left to right. So the
tokens of a piece that ends between two words are tokens of the whole text, and their number is a lower bound.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import tokenizers

from kvseal.gateway.chat_template import ChatTemplate

_WHOLE_BYTES_PER_TOKEN: Final = 6  # a text with fewer bytes for each token of the limit is encoded at once
_SHORTEST_PIECE: Final = 256  # characters
_LONGEST_WORD: Final = 1 << 13  # characters; a longer one is counted by its bytes
_UNSURE_WORDS: Final = 8  # at the end of a piece; what follows could change the last two
_SLACK_TOKENS: Final = 4  # forgiven at each cut, should a tokenizer join what we cut
# A letter and a space after it: every pre-tokenizer that `_divisible` lets through cuts there.
_CUT: Final = re.compile(r"[A-Za-z](?=[ \n])")
_CUT_WINDOW: Final = 256  # characters
_Words = list[tuple[str, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class TooLong:
    """The text has more tokens than the limit; ``at_least`` so many."""

    at_least: int


class Tokenizer:
    """A model's tokenizer with what belongs to it. Immutable, and safe to use from several threads.

    ``stop_ids`` end an answer. ``template`` is None for a model that has no chat template.
    ``longest_token_bytes`` is the most bytes of text that one token stands for.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        stop_ids: Sequence[int] = (),
        template: ChatTemplate | None = None,
    ) -> None:
        """Takes ``tokenizer`` over: nobody else may change it afterwards."""
        tokenizer.no_truncation()  # a prompt is refused or taken, never cut
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.stop_ids = tuple(sorted(set(stop_ids)))
        self.template = template
        self.vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
        added = tokenizer.get_added_tokens_decoder().values()
        self._added = re.compile("|".join(re.escape(token.content) for token in added) or "(?!)")
        self._longest_added = max((len(token.content) for token in added), default=0)
        decoder = _component(tokenizer.decoder)
        byte_level = "ByteLevel" in _kinds(decoder)
        self.longest_token_bytes = max(
            max(
                (len(token) if byte_level else len(token.encode()) for token in tokenizer.get_vocab()),
                default=1,
            ),
            max((len(token.content.encode()) for token in added), default=1),
        )
        self._divisible = _divisible(tokenizer) and not any(token.rstrip for token in added)

    def encode_prompt(self, text: str, limit: int) -> tuple[int, ...] | TooLong:
        """Tokens of a raw prompt, with those that the tokenizer puts around any text (BOS).

        The result may be longer than ``limit``, where it took no more work to find out by how much.
        """
        return self._encode(text, limit, with_special=True)

    def encode_chat(self, pieces: Sequence[str], limit: int) -> tuple[int, ...] | TooLong:
        """Tokens of a rendered conversation; see :meth:`ChatTemplate.render` for the pieces."""
        ids: tuple[int, ...] = ()
        for number, piece in enumerate(pieces):
            got = self._encode(piece, limit - len(ids), with_special=False)
            if isinstance(got, TooLong):
                return TooLong(len(ids) + got.at_least)
            ids += got
            if len(ids) > limit and number + 1 < len(pieces):
                return TooLong(len(ids))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``; special tokens show nothing, and bytes that are no UTF-8 show as U+FFFD."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def _encode(self, text: str, limit: int, *, with_special: bool) -> tuple[int, ...] | TooLong:
        if self._divisible and _utf8_length(text) > limit * _WHOLE_BYTES_PER_TOKEN:
            counted = self._count(text, limit)
            if counted > limit:
                return TooLong(counted)
        return tuple(self._ids(text, with_special=with_special))

    def _ids(self, text: str, *, with_special: bool = False) -> list[int]:
        # Of the library's ways this one lets other threads run, and it is the fastest.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=with_special)
        return encoding.ids

    def _count(self, text: str, limit: int) -> int:
        """A lower bound of the number of tokens; above ``limit`` as soon as that is certain."""
        counted = start = 0
        size = largest = max(_SHORTEST_PIECE, limit // 4)
        while start < len(text) and counted <= limit:
            end = self._cut(text, start, start + size)
            if end is None:
                # One endless word. Its tokens depend on its end, but each is at most so long.
                rest = _utf8_length(text[start:])
                return counted + rest // (3 * self.longest_token_bytes)
            counted += max(0, len(self._ids(text[start:end])) - _SLACK_TOKENS)
            start = end
            # The last piece need not be larger than what is missing, if the text goes on as it began.
            missing = (limit + 2 * _SLACK_TOKENS - counted) * start // max(1, counted)
            size = min(largest, max(_SHORTEST_PIECE, missing))
        return counted

    def _cut(self, text: str, start: int, end: int) -> int | None:
        """Where the piece that begins at ``start`` may end, near ``end``; None if no place was found."""
        if end >= len(text):
            return len(text)
        for match in reversed(list(_CUT.finditer(text, max(start, end - _CUT_WINDOW), end))):
            if not self._in_added_token(text, match.end()):
                return match.end()
        window = _CUT_WINDOW // 2
        while True:
            first = max(start, end - window)
            for place in reversed(self._words(text, first, end, surely=first == start)[1:-_UNSURE_WORDS]):
                if not self._in_added_token(text, place):
                    return place
            window *= 4
            if first == start:
                if end >= len(text):
                    return len(text)
                if end - start >= _LONGEST_WORD:
                    return None
                end = start + 2 * (end - start)

    def _words(self, text: str, first: int, end: int, *, surely: bool) -> list[int]:
        """Where words begin between two places. ``surely``: one begins at ``first``.

        Where none does, the words of three scans that begin one character apart are compared: where all
        agree, a scan of the whole text has a word too. (Digits in groups of three never agree, and are not
        cut.)
        """
        found: list[set[int]] = []
        for shift in range(1 if surely else 3):
            words: _Words = self._tokenizer.pre_tokenizer.pre_tokenize_str(text[first + shift : end])
            found.append({first + shift + place for _, (place, _) in words})
        return sorted(set.intersection(*found))

    def _in_added_token(self, text: str, place: int) -> bool:
        """Would a cut at ``place`` destroy a token that is looked for before any word is made?"""
        margin = 2 * self._longest_added
        window = self._added.finditer(text, max(0, place - margin), place + margin)
        return any(match.start() < place < match.end() for match in window)


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _component(part: Any) -> Any:
    """A part of a tokenizer as the JSON that ``tokenizer.json`` has for it."""
    return None if part is None else msgspec.json.decode(part.__getstate__())


def _kinds(value: Any) -> set[str]:
    """The types of a part and of the parts in it."""
    match value:
        case {"type": str() as kind}:
            return {kind}.union(*map(_kinds, value.values()))
        case list():
            return set().union(*map(_kinds, value))
        case _:
            return set()


def _divisible(tokenizer: tokenizers.Tokenizer) -> bool:
    """Do words end where we cut, whatever surrounds them?

    True for byte-level tokenizers, which llama, qwen and glm have. Others may join words (SentencePiece
    makes none) or treat the beginning of a text differently: their texts are always encoded whole.
    """
    words, normalizer = _component(tokenizer.pre_tokenizer), _component(tokenizer.normalizer)
    if "ByteLevel" not in _kinds(words) or _has_prefix_space(words):
        return False
    if not _kinds(words) <= {"Sequence", "ByteLevel", "Split", "Digits", "Punctuation"} | _PATTERN_KINDS:
        return False
    if not _kinds(normalizer) <= {"Sequence", "NFC", "NFD", "NFKC", "NFKD"}:
        return False
    ends = {end for _, (_, end) in tokenizer.pre_tokenizer.pre_tokenize_str("some words\nin lines")}
    return {4, 10, 13} <= ends


_PATTERN_KINDS: Final = {"Regex", "String"}


def _has_prefix_space(value: Any) -> bool:
    match value:
        case Mapping():
            return bool(value.get("add_prefix_space")) or any(map(_has_prefix_space, value.values()))
        case list():
            return any(map(_has_prefix_space, value))
        case _:
            return False
