"""vLLM reads through handles that are no longer valid."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import VLLM_STALE, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged
from kvseal.fleet.facts import Server


def judge(server: Server) -> Judged:
    return connector_is(server, "nixl")


RULE = Rule(
    id="vllm-stale-handle",
    severity=Severity.HIGH,
    effect=Effect.AT_RISK,
    title=Text(
        "A stale KV handle is answered with another prompt's answer (open issue)",
        "Ein veralteter KV-Verweis wird mit der Antwort eines anderen Prompts beantwortet (offener Fehler)",
    ),
    meaning=Text(
        "vLLM's NIXL connector reads blocks named by kv_transfer_params. After the producer reused "
        "them the answer was the previous prompt's, with HTTP 200 and a failure counter of 0. The "
        "lease is a time limit: it reclaims, it does not fence. Blocks carry no digest.",
        "Der NIXL-Connector liest Blöcke, die kv_transfer_params nennt. Nach deren Wiederverwendung "
        "kam die Antwort des vorigen Prompts, mit HTTP 200 und Fehlerzähler 0. Die Lease ist eine "
        "Frist: sie fordert zurück, sie sperrt nicht. Blöcke tragen keine Prüfsumme.",
    ),
    fix=Text(
        "Let only your router set kv_transfer_params: strip it from client requests. Keep "
        "kv_load_failure_policy fail. Watch the issue.",
        "kv_transfer_params nur vom eigenen Router setzen lassen, aus Client-Anfragen entfernen. "
        "kv_load_failure_policy fail behalten. Den Fehler verfolgen.",
    ),
    sources=(
        VLLM_STALE,
        package("vllm", "0.32.0", "vllm/distributed/kv_transfer (no digest)"),
    ),
    versions="up to the newest read, 0.33.0",
    check=per_server(judge),
)
