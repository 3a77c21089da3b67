"""What can go wrong, how often in one seed, and the dice that decide each time.

Swarm: each seed draws which faults it has at all, and a rate for each of those. A world in which everything
fails at once hides more than one in which three things do.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from random import Random


class Fault(Enum):
    """One way in which the world is not as it should be. The value is what traces and tables say."""

    # the control wire
    LOSS = "message lost"
    DUPLICATE = "message duplicated"
    REORDER = "message overtaken by later ones"
    DELAY = "message delayed up to 60 s"
    CUT = "connection cut"
    STALE = "message of an old instance or connection still delivered"
    # one-sided reads
    LATE = "read lands and ends up to 60 s late"
    SCATTERED = "pages of a read land out of order and apart"
    AFTER_ERROR = "bytes land after the read was reported ERROR"
    FAILED = "read ends ERROR with part of it landed"
    STALLED = "read is never reported to end"
    REFUSED = "read is not posted at all"
    TORN = "page torn: half of it lands"
    MISSING = "page of a read does not land"
    MISPLACED = "pages of a read land in each other's place"
    WRONG_PAGE = "another page of the source is read"
    FLIP = "bit flipped on the way"
    # processes and clocks
    CRASH_DECODE = "decode worker crashes and restarts"
    CRASH_PREFILL = "prefill worker crashes and restarts"
    CRASH_GATEWAY = "gateway crashes and restarts"
    MISFIT = "a worker that does not fit the others says hello"
    DRAIN = "decode worker is drained"
    CLOCK_FORWARD = "clock jumps forward"
    CLOCK_BACK = "clock jumps back"
    # memory and engine
    REST_FLIP = "bit flipped in a cached page at rest"
    SOURCE_WRITE = "faulty peer writes into an exported source page at rest"
    REMOTE_WRITE = "faulty peer writes into an exported decode pool"
    STEP_RAISES = "forward pass raises"
    NAN_LOGITS = "model's own logits are not finite"
    WRONG_TOKENS = "forward pass takes other tokens than it was given, and says so"
    SLOW_STEP = "forward pass takes long"
    LATE_BEGIN = "planned pass begins late"
    SLOW_DIGEST = "digest takes long"
    NO_PAGES = "allocation of pages fails"
    # clients
    GONE = "client gone"
    DEADLINE = "deadline passes"
    SLOW_READER = "client reads too slowly"
    OVER_LENGTH = "prompt or answer longer than what fits"
    EMPTY = "prompt without tokens"
    BURST = "many requests at once"

    __hash__ = object.__hash__  # of a member there is one, and dice ask for it millions of times


Rates = Mapping[Fault, float]


class Dice:
    """Decides each time a fault could happen. Numbers the hits of each kind, so that single ones can be left
    out.
    """

    def __init__(self, rng: Random, rates: Rates, suppress: Iterable[tuple[Fault, int]] = ()) -> None:
        self.rng = rng
        self.healed = False
        self.hits: Counter[Fault] = Counter()
        self.fired: list[tuple[Fault, int]] = []
        self._rates = dict(rates)
        self._suppress = frozenset(suppress)

    def rate(self, fault: Fault) -> float:
        """How often this fault happens where it can, in this seed."""
        return self._rates.get(fault, 0.0)

    def roll(self, fault: Fault) -> bool:
        """Does it happen here and now?"""
        rate = self._rates.get(fault)
        if rate is None or self.healed or self.rng.random() >= rate:
            return False
        return self.strike(fault)

    def strike(self, fault: Fault) -> bool:
        """It was decided elsewhere that it happens (a plan): count it, unless it is left out."""
        number = self.hits[fault]
        self.hits[fault] += 1
        if (fault, number) in self._suppress:
            return False
        self.fired.append((fault, number))
        return True


def swarm(rng: Random, kinds: Iterable[Fault], few: float = 0.25) -> dict[Fault, float]:
    """A random part of ``kinds``, each with a rate between 1 and 30 %."""
    return {fault: 0.01 * 30.0 ** rng.random() for fault in kinds if rng.random() < few}
