"""What the bytes of a page mean.

::

    pool     page 0 | page 1 | …                         page-major: one page is one transfer and one digest
    page     segment 0 | segment 1 | …
    segment  first layer | next layer | …
    layer    the block of `page_size` tokens, in the inner order of the attention kernel

For grouped-query attention there is one segment "kv", and a layer's block is ``[2, kv_heads, page_size,
head_dim]``: keys, then values. Two workers may exchange pages only when the digests of their layouts are
equal.
"""

import json
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Final

from kvseal.core.ids import ID_BYTES, LayoutDigest
from kvseal.layout.dtypes import item_bytes

KEYS_IN_ROWS: Final = "k:head,token,dim v:head,token,dim /1"
"""A layer's keys as rows, one token each; likewise its values. Its number rises when the bytes change."""
KEYS_IN_WORDS: Final = "k:head,word,token v:head,token,word /1"
"""A word is 4 bytes of a token's key: one float32, or two neighbouring bfloat16. Word by word, the words of a
page's tokens side by side; values as rows."""

_ENCODING_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a page: one array ``[len(layers), page_size × token_shape]`` in the layout's inner order."""

    name: str
    layers: tuple[int, ...]
    token_shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if not self.layers or sorted(set(self.layers)) != list(self.layers):
            raise ValueError(f"segment {self.name!r}: layers must be distinct and rising, got {self.layers}")
        if not self.token_shape or min(self.token_shape) < 1:
            raise ValueError(f"segment {self.name!r}: every extent of {self.token_shape} must be positive")
        item_bytes(self.dtype)

    @property
    def token_bytes(self) -> int:
        """What one token leaves in this segment, all layers."""
        return len(self.layers) * prod(self.token_shape) * item_bytes(self.dtype)


@dataclass(frozen=True)
class Layout:
    """Everything that gives a page its meaning; hashable and comparable.

    ``model_digest`` covers configuration and weights, ``rope`` is canonical JSON of the effective settings,
    ``inner_order`` names how the attention kernel orders a layer's block. ``kv_heads`` and ``head_dim`` are
    counts for every layer.
    """

    adapter: str
    model_digest: bytes
    page_size: int
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int
    rope: str
    inner_order: str
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        item_bytes(self.dtype)
        for name in ("page_size", "layers", "kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if len(self.model_digest) != ID_BYTES:
            raise ValueError(f"a model digest has {ID_BYTES} bytes, this one {len(self.model_digest)}")
        names = [segment.name for segment in self.segments]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"segments need distinct names, got {names}")
        for segment in self.segments:
            if segment.layers[-1] >= self.layers:
                raise ValueError(
                    f"segment {segment.name!r} names layer {segment.layers[-1]} of {self.layers}"
                )

    @cached_property
    def token_bytes(self) -> int:
        """What one token leaves behind: all segments, all layers."""
        return sum(segment.token_bytes for segment in self.segments)

    @cached_property
    def page_bytes(self) -> int:
        """Bytes of one page: ``page_size`` tokens, all layers, contiguous."""
        return self.token_bytes * self.page_size

    def pages_for(self, tokens: int) -> int:
        """How many pages ``tokens`` tokens occupy, the last of them perhaps in part."""
        if tokens < 0:
            raise ValueError(f"a number of tokens is not negative: {tokens}")
        return -(-tokens // self.page_size)

    def digest(self) -> LayoutDigest:
        """16 bytes; equal exactly when every field is equal."""
        return self._digest

    @cached_property
    def _digest(self) -> LayoutDigest:
        values = {**asdict(self), "model_digest": self.model_digest.hex(), "version": _ENCODING_VERSION}
        canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return LayoutDigest(
            blake2b(canonical.encode(), digest_size=ID_BYTES, person=b"kvseal-layout").digest()
        )

    def differences(self, other: "Layout") -> list[str]:
        """One line for each field in which the layouts differ, with both values (F18)."""
        lines = []
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine != theirs:
                lines.append(f"{field.name}: {_shown(mine)} here, {_shown(theirs)} there")
        return lines


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
