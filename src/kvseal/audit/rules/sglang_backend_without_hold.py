"""Backends that never hold pages after an abort, whatever the version."""

from kvseal.audit.ask import in_span, sglang_disaggregated
from kvseal.audit.cites import package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.21")
HOLDING = frozenset({"mooncake", "mooncake_tcp", "nixl", "mori"})


def judge(server: Server) -> Judged:
    return every(
        (
            sglang_disaggregated(server),
            in_span(server, SPAN),
            ask(server, Key.BACKEND, lambda value: str(value).lower() not in HOLDING),
        )
    )


RULE = Rule(
    id="sglang-backend-without-hold",
    severity=Severity.HIGH,
    effect=Effect.AFFECTED,
    title=Text(
        "This transfer backend frees pages of aborted requests at once",
        "Dieses Übertragungs-Backend gibt Seiten abgebrochener Anfragen sofort frei",
    ),
    meaning=Text(
        "Only mooncake, nixl and mori (from 0.5.22) say that they support deferred release. Others, "
        "ascend among "
        "them, keep the old behaviour in every version that was read, up to 0.5.23.",
        "Nur mooncake, nixl und mori (ab 0.5.22) unterstützen die verzögerte Freigabe. Andere, "
        "darunter ascend, "
        "verhalten sich in allen gelesenen Versionen bis 0.5.23 wie zuvor.",
    ),
    fix=Text(
        "Use mooncake, nixl or mori, or serve from one combined server until the backend supports the hold.",
        "mooncake, nixl oder mori verwenden oder bis zur Unterstützung ohne Trennung von Prefill und "
        "Decode arbeiten.",
    ),
    sources=(package("sglang", "0.5.21 – 0.5.23", "srt/disaggregation/*/conn.py"),),
    versions=str(SPAN),
    check=per_server(judge),
)
