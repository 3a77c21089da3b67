"""Text that grows is the text of the whole, and never shows half a character."""

from collections.abc import Callable, Sequence

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.fake import SPECIAL, tiny_tokenizer
from tokenizers import decoders, models

from kvseal.gateway.detokenizer import Detokenizer
from kvseal.gateway.tokenizer import Tokenizer

Decode = Callable[[Sequence[int]], str]
TINY = tiny_tokenizer()


def tiny_decode(ids: Sequence[int]) -> str:
    return TINY.decode(ids, skip_special_tokens=True)


def pieces_of(decode: Decode, ids: Sequence[int], prompt_end: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer(decode, prompt_end)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


@settings(deadline=None)
@given(st.text(max_size=60))
def test_text_comes_whole_and_without_placeholders(text: str) -> None:
    ids = TINY.encode(text, add_special_tokens=False).ids
    pieces = pieces_of(tiny_decode, ids)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@settings(deadline=None)
@given(st.lists(st.integers(0, TINY.get_vocab_size() - 1), max_size=40))
def test_any_tokens_give_the_text_of_the_whole(ids: list[int]) -> None:
    """Also invalid UTF-8, special tokens in between, and a character that is never completed."""
    whole = tiny_decode(ids)
    pieces = pieces_of(tiny_decode, ids)
    if "\ufffd" * 8 not in whole:  # longer runs are given out before they can end
        assert "".join(pieces) == whole


@settings(deadline=None)
@given(st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_an_answer_that_goes_on_in_mid_text(prompt: str, answer: str) -> None:
    before = TINY.encode(prompt, add_special_tokens=False).ids
    after = TINY.encode(answer, add_special_tokens=False).ids
    assert "".join(pieces_of(tiny_decode, after, before[-4:])) == answer


def test_a_character_over_several_tokens_is_shown_when_it_is_whole() -> None:
    ids = TINY.encode("🐺", add_special_tokens=False).ids
    assert len(ids) >= 3
    assert pieces_of(tiny_decode, ids) == [""] * (len(ids) - 1) + ["🐺", ""]


def test_a_character_that_is_never_completed_shows_at_the_end() -> None:
    ids = TINY.encode("a🐺", add_special_tokens=False).ids[:-1]
    pieces = pieces_of(tiny_decode, ids)
    assert pieces[0] == "a"
    assert pieces[-1].strip("\ufffd") == ""
    assert "".join(pieces) == tiny_decode(ids)


def test_special_tokens_show_nothing_and_spoil_nothing() -> None:
    special = [TINY.get_vocab()[text] for text in SPECIAL]
    ids = TINY.encode("the fox", add_special_tokens=False).ids
    mixed = [special[0], *ids[:1], *special, *ids[1:], special[1]]
    assert "".join(pieces_of(tiny_decode, mixed)) == "the fox"


def test_an_endless_run_of_broken_bytes_is_not_held_for_ever() -> None:
    broken = TINY.encode("🐺", add_special_tokens=False).ids[0]
    detokenizer = Detokenizer(tiny_decode)
    held = 0
    for _ in range(100):
        held = 0 if detokenizer.push(broken) else held + 1
        assert held < 16


@pytest.fixture
def sentencepiece_decode() -> Decode:
    """As Llama 2 has it: words carry their space in front, the first one loses it, bytes are tokens."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {text: 256 + i for i, text in enumerate(["▁", "▁one", "▁two", "s", "▁▁"])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return Tokenizer(tokenizer).decode


def test_spaces_of_words_survive(sentencepiece_decode: Decode) -> None:
    assert pieces_of(sentencepiece_decode, [257, 258, 259, 256, 257]) == ["one", " two", "s", " ", " one", ""]


def test_a_continued_text_keeps_the_space_of_its_first_word(sentencepiece_decode: Decode) -> None:
    assert "".join(pieces_of(sentencepiece_decode, [258, 259], [257])) == " twos"


@settings(deadline=None)
@given(st.text(min_size=1, max_size=12))
def test_bytes_as_tokens(text: str) -> None:
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    assert "".join(pieces_of(Tokenizer(tokenizer).decode, list(text.encode()))) == text
