"""Connectors in which prefill writes into decode's memory."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import package, vllm_issue
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged
from kvseal.fleet.facts import Server


def judge(server: Server) -> Judged:
    return connector_is(server, "mooncakeconnector", "nixlpush", "moriio")


RULE = Rule(
    id="vllm-remote-writes",
    severity=Severity.HIGH,
    effect=Effect.AT_RISK,
    title=Text(
        "Prefill writes into decode's memory, and decode frees by a timeout",
        "Prefill schreibt in den Speicher von Decode, und Decode gibt nach Frist frei",
    ),
    meaning=Text(
        "With these connectors the blocks of an aborted request return by time (MooncakeConnector: "
        "480 s), not by proof that the write has ended: a late write lands in another request's "
        "blocks.",
        "Bei diesen Connectoren kehren Blöcke einer abgebrochenen Anfrage nach Zeit zurück "
        "(MooncakeConnector: 480 s), nicht nach Nachweis, dass das Schreiben beendet ist: ein später "
        "Schreibvorgang landet in Blöcken einer anderen Anfrage.",
    ),
    fix=Text(
        "Prefer the pulling NixlConnector; do not lower VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT.",
        "Den ziehenden NixlConnector vorziehen; VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT nicht senken.",
    ),
    sources=(
        package("vllm", "0.32.0", "vllm/envs.py, kv_connector/v1/mooncake, nixl/push_worker.py"),
        vllm_issue(53095, "NixlPushConnector heartbeat fails to renew KV leases"),
    ),
    versions="up to the newest read, 0.33.0",
    check=per_server(judge),
)
