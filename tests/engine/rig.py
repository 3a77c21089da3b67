"""An engine over a pool whose every byte is 0xFF, which is NaN in every dtype, and sequences in it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from kvseal.core.batch import Slice
from kvseal.core.ids import AttemptKey, RequestId, TenantId
from kvseal.core.leases import Lease
from kvseal.core.pages import Pins
from kvseal.core.sampling import SamplingParams
from kvseal.engine import AttentionKernel, Engine, SdpaGather, StepResult
from kvseal.layout import Layout, from_config, read_config

GREEDY: Final = SamplingParams()


def layout_of(
    folder: Path, page_size: int, dtype: str = "float32", kernel: type[AttentionKernel] = SdpaGather
) -> Layout:
    return from_config(
        read_config(folder),
        page_size=page_size,
        dtype=dtype,
        model_digest=bytes(16),
        inner_order=kernel.inner_order,
    )


class Rig:
    """Hands out pages in a shuffled order, so that no table is contiguous or sorted."""

    def __init__(
        self,
        model: PreTrainedModel,
        layout: Layout,
        *,
        pages: int = 96,
        seed: int = 1,
        kernel: type[AttentionKernel] = SdpaGather,
    ) -> None:
        self.layout = layout
        self.pool: NDArray[np.uint8] = np.full((pages, layout.page_bytes), 0xFF, dtype=np.uint8)
        self.engine = Engine(model, layout, self.pool, kernel)
        self._free = np.random.default_rng(seed).permutation(pages).tolist()

    def sequence(self, prompt: Sequence[int], room: int = 0) -> "Sequence_":
        pages = [self._free.pop() for _ in range(self.layout.pages_for(len(prompt) + room))]
        return Sequence_(self.layout.page_size, list(prompt), pages)


class Sequence_:  # noqa: N801 - `Sequence` is taken
    """One sequence with a lease of its own. ``tokens`` grows with each token that the engine chooses."""

    def __init__(self, page_size: int, prompt: list[int], pages: list[int]) -> None:
        self.prompt_tokens = len(prompt)
        self.tokens = prompt
        self.pages = pages
        pins = Pins(np.array(pages, dtype=np.int64), np.ones(len(pages), dtype=np.uint64))
        self.lease = Lease(AttemptKey(RequestId("r"), 0), TenantId("t"), pins, page_size)

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.prompt_tokens :]

    def next(self, most: int = 10_000, sampling: SamplingParams = GREEDY) -> Slice:
        """The next ``most`` tokens at most; a token is wanted where they reach the end."""
        start = self.lease.extent
        end = min(start + most, len(self.tokens))
        readable = self.lease.readable(start)
        assert readable is not None
        table, _, clear = readable.block_table(end - start)
        wanted = sampling if end == len(self.tokens) else None
        return Slice(table, start, tuple(self.tokens[start:end]), wanted, end - self.prompt_tokens, clear)

    def take(self, item: Slice, token: int | None) -> None:
        self.lease.append(item.start, len(item.tokens))
        if token is not None:
            self.tokens.append(token)


def step(rig: Rig, sequences: Sequence[Sequence_], most: int = 10_000) -> StepResult:
    """One pass over the next slice of each sequence."""
    slices = [sequence.next(most) for sequence in sequences]
    result = rig.engine.run(slices)
    for sequence, item, outcome in zip(sequences, slices, result.results, strict=True):
        assert outcome.finite
        assert outcome.written.tolist() == list(item.tokens)
        assert (outcome.token is None) == (item.sampling is None)
        sequence.take(item, outcome.token)
    return result


def serve(
    rig: Rig, prompts: Sequence[Sequence[int]], answer: int, chunk: int, arrives: Callable[[int], int]
) -> list[list[int]]:
    """Continuous batching: prompt ``i`` joins at step ``arrives(i)``; chunks and tokens share each pass."""
    sequences = [rig.sequence(prompt, room=answer) for prompt in prompts]
    now = 0
    while any(len(sequence.answer) < answer for sequence in sequences):
        running = [
            sequence
            for i, sequence in enumerate(sequences)
            if arrives(i) <= now and len(sequence.answer) < answer
        ]
        if running:
            step(rig, running, chunk)
        now += 1
    return [sequence.answer for sequence in sequences]
