"""The report for a terminal: verdict first, readable in 80 columns and without colour."""

from typing import Final

from rich.console import Console
from rich.text import Text as Line

from kvseal.audit import words
from kvseal.audit.judge import Report, Verdict
from kvseal.audit.rule import Effect, Finding, Severity, Standing
from kvseal.audit.texts import Language, Text
from kvseal.fleet.facts import Fact, Key, Server, contradicted
from kvseal.fleet.literals import integer_of

_STYLE: Final = {
    Verdict.AFFECTED: "bold white on red",
    Verdict.AT_RISK: "bold black on yellow",
    Verdict.NOT_AFFECTED: "bold black on green",
    Verdict.CANNOT_TELL: "bold white on blue",
}
_COLOUR: Final = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "red",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "cyan",
    Severity.INFO: "dim",
}
_EVIDENCE_LINES: Final = 4
_ACTIONS: Final = 8
_OWN_WORDS: Final = Severity.MEDIUM
"""Findings below this severity are shown in one line."""


class TerminalReport:
    def __init__(self, console: Console, language: Language) -> None:
        self._console = console
        self._language = language

    def print(self, report: Report) -> None:
        self._verdict(report)
        self._servers(report)
        self._changes(report)
        self._findings(report)
        self._actions(report)
        self._unknown(report)
        self._notes(report)
        self._console.print()
        self._line(self._said(words.FOOTER), style="dim")

    def _said(self, text: Text, **values: object) -> str:
        return (text.filled(**values) if values else text).said(self._language)

    def _line(self, text: str | Line, indent: int = 0, style: str = "", mark: str = "") -> None:
        """One paragraph. `mark` hangs to the left of it, so that wrapped lines stay under its text."""
        content = text if isinstance(text, Line) else Line(text)
        content.stylize_before(style) if style else None
        width = max(20, self._console.width - indent - len(mark))
        for number, part in enumerate(content.wrap(self._console, width) if content.plain else [content]):
            part.rstrip()
            lead = " " * indent + (mark if number == 0 else " " * len(mark))
            self._console.print(Line(lead) + part if part.plain else Line(""), soft_wrap=True)

    def _heading(self, text: str) -> None:
        self._console.print()
        self._line(text, style="bold")

    def _verdict(self, report: Report) -> None:
        data = self._said(words.DATA, version=report.data.version, day=report.data.day.isoformat())
        self._line(f"{self._said(words.TITLE)} · {data}", style="dim")
        if report.data.stale:
            self._line(self._said(words.STALE, age=report.data.age_days), style="bold yellow")
        word = Line(f" {self._said(words.VERDICT[report.verdict])} ", style=_STYLE[report.verdict])
        if report.verdict is Verdict.CANNOT_TELL and report.at_least is not Effect.NONE:
            word = Line.assemble(word, f"  {self._said(words.AT_LEAST[report.at_least])}")
        self._console.print()
        self._line(word, 1)
        self._line(self._said(words.VERDICT_MEANS[report.verdict]), 2)
        self._line(self._counts(report), 2)

    def _counts(self, report: Report) -> str:
        parts = [
            f"{report.count(severity)} {self._said(words.SEVERITY[severity])}"
            for severity in sorted(Severity, reverse=True)
            if report.count(severity)
        ]
        other = sum(
            f.rule.effect is Effect.NONE and f.rule.severity >= Severity.MEDIUM for f in report.findings
        )
        text = f"{self._said(words.FINDINGS)}: {', '.join(parts) or self._said(words.NO_FINDINGS)}"
        return f"{text}; {self._said(words.OTHER_KIND, count=other)}" if other else text

    def _servers(self, report: Report) -> None:
        self._heading(self._said(words.SERVERS))
        if not report.fleet.servers:
            self._line(self._said(words.NO_FINDINGS), 2)
        for server in report.fleet.servers[:20]:
            self._line(server.name, 2)
            self._line(summary(server), 4, "dim")
            for key in contradicted(server):
                told = ", ".join(f"{fact.value} ({fact.source.where})" for fact in _distinct(server, key))
                self._line(self._said(words.CONFLICT, key=key.value, values=told), 4, "yellow")
        if (more := len(report.fleet.servers) - 20) > 0:
            self._line(self._said(words.AND_MORE, count=more), 2)

    def _changes(self, report: Report) -> None:
        if not report.baseline:
            return
        self._heading(self._said(words.CHANGES, name=report.baseline))
        for change in report.changes:
            worse = f"  ({self._said(words.WORSE)})" if change.worse else ""
            text = (
                f"{change.server} {change.key.value}: {change.before or '–'} → {change.after or '–'}{worse}"
            )
            self._line(text, 2, "yellow" if change.worse else "")
        if not report.changes:
            self._line(self._said(words.NO_CHANGES), 2)

    def _findings(self, report: Report) -> None:
        self._heading(self._said(words.FINDINGS))
        for number, finding in enumerate(report.findings, start=1):
            self._finding(number, finding)
        if not report.findings:
            self._line(self._said(words.NO_FINDINGS), 2)

    def _finding(self, number: int, finding: Finding) -> None:
        rule = finding.rule
        mark = self._said(words.SEVERITY[rule.severity]).upper()
        head = Line.assemble((mark, _COLOUR[rule.severity]), "  ", (self._said(rule.title), "bold"))
        self._line(head, 0, mark=f"{number:>2}. ")
        self._line(f"{rule.id} · {', '.join(finding.servers)}", 4, "dim")
        if finding.detail is not None:
            self._line(self._said(finding.detail), 4)
        if rule.severity >= _OWN_WORDS:
            self._line(self._said(rule.meaning), 4)
        plain = {Key.ENGINE, Key.ROLE}
        shown = [fact for fact in finding.evidence if fact.key not in plain] or list(finding.evidence)
        for fact in shown[: _EVIDENCE_LINES if rule.severity >= _OWN_WORDS else 1]:
            self._line(
                Line.assemble((f"{fact.source.where}  ", "dim"), fact.source.text or fact.key.value), 6
            )
        cite = next((one for one in rule.sources if one.url.startswith("http")), rule.sources[0])
        where = cite.url if cite.url.startswith("http") else cite.title
        mark = f" ({self._said(words.SECONDARY)})" if cite.standing is Standing.SECONDARY else ""
        self._line(f"{self._said(words.SOURCE)}: {where}{mark}", 4, "dim")

    def _actions(self, report: Report) -> None:
        actions = report.actions()
        self._heading(self._said(words.DO_NOW))
        for number, action in enumerate(actions[:_ACTIONS], start=1):
            self._line(self._said(action), 0, mark=f"{number:>2}. ")
        if (more := len(actions) - _ACTIONS) > 0:
            self._line(self._said(words.AND_MORE, count=more), 5, "dim")
        if not actions:
            waiting = report.verdict is Verdict.CANNOT_TELL
            self._line(self._said(words.GIVE_FACTS if waiting else words.NOTHING_TO_DO), 2)

    def _unknown(self, report: Report) -> None:
        wanted = report.missing()
        if not wanted:
            return
        self._heading(self._said(words.UNKNOWN))
        for one in wanted[:16]:
            head = f"{one.key.value} ({', '.join(one.servers)})"
            if one.decides:
                head += f": {self._said(words.DECIDES)}"
            self._line(head, 2)
            self._line(self._said(words.how_to_get(one.key)), 4, "dim")
        if (more := len(wanted) - 16) > 0:
            self._line(self._said(words.AND_MORE, count=more), 2, "dim")

    def _notes(self, report: Report) -> None:
        if report.fleet.notes:
            self._heading(self._said(words.NOTES))
        for note in report.fleet.notes[:20]:
            self._line(self._said(words.note_text(note)), 2)
        if (more := len(report.fleet.notes) - 20) > 0:
            self._line(self._said(words.AND_MORE, count=more), 2, "dim")


def _distinct(server: Server, key: Key) -> list[Fact]:
    seen: dict[str, Fact] = {}
    for fact in server.of(key):
        seen.setdefault(str(fact.value).lower(), fact)
    return list(seen.values())


def summary(server: Server) -> str:
    """One line: engine, version, role, backend, pool, context, ranks."""
    engine, found = server.one(Key.ENGINE), server.values(Key.VERSION)
    age = {"True": "before 0.5.21", "False": "0.5.21 or newer"}.get(
        str(server.one(Key.PREDATES_FIX)), "version ?"
    )
    parts = [f"{engine or '?'} {' | '.join(map(str, found)) or age}", str(server.one(Key.ROLE) or "role ?")]
    carrier = server.one(Key.CONNECTOR) or (
        server.one(Key.BACKEND) if server.one(Key.ROLE) != "combined" else None
    )
    if carrier:
        parts.append(str(carrier))
    for key, name in ((Key.POOL, "pool"), (Key.CONTEXT, "context")):
        values = [f"{number:,}" for number in map(integer_of, server.values(key)) if number is not None]
        if values:
            parts.append(f"{name} {' | '.join(values)}")
    if server.one(Key.TP) not in {None, 1}:
        parts.append(f"TP{server.one(Key.TP)}")
    return " · ".join(parts)
