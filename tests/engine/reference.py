"""What the engine is compared with: transformers' own model, attention and cache, one pass for each token."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import DynamicCache, PreTrainedModel


class Greedy(NamedTuple):
    """A greedy continuation; ``gaps[i]`` is how far, in logits, the second best lay behind ``tokens[i]``."""

    tokens: list[int]
    gaps: list[float]


def greedy(model: PreTrainedModel, prompt: Sequence[int], count: int) -> Greedy:
    """``count`` tokens after ``prompt``, with the cache that transformers brings.

    The attention mask is always passed: without it, transformers masks every token of a prompt that equals
    the padding token, and with SmolLM2 that is the end-of-turn marker.
    """
    ids = torch.tensor([list(prompt)])
    mask = torch.ones_like(ids)
    cache = DynamicCache(config=model.config)
    tokens: list[int] = []
    gaps: list[float] = []
    with torch.inference_mode():
        for _ in range(count):
            output = model(input_ids=ids, attention_mask=mask, cache=cache, use_cache=True, logits_to_keep=1)
            values, best = output.logits[0, -1].float().topk(2)
            tokens.append(int(best[0]))
            gaps.append(float(values[0] - values[1]))
            ids = best[:1][None]
            mask = torch.cat((mask, torch.ones_like(ids)), dim=1)
    return Greedy(tokens, gaps)


def assert_equal_up_to_ties(mine: Sequence[int], theirs: Greedy, noise: float) -> None:
    """Token for token equal; where they part, the reference's two best lie within ``noise`` (a tie)."""
    for place, (token, expected, gap) in enumerate(zip(mine, theirs.tokens, theirs.gaps, strict=True)):
        if token != expected:
            assert gap <= noise, f"token {place} is {token}, not {expected}, and the gap of {gap} is no tie"
            return  # after a tie the two continue different texts
