"""The engine: one packed forward pass for everything that is to be computed now.

::

    slices ──pack──> ids, positions, rows ──clear (G8)──> model ──attention writes, then reads pages──> logits
    ──> tokens

It knows nothing of tenants, leases or sockets: a slice carries a block table, which only a Readable can give
(G6).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from kvseal.core.batch import Slice, SliceResult
from kvseal.core.errors import InvariantViolation
from kvseal.core.sampling import SamplingParams
from kvseal.engine.attention import IMPLEMENTATION, AttentionKernel
from kvseal.engine.gather import SdpaGather
from kvseal.engine.packing import Limits, PackedBatch, pack, pages_to_clear, restore
from kvseal.engine.sampling import Draw, choose, finite_rows
from kvseal.layout import Layout
from kvseal.memory.native import fill_pages

GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one pass did, in the order of its slices."""

    results: tuple[SliceResult, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A greedy continuation by plain forward passes.

    ``gaps[i]`` is how far, in logits, the runner-up to ``tokens[i]`` lay behind it.
    """

    tokens: tuple[int, ...]
    gaps: tuple[float, ...]


class Engine:
    """A model and the pool that its attention writes and reads. Not thread-safe: one pass at a time."""

    def __init__(
        self,
        model: PreTrainedModel,
        layout: Layout,
        pool: NDArray[np.uint8],
        kernel: type[AttentionKernel] = SdpaGather,
    ) -> None:
        """``pool`` is uint8 [pages, layout.page_bytes], C-contiguous and writable; the engine keeps a view.

        Raises ValueError where model, layout, pool and kernel do not belong together.
        """
        _assert_pool(pool, layout)
        if model.config._attn_implementation != IMPLEMENTATION:
            raise ValueError(f"the model does not attend through {IMPLEMENTATION!r}: load it with load_model")
        if str(model.dtype) != f"torch.{layout.dtype}" or model.config.num_hidden_layers != layout.layers:
            raise ValueError(f"the model is of {model.dtype} with {model.config.num_hidden_layers} layers, "
                             f"the layout of {layout.dtype} with {layout.layers}")  # fmt: skip
        if kernel.inner_order != layout.inner_order:
            raise ValueError(
                f"the kernel {kernel.name} orders a block as {kernel.inner_order!r}, "
                f"the layout as {layout.inner_order!r}"
            )
        self.layout = layout
        self.attention = kernel.name
        """Name of the attention kernel, for the start table."""
        self.limits = Limits(len(pool), layout.page_size, model.config.vocab_size)
        self._model = model
        self._pool = pool
        self._kernel = kernel(layout, torch.from_numpy(pool))

    def run(self, slices: Sequence[Slice]) -> StepResult:
        """One forward pass over all slices, decode tokens and prefill chunks mixed.

        Keys and values of a slice's tokens go to positions ``start …`` of its block table; each token attends
        to its own sequence up to itself. Where a slice wants a token, one is chosen from its last token's
        logits. A row of logits that is not finite fails its own slice and no other (G12). Raises
        :class:`InvariantViolation`, before any byte is written, where a slice names pages or tokens that it
        cannot have.
        """
        if not slices:
            return StepResult(())
        batch = pack(slices, self.limits)
        cleared = pages_to_clear(slices, self.layout.page_size)
        if len(cleared):
            fill_pages(self._pool, cleared, 0)
        with torch.inference_mode():
            logits = self._forward(batch)
            tokens, finite = _choose(logits, [slices[i] for i in batch.order])
        # What the model was really given, by the rows of the pass, and not what the slices asked for (G5).
        used = batch.ids[0].numpy()
        written = [
            used[first:last].copy() for first, last in zip(batch.bounds, batch.bounds[1:], strict=False)
        ]
        packed = [SliceResult(*values) for values in zip(tokens, finite, written, strict=True)]
        return StepResult(tuple(restore(batch.order, packed)))

    def reference_greedy(self, tokens: Sequence[int], count: int) -> Reference:
        """``count`` greedy tokens after ``tokens``, without pages and without a cache.

        Each is a plain forward pass over the whole sequence, so it is for short prompts: the canary of
        readiness (F19).
        """
        sequence, gaps = list(tokens), []
        for _ in range(count):
            best, runner_up = self._plain(sequence, 1)[0].topk(2)
            gaps.append(float(best[0] - best[1]))
            sequence.append(int(runner_up[0]))
        return Reference(tuple(sequence[len(tokens) :]), tuple(gaps))

    def shortfalls(self, tokens: Sequence[int], continuation: Sequence[int]) -> tuple[float, ...]:
        """How far, in logits, each token of ``continuation`` lies behind the best one; 0 for the best.

        By one plain pass over ``tokens`` + ``continuation``. Shows that a continuation is greedy, or greedy
        up to ties: two passes of other shapes round differently, and in bfloat16 several per cent of all
        positions are exact ties.
        """
        if not continuation:
            return ()
        logits = self._plain([*tokens, *continuation], len(continuation) + 1)[:-1]
        mine = logits.gather(1, torch.tensor(continuation, dtype=torch.int64)[:, None])[:, 0]
        return tuple((logits.amax(dim=-1) - mine).tolist())

    def _forward(self, batch: PackedBatch) -> torch.Tensor:
        """Logits of each packed slice's last token, float32 [n, vocabulary].

        A chunk that wants no token has them too: they tell whether what it wrote is sound.
        """
        output = self._model(
            input_ids=batch.ids,
            position_ids=batch.positions,
            use_cache=False,
            logits_to_keep=torch.from_numpy(batch.last_rows),
            paged=self._kernel.prepare(batch),
        )
        # Everything after this is several times faster in float32 than in bfloat16.
        logits: torch.Tensor = output.logits[0].float()
        return logits

    def _plain(self, tokens: Sequence[int], last: int) -> torch.Tensor:
        """Logits of the ``last`` positions of ``tokens``, float32 [last, vocabulary]; touches no page."""
        if not tokens:
            raise InvariantViolation("a forward pass needs at least one token")
        with torch.inference_mode():
            output = self._model(input_ids=torch.tensor([list(tokens)]), use_cache=False, logits_to_keep=last)
        logits: torch.Tensor = output.logits[0].float()
        return logits


def _choose(logits: torch.Tensor, slices: Sequence[Slice]) -> tuple[list[int | None], list[bool]]:
    """Token and finiteness of each packed slice; no token where none is wanted or its row is not finite."""
    finite = [bool(value) for value in finite_rows(logits).tolist()]
    wanted = [i for i, item in enumerate(slices) if item.sampling is not None and finite[i]]
    tokens: list[int | None] = [None] * len(slices)
    if wanted:
        draws = [Draw(slices[i].sampling or GREEDY, slices[i].draw) for i in wanted]
        rows = logits if len(wanted) == len(slices) else logits[wanted]
        for i, token in zip(wanted, choose(rows, draws), strict=True):
            tokens[i] = token
    return tokens, finite


def _assert_pool(pool: NDArray[np.uint8], layout: Layout) -> None:
    if pool.dtype != np.uint8 or pool.ndim != 2 or pool.shape[1] != layout.page_bytes or not len(pool):
        raise ValueError(
            f"the pool must be uint8 [pages, {layout.page_bytes}], got {pool.dtype} {pool.shape}"
        )
    if not (pool.flags.c_contiguous and pool.flags.writeable):
        raise ValueError("the pool must be contiguous and writable")
