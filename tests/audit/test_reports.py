"""The four reports: what a reader sees first, and what a machine can rely on."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from rich.console import Console
from tests.audit.conftest import Case, Facts, load_cases
from tests.audit.fleets import DECODE, PREFILL, fleet

from kvseal.audit.documents import to_json, to_markdown, to_sarif
from kvseal.audit.judge import Change, Report, judge
from kvseal.audit.rule import Rule
from kvseal.audit.terminal import TerminalReport
from kvseal.audit.texts import Language
from kvseal.fleet.facts import Fleet, Key, Note

CASES = {case.name: case for case in load_cases()}
Judged = Callable[[Fleet], Report]


def shown(report: Report, language: Language = Language.EN, width: int = 80) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    TerminalReport(console, language).print(report)
    return output.getvalue()


@pytest.fixture
def incident(facts_of: Facts, judged: Judged) -> Report:
    return judged(facts_of(CASES["incident"]))


def test_the_verdict_comes_first_then_findings_then_what_to_do_then_what_is_unknown(incident: Report) -> None:
    text = shown(incident)
    order = ["AFFECTED", "What was found", "Findings\n", "CRITICAL", "Do this now", "Could not be known"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_the_incident_names_its_numbers_lines_and_source(incident: Report) -> None:
    """Context 1,048,576, pool 681,280, before 0.5.21, disaggregated, Mooncake."""
    text = shown(incident)
    for part in ("681,280", "1,048,576", "367,296", "prefill.log:5", "issues/30233", "--context-length"):
        assert part in text


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
@pytest.mark.parametrize("language", Language)
def test_eighty_columns_without_colour(
    case: Case, language: Language, facts_of: Facts, judged: Judged
) -> None:
    text = shown(judged(facts_of(case)), language)
    long = [line for line in text.splitlines() if len(line) > 80 and " " in line.strip()[:76]]
    assert long == []
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_german_is_german(incident: Report) -> None:
    text = shown(incident, Language.DE)
    assert "BETROFFEN" in text
    assert "Jetzt tun" in text
    for english in ("Do this now", "Findings", "CRITICAL", "evidence"):
        assert english not in text


def test_old_data_is_said_in_every_report(every_rule: tuple[Rule, ...]) -> None:
    report = judge(fleet(PREFILL, DECODE), every_rule, date(2027, 3, 1))
    assert "90 days old" in shown(report)
    assert "90 days old" in to_markdown(report, Language.EN)
    assert json.loads(to_json(report, Language.EN))["data"]["stale"] is True
    assert json.loads(to_sarif(report, Language.EN))["runs"][0]["properties"]["dataStale"] is True


def test_contradictions_are_shown_with_both_sources(facts_of: Facts, judged: Judged) -> None:
    text = shown(judged(facts_of(CASES["contradiction_log_says_less"])), width=200)
    assert "sources disagree about kv-pool-tokens: 900000 (" in text
    assert "2400000 (" in text


def test_secondary_sources_are_marked(facts_of: Facts, judged: Judged) -> None:
    report = judged(facts_of(CASES["vllm_pipeline_parallel_0.19"]))
    assert "(secondary source)" in shown(report, width=200)
    assert "(secondary source)" in to_markdown(report, Language.EN)


def test_json_says_everything(incident: Report) -> None:
    found = json.loads(to_json(incident, Language.EN))
    assert found["verdict"] == "affected"
    assert found["data"]["version"]
    assert {one["id"] for one in found["data"]["unconfirmed"]} >= {"CVE-2026-115912"}
    first = found["findings"][0]
    assert first["id"] == "sglang-placeholder"
    assert first["evidence"][0]["where"].endswith("prefill.log:5")
    assert first["sources"][0] == {
        "title": "sglang #30233: aborted prefill requests (input too long) cause decode to generate garbage",
        "url": "https://github.com/sgl-project/sglang/issues/30233",
        "standing": "primary",
    }


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_sarif_holds_together(case: Case, facts_of: Facts, judged: Judged) -> None:
    document = json.loads(to_sarif(judged(facts_of(case)), Language.EN))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        if result.get("kind") == "open":
            assert result["level"] == "none"
        else:
            assert result["level"] in {"error", "warning", "note"}
            for location in result["locations"]:
                region = location.get("physicalLocation", {}).get("region", {"startLine": 1})
                assert region["startLine"] >= 1


def test_text_from_files_is_no_markup() -> None:
    hostile = Fleet((), (Note("no-known-line", "`x` | <script>[bold]", "a\nb"),))
    report = judge(hostile, (), date(2026, 12, 1))
    text = to_markdown(report, Language.EN)
    assert "<script>" not in text
    assert "`x`" not in text
    assert "[bold]" in shown(report, width=200)


def test_actions_join_updates_of_one_product(judged: Judged) -> None:
    report = judged(fleet({**PREFILL, Key.VERSION: "0.5.9"}, {**DECODE, Key.VERSION: "0.5.9"}))
    joined = [action.en for action in report.actions() if action.en.startswith("Update sglang to ")]
    assert len(joined) == 1
    assert joined[0].startswith("Update sglang to 0.5.23 or newer (")
    assert "CVE-2026-3059" in joined[0]


def test_what_moved_is_shown(incident: Report) -> None:
    changed = replace(
        incident,
        baseline="numbers.json",
        changes=(Change("sglang-decode-1", Key.POOL, "900", "800", worse=True),),
    )
    assert "sglang-decode-1 kv-pool-tokens: 900 → 800  (worse)" in shown(changed)
    assert "900 → 800" in to_markdown(changed, Language.EN)
    assert json.loads(to_json(changed, Language.EN))["baseline"]["changes"][0]["worse"] is True


def test_no_secret_leaves_through_a_report(facts_of: Facts, judged: Judged) -> None:
    for name in ("compose_0.5.18", "vllm_pipeline_parallel_0.33", "good_0.5.23_all_facts"):
        report = judged(facts_of(CASES[name]))
        for text in (
            to_json(report, Language.EN),
            to_sarif(report, Language.DE),
            to_markdown(report, Language.EN),
        ):
            assert "sk-local" not in text
            assert "sk-secretsecret" not in text
            assert "hf_notarealtoken" not in text
