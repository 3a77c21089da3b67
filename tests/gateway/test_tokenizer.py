"""Tokenizing: exact for every prompt that fits, bounded for every other."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.gateway.fake import tiny_tokenizer
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

from kvseal.core.errors import StartRefused
from kvseal.gateway.model_files import load_tokenizer
from kvseal.gateway.tokenizer import Tokenizer, TooLong

_WORDS = st.sampled_from(
    [
        *"fox| lazy| the|\n|\n\n  |  |'s|don't|12345|世界#|#|🐺|--|\r\n|\t|İ|ﬁ|a b\nc |e\u0301".replace(
            "#", "\uff0c"
        ).split("|"),
        *("<|im_end|>", "<|im_start|>", "x" * 40, "=" * 50, " " * 30),
    ]
)
_TEXTS = st.lists(st.tuples(_WORDS, st.integers(1, 400)), min_size=1, max_size=8).map(
    lambda parts: "".join(word * times for word, times in parts)
)

# The pre-tokenizers of the families that we serve, and a right-to-left grouping of digits as the hardest
# case.
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS_FROM_THE_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _split_by(pattern: str) -> tokenizers.Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _digits_apart() -> tokenizers.Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


_KINDS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "gpt2": tiny_tokenizer,
    "smollm": _digits_apart,
    "composed": lambda: tiny_tokenizer(normalizers.NFC()),
    "llama3": lambda: _split_by(_LLAMA_3),
    "o200k": lambda: _split_by(_O200K),
    "digits": lambda: _split_by(_DIGITS_FROM_THE_RIGHT),
}


@functools.cache
def kind(name: str) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Ours, and the library's own to compare with."""
    return Tokenizer(_KINDS[name]()), _KINDS[name]()


def assert_right(got: tuple[int, ...] | TooLong, ids: tuple[int, ...], limit: int) -> None:
    """Exact, or refused with a number that is true."""
    if isinstance(got, TooLong):
        assert limit < got.at_least <= len(ids)
    else:
        same = got == ids  # the tuples are too long to be shown
        assert same


@pytest.mark.parametrize("name", _KINDS)
@settings(deadline=None, max_examples=50)
@given(text=_TEXTS, part=st.floats(0.02, 1.5))
@example(text="a" * 20_000, part=0.5)
@example(text="世界" * 3000 + " " * 3000 + "one" * 3000, part=0.1)
@example(text="1" * 9000, part=0.2)
def test_a_prompt_that_fits_is_exact_and_never_refused(name: str, text: str, part: float) -> None:
    ours, library = kind(name)
    ids = tuple(library.encode(text, add_special_tokens=False).ids)
    for limit in {max(1, int(len(ids) * part)), len(ids) - 1, len(ids), len(ids) + 1}:
        assert_right(ours.encode_chat([text], limit), ids, limit)


@pytest.mark.parametrize("name", _KINDS)
def test_work_ends_soon_after_the_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = kind(name)
    encoded: list[int] = []
    encode = ours._ids

    def counting(text: str, **options: Any) -> list[int]:
        encoded.append(len(text))
        return encode(text, **options)

    monkeypatch.setattr(ours, "_ids", counting)
    for sentence in ("The lazy dog rests, and 12 foxes jump. ", "世界\uff0c你好。", "x=1;y=22\n"):
        encoded.clear()
        text = sentence * 20_000
        got = ours.encode_chat([text], 1000)
        assert isinstance(got, TooLong)
        assert 1000 < got.at_least < 2500
        assert sum(encoded) < 8000 < len(text) / 10


def test_pieces_are_encoded_apart_and_counted_together() -> None:
    ours, library = kind("gpt2")
    pieces = ("the fox", " rests", "", " and jumps")
    expected = [token for piece in pieces for token in library.encode(piece).ids]
    assert ours.encode_chat(pieces, 100) == tuple(expected)
    got = ours.encode_chat(["the lazy dog"] * 1000, 50)
    assert isinstance(got, TooLong)
    assert 50 < got.at_least <= 100


def test_a_prompt_over_the_limit_by_little_is_counted_to_the_end() -> None:
    ours, library = kind("gpt2")
    text = "the lazy dog " * 20
    count = len(library.encode(text).ids)
    got = ours.encode_prompt(text, count - 1)
    assert isinstance(got, tuple)
    assert len(got) == count


def test_added_tokens_are_not_cut() -> None:
    """Neither words inside them nor spaces at their ends may become a piece's end."""
    tokenizer = tiny_tokenizer()
    odd = "<a fox, a dog and a world>"
    tokenizer.add_special_tokens([AddedToken(odd, special=True, normalized=False)])
    ours = Tokenizer(tokenizer)
    text = odd * 4000
    assert ours.encode_chat([text], 4000) == (tokenizer.token_to_id(odd),) * 4000
    got = ours.encode_chat([text], 3999)
    assert got == TooLong(4000) or (isinstance(got, tuple) and len(got) == 4000)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Metaspace()),
        lambda t: setattr(t, "pre_tokenizer", None),
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.ByteLevel(use_regex=False)),
        lambda t: setattr(t, "normalizer", normalizers.Replace("  ", " ")),
        lambda t: t.add_tokens([AddedToken("<gap>", rstrip=True)]),
    ],
    ids=["metaspace", "no words", "prefix space", "one word", "shrinking normalizer", "stripping token"],
)
def test_a_tokenizer_that_we_cannot_cut_is_exact(change: Callable[[tokenizers.Tokenizer], None]) -> None:
    tokenizer, library = tiny_tokenizer(), tiny_tokenizer()
    change(tokenizer)
    change(library)
    text = "the  lazy dog " * 300
    assert Tokenizer(tokenizer).encode_chat([text], 10) == tuple(library.encode(text).ids)


def test_truncation_and_padding_of_the_file_are_off() -> None:
    """A prompt is refused or taken, never shortened (F01)."""
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    got = Tokenizer(tokenizer).encode_prompt("the lazy dog jumps over the quick fox", 100)
    assert isinstance(got, tuple)
    assert 4 < len(got) < 40


def test_the_longest_token_is_measured_in_bytes_of_text() -> None:
    tokenizer = tiny_tokenizer()
    longest = max(len(tokenizer.decode([i]).encode()) for i in range(2, tokenizer.get_vocab_size()))
    special = len("<|im_start|>")
    assert Tokenizer(tokenizer).longest_token_bytes == max(longest, special)
    wide = tiny_tokenizer()
    wide.add_tokens(["世" * 30])
    assert Tokenizer(wide).longest_token_bytes == 90


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"tokenizer\.json is missing"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(StartRefused, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("files", "stop_ids"),
    [
        ({}, ()),
        ({"config.json": '{"eos_token_id": 5}'}, (5,)),
        (
            {"config.json": '{"eos_token_id": 5}', "generation_config.json": '{"eos_token_id": [7, 6]}'},
            (6, 7),
        ),
        (
            {"config.json": '{"eos_token_id": null}', "tokenizer_config.json": '{"eos_token": "<|im_end|>"}'},
            (1,),
        ),
        ({"tokenizer_config.json": '{"eos_token": {"content": "<|im_end|>"}}'}, (1,)),
        (
            {"generation_config.json": '{"eos_token_id": 4}', "tokenizer_config.json": '{"eos_token": "x"}'},
            None,
        ),
    ],
)
def test_all_tokens_that_end_an_answer_are_known(
    tmp_path: Path, files: dict[str, str], stop_ids: tuple[int, ...] | None
) -> None:
    library = tiny_tokenizer()
    library.save(str(tmp_path / "tokenizer.json"))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    expected = tuple(sorted((4, library.get_vocab()["x"]))) if stop_ids is None else stop_ids
    assert load_tokenizer(tmp_path).stop_ids == expected


@pytest.mark.model
@settings(deadline=None, max_examples=30)
@given(text=_TEXTS)
@example(text="a" * 50_000)
def test_smollm2_is_exact(model_folder: Path, text: str) -> None:
    ours, library = _smollm2(model_folder)
    ids = tuple(library.encode(text).ids)
    for limit in (len(ids) // 8 + 1, len(ids), len(ids) + 1):
        assert_right(ours.encode_prompt(text, limit), ids, limit)


@pytest.mark.model
def test_smollm2_ends_with_im_end(model_folder: Path) -> None:
    ours, _ = _smollm2(model_folder)
    assert ours.stop_ids == (2,)
    assert ours.vocabulary == 49_152
    assert ours.longest_token_bytes == 81


@functools.cache
def _smollm2(folder: Path) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    return load_tokenizer(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
