"""What one forward pass runs: slices of sequences, each with a block table that only a Readable can give."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvseal.core.leases import BlockTable
from kvseal.core.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive tokens of one sequence in one forward pass.

    ::

        position   0 … start-1 | start … start+len(tokens)-1
                   in the pages | written by this pass, after the pages of ``clear`` were zeroed

    ``sampling`` None means that no token is wanted (a prefill chunk). ``draw`` is the index, in the answer,
    of the token to be drawn: a seeded draw depends on it and on nothing else. ``clear`` are the pages that
    this pass writes first (G8).
    """

    table: BlockTable
    start: int
    tokens: tuple[int, ...]
    sampling: SamplingParams | None = None
    draw: int = 0
    clear: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What the pass did for one slice.

    ``written`` are the token ids that the pass *really used as input* for the slots it wrote, int64 of shape
    [len(tokens)], read back from the model's input and not copied from the Slice: page ids are derived from
    them (G5). ``finite`` is False where the logits row is not finite; then there is no token (G8).
    """

    token: int | None
    finite: bool
    written: NDArray[np.int64]
