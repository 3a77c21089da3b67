"""The stories that show what a second line is for: a restricted world, built around one class of fault.

For each: without the guards that stand before it (``behind``) the guard still holds in as many seeds as it
takes to find a violation, many times over, without the guard as well.

How "behind" is to be read: the design calls G1 and G2 second lines behind G5 + G6. In this code they also
stand behind each other and behind G8. A prompt that is too long for prefill leaks only if nobody compared
pool and context (G1), the refusal went on as data (G2), the placeholder's page was accepted (G5), what
arrived counted for all (G6), and the rest of the pages held what earlier requests had left there (G8). Take
any one of the five back, and nothing leaks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.simulation.faults import Fault
from tests.simulation.setup import PAGE_SIZE, TENANTS, Ask, Cluster, Setup, asks_of, prompt_of

INCIDENT: Final = ("G1", "G2", "G5", "G6", "G8")


@dataclass(frozen=True, slots=True)
class Story:
    """``make`` turns a seed into a world; ``behind`` are the removals that the guard must hold without."""

    guard: str
    title: str
    behind: tuple[str, ...]
    make: Callable[[int], Setup]

    @property
    def source(self) -> str:
        """For the runner, which sends names and not functions between processes."""
        return f"{__name__}:{self.make.__name__}"


def premature_start(seed: int) -> Setup:
    """Decode reads pages that were leased and never filled; nothing else is wrong (G8 behind G6)."""
    rng = Random(seed * 4 + 1)
    cluster = Cluster(decode_pages=(6, 6), prefill_pages=(6, 6), chunk_tokens=4, reuse=rng.random() < 0.5)
    rates = {Fault.BURST: 1.0, Fault.GONE: 1.0} if rng.random() < 0.5 else {Fault.SLOW_STEP: 0.1}
    return Setup(seed, cluster, asks=asks_of(rng, cluster, rates, count=6), rates=rates, heal_s=1.5)


def prompt_over_pool(seed: int) -> Setup:
    """The incident: one prefill pool is smaller than the advertised context, and some prompts do not fit it.

    Every prompt is computed in one chunk and nothing is reused, so that a request that fits is whole when
    something of it has arrived.
    """
    rng = Random(seed * 4 + 1)
    small = rng.randint(3, 6)
    cluster = Cluster(
        decode_pages=(12, 12),
        prefill_pages=(10, small),
        context=10 * PAGE_SIZE,
        chunk_tokens=64,
        reuse=False,
        waits_for=(1, 2),
    )
    asks = []
    for number in range(6):
        length = rng.choice(
            (rng.randint(2, small * PAGE_SIZE - 3), rng.randint(2, 36), small * PAGE_SIZE + 2)
        )
        tenant = TENANTS[rng.randrange(2)]
        asks.append(
            Ask(f"r{number}", rng.random(), tenant, prompt_of(rng.randrange(3), length), rng.randint(1, 3))
        )
    return Setup(seed, cluster, asks=tuple(asks), heal_s=2.0)


def _without(guard: str) -> tuple[str, ...]:
    return tuple(other for other in INCIDENT if other != guard)


STORIES: Final = (
    Story("G1", "a prompt longer than one prefill pool", _without("G1"), prompt_over_pool),
    Story("G2", "a prompt longer than one prefill pool", _without("G2"), prompt_over_pool),
    Story("G8", "decoding starts before its pages have come", ("G6:all",), premature_start),
)
