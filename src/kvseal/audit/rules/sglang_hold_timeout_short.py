"""Pages released before the transport has given up."""

from kvseal.audit.ask import has_role, sglang_disaggregated
from kvseal.audit.cites import DEFAULTS, DEFERRED_HARDENING, sglang_pull
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server

# sglang #27372 names 30 s as Mooncake's longest transfer.
TRANSPORT_S = 30.0


def judge(server: Server) -> Judged:
    short = ask(
        server, Key.DEFERRED_TIMEOUT, lambda value: isinstance(value, (int, float)) and value < TRANSPORT_S
    )
    return every((sglang_disaggregated(server), has_role(server, "decode"), short))


RULE = Rule(
    id="sglang-hold-timeout-short",
    severity=Severity.HIGH,
    effect=Effect.AT_RISK,
    title=Text(
        "Held pages are released before the transfer can have ended",
        "Zurückgehaltene Seiten werden freigegeben, bevor die Übertragung beendet sein kann",
    ),
    meaning=Text(
        "After this many seconds decode releases the pages of an aborted request without proof. A "
        "Mooncake transfer may "
        "take 30 s, so a smaller value reopens the window that the hold closes.",
        "Nach so vielen Sekunden gibt Decode die Seiten einer abgebrochenen Anfrage ohne Nachweis "
        "frei. Eine Übertragung "
        "mit Mooncake kann 30 s dauern; ein kleinerer Wert öffnet das Fenster wieder.",
    ),
    fix=Text(
        "Set SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT well above the transport's "
        "longest transfer "
        "(60 or more), on both roles.",
        "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT auf beiden Rollen deutlich über "
        "die längste "
        "Übertragung setzen (60 oder mehr).",
    ),
    sources=(
        sglang_pull(27372, "Fix KV cache corruption on abort by notifying ongoing prefill"),
        DEFERRED_HARDENING,
        DEFAULTS,
    ),
    versions="0.5.19 ≤ v",
    check=per_server(judge),
)
