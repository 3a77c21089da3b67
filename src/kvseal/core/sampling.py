"""How the next token is chosen. Sampling happens in one place, the decode worker."""

import msgspec


class SamplingParams(msgspec.Struct, frozen=True):
    """``temperature`` 0 is greedy. ``top_p`` in (0, 1]. ``seed`` fixes every draw; a shell always fills it
    in, so that a draw depends on (seed, index of the token) and on nothing else.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
