"""Many slices become one packed batch: what the model sees, and where each row's keys and values live.

::

    packed row   0 … singles-1            | singles … rows-1
                 one token each (decode), | chunks (prefill), one after the other
                 shortest context first   |

All index arithmetic of a step is done here, once, in numpy; the layers only use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvseal.core.batch import Slice
from kvseal.core.errors import InvariantViolation

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One forward pass over ``n`` slices with ``rows`` tokens in all.

    ``order[i]`` is the caller's index of packed slice ``i``, whose rows are ``bounds[i]:bounds[i + 1]``;
    ``ends[i]`` tokens of its sequence exist after the pass, in the pages ``tables[i]``, in order. Row ``r``
    is written at offset ``offsets[r]`` of page ``pages[r]``.
    """

    ids: torch.Tensor  # int64 [1, rows]
    positions: torch.Tensor  # int64 [1, rows]
    order: Ints  # [n]
    bounds: Ints  # [n + 1]
    ends: Ints  # [n]
    tables: tuple[Ints, ...]  # n arrays, of [ceil(ends[i] / page_size)]
    singles: int
    pages: Ints  # [rows]
    offsets: Ints  # [rows]

    @property
    def last_rows(self) -> Ints:
        """The row of each packed slice's last token, [n]."""
        return self.bounds[1:] - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a slice may name: the pool's pages, the page size in tokens, the vocabulary."""

    pool_pages: int
    page_size: int
    vocabulary: int


def pack(slices: Sequence[Slice], limits: Limits) -> PackedBatch:
    """Pack at least one slice. Raises InvariantViolation where one names what is not its own to use."""
    counts = np.array([len(item.tokens) for item in slices], dtype=np.int64)
    starts = np.array([item.start for item in slices], dtype=np.int64)
    if counts.min() < 1 or starts.min() < 0:
        raise InvariantViolation(
            "a slice has at least one token and starts at a position that is not negative"
        )
    ends = starts + counts
    order = np.lexsort((ends, counts > 1))
    tables = tuple(_own_pages(slices[i], int(ends[i]), limits) for i in order)
    counts, starts, ends = counts[order], starts[order], ends[order]
    bounds = np.concatenate(([0], np.cumsum(counts)))

    ids = np.concatenate([slices[i].tokens for i in order]).astype(np.int64, copy=False)
    if ids.min() < 0 or ids.max() >= limits.vocabulary:
        raise InvariantViolation(f"a token id is outside the vocabulary of {limits.vocabulary}")
    owner = np.repeat(np.arange(len(slices)), counts)
    positions = np.arange(len(ids)) - bounds[owner] + starts[owner]
    first = np.concatenate(([0], np.cumsum([len(table) for table in tables])))
    every_page = np.concatenate(tables)
    pages = every_page[first[owner] + positions // limits.page_size]
    _assert_exclusive(every_page, pages)
    return PackedBatch(
        ids=torch.from_numpy(ids)[None],
        positions=torch.from_numpy(positions)[None],
        order=order,
        bounds=bounds,
        ends=ends,
        tables=tables,
        singles=int(np.count_nonzero(counts == 1)),
        pages=pages,
        offsets=positions % limits.page_size,
    )


def pages_to_clear(slices: Sequence[Slice], page_size: int) -> Ints:
    """The pages that the pass zeroes before it writes (G8): none of them holds a token that counts."""
    cleared: list[int] = []
    for item in slices:
        if not item.clear:
            continue
        # Only a page whose first token is written now is wholly new; zeroing any other would destroy a proven
        # token.
        first = -(-item.start // page_size)
        last = -(-(item.start + len(item.tokens)) // page_size)
        if not set(item.clear) <= set(item.table.pages[first:last]):
            raise InvariantViolation("a slice may clear only pages of its own whose first token it writes")
        cleared.extend(item.clear)
    return np.array(cleared, dtype=np.int64)


def _own_pages(item: Slice, end: int, limits: Limits) -> Ints:
    needed = -(-end // limits.page_size)
    if len(item.table.pages) < needed:
        raise InvariantViolation(
            f"a block table of {len(item.table.pages)} pages cannot hold {end} tokens (G6)"
        )
    table = np.array(item.table.pages[:needed], dtype=np.int64)
    if table.min() < 0 or table.max() >= limits.pool_pages:
        raise InvariantViolation(f"a block table names a page outside the pool of {limits.pool_pages} pages")
    return table


def _assert_exclusive(every_page: Ints, written: Ints) -> None:
    """No page that a slice writes stands in another's table, or twice in its own (G6)."""
    distinct = np.unique(written)
    used = every_page[np.isin(every_page, distinct)]
    if len(used) != len(distinct):
        pages, uses = np.unique(used, return_counts=True)
        raise InvariantViolation(
            f"page {pages[uses.argmax()]} is written while it is in use elsewhere in the batch"
        )


def restore(order: Ints, values: Sequence[Any]) -> list[Any]:
    """``values`` of the packed slices, in the caller's order."""
    restored: list[Any] = [None] * len(values)
    for index, value in zip(order.tolist(), values, strict=True):
        restored[index] = value
    return restored
