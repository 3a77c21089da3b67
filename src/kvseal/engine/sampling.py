"""From logits to tokens, for all rows of a batch at once.

A draw depends on (seed, index of the token, logits row) and on nothing else: not on the other rows, not on
how many there are.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import torch

from kvseal.core.sampling import SamplingParams

_CANDIDATES: Final = (
    1024  # sorted first for top_p; the whole vocabulary only where they do not reach the mass
)


class Draw(NamedTuple):
    """How one row's token is chosen; ``position`` is its place in the answer."""

    sampling: SamplingParams
    position: int


def finite_rows(logits: torch.Tensor) -> torch.Tensor:
    """bool [n]: which rows of [n, vocabulary] hold no NaN and no infinity (G8)."""
    # Both carry a NaN on; together they take a fiftieth of the time of torch.aminmax.
    return torch.isfinite(logits.amin(dim=-1)) & torch.isfinite(logits.amax(dim=-1))


def choose(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    """One token id for each row of ``logits`` ([n, vocabulary], all finite), chosen as ``draws`` says."""
    assert len(draws) == len(logits)
    tokens = torch.argmax(logits, dim=-1)
    drawn = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]
    whole = [row for row in drawn if draws[row].sampling.top_p >= 1]
    nucleus = [row for row in drawn if draws[row].sampling.top_p < 1]
    if whole:
        tokens[whole] = _draw_whole(_weights(logits, draws, whole), _uniform(draws, whole))
    if nucleus:
        share = torch.tensor([draws[row].sampling.top_p for row in nucleus], dtype=torch.float64)
        tokens[nucleus] = _draw_nucleus(_weights(logits, draws, nucleus), _uniform(draws, nucleus), share)
    return [int(token) for token in tokens.tolist()]


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) with 53 random bits, the same for the same (seed, index) on every machine."""
    bits = blake2b(f"{seed}:{index}".encode(), digest_size=8, person=b"kvseal-draw").digest()
    return (int.from_bytes(bits, "little") >> 11) * 2.0**-53


def _uniform(draws: Sequence[Draw], rows: list[int]) -> torch.Tensor:
    return torch.tensor(
        [uniform(draws[row].sampling.seed, draws[row].position) for row in rows], dtype=torch.float64
    )


def _weights(logits: torch.Tensor, draws: Sequence[Draw], rows: list[int]) -> torch.Tensor:
    """Unnormalised probabilities, float32 [len(rows), vocabulary]; the likeliest token has weight 1."""
    chosen = logits[rows].float()
    temperature = torch.tensor([draws[row].sampling.temperature for row in rows])[:, None]
    # The maximum is taken off first, so that a tiny temperature underflows to greedy and never overflows.
    return ((chosen - chosen.amax(dim=-1, keepdim=True)) / temperature).exp_()


def _draw_whole(weights: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Inverse of the cumulative distribution, in vocabulary order; [n] token ids."""
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    target = (number * cumulative[:, -1])[:, None]
    # The first token whose cumulative weight exceeds the target, so one of weight 0 is never drawn.
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_(max=weights.shape[1] - 1)


def _draw_nucleus(weights: torch.Tensor, number: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Draw from the fewest likeliest tokens that hold ``share`` of the whole weight; [n] token ids."""
    mass = share * weights.sum(dim=-1, dtype=torch.float64)
    candidates = min(_CANDIDATES, weights.shape[1])
    tokens, reached = _nucleus(*weights.topk(candidates, dim=-1), mass, number)
    # Each row takes the way that its own weights ask for, whatever its neighbours do.
    for row in torch.nonzero(reached < mass)[:, 0].tolist():
        if candidates < weights.shape[1]:
            only = slice(row, row + 1)
            ranked = weights[only].sort(dim=-1, descending=True, stable=True)
            tokens[row] = _nucleus(*ranked, mass[only], number[only])[0][0]
    return tokens


def _nucleus(
    ranked: torch.Tensor, ids: torch.Tensor, mass: torch.Tensor, number: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids drawn from weights ranked downwards ([n, k]), and the weight that all k reach."""
    cumulative = ranked.cumsum(dim=-1, dtype=torch.float64)
    last = (cumulative < mass[:, None]).sum(dim=-1).clamp_(max=ranked.shape[1] - 1)
    kept = cumulative.gather(1, last[:, None])
    place = torch.searchsorted(cumulative, number[:, None] * kept, right=True)
    place = torch.minimum(place, last[:, None])
    return ids.gather(1, place)[:, 0], cumulative[:, -1].contiguous()
