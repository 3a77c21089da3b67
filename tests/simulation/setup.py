"""What one world is made of. A seed becomes a Setup, a Setup becomes a run: all randomness of shape is here.

Shrinking works on the Setup: fewer requests, fewer kinds of fault, single faults left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.simulation.faults import Fault, Rates, swarm

PAGE_SIZE: Final = 4
FAMILIES: Final = 3  # prompts share prefixes, inside a tenant and across tenants
TENANTS: Final = ("ann", "bob", "cyd")

NETWORK: Final = (Fault.DELAY, Fault.CUT, Fault.STALE)
HOSTILE: Final = (Fault.LOSS, Fault.DUPLICATE, Fault.REORDER)  # never on the real wire; safe all the same
CORRUPTION: Final = (Fault.TORN, Fault.MISSING, Fault.MISPLACED, Fault.WRONG_PAGE, Fault.FLIP)
READS: Final = (*CORRUPTION, Fault.LATE, Fault.SCATTERED, Fault.AFTER_ERROR, Fault.FAILED, Fault.STALLED)
PLANNED: Final = (
    Fault.CRASH_DECODE,
    Fault.CRASH_PREFILL,
    Fault.CRASH_GATEWAY,
    Fault.MISFIT,
    Fault.DRAIN,
    Fault.CLOCK_FORWARD,
    Fault.CLOCK_BACK,
    Fault.SOURCE_WRITE,
    Fault.REMOTE_WRITE,
    Fault.REST_FLIP,
)
ENGINE: Final = (
    Fault.STEP_RAISES,
    Fault.NAN_LOGITS,
    Fault.WRONG_TOKENS,
    Fault.SLOW_STEP,
    Fault.LATE_BEGIN,
    Fault.SLOW_DIGEST,
    Fault.NO_PAGES,
    Fault.REFUSED,
)
CLIENTS: Final = (Fault.GONE, Fault.DEADLINE, Fault.SLOW_READER, Fault.OVER_LENGTH, Fault.EMPTY, Fault.BURST)
ALL: Final = (*NETWORK, *HOSTILE, *READS, *PLANNED, *ENGINE, *CLIENTS)

# Faults that hurt together. A guard is often the last thing between two of them.
THEMES: Final = (
    (Fault.LATE, Fault.AFTER_ERROR, Fault.GONE, Fault.STALLED),
    (Fault.LATE, Fault.CUT, Fault.CRASH_PREFILL, Fault.DEADLINE),
    (Fault.SLOW_STEP, Fault.LATE_BEGIN, Fault.GONE, Fault.BURST),
    (Fault.SLOW_STEP, Fault.SLOW_DIGEST, *CORRUPTION),
    (Fault.REST_FLIP, Fault.SOURCE_WRITE, Fault.REMOTE_WRITE),
    (*HOSTILE, Fault.DELAY),
    (*HOSTILE, Fault.STALE, Fault.GONE),
    (Fault.CRASH_DECODE, Fault.CRASH_PREFILL, Fault.CRASH_GATEWAY, Fault.STALE),
    (Fault.CLOCK_FORWARD, Fault.CLOCK_BACK, Fault.DELAY),
    (Fault.OVER_LENGTH, Fault.NO_PAGES, Fault.MISFIT, Fault.BURST),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One client's request, and what the client does.

    ``gone_after`` counts the events in the life of the request after which the client vanishes: it walks
    through every step. ``stop_at`` is the index of the token in which the gateway finds a stop string.
    """

    name: str
    at_s: float
    tenant: str
    prompt: tuple[int, ...]
    max_tokens: int
    follows: str = ""  # the prompt goes on from this request's prompt and answer
    stop_after: int | None = None  # the answer's token of this index is a stop id
    stop_at: int | None = None
    gone_after: int | None = None
    gone_at_pass: int | None = None  # ... or when this pass of its is planned
    deadline_s: float | None = None
    reads_every_s: float = 0.0
    gateway: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The processes and what they were configured with. Sizes in pages, times in virtual seconds."""

    decode_pages: tuple[int, ...] = (12, 12)
    prefill_pages: tuple[int, ...] = (12, 12)
    reserve_pages: int = 0
    gateways: int = 1
    context: int | None = None
    reuse: bool = True
    chunk_tokens: int = 8
    retries: int = 1
    max_batch: int = 8
    max_requests: int = 64
    max_open: int = 64
    max_waiting: int = 64
    quarantine_pages: int = 2
    peer_cap_pages: int = 1 << 40
    prefill_timeout_s: float = 20.0
    queue_timeout_s: float = 30.0
    hold_s: float = 30.0
    resend_s: float = 1.0
    waits_for: tuple[int, int] | None = None  # prefill and decode workers at start; None: all there are


@dataclass(frozen=True, slots=True)
class Pace:
    """Upper ends of how long things take, in virtual seconds; each time is drawn between nothing and this."""

    message_s: float = 0.004
    read_s: float = 0.010
    digest_s: float = 0.004
    step_s: float = 0.020
    notice_s: float = 0.200  # until a lost connection is seen
    connect_s: float = 0.050
    restart_s: float = 0.500


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that determines a run."""

    seed: int
    cluster: Cluster = field(default_factory=Cluster)
    pace: Pace = field(default_factory=Pace)
    asks: tuple[Ask, ...] = ()
    rates: Rates = field(default_factory=dict)
    suppress: frozenset[tuple[Fault, int]] = frozenset()
    heal_s: float = 3.0
    codec: bool = False  # messages go through the bytes of the wire
    salt: int = 0  # other draws for the same world: shrinking tries some

    @property
    def kinds(self) -> tuple[Fault, ...]:
        """The faults of this world."""
        return tuple(self.rates)


def prompt_of(family: int, length: int) -> tuple[int, ...]:
    """Prompts of a family are prefixes of one text; families differ in every token."""
    return tuple(10 + family * 100 + i % 100 for i in range(length))


def from_seed(seed: int) -> Setup:
    """The swarm: any cluster, any faults, any clients."""
    rng = Random(seed * 4 + 1)
    rates = _rates(rng)
    cluster = _cluster(rng)
    pace = Pace() if rng.random() < 0.5 else Pace(*(0.002 * 50.0 ** rng.random() for _ in range(7)))
    return Setup(
        seed,
        cluster,
        pace,
        asks_of(rng, cluster, rates),
        rates,
        heal_s=1.0 + 3.0 * rng.random(),
        codec=rng.random() < 0.05,
    )


def _rates(rng: Random) -> dict[Fault, float]:
    """Some worlds are quiet. The others have a theme, often, and a few more faults."""
    kind = rng.random()
    if kind < 0.05:
        return {}
    if kind < 0.65:
        theme = THEMES[rng.randrange(len(THEMES))]
        rates = swarm(rng, ALL, 0.1) | {fault: 0.05 * 10.0 ** rng.random() for fault in theme}
    else:
        rates = swarm(rng, ALL, 0.3)
    if rng.random() < 0.5:
        for fault in HOSTILE:  # most worlds have the wire that we really build
            rates.pop(fault, None)
    return rates


def _cluster(rng: Random) -> Cluster:
    pages = [rng.randint(5, 10) for _ in range(4)]
    return Cluster(
        decode_pages=(pages[0], pages[1]),
        prefill_pages=(pages[2], pages[3]),
        reserve_pages=rng.choice((0, 0, 1)),
        gateways=rng.choice((1, 1, 1, 2)),
        reuse=rng.random() < 0.7,
        chunk_tokens=rng.choice((3, 4, 8, 16)),
        retries=rng.choice((0, 1, 1, 2)),
        max_batch=rng.choice((1, 2, 8)),
        max_requests=rng.choice((1, 64, 64, 64)),
        max_open=rng.choice((2, 64, 64, 64)),
        max_waiting=rng.choice((1, 64, 64, 64)),
        quarantine_pages=rng.choice((0, 1, 2)),
        peer_cap_pages=rng.choice((2, 1 << 40, 1 << 40)),
        prefill_timeout_s=rng.choice((0.2, 2.0, 20.0)),
        queue_timeout_s=rng.choice((0.3, 3.0, 30.0)),
        hold_s=rng.choice((0.3, 3.0, 30.0)),
        resend_s=rng.choice((0.1, 1.0)),
    )


def usable_tokens(cluster: Cluster) -> int:
    """The context of a cluster that advertises what the smallest pool holds."""
    smallest = min(*cluster.decode_pages, *cluster.prefill_pages)
    return (smallest - cluster.reserve_pages) * PAGE_SIZE


def asks_of(rng: Random, cluster: Cluster, rates: Mapping[Fault, float], count: int = 0) -> tuple[Ask, ...]:
    """The clients of one world."""
    context = usable_tokens(cluster)
    span = 0.01 if Fault.BURST in rates else 0.8 * rng.random() ** 2
    asks: list[Ask] = []
    for number in range(count or rng.randint(3, 7)):
        length, wanted = _sizes(rng, context, rates)
        previous = asks[rng.randrange(len(asks))] if asks and rng.random() < 0.2 else None
        tenant = previous.tenant if previous else TENANTS[rng.randrange(3 if rng.random() < 0.3 else 2)]
        ask = Ask(
            f"r{number}",
            span * rng.random() if previous is None else span + 0.3 * rng.random(),
            tenant,
            prompt_of(rng.randrange(FAMILIES), length),
            wanted,
            previous.name if previous else "",
            stop_after=rng.randrange(wanted) if wanted and rng.random() < 0.15 else None,
            stop_at=rng.randrange(wanted) if wanted and rng.random() < 0.15 else None,
            gateway=rng.randrange(cluster.gateways),
        )
        asks.append(_behaviour(rng, ask, rates))
    return tuple(asks)


def _sizes(rng: Random, context: int, rates: Mapping[Fault, float]) -> tuple[int, int]:
    if Fault.EMPTY in rates and rng.random() < 0.2:
        return 0, 1
    if Fault.OVER_LENGTH in rates and rng.random() < 0.3:
        around = context + rng.choice((-PAGE_SIZE, -2, -1, 0, 1, 2, PAGE_SIZE))
        return max(1, around), rng.choice((0, 1, 2, PAGE_SIZE))
    wanted = 1 + int(4 * rng.random() ** 2) if rng.random() < 0.8 else 6
    wanted = min(wanted, context - 1)
    longest = context - wanted
    whole = 1 + PAGE_SIZE * rng.randint(0, (longest - 1) // PAGE_SIZE)  # all that is loaded are full pages
    return rng.choice((1, rng.randint(1, longest), rng.randint(1, longest), whole, longest)), wanted


def _behaviour(rng: Random, ask: Ask, rates: Mapping[Fault, float]) -> Ask:
    if Fault.GONE in rates and rng.random() < 0.4:
        if Fault.LATE_BEGIN in rates and rng.random() < 0.7:
            return replace(ask, gone_at_pass=int(3 * rng.random()))
        return replace(ask, gone_after=int(18 * rng.random()))
    if Fault.DEADLINE in rates and rng.random() < 0.3:
        return replace(ask, deadline_s=0.3 * rng.random() ** 2)
    if Fault.SLOW_READER in rates and rng.random() < 0.3:
        return replace(ask, reads_every_s=0.5 * rng.random())
    return ask


Source = Callable[[int], Setup]  # a seed becomes a Setup: the swarm, or one of the stories
