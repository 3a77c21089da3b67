"""A layout's sizes, and a digest that changes with everything that changes what a page means."""

from dataclasses import replace
from typing import Any

import pytest

from kvseal.layout import KEYS_IN_ROWS, Layout, Segment

SEGMENT = Segment("kv", (0, 1, 2), (2, 4, 64), "bfloat16")
LAYOUT = Layout(
    adapter="gqa",
    model_digest=bytes(range(16)),
    page_size=16,
    dtype="bfloat16",
    layers=3,
    kv_heads=4,
    head_dim=64,
    rope='{"rope_theta":10000.0}',
    inner_order=KEYS_IN_ROWS,
    segments=(SEGMENT,),
)
CHANGES: dict[str, Any] = {
    "adapter": "mla",
    "model_digest": bytes(16),
    "page_size": 32,
    "dtype": "float32",
    "layers": 4,
    "kv_heads": 2,
    "head_dim": 128,
    "rope": '{"rope_theta":10001.0}',
    "inner_order": "k:head,dim,token v:head,token,dim /1",
    "segments": (SEGMENT, Segment("index", (1,), (64,), "bfloat16")),
}


def test_sizes_follow_from_the_segments() -> None:
    assert LAYOUT.token_bytes == 3 * 2 * 4 * 64 * 2
    assert LAYOUT.page_bytes == 16 * LAYOUT.token_bytes
    with_index = replace(LAYOUT, segments=CHANGES["segments"])
    assert with_index.token_bytes == LAYOUT.token_bytes + 64 * 2
    assert [LAYOUT.pages_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_digest_has_16_bytes_and_is_the_same_in_every_process() -> None:
    # Fixed, because two workers of different builds compare digests.
    assert LAYOUT.digest().hex() == "097d771a8adae474eab01a4b6b0505fc"
    assert replace(LAYOUT).digest() == LAYOUT.digest()


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_changes_the_digest_and_is_named_as_the_difference(field: str) -> None:
    """F18: a mismatch is refused by name, so it must be seen and it must have a name."""
    other = replace(LAYOUT, **{field: CHANGES[field]})
    assert other.digest() != LAYOUT.digest()
    (line,) = LAYOUT.differences(other)
    assert line.startswith(f"{field}: ")


@pytest.mark.parametrize(
    "segment",
    [
        Segment("other", (0, 1, 2), (2, 4, 64), "bfloat16"),
        Segment("kv", (0, 1), (2, 4, 64), "bfloat16"),
        Segment("kv", (0, 1, 2), (2, 64, 4), "bfloat16"),
        Segment("kv", (0, 1, 2), (2, 4, 64), "float32"),
    ],
)
def test_every_field_of_a_segment_changes_the_digest(segment: Segment) -> None:
    assert replace(LAYOUT, segments=(segment,)).digest() != LAYOUT.digest()


def test_equal_layouts_have_no_differences() -> None:
    assert LAYOUT.differences(replace(LAYOUT)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"page_size": 0}, "page_size"),
        ({"kv_heads": -1}, "kv_heads"),
        ({"dtype": "float16"}, "float16"),
        ({"model_digest": b"short"}, "16 bytes"),
        ({"segments": ()}, "distinct names"),
        ({"segments": (SEGMENT, SEGMENT)}, "distinct names"),
        ({"layers": 2}, "layer 2 of 2"),
    ],
)
def test_impossible_layouts_cannot_be_made(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(LAYOUT, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layers": ()}, "distinct and rising"),
        ({"layers": (1, 0)}, "distinct and rising"),
        ({"layers": (0, 0)}, "distinct and rising"),
        ({"token_shape": ()}, "positive"),
        ({"token_shape": (2, 0)}, "positive"),
        ({"dtype": "int8"}, "int8"),
    ],
)
def test_impossible_segments_cannot_be_made(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(SEGMENT, **changes)


def test_negative_token_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        LAYOUT.pages_for(-1)
