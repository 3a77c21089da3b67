"""The native kernels against attention written out in float64, against `sdpa-gather`, and in whole models.

Every level that this processor has is tested by naming it; the last one runs everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.engine.conftest import Pair
from tests.engine.families import CONFIGS, VOCABULARY
from tests.engine.reference import assert_equal_up_to_ties, greedy
from tests.engine.rig import Rig, layout_of, serve

from kvseal.core.batch import Slice
from kvseal.core.leases import BlockTable
from kvseal.engine import (
    AttentionKernel,
    KernelUnavailable,
    SdpaGather,
    choose_kernel,
    native_attention,
    native_kernels,
)
from kvseal.engine.packing import Limits, PackedBatch, pack
from kvseal.layout import KEYS_IN_ROWS, KEYS_IN_WORDS, Layout, Segment, item_bytes

KERNELS = native_kernels()
pytestmark = pytest.mark.skipif(not KERNELS, reason="the extension was not built here")
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)

LAYERS, LAYER = 2, 1
SCALE = 0.31


@dataclass(frozen=True)
class Heads:
    kv_heads: int
    group: int
    dim: int


@dataclass(frozen=True)
class Case:
    """Contexts of ``starts[i]`` tokens that get ``counts[i]`` more, in pages of a poisoned pool."""

    page_size: int
    heads: Heads
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    seed: int = 0


MIXED = ((0, 1, 15, 16, 40, 200, 130, 300, 0, 129), (1, 1, 1, 1, 1, 1, 70, 33, 50, 2))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    number = draw(st.integers(1, 6))
    heads = Heads(draw(st.integers(1, 3)), draw(st.integers(1, 8)), draw(st.sampled_from([2, 8, 20, 64])))
    starts = draw(st.lists(st.integers(0, 150), min_size=number, max_size=number))
    counts = draw(st.lists(st.sampled_from([1, 1, 1, 2, 7, 40]), min_size=number, max_size=number))
    page_size = draw(st.sampled_from([1, 3, 8, 16, 24, 32]))
    return Case(page_size, heads, tuple(starts), tuple(counts), draw(st.integers(0, 99)))


def layout(case: Case, dtype: str, inner_order: str = KEYS_IN_WORDS) -> Layout:
    heads = case.heads
    return Layout(
        adapter="gqa",
        model_digest=bytes(16),
        page_size=case.page_size,
        dtype=dtype,
        layers=LAYERS,
        kv_heads=heads.kv_heads,
        head_dim=heads.dim,
        rope="{}",
        inner_order=inner_order,
        segments=(Segment("kv", tuple(range(LAYERS)), (2, heads.kv_heads, heads.dim), dtype),),
    )


def turned(pool: torch.Tensor, book: Layout) -> torch.Tensor:
    """A pool of KEYS_IN_ROWS as one of KEYS_IN_WORDS."""
    words = book.head_dim * item_bytes(book.dtype) // 4
    blocks = pool.view(torch.int32).view(-1, book.layers, 2, book.kv_heads, book.page_size * words).clone()
    keys = blocks[:, :, 0].view(-1, book.layers, book.kv_heads, book.page_size, words)
    blocks[:, :, 0] = keys.transpose(3, 4).flatten(3)
    return blocks.view(len(pool), -1).view(torch.uint8)


@dataclass(frozen=True)
class Trial:
    """A batch, what the model would hand over, and the pool before the pass, keys in rows."""

    case: Case
    dtype: str
    batch: PackedBatch
    pool: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    expected: NDArray[np.float64]

    def run(self, kernel: type[AttentionKernel]) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and pool."""
        book = layout(self.case, self.dtype, kernel.inner_order)
        pool = self.pool.clone() if kernel is SdpaGather else turned(self.pool, book)
        step = kernel(book, pool).prepare(self.batch)
        return step.attend(LAYER, self.query, self.key, self.value, SCALE), pool


def trial(case: Case, dtype: str = "float32") -> Trial:
    torch.manual_seed(case.seed)
    book, heads = layout(case, dtype, KEYS_IN_ROWS), case.heads
    kind: torch.dtype = getattr(torch, dtype)
    sizes = [book.pages_for(start + count) for start, count in zip(case.starts, case.counts, strict=True)]
    pool = torch.full((sum(sizes) + 3, book.page_bytes), 0xFF, dtype=torch.uint8)
    view = pool.view(kind).view(len(pool), LAYERS, 2, heads.kv_heads, case.page_size, heads.dim)
    free = torch.randperm(len(pool)).tolist()
    slices, pasts = [], []
    for start, count, size in zip(case.starts, case.counts, sizes, strict=True):
        pages = [free.pop() for _ in range(size)]
        past = torch.randn(2, heads.kv_heads, start, heads.dim).to(kind)
        for at in range(start):
            view[pages[at // case.page_size], LAYER, :, :, at % case.page_size] = past[:, :, at]
        slices.append(Slice(BlockTable(tuple(pages)), start, tuple(range(count))))
        pasts.append(past)
    batch = pack(slices, Limits(len(pool), case.page_size, 1000))
    rows = batch.ids.shape[1]
    # As a model hands them over: queries are a transposed view.
    query = torch.randn(1, rows, heads.kv_heads * heads.group, heads.dim).to(kind).transpose(1, 2)
    key, value = torch.randn(2, 1, heads.kv_heads, rows, heads.dim).to(kind)
    expected = np.empty((1, rows, query.shape[1], heads.dim))
    for packed, index in enumerate(batch.order.tolist()):
        first, last = int(batch.bounds[packed]), int(batch.bounds[packed + 1])
        new = torch.stack((key[0, :, first:last], value[0, :, first:last]))
        mine = torch.cat((pasts[index], new), dim=2).double().numpy()
        expected[0, first:last] = written_out(query[0, :, first:last].double().numpy(), mine, heads.group)
    return Trial(case, dtype, batch, pool, query, key, value, expected)


def written_out(query: NDArray[np.float64], past: NDArray[np.float64], group: int) -> NDArray[np.float64]:
    """Attention of the last tokens; query [heads, rows, dim], past [2, kv_heads, tokens, dim]."""
    keys, values = np.repeat(past, group, axis=1)
    scores = query @ keys.transpose(0, 2, 1) * SCALE
    rows, tokens = scores.shape[1:]
    scores[:, np.triu(np.ones((rows, tokens), dtype=bool), tokens - rows + 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    attended: NDArray[np.float64] = (weights / weights.sum(-1, keepdims=True)) @ values
    return attended.transpose(1, 0, 2)


def error(out: torch.Tensor, expected: NDArray[np.float64]) -> float:
    """Largest difference, relative to the largest number of the result."""
    return float(np.abs(out.double().numpy() - expected).max() / np.abs(expected).max())


@each_kernel
@settings(max_examples=40, deadline=None)
@given(cases())
def test_equals_attention_written_out(kernel: type[AttentionKernel], case: Case) -> None:
    tried = trial(case)
    assert error(tried.run(kernel)[0], tried.expected) < 2e-6


# Inputs are bfloat16 for both and sums are float32: what is left is the rounding of the result to 8 bits of
# mantissa: half a unit in the last place, 2**-8 at most, relative to each number.
@each_kernel
@settings(max_examples=40, deadline=None)
@given(cases())
def test_bfloat16_differs_by_the_rounding_of_its_result_alone(
    kernel: type[AttentionKernel], case: Case
) -> None:
    tried = trial(case, "bfloat16")
    out = tried.run(kernel)[0]
    assert out.dtype == torch.bfloat16
    assert np.all(np.abs(out.double().numpy() - tried.expected) <= 2**-8 * np.abs(tried.expected) + 2e-6)


@each_kernel
@pytest.mark.parametrize("page_size", [16, 32, 5])
@pytest.mark.parametrize("dim", [64, 80, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_equals_the_gather_kernel(
    kernel: type[AttentionKernel], page_size: int, dim: int, dtype: str
) -> None:
    tried = trial(Case(page_size, Heads(2, 3, dim), *MIXED), dtype)
    out, pool = tried.run(kernel)
    theirs, their_pool = tried.run(SdpaGather)
    # sdpa rounds its weights to bfloat16 too; ours stay float32.
    assert error(out, theirs.double().numpy()) < (2e-5 if dtype == "float32" else 2e-2)
    assert torch.equal(pool, turned(their_pool, layout(tried.case, dtype)))


@each_kernel
@settings(max_examples=20, deadline=None)
@given(cases(), st.sampled_from(["float32", "bfloat16"]))
def test_writes_the_new_tokens_of_its_layer_and_not_a_byte_more(
    kernel: type[AttentionKernel], case: Case, dtype: str
) -> None:
    tried = trial(case, dtype)
    book, heads = layout(case, dtype), case.heads
    expected = tried.pool.clone()
    view = expected.view(tried.key.dtype).view(-1, LAYERS, 2, heads.kv_heads, case.page_size, heads.dim)
    pages, offsets = torch.from_numpy(tried.batch.pages), torch.from_numpy(tried.batch.offsets)
    view[pages, LAYER, 0, :, offsets] = tried.key[0].transpose(0, 1)
    view[pages, LAYER, 1, :, offsets] = tried.value[0].transpose(0, 1)

    assert torch.equal(tried.run(kernel)[1], turned(expected, book))


@each_kernel
@pytest.mark.parametrize("place", ["query", "key", "value"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_number_that_is_not_finite_reaches_the_result_of_its_sequence_and_of_no_other(
    kernel: type[AttentionKernel], place: str, dtype: str
) -> None:
    """G8: swallowed by a maximum or a mask, it would become a fluent wrong answer."""
    tried = trial(Case(16, Heads(1, 3, 64), (40, 40, 200), (1, 1, 1)), dtype)
    tensor: torch.Tensor = getattr(tried, place)
    tensor[0, 0, 1, 5] = torch.nan
    out = tried.run(kernel)[0]
    assert out[0, 1].isnan().any()
    assert out[0, [0, 2]].isfinite().all()


@each_kernel
def test_large_scores_do_not_overflow(kernel: type[AttentionKernel]) -> None:
    tried = trial(Case(16, Heads(2, 3, 64), (200, 0), (1, 60)))
    tried.query.mul_(1e4)
    out = tried.run(kernel)[0]
    assert out.isfinite().all()


@each_kernel
def test_more_threads_change_no_bit(kernel: type[AttentionKernel]) -> None:
    tried = trial(Case(16, Heads(3, 3, 64), *MIXED))
    alone = tried.run(kernel)[0]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        together = [tried.run(kernel)[0] for _ in range(5)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(alone, other) for other in together)


@each_kernel
@pytest.mark.parametrize("page_size", [16, 5])
@pytest.mark.parametrize("name", CONFIGS)
def test_models_answer_as_plain_transformers_does(
    pair: Callable[[str], Pair], kernel: type[AttentionKernel], name: str, page_size: int
) -> None:
    both = pair(name)
    rig = Rig(both.model, layout_of(both.folder, page_size, kernel=kernel), kernel=kernel)
    assert rig.engine.attention == kernel.name
    asked = [[(7 * i + i * i + length) % VOCABULARY for i in range(length)] for length in (1, 16, 17, 50, 64)]

    answers = serve(rig, asked, 8, chunk=16, arrives=lambda i: (i * 7) % 5)

    for prompt, answer in zip(asked, answers, strict=True):
        assert_equal_up_to_ties(answer, greedy(both.plain, prompt, 8), 1e-5)


@each_kernel
@pytest.mark.parametrize(
    ("bounds", "ends", "pages", "error"),
    [
        ([0, 1], [17], [0, 9], IndexError),  # page 9 of 4
        ([0, 1], [17], [0, -1], IndexError),
        ([0, 1], [17], [0], ValueError),  # two pages are needed
        ([0, 1], [16], [0, 1], ValueError),  # one is
        ([0, 2], [1], [0], ValueError),  # more rows than tokens
        ([0, 0], [1], [0], ValueError),
        ([1, 2], [1], [0], ValueError),
        ([0, 1, 2], [1], [0], ValueError),
        ([0], [], [], ValueError),
    ],
)
def test_a_batch_that_the_pool_cannot_hold_is_refused(
    kernel: Any, bounds: list[int], ends: list[int], pages: list[int], error: type[Exception]
) -> None:
    """Second line behind the packing: C must never be led outside the pool."""
    book = layout(Case(16, Heads(1, 1, 8), (), ()), "float32")
    made = kernel(book, torch.zeros(4, book.page_bytes, dtype=torch.uint8))
    with pytest.raises(error):
        native_attention._attention.prepare(
            made._kernel, *(np.array(values, dtype=np.int64) for values in (bounds, ends, pages))
        )


def test_the_best_native_kernel_is_chosen() -> None:
    assert choose_kernel("auto", 64, "bfloat16") is KERNELS[0]
    assert choose_kernel("native", 80, "float32").name.startswith("native-")
    assert choose_kernel("sdpa", 64, "float32") is SdpaGather


def test_heads_that_are_not_made_of_words_are_refused_by_name() -> None:
    assert choose_kernel("auto", 65, "bfloat16") is SdpaGather
    with pytest.raises(KernelUnavailable, match=r"heads of 65 bfloat16 numbers"):
        choose_kernel("native", 65, "bfloat16")
    assert choose_kernel("native", 65, "float32") is not SdpaGather


def test_without_the_extension_sdpa_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_attention, "_attention", None)
    assert choose_kernel("auto", 64, "bfloat16") is SdpaGather
    with pytest.raises(KernelUnavailable, match=r"no C compiler"):
        choose_kernel("native", 64, "bfloat16")


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no level 'sse9'"):
        native_attention._attention.open(np.zeros((1, 64), np.uint8), "sse9", 1, 1, 8, 1, 4, 1)
