"""The canary of readiness (F19): a prompt, and what the prefill worker's own plain forward pass answers to
it.
"""

from collections.abc import Callable, Sequence

MIN_GAP = {
    "float32": 1e-3,
    "bfloat16": 0.25,
}  # logits; below it another order of summation may choose otherwise
_CANDIDATES = 4
_OUTPUT_TOKENS = 4
_PERIOD = 11


def make_canary(
    reference: Callable[[Sequence[int], int], tuple[Sequence[int], Sequence[float]]],
    vocabulary: int,
    prompt_tokens: int,
    dtype: str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A prompt of ``prompt_tokens`` ids and its greedy continuation, cut where the model is not sure of
    itself.

    ``reference(tokens, n)`` gives n greedy tokens and, for each, how far the runner-up lay behind, in logits.
    Of a few repeating prompts the one with the surest first token is taken. At least one token is compared in
    any case.
    """
    prompts = [
        tuple((1 + start + (i % _PERIOD) * (2 * start + 3) * 17) % vocabulary for i in range(prompt_tokens))
        for start in range(_CANDIDATES)
    ]
    prompt = max(prompts, key=lambda candidate: reference(candidate, 1)[1][0])
    tokens, gaps = reference(prompt, _OUTPUT_TOKENS)
    sure = next((i for i, gap in enumerate(gaps) if gap < MIN_GAP[dtype]), len(gaps))
    return prompt, tuple(tokens[: max(1, sure)])
