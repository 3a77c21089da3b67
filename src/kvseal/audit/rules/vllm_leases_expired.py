"""Leases have run out: readers were late."""

from kvseal.audit.ask import above_zero, is_engine
from kvseal.audit.cites import VLLM_STALE, vllm_issue
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every((is_engine(server, "vllm"), above_zero(server, Key.LEASE_EXPIRED)))


RULE = Rule(
    id="vllm-leases-expired",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text("KV leases have expired before they were read", "KV-Leases sind vor dem Lesen abgelaufen"),
    meaning=Text(
        "Blocks were freed while a decode worker may still have held their handle.",
        "Blöcke wurden freigegeben, während ein Decode-Worker ihren Verweis noch halten konnte.",
    ),
    fix=Text(
        "Raise kv_lease_duration, add decode capacity, and make sure that late handles are dropped "
        "by the router.",
        "kv_lease_duration erhöhen, Decode-Kapazität ergänzen und verspätete Verweise im Router verwerfen.",
    ),
    sources=(
        vllm_issue(25562, "NixlConnector: releasing expired KV blocks"),
        VLLM_STALE,
    ),
    versions="all",
    check=per_server(judge),
)
