"""Three-valued answers: Kleene's tables, worst case, and monotone in knowledge."""

from itertools import product
from typing import Literal

import pytest

from kvseal.audit.truth import Judged, Missing, ask, ask_all, ask_pair, every, some
from kvseal.fleet.facts import Fact, Key, Server, Source
from kvseal.fleet.literals import integer_of

Truth = Literal[True, False] | None
VALUES: tuple[Truth, ...] = (True, False, None)
COMBINATIONS = list(product(VALUES, VALUES))


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _or(one: Truth, other: Truth) -> Truth:
    if one is True or other is True:
        return True
    return None if one is None or other is None else False


@pytest.mark.parametrize(("one", "other"), COMBINATIONS)
def test_connectives_are_kleenes(one: Truth, other: Truth) -> None:
    assert every((Judged(one), Judged(other))).truth is _and(one, other)
    assert some((Judged(one), Judged(other))).truth is _or(one, other)
    assert (Judged(one) & Judged(other)).truth is _and(one, other)
    assert (Judged(one) | Judged(other)).truth is _or(one, other)


def _server(**values: list[int]) -> Server:
    facts = tuple(
        Fact(Key[name.upper()], value, Source("log", "l", line))
        for name, found in values.items()
        for line, value in enumerate(found)
    )
    return Server("s", facts)


def test_unknown_names_what_would_decide() -> None:
    judged = ask_all(_server(pool=[1]), (Key.POOL, Key.CONTEXT), lambda pool, context: bool(pool < context))
    assert judged.truth is None
    assert judged.missing == (Missing("s", Key.CONTEXT),)


def test_one_bad_word_among_contradicting_sources_is_enough() -> None:
    server = _server(pool=[900, 500], context=[600])
    judged = ask_all(server, (Key.POOL, Key.CONTEXT), lambda pool, context: pool < context)
    assert judged.truth is True
    assert {fact.value for fact in judged.because} == {500, 600}
    assert ask(server, Key.POOL, lambda value: integer_of(value) == 1000).truth is False


def test_pairs_are_compared_in_their_worst_combination() -> None:
    one, other = _server(tp=[8]), _server(tp=[8, 4])
    assert ask_pair(one, other, Key.TP, lambda mine, theirs: mine != theirs).truth is True
    assert ask_pair(one, Server("t"), Key.TP, lambda mine, theirs: mine != theirs).missing == (
        Missing("t", Key.TP),
    )
