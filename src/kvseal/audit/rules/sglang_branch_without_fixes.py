"""Branches that get no fix."""

from kvseal.audit.ask import in_span, sglang_disaggregated
from kvseal.audit.cites import DEFERRED_RELEASE, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Server
from kvseal.fleet.versions import Span

SPAN = Span("0.4.0", fixed="0.5.19")


def judge(server: Server) -> Judged:
    return every((sglang_disaggregated(server), in_span(server, SPAN)))


RULE = Rule(
    id="sglang-branch-without-fixes",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text("No fix was made for this branch", "Für diesen Zweig gibt es keine Korrektur"),
    meaning=Text(
        "The repairs are in 0.5.21 to 0.5.23 only. No release of an older line holds them, and no "
        "variable of this version holds pages back.",
        "Die Korrekturen stehen nur in 0.5.21 bis 0.5.23. Keine Ausgabe einer älteren Linie enthält "
        "sie, und keine Variable dieser Version hält Seiten zurück.",
    ),
    fix=Text(
        "Plan the jump to 0.5.22 or newer now; serve combined (without --disaggregation-mode) until then.",
        "Den Wechsel auf 0.5.22 oder neuer jetzt planen; bis dahin ohne --disaggregation-mode arbeiten.",
    ),
    sources=(
        DEFERRED_RELEASE,
        package("sglang", "0.5.18", "srt/environ.py (no such variable)"),
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
