"""The guard of 0.5.21 turned off again by an environment variable."""

from kvseal.audit.ask import in_span, sglang_disaggregated
from kvseal.audit.cites import DEFAULTS, DEFERRED_RELEASE
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.21")


def judge(server: Server) -> Judged:
    off = ask(server, Key.DEFERRED, lambda value: value is False)
    return every((sglang_disaggregated(server), in_span(server, SPAN), off))


RULE = Rule(
    id="sglang-hold-switched-off",
    severity=Severity.CRITICAL,
    effect=Effect.AFFECTED,
    title=Text(
        "Deferred release of decode pages is switched off",
        "Die verzögerte Freigabe der Decode-Seiten ist abgeschaltet",
    ),
    meaning=Text(
        "From 0.5.21 on decode keeps the pages of an aborted request until prefill says that it has "
        "stopped writing. "
        "This variable turns that off and brings the fault of older versions back.",
        "Ab 0.5.21 behält Decode die Seiten einer abgebrochenen Anfrage, bis Prefill das Ende des "
        "Schreibens meldet. "
        "Diese Variable schaltet das ab; der Fehler älterer Versionen ist wieder da.",
    ),
    fix=Text(
        "Remove SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0 on prefill and decode, and restart both.",
        "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0 auf Prefill und Decode entfernen, beide "
        "neu starten.",
    ),
    sources=(DEFERRED_RELEASE, DEFAULTS),
    versions=str(SPAN),
    check=per_server(judge),
)
