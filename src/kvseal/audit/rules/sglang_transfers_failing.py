"""Failing transfers: the situation in which the faults of this class bite."""

from kvseal.audit.ask import above_zero, sglang_disaggregated
from kvseal.audit.cites import PAGE_REUSE, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every((sglang_disaggregated(server), above_zero(server, Key.TRANSFER_FAILED)))


RULE = Rule(
    id="sglang-transfers-failing",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text("KV transfers have failed", "KV-Übertragungen sind fehlgeschlagen"),
    meaning=Text(
        "Failed and aborted transfers are when pages are reused too early. On an affected version "
        "each is a chance of a leak; on a repaired one it is a fault of the network or a peer. One "
        "counter mixes corruption and network errors.",
        "Bei fehlgeschlagenen und abgebrochenen Übertragungen werden Seiten zu früh wiederverwendet. "
        "Auf betroffenen Versionen ist jede eine Gelegenheit für ein Leck, auf korrigierten ein "
        "Fehler von Netz oder Gegenstelle. Ein Zähler mischt beides.",
    ),
    fix=Text(
        "Alert on sglang:num_transfer_failed_reqs_total and find the cause.",
        "Auf sglang:num_transfer_failed_reqs_total alarmieren und die Ursache finden.",
    ),
    sources=(
        PAGE_REUSE,
        package("sglang", "0.5.23", "srt/observability/metrics_collector.py"),
    ),
    versions="all",
    check=per_server(judge),
)
