"""Every input of the corpus gets its verdict, and less knowledge never makes a verdict milder."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.audit.conftest import Case, Facts, load_cases

from kvseal.audit.cli import exit_code
from kvseal.audit.judge import Report, Verdict
from kvseal.audit.rule import Severity
from kvseal.fleet.facts import Fleet, Key

CASES = load_cases()
Judged = Callable[[Fleet], Report]


def test_corpus_is_large_enough() -> None:
    assert len(CASES) >= 60
    assert {case.verdict for case in CASES} == {verdict.value for verdict in Verdict}
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_gets_its_verdict(case: Case, facts_of: Facts, judged: Judged) -> None:
    report = judged(facts_of(case))
    found = {finding.rule.id for finding in report.findings}
    assert report.verdict.value == case.verdict, sorted(found)
    assert set(case.listed("rules")) <= found
    assert not set(case.listed("absent")) & found
    if "at_least" in case.spec:
        assert report.at_least.name.lower() == case.spec["at_least"]
    if "exit" in case.spec:
        assert exit_code(report, Severity.HIGH, accept_unknown=False) == case.spec["exit"]


def _milder(before: Report, after: Report) -> bool:
    """Whether `after` is nearer to "not affected". "Cannot tell" is never nearer; nothing definite may
    follow it.
    """
    if after.at_most < before.at_most:
        return True
    if after.verdict is Verdict.CANNOT_TELL:
        return False
    return before.verdict is Verdict.CANNOT_TELL or after.at_least < before.at_least


def _without(fleet: Fleet, server: int, keys: set[Key]) -> Fleet:
    chosen = fleet.servers[server]
    less = replace(chosen, facts=tuple(fact for fact in chosen.facts if fact.key not in keys))
    return replace(fleet, servers=(*fleet.servers[:server], less, *fleet.servers[server + 1 :]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rules_without_effect_do_not_weigh(
    case: Case, facts_of: Facts, judged: Judged, weighed: Judged
) -> None:
    one, other = judged(facts_of(case)), weighed(facts_of(case))
    assert (one.verdict, one.at_least, one.at_most) == (other.verdict, other.at_least, other.at_most)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_taking_a_fact_away_never_makes_the_verdict_milder(
    case: Case, facts_of: Facts, weighed: Judged
) -> None:
    """Metamorphic, over the whole corpus. A disagreement between sources is one piece of knowledge."""
    fleet = facts_of(case)
    before = weighed(fleet)
    for number, server in enumerate(fleet.servers):
        for key in dict.fromkeys(fact.key for fact in server.facts):
            after = weighed(_without(fleet, number, {key}))
            assert not _milder(before, after), (
                f"{server.name} without {key}: {before.verdict} → {after.verdict}"
            )
        contradicted = set(server.conflicts())
        for index, fact in enumerate(server.facts):
            if fact.key not in contradicted and len(server.of(fact.key)) > 1:
                after = weighed(fleet.without(number, index))
                assert not _milder(before, after), f"{server.name} without {fact}"


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_taking_two_kinds_of_facts_away_never_makes_the_verdict_milder(
    case: Case, facts_of: Facts, weighed: Judged
) -> None:
    fleet = facts_of(case)
    before = weighed(fleet)
    for number, server in enumerate(fleet.servers):
        keys = list(dict.fromkeys(fact.key for fact in server.facts))
        for one, other in zip(keys, keys[1:] + keys[:1], strict=True):
            after = weighed(_without(fleet, number, {one, other}))
            assert not _milder(before, after), f"{server.name} without {one}, {other}"
