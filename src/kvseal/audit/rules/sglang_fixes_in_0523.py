"""Fixes that came only with 0.5.23."""

from kvseal.audit.ask import in_span, sglang_disaggregated
from kvseal.audit.cites import CHECKSUM_SAFETY, DEFERRED_HARDENING, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.21", fixed="0.5.23")


def judge(server: Server) -> Judged:
    return every((sglang_disaggregated(server), in_span(server, SPAN)))


RULE = Rule(
    id="sglang-fixes-in-0.5.23",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text("Some repairs came only with 0.5.23", "Einige Korrekturen kamen erst mit 0.5.23"),
    meaning=Text(
        "0.5.21 keeps one acknowledgement target per request and loses it in common cases. Checksums "
        "that reach all ranks, layout signatures, the read-done barrier of prefill and the list of "
        "allowed ZMQ peers are in 0.5.23.",
        "0.5.21 merkt sich je Anfrage ein Bestätigungsziel und verliert es in häufigen Fällen. "
        "Prüfsummen über alle Ränge, Layout-Signaturen, die Lesesperre von Prefill und die Liste "
        "erlaubter ZMQ-Partner stehen in 0.5.23.",
    ),
    fix=Text("Update to 0.5.23.", "Auf 0.5.23 aktualisieren."),
    sources=(
        DEFERRED_HARDENING,
        CHECKSUM_SAFETY,
        package("sglang", "0.5.21 – 0.5.23", "srt/environ.py, srt/disaggregation/"),
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
