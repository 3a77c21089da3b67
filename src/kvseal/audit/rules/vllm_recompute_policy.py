"""Failures that nobody sees."""

from kvseal.audit.ask import is_disaggregated, is_engine
from kvseal.audit.cites import VLLM_STALE, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    hides = ask(server, Key.LOAD_FAILURE_POLICY, lambda value: str(value).lower() == "recompute")
    return every((is_engine(server, "vllm"), is_disaggregated(server), hides))


RULE = Rule(
    id="vllm-recompute-policy",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text(
        "Failed KV loads are recomputed in silence",
        "Fehlgeschlagene KV-Ladevorgänge werden stillschweigend neu berechnet",
    ),
    meaning=Text(
        "With kv_load_failure_policy recompute a failed load becomes a local prefill: right when the "
        "failure is noticed, and invisible when it points to corruption.",
        "Mit kv_load_failure_policy recompute wird ein fehlgeschlagenes Laden zu lokalem Prefill: "
        "richtig, wenn der Fehler bemerkt wird, und unsichtbar, wenn er auf Beschädigung hinweist.",
    ),
    fix=Text(
        "Use fail, and alert on vllm:nixl_num_failed_transfers_total.",
        "fail verwenden und auf vllm:nixl_num_failed_transfers_total alarmieren.",
    ),
    sources=(
        package("vllm", "0.32.0", "vllm/config/kv_transfer.py"),
        VLLM_STALE,
    ),
    versions="all",
    check=per_server(judge),
)
