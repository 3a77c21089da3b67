"""The kernel sdpa-gather against attention written out in float64, on batches of any shape."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvseal.core.batch import Slice
from kvseal.core.leases import BlockTable
from kvseal.engine import SdpaGather, gather
from kvseal.engine.packing import Limits, PackedBatch, pack
from kvseal.layout import KEYS_IN_ROWS, Layout, Segment

LAYERS, KV_HEADS, GROUPS, DIM, POOL = 2, 2, 3, 8, 400
SCALE = 0.31


def layout(page_size: int, dtype: str = "float32") -> Layout:
    return Layout(
        adapter="gqa",
        model_digest=bytes(16),
        page_size=page_size,
        dtype=dtype,
        layers=LAYERS,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        rope="{}",
        inner_order=KEYS_IN_ROWS,
        segments=(Segment("kv", tuple(range(LAYERS)), (2, KV_HEADS, DIM), dtype),),
    )


@dataclass
class Case:
    """Contexts of ``starts[i]`` tokens that get ``counts[i]`` more, in pages of a poisoned pool."""

    page_size: int
    starts: list[int]
    counts: list[int]
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    number = draw(st.integers(1, 7))
    starts = draw(st.lists(st.integers(0, 90), min_size=number, max_size=number))
    counts = draw(st.lists(st.sampled_from([1, 1, 1, 2, 7, 20]), min_size=number, max_size=number))
    return Case(draw(st.sampled_from([1, 3, 8])), starts, counts, draw(st.integers(0, 99)))


def run(case: Case, dtype: str = "float32") -> tuple[PackedBatch, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output of layer 1, its expected value, the pool after the pass and before it (uint8)."""
    torch.manual_seed(case.seed)
    book = layout(case.page_size, dtype)
    kind: torch.dtype = getattr(torch, dtype)
    pool = torch.full((POOL * (8 // case.page_size + 1), book.page_bytes), 0xFF, dtype=torch.uint8)
    shape = (len(pool), LAYERS, 2, KV_HEADS, case.page_size, DIM)
    view = pool.view(kind).view(shape)
    free = torch.randperm(len(pool)).tolist()

    slices, contexts = [], []
    for start, count in zip(case.starts, case.counts, strict=True):
        pages = [free.pop() for _ in range(book.pages_for(start + count))]
        past = torch.randn(2, KV_HEADS, start, DIM).to(kind)
        for position in range(start):
            view[pages[position // case.page_size], 1, :, :, position % case.page_size] = past[:, :, position]
        slices.append(Slice(BlockTable(tuple(pages)), start, tuple(range(count))))
        contexts.append(past)
    before = pool.clone()

    batch = pack(slices, Limits(len(pool), case.page_size, 1000))
    rows = batch.ids.shape[1]
    query = torch.randn(1, KV_HEADS * GROUPS, rows, DIM).to(kind)
    key, value = torch.randn(2, 1, KV_HEADS, rows, DIM).to(kind)
    out = SdpaGather(book, pool).prepare(batch).attend(1, query, key, value, SCALE)

    expected = torch.empty(out.shape, dtype=torch.float64)
    for packed, index in enumerate(batch.order.tolist()):
        first, last = int(batch.bounds[packed]), int(batch.bounds[packed + 1])
        new = torch.stack((key[0, :, first:last], value[0, :, first:last]))
        keys, values = torch.cat((contexts[index], new), dim=2).double().repeat_interleave(GROUPS, dim=1)
        scores = query[0, :, first:last].double() @ keys.transpose(1, 2) * SCALE
        hidden = torch.ones(scores.shape[1:]).triu(case.starts[index] + 1).bool()
        attended = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values
        expected[0, first:last] = attended.transpose(0, 1)
    return batch, out, expected, torch.stack((pool, before))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_equals_attention_written_out(case: Case) -> None:
    _, out, expected, _ = run(case)
    assert torch.allclose(out.double(), expected, atol=2e-6)


@settings(max_examples=25, deadline=None)
@given(cases())
def test_small_groups_and_tiles_change_nothing(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "_GROUP_BYTES", 4000)
        patch.setattr(gather, "_MASK_BYTES", 900)
        patch.setattr(gather, "_PADDING_PAGES", 1)
        _, out, expected, _ = run(case)
    assert torch.allclose(out.double(), expected, atol=2e-6)


@settings(max_examples=25, deadline=None)
@given(cases())
def test_writes_the_new_tokens_of_its_layer_and_not_a_byte_more(case: Case) -> None:
    batch, _, _, (after, before) = run(case)
    shape = (len(after), LAYERS, 2, KV_HEADS, case.page_size, DIM * 4)
    changed = (after != before).view(shape).any(-1)
    expected = torch.zeros_like(changed)
    expected[torch.from_numpy(batch.pages), 1, :, :, torch.from_numpy(batch.offsets)] = True
    assert torch.equal(changed, expected)


def test_bfloat16_is_as_near_as_its_format_allows() -> None:
    _, out, expected, _ = run(Case(8, [0, 50, 13, 77, 0], [20, 1, 1, 7, 1], seed=3), "bfloat16")
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.double(), expected, atol=2e-2)


@pytest.mark.parametrize(
    ("ends", "groups"),
    [
        ([4] * 8, 1),  # alike: one call
        ([1, 2, 3, 4], 1),  # little padding in all
        ([4, 4, 4, 400], 2),  # the long one would make the short ones as wide as itself
        ([1000, 1000, 1000], 1),
    ],
)
def test_contexts_of_like_length_share_a_call(ends: list[int], groups: int) -> None:
    book = layout(1)
    slices, first = [], 0
    for end in ends:
        slices.append(Slice(BlockTable(tuple(range(first, first + end))), end - 1, (1,)))
        first += end
    pool = torch.zeros(first, book.page_bytes, dtype=torch.uint8)
    step = SdpaGather(book, pool).prepare(pack(slices, Limits(first, 1, 10)))
    assert len(step.groups) == groups
    assert [group.first for group in step.groups][1:] == [group.last for group in step.groups][:-1]


def test_rows_are_packed_single_tokens_first_and_shortest_context_first() -> None:
    slices = [
        Slice(BlockTable((0, 1)), 2, (7, 8)),
        Slice(BlockTable((2, 3, 4)), 9, (5,)),
        Slice(BlockTable((5,)), 0, (6,)),
    ]
    batch = pack(slices, Limits(6, 4, 10))
    assert batch.order.tolist() == [2, 1, 0]
    assert batch.ids.tolist() == [[6, 5, 7, 8]]
    assert batch.positions.tolist() == [[0, 9, 2, 3]]
    assert batch.singles == 2
    assert np.array_equal(batch.pages, [5, 4, 0, 0])
    assert np.array_equal(batch.offsets, [0, 1, 2, 3])
