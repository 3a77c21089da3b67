"""The report as data: JSON, SARIF 2.1.0, Markdown."""

from pathlib import PurePath
from typing import Any, Final

import msgspec

from kvseal import __version__
from kvseal.audit import words
from kvseal.audit.advisories import UNCONFIRMED
from kvseal.audit.judge import Report
from kvseal.audit.rule import Effect, Finding, Open, Rule, Severity, Standing
from kvseal.audit.terminal import summary
from kvseal.audit.texts import Language, Text
from kvseal.fleet.facts import Fact, contradicted

_EFFECT: Final = {Effect.NONE: "none", Effect.AT_RISK: "at_risk", Effect.AFFECTED: "affected"}
_SARIF_LEVEL: Final = {
    Severity.CRITICAL: "error",
    Severity.HIGH: "error",
    Severity.MEDIUM: "warning",
    Severity.LOW: "note",
    Severity.INFO: "note",
}
# GitHub's scale for the column "security severity".
_SARIF_SCORE: Final = {
    Severity.CRITICAL: "9.5",
    Severity.HIGH: "8.0",
    Severity.MEDIUM: "5.5",
    Severity.LOW: "3.0",
    Severity.INFO: "0.0",
}


def to_json(report: Report, language: Language) -> str:
    """`kvseal audit --json`. Fields are added over time, never renamed; `schema` counts incompatible
    changes.
    """

    def say(text: Text) -> str:
        return text.said(language)

    document = {
        "schema": 1,
        "tool": {"name": "kvseal audit", "version": __version__},
        "data": {
            "version": report.data.version,
            "date": report.data.day.isoformat(),
            "age_days": report.data.age_days,
            "stale": report.data.stale,
            "unconfirmed": [{"id": one.id, "found": one.found} for one in UNCONFIRMED],
        },
        "verdict": report.verdict.value,
        "at_least": _EFFECT[report.at_least],
        "at_most": _EFFECT[report.at_most],
        "counts": {severity.label: report.count(severity) for severity in Severity},
        "servers": [
            {
                "name": server.name,
                "facts": [_fact(fact) for fact in server.facts],
                "contradictions": [key.value for key in contradicted(server)],
            }
            for server in report.fleet.servers
        ],
        "findings": [_finding(finding, language) for finding in report.findings],
        "actions": [say(action) for action in report.actions()],
        "unknown": [
            {
                "fact": wanted.key.value,
                "servers": list(wanted.servers),
                "decides": wanted.decides,
                "how": say(words.how_to_get(wanted.key)),
            }
            for wanted in report.missing()
        ],
        "notes": [
            {
                "code": note.code,
                "subject": note.subject,
                "detail": note.detail,
                "text": say(words.note_text(note)),
            }
            for note in report.fleet.notes
        ],
        "baseline": {
            "name": report.baseline,
            "changes": [
                {
                    "server": change.server,
                    "fact": change.key.value,
                    "before": change.before,
                    "after": change.after,
                    "worse": change.worse,
                }
                for change in report.changes
            ],
        }
        if report.baseline
        else None,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _fact(fact: Fact) -> dict[str, Any]:
    return {
        "fact": fact.key.value,
        "value": fact.value,
        "assumed": fact.assumed,
        "source": fact.source.kind,
        "where": fact.source.where,
        "text": fact.source.text,
    }


def _finding(finding: Finding, language: Language) -> dict[str, Any]:
    rule = finding.rule
    return {
        "id": rule.id,
        "severity": rule.severity.label,
        "effect": _EFFECT[rule.effect],
        "title": rule.title.said(language),
        "meaning": rule.meaning.said(language),
        "detail": finding.detail.said(language) if finding.detail else "",
        "fix": rule.fix.said(language),
        "versions": rule.versions,
        "servers": list(finding.servers),
        "evidence": [_fact(fact) for fact in finding.evidence],
        "sources": [
            {"title": cite.title, "url": cite.url, "standing": cite.standing.value} for cite in rule.sources
        ],
    }


def to_sarif(report: Report, language: Language) -> str:
    """Results for code scanning. What could not be decided is a result of kind `open`."""
    rules = list(
        dict.fromkeys(
            [*(f.rule for f in report.findings), *(o.rule for o in report.unknown if o.rule.effect)]
        )
    )
    index = {rule.id: number for number, rule in enumerate(rules)}
    results = [_sarif_result(finding, index, language) for finding in report.findings]
    results += [_sarif_open(one, index, language) for one in report.unknown if one.rule.effect]
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kvseal audit",
                        "version": __version__,
                        "rules": [_sarif_rule(rule, language) for rule in rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "verdict": report.verdict.value,
                    "dataVersion": report.data.version,
                    "dataDate": report.data.day.isoformat(),
                    "dataStale": report.data.stale,
                },
                "results": results,
            }
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _sarif_rule(rule: Rule, language: Language) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title.said(language)},
        "fullDescription": {"text": rule.meaning.said(language)},
        "help": {"text": rule.fix.said(language)},
        "helpUri": next(
            (cite.url for cite in rule.sources if cite.url.startswith("http")), rule.sources[0].url
        ),
        "defaultConfiguration": {"level": _SARIF_LEVEL[rule.severity]},
        "properties": {
            "security-severity": _SARIF_SCORE[rule.severity],
            "tags": ["security", _EFFECT[rule.effect]],
        },
    }


def _sarif_result(finding: Finding, index: dict[str, int], language: Language) -> dict[str, Any]:
    rule = finding.rule
    detail = f" {finding.detail.said(language)}." if finding.detail else ""
    return {
        "ruleId": rule.id,
        "ruleIndex": index[rule.id],
        "level": _SARIF_LEVEL[rule.severity],
        "message": {"text": f"{rule.title.said(language)}.{detail} {rule.fix.said(language)}"},
        "locations": [_location(fact) for fact in finding.evidence[:1]],
        "relatedLocations": [_location(fact) for fact in finding.evidence[1:10]],
        "partialFingerprints": {"kvsealAudit/v1": f"{rule.id}:{','.join(finding.servers)}"},
    }


def _sarif_open(one: Open, index: dict[str, int], language: Language) -> dict[str, Any]:
    wanted = ", ".join(f"{missing.server}: {missing.key.value}" for missing in one.missing)
    return {
        "ruleId": one.rule.id,
        "ruleIndex": index[one.rule.id],
        "kind": "open",
        "level": "none",
        "message": {"text": f"{one.rule.title.said(language)} ({words.UNKNOWN.said(language)}: {wanted})"},
    }


def _location(fact: Fact) -> dict[str, Any]:
    source = fact.source
    logical = {
        "logicalLocations": [{"name": source.where, "kind": "resource"}],
        "message": {"text": source.text},
    }
    if source.kind in {"log", "command", "env", "packages"} and source.name != "stdin":
        physical: dict[str, Any] = {"artifactLocation": {"uri": PurePath(source.name).as_posix()}}
        if source.line is not None:
            physical["region"] = {"startLine": source.line, "snippet": {"text": source.text}}
        return {"physicalLocation": physical, **logical}
    return logical


def to_markdown(report: Report, language: Language) -> str:
    """For tickets and pull requests: everything, with all sources."""

    def say(text: Text, **values: object) -> str:
        return (text.filled(**values) if values else text).said(language)

    lines = [
        f"# {say(words.TITLE)}: {say(words.VERDICT[report.verdict])}",
        "",
        say(words.VERDICT_MEANS[report.verdict]),
        "",
        f"*{say(words.DATA, version=report.data.version, day=report.data.day.isoformat())}*",
    ]
    if report.data.stale:
        lines += ["", f"**{say(words.STALE, age=report.data.age_days)}**"]
    lines += ["", f"## {say(words.SERVERS)}", ""]
    lines += [f"- `{_cell(server.name)}`: {_cell(summary(server))}" for server in report.fleet.servers]
    if report.baseline:
        lines += ["", f"## {say(words.CHANGES, name=_cell(report.baseline))}", ""]
        lines += [
            f"- {_cell(c.server)} {c.key.value}: {_cell(c.before) or '–'} → {_cell(c.after) or '–'}"
            for c in report.changes
        ] or [f"- {say(words.NO_CHANGES)}"]
    lines += ["", f"## {say(words.FINDINGS)}", ""]
    for finding in report.findings:
        lines += _markdown_finding(finding, language)
    lines += [] if report.findings else [say(words.NO_FINDINGS), ""]
    lines += [f"## {say(words.DO_NOW)}", ""]
    lines += [f"{number}. {say(action)}" for number, action in enumerate(report.actions(), start=1)]
    if report.missing():
        lines += ["", f"## {say(words.UNKNOWN)}", ""]
        for wanted in report.missing():
            mark = "**" if wanted.decides else ""
            name = f"{mark}{wanted.key.value} ({_cell(', '.join(wanted.servers))}){mark}"
            lines.append(f"- {name}: {say(words.how_to_get(wanted.key))}")
    if report.fleet.notes:
        lines += ["", f"## {say(words.NOTES)}", ""]
        lines += [f"- {_cell(say(words.note_text(note)))}" for note in report.fleet.notes]
    return "\n".join([*lines, "", f"*{say(words.FOOTER)}*", ""])


def _markdown_finding(finding: Finding, language: Language) -> list[str]:
    rule = finding.rule
    severity = words.SEVERITY[rule.severity].said(language)
    lines = [
        f"### {severity}: {rule.title.said(language)}",
        "",
        f"`{rule.id}` · {_cell(', '.join(finding.servers))}",
        "",
    ]
    if finding.detail is not None:
        lines += [_cell(finding.detail.said(language)), ""]
    lines += [
        rule.meaning.said(language),
        "",
        f"**{words.FIX.said(language)}:** {rule.fix.said(language)}",
        "",
    ]
    lines += [
        f"- `{_cell(fact.source.where)}`: `{_cell(fact.source.text)}`" for fact in finding.evidence[:10]
    ]
    for cite in rule.sources:
        link = f"[{_cell(cite.title)}]({cite.url})" if cite.url.startswith("http") else _cell(cite.title)
        mark = f" ({words.SECONDARY.said(language)})" if cite.standing is Standing.SECONDARY else ""
        lines.append(f"- {words.SOURCE.said(language)}: {link}{mark}")
    return [*lines, ""]


def _cell(text: str) -> str:
    """Text from files must not become markup."""
    return text.replace("`", "'").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
