"""Three-valued answers that remember why.

Conjunction and disjunction are Kleene's: unknown where the missing fact could change the answer. Predicates
are always written for the bad case and tried on every combination of contradicting values, so the worst case
is judged.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeVar

from kvseal.fleet.facts import Fact, Key, Server, Value

_MAX_COMBINATIONS: Final = 4096
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Missing:
    """A fact that would decide."""

    server: str
    key: Key


@dataclass(frozen=True)
class Judged:
    """`truth` None: unknown. `because`: facts behind a yes or a no; `missing`: facts that would decide."""

    truth: bool | None
    because: tuple[Fact, ...] = ()
    missing: tuple[Missing, ...] = ()

    def __and__(self, other: "Judged") -> "Judged":
        return every((self, other))

    def __or__(self, other: "Judged") -> "Judged":
        return some((self, other))


YES: Final = Judged(True)
NO: Final = Judged(False)


def _unique(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))


def every(parts: Sequence[Judged]) -> Judged:
    """All of them. One certain no decides, whatever else is unknown."""
    for part in parts:
        if part.truth is False:
            return part
    because = _unique(fact for part in parts for fact in part.because)
    unknown = [part for part in parts if part.truth is None]
    if unknown:
        return Judged(None, because, _unique(miss for part in unknown for miss in part.missing))
    return Judged(True, because)


def some(parts: Sequence[Judged]) -> Judged:
    """At least one of them."""
    certain = [part for part in parts if part.truth is True]
    if certain:
        return Judged(True, _unique(fact for part in certain for fact in part.because))
    unknown = [part for part in parts if part.truth is None]
    if unknown:
        return Judged(
            None,
            _unique(fact for part in unknown for fact in part.because),
            _unique(miss for part in unknown for miss in part.missing),
        )
    return Judged(False, _unique(fact for part in parts for fact in part.because))


def ask(server: Server, key: Key, bad: Callable[[Value], bool]) -> Judged:
    """Whether any source says something bad about `key`."""
    return ask_all(server, (key,), bad)


def ask_all(server: Server, keys: Sequence[Key], bad: Callable[..., bool]) -> Judged:
    """Whether any combination of what the sources say about `keys` is bad."""
    known = [server.of(key) for key in keys]
    missing = tuple(Missing(server.name, key) for key, facts in zip(keys, known, strict=True) if not facts)
    if missing:
        return Judged(None, (), missing)
    return _try(known, bad)


def ask_pair(one: Server, other: Server, key: Key, bad: Callable[[Value, Value], bool]) -> Judged:
    """Whether two servers may disagree about `key`."""
    known = [one.of(key), other.of(key)]
    missing = tuple(
        Missing(server.name, key) for server, facts in zip((one, other), known, strict=True) if not facts
    )
    if missing:
        return Judged(None, (), missing)
    return _try(known, bad)


def _try(known: Sequence[Sequence[Fact]], bad: Callable[..., bool]) -> Judged:
    hits: list[Fact] = []
    for count, facts in enumerate(product(*known)):
        if count >= _MAX_COMBINATIONS:
            break
        if bad(*(fact.value for fact in facts)):
            hits += facts
    if hits:
        return Judged(True, _unique(hits))
    return Judged(False, _unique(fact for facts in known for fact in facts))
