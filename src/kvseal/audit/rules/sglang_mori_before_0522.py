"""MORI learnt to hold pages one release later than Mooncake and NIXL."""

from kvseal.audit.ask import in_span, sglang_disaggregated, uses_backend
from kvseal.audit.cites import DEFERRED_MORI, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.21", fixed="0.5.22")


def judge(server: Server) -> Judged:
    return every((sglang_disaggregated(server), uses_backend(server, "mori"), in_span(server, SPAN)))


RULE = Rule(
    id="sglang-mori-before-0.5.22",
    severity=Severity.CRITICAL,
    effect=Effect.AFFECTED,
    title=Text(
        "0.5.21 does not protect the MORI backend",
        "0.5.21 schützt das MORI-Backend nicht",
    ),
    meaning=Text(
        "The hold on pages of an aborted request is on by default in 0.5.21, but only Mooncake and "
        "NIXL support it. "
        "With MORI pages are freed at once, as before.",
        "Das Zurückhalten der Seiten abgebrochener Anfragen ist in 0.5.21 voreingestellt, wird aber "
        "nur von Mooncake "
        "und NIXL unterstützt. Mit MORI werden Seiten wie zuvor sofort freigegeben.",
    ),
    fix=Text("Update to 0.5.22 or newer.", "Auf 0.5.22 oder neuer aktualisieren."),
    sources=(DEFERRED_MORI, package("sglang", "0.5.21, 0.5.22", "srt/disaggregation/mori/conn.py")),
    versions=str(SPAN),
    check=per_server(judge),
)
