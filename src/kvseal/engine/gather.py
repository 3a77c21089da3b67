"""The kernel `sdpa-gather`: copy a sequence's pages next to each other, then torch's own attention.

Correct everywhere torch runs. It pays for the copy, so it works in groups whose copies stay in the
processor's cache.

Reading order of the numbers below: a pool of one dtype is a matrix of *block rows*, one for each (page,
layer, key or value, head), each ``page_size × head_dim`` numbers; and also of *token rows*, each ``head_dim``
numbers.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from kvseal.engine.packing import Ints, PackedBatch
from kvseal.layout import KEYS_IN_ROWS, Layout

_GROUP_BYTES: Final = (
    8 << 20
)  # gathered keys and values of one attention call; more leaves the cache, measured
_MASK_BYTES: Final = 32 << 20  # causal mask of one attention call of a chunk
_PADDING_SHARE: Final = 0.25  # of a group's gathered pages; above it the group is cut
_PADDING_PAGES: Final = 32  # that much padding is cheaper than another call


@dataclass(frozen=True, slots=True)
class _Group:
    """Packed rows ``first:last``, each one token of its own sequence, attended to in one call."""

    first: int
    last: int
    tokens: int  # length that all contexts are padded to
    blocks: torch.Tensor  # int64: block rows to gather, [2, last - first, kv_heads, pages] flattened
    padding: torch.Tensor  # int64: token rows of the gathered copy that belong to no token, zeroed before use
    mask: torch.Tensor | None  # [last - first, 1, 1, tokens], 0 or -inf; None where nothing is padded


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Packed rows ``first:last``: consecutive tokens of one sequence, the last ones of ``tokens``."""

    first: int
    last: int
    tokens: int
    blocks: (
        torch.Tensor | None
    )  # as in _Group; None: the chunk is the whole sequence, and nothing is gathered
    tiles: tuple[tuple[int, int, torch.Tensor], ...]  # query rows and their causal mask [rows, tokens]


class SdpaGather:
    """See the module. Keeps one scratch buffer, as large as the largest group or chunk so far."""

    name = "sdpa-gather"
    inner_order = KEYS_IN_ROWS

    def __init__(self, layout: Layout, pool: torch.Tensor) -> None:
        self.layout = layout
        self.dtype: torch.dtype = getattr(torch, layout.dtype)
        numbers = pool.view(self.dtype).view(-1)
        self.block_rows = numbers.view(-1, layout.page_size * layout.head_dim)
        self.token_rows = numbers.view(-1, layout.head_dim)
        self._scratch = torch.empty(0, self.block_rows.shape[1], dtype=self.dtype)

    def prepare(self, batch: PackedBatch) -> "_Step":
        """Everything about the batch that does not change from layer to layer."""
        groups = tuple(self._group(batch, first, last) for first, last in self._cuts(batch))
        chunks = tuple(self._chunk(batch, i) for i in range(batch.singles, len(batch.tables)))
        sizes = [len(group.blocks) for group in groups]
        sizes += [len(chunk.blocks) for chunk in chunks if chunk.blocks is not None]
        if sizes and max(sizes) > len(self._scratch):
            self._scratch = torch.empty(max(sizes), self.block_rows.shape[1], dtype=self.dtype)
        return _Step(self, self._key_rows(batch), groups, chunks, self._scratch)

    def _block(self, pages: Ints) -> Ints:
        """Block row of (page, layer 0, key, head 0)."""
        return pages * (self.layout.layers * 2 * self.layout.kv_heads)

    def _key_rows(self, batch: PackedBatch) -> torch.Tensor:
        """Token rows of layer 0 where the pass writes its keys, [kv_heads × rows] as in the tensor."""
        heads = np.arange(self.layout.kv_heads)[:, None]
        rows = (self._block(batch.pages) + heads) * self.layout.page_size + batch.offsets
        return torch.from_numpy(rows.reshape(-1))

    def _cuts(self, batch: PackedBatch) -> list[tuple[int, int]]:
        """Cut the single-token slices into groups of similar length and bounded size."""
        layout, cuts, first, real = self.layout, [], 0, 0
        page_bytes = layout.page_bytes // layout.layers
        for i in range(batch.singles):
            pages = len(batch.tables[i])
            gathered = pages * (i + 1 - first)
            padding = gathered - real - pages
            wasteful = padding > max(_PADDING_PAGES, _PADDING_SHARE * gathered)
            if i > first and (wasteful or gathered * page_bytes > _GROUP_BYTES):
                cuts.append((first, i))
                first, real = i, 0
            real += pages
        if batch.singles:
            cuts.append((first, batch.singles))
        return cuts

    def _group(self, batch: PackedBatch, first: int, last: int) -> _Group:
        page_size, ends = self.layout.page_size, batch.ends[first:last]
        width = len(batch.tables[last - 1])
        # Padding repeats a page of the sequence itself, never another's, and is zeroed after the gather.
        pages = np.stack([np.resize(table, width) for table in batch.tables[first:last]])
        if last - first == 1:
            return _Group(
                first, last, int(ends[0]), self._blocks(pages), torch.empty(0, dtype=torch.int64), None
            )
        beyond = np.arange(width * page_size) >= ends[:, None]
        padding = np.broadcast_to(
            beyond[None, :, None], (2, last - first, self.layout.kv_heads, beyond.shape[1])
        )
        mask = torch.zeros(beyond.shape, dtype=self.dtype).masked_fill_(torch.from_numpy(beyond), -torch.inf)
        return _Group(
            first,
            last,
            width * page_size,
            self._blocks(pages),
            torch.from_numpy(np.flatnonzero(padding)),
            mask[:, None, None] if beyond.any() else None,
        )

    def _chunk(self, batch: PackedBatch, i: int) -> _Chunk:
        first, last, tokens = int(batch.bounds[i]), int(batch.bounds[i + 1]), int(batch.ends[i])
        rows = last - first
        if rows == tokens:
            return _Chunk(first, last, tokens, None, ())
        height = max(1, _MASK_BYTES // (tokens * self.dtype.itemsize))
        position = torch.arange(tokens - rows, tokens)[:, None]
        tiles = []
        for top in range(0, rows, height):
            below = min(top + height, rows)
            hidden = torch.arange(tokens) > position[top:below]
            mask = torch.zeros(hidden.shape, dtype=self.dtype).masked_fill_(hidden, -torch.inf)
            tiles.append((top, below, mask))
        return _Chunk(first, last, tokens, self._blocks(batch.tables[i][None]), tuple(tiles))

    def _blocks(self, pages: Ints) -> torch.Tensor:
        """Block rows, for layer 0, of pages [sequences, n]: [2, sequences, kv_heads, n] flattened."""
        kv_heads = self.layout.kv_heads
        inner = np.arange(2 * kv_heads).reshape(2, 1, kv_heads, 1)
        return torch.from_numpy((self._block(pages)[None, :, None, :] + inner).reshape(-1))


@dataclass(frozen=True, slots=True)
class _Step:
    """One forward pass. Row indices are those of layer 0: a layer shifts the matrix, not the indices."""

    kernel: SdpaGather
    key_rows: torch.Tensor
    groups: tuple[_Group, ...]
    chunks: tuple[_Chunk, ...]
    scratch: torch.Tensor

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """See :class:`kvseal.engine.attention.StepAttention`."""
        layout = self.kernel.layout
        # The layout was derived from the configuration alone; here the model's own tensors must agree with
        # it.
        assert key.shape == value.shape == (1, layout.kv_heads, query.shape[2], layout.head_dim)
        assert key.dtype == value.dtype == self.kernel.dtype
        assert len(self.key_rows) == layout.kv_heads * query.shape[2]
        blocks = layer * 2 * layout.kv_heads  # block rows before this layer's keys, within a page
        rows = blocks * layout.page_size
        value_rows = rows + layout.kv_heads * layout.page_size
        self.kernel.token_rows[rows:].index_copy_(0, self.key_rows, key.reshape(-1, layout.head_dim))
        self.kernel.token_rows[value_rows:].index_copy_(0, self.key_rows, value.reshape(-1, layout.head_dim))

        pool = self.kernel.block_rows[blocks:]
        out = query.new_empty(query.shape[2], query.shape[1], query.shape[3])
        for group in self.groups:
            self._attend_group(pool, group, query, out, scaling)
        for chunk in self.chunks:
            self._attend_chunk(pool, chunk, (query, key, value), out, scaling)
        return out[None]

    def _attend_group(
        self, pool: torch.Tensor, group: _Group, query: torch.Tensor, out: torch.Tensor, scaling: float
    ) -> None:
        kv_heads, count = self.kernel.layout.kv_heads, group.last - group.first
        keys, values = self._gather(pool, group.blocks, group.padding, count)
        # The query heads that share a key head become its query rows: cheaper than repeating the keys.
        folded = query[0, :, group.first : group.last].transpose(0, 1)
        folded = folded.view(count, kv_heads, -1, folded.shape[2])
        attended = scaled_dot_product_attention(
            folded,
            keys[:, :, : group.tokens],
            values[:, :, : group.tokens],
            attn_mask=group.mask,
            scale=scaling,
        )
        out[group.first : group.last] = attended.flatten(1, 2)

    def _attend_chunk(
        self,
        pool: torch.Tensor,
        chunk: _Chunk,
        new: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        out: torch.Tensor,
        scaling: float,
    ) -> None:
        query, key, value = (tensor[:, :, chunk.first : chunk.last] for tensor in new)
        mine = out[chunk.first : chunk.last].transpose(0, 1)[None]
        if chunk.blocks is None:
            mine.copy_(
                scaled_dot_product_attention(
                    query, key, value, is_causal=True, scale=scaling, enable_gqa=True
                )
            )
            return
        keys, values = self._gather(pool, chunk.blocks, None, 1)
        keys, values = keys[:, :, : chunk.tokens], values[:, :, : chunk.tokens]
        for top, below, mask in chunk.tiles:
            mine[:, :, top:below] = scaled_dot_product_attention(
                query[:, :, top:below], keys, values, attn_mask=mask, scale=scaling, enable_gqa=True
            )

    def _gather(
        self, pool: torch.Tensor, blocks: torch.Tensor, padding: torch.Tensor | None, sequences: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of ``sequences`` contexts in the scratch buffer.

        Each is [sequences, kv_heads, tokens, head_dim].

        Every byte of the result is written here: nothing that an earlier call left in the buffer is ever
        read.
        """
        layout = self.kernel.layout
        copy = self.scratch[: len(blocks)]
        torch.index_select(pool, 0, blocks, out=copy)
        if padding is not None and len(padding):
            # A mask alone does not do: 0 × NaN is NaN, and a page's unwritten tail may hold anything.
            copy.view(-1, layout.head_dim).index_fill_(0, padding, 0)
        keys, values = copy.view(2, sequences, layout.kv_heads, -1, layout.head_dim)
        return keys, values
