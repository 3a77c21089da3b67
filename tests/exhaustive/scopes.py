"""Small worlds to explore to the end: who asks for what, how much room there is, and what may go wrong."""

from dataclasses import dataclass, replace
from typing import Final

from kvseal.core.ids import TenantId

FAULTS: Final = {
    "abort": "the gateway ends a request",
    "error": "a pull ends in ERROR; its bytes may land at any later time, or never",
    "timeout": "the decode worker gives up on every attempt that is loading",
    "cut": "the prefill worker finds the decode worker gone and frees its pages",
    "lose": "the decode worker finds the prefill worker gone; it may join again",
    "crash": "the prefill worker dies; a new instance may join, and old messages still arrive",
    "duplicate": "a message arrives twice",
}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of the scope."""

    tenant: TenantId
    prompt: tuple[int, ...]
    max_tokens: int = 1


@dataclass(frozen=True, slots=True)
class Scope:
    """``faults`` is the budget of faults in one run, each of the ``kinds``.

    ``together`` joins plan, beginning and end of a pass of that role into one action, to save states.
    """

    name: str
    asks: tuple[Ask, ...]
    page_size: int
    pages: int
    kinds: tuple[str, ...]
    faults: int
    retries: int = 0
    prefix_reuse: bool = False
    together: frozenset[str] = frozenset({"prefill"})

    @property
    def symmetric(self) -> bool:
        """Requests differ in nothing but their names: every renaming of a state is the same state."""
        shapes = {(len(ask.prompt), ask.max_tokens) for ask in self.asks}
        first = {ask.prompt[0] for ask in self.asks}
        tenants = {ask.tenant for ask in self.asks}
        return len(shapes) == 1 and len(first) == len(tenants) == len(self.asks)


def _strangers(count: int, prompt: int) -> tuple[Ask, ...]:
    """Requests of different tenants, with different prompts of the same length."""
    return tuple(Ask(TenantId(f"t{i}"), tuple(10 * (i + 1) + k for k in range(prompt))) for i in range(count))


PAIR: Final = Scope(  # the smallest in which a leak is possible
    "pair", _strangers(2, 3), page_size=4, pages=2, kinds=("abort", "error", "cut"), faults=1
)
OVERLONG: Final = Scope(  # one of the prompts fits no pool (F01, F23)
    "overlong",
    (*_strangers(1, 3), Ask(TenantId("long"), tuple(range(90, 99)))),
    page_size=4,
    pages=2,
    kinds=("abort", "error", "cut"),
    faults=1,
)
LIFE: Final = Scope(  # 3 strangers, a page each: 2 fit; every fault once
    "life", _strangers(3, 3), page_size=4, pages=2, kinds=("abort", "error", "timeout", "cut"), faults=1
)
FAULTY: Final = Scope(  # two faults meet
    "faulty", _strangers(2, 3), page_size=4, pages=2, kinds=tuple(FAULTS), faults=2
)
AGAIN: Final = Scope(  # a new attempt while things of the old one are still on their way
    "again", _strangers(1, 3), page_size=4, pages=2, kinds=tuple(FAULTS), faults=2, retries=1
)
LIVES: Final = Scope(  # new attempts after the prefill worker was died, beside another request
    "lives", _strangers(2, 3), page_size=4, pages=2, kinds=("crash",), faults=1, retries=1
)
LONG: Final = Scope(  # two pages each: two manifests, two pulls at once, an answer that crosses pages
    "long",
    (Ask(TenantId("t0"), (10, 11, 12, 13), 2), Ask(TenantId("t1"), (20, 21), 2)),
    page_size=2,
    pages=3,
    kinds=("abort", "error", "cut"),
    faults=1,
)
REUSE: Final = Scope(  # the same prompt twice from one tenant, once from another; full pages are found again
    "reuse",
    (Ask(TenantId("t0"), (10, 11)), Ask(TenantId("t0"), (10, 11)), Ask(TenantId("t1"), (10, 11))),
    page_size=1,
    pages=3,
    kinds=("abort", "error"),
    faults=1,
    prefix_reuse=True,
)

# What spec/lease.pml models: its counter-examples are replayed here.
SPEC: Final = Scope(
    "spec",
    _strangers(3, 3),
    page_size=4,
    pages=2,
    kinds=("abort", "error", "timeout", "cut", "lose", "crash"),
    faults=3,
)

CI: Final = (PAIR, OVERLONG, LIFE, AGAIN, LIVES, LONG, REUSE)
PROVE: Final = (
    *CI,
    FAULTY,
    replace(LIFE, name="life+", kinds=tuple(FAULTS), together=frozenset()),
    replace(AGAIN, name="again+", asks=_strangers(2, 3), faults=1),
    replace(LIVES, name="lives+", kinds=("lose", "crash"), faults=2),
    replace(LONG, name="long+", kinds=tuple(FAULTS), faults=2),
    replace(REUSE, name="reuse+", kinds=tuple(FAULTS), faults=2),
)
# Which guards an exploration can miss, and the scope in which it shows first.
MISSED: Final[dict[tuple[str, ...], Scope]] = {
    ("G4",): PAIR,
    ("G5",): PAIR,
    ("G6",): PAIR,
    ("G7",): REUSE,
    ("G9",): REUSE,
    ("G6", "G8"): PAIR,
}
# Second lines: with the guard that they back in force, nothing happens without them.
HELD: Final[dict[tuple[str, ...], Scope]] = {("G8",): PAIR, ("G2",): OVERLONG}
