"""0.5.19 and 0.5.20 can hold pages, but only if told to."""

from kvseal.audit.ask import in_span, sglang_disaggregated
from kvseal.audit.cites import DEFAULTS, DEFERRED_NIXL, DEFERRED_RELEASE
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.19", fixed="0.5.21")


def judge(server: Server) -> Judged:
    unset = ask(server, Key.DEFERRED, lambda value: value is not True)
    return every((sglang_disaggregated(server), in_span(server, SPAN), unset))


RULE = Rule(
    id="sglang-stopgap-missing",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text(
        "The stop-gap for aborted transfers is not switched on",
        "Die Notlösung für abgebrochene Übertragungen ist nicht eingeschaltet",
    ),
    meaning=Text(
        "This version can hold the pages of aborted requests, but does so only when a variable says "
        "so. It is a stop-gap until the update and does nothing for over-long prompts.",
        "Diese Version kann Seiten abgebrochener Anfragen zurückhalten, tut es aber nur auf "
        "Anweisung. Es ist eine Notlösung bis zur Aktualisierung und hilft nicht gegen überlange "
        "Prompts.",
    ),
    fix=Text(
        "Until you can update: SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1 and …_TIMEOUT=60 "
        "on prefill and decode.",
        "Bis zur Aktualisierung: SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1 und …_TIMEOUT=60 "
        "auf Prefill und Decode.",
    ),
    sources=(
        DEFERRED_RELEASE,
        DEFERRED_NIXL,
        DEFAULTS,
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
