"""Pickle allowed."""

from kvseal.audit.ask import is_engine, switched_on
from kvseal.audit.cites import VLLM_SECURITY, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every((is_engine(server, "vllm"), switched_on(server, Key.INSECURE_SERIALIZATION)))


RULE = Rule(
    id="vllm-insecure-serialization",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text("Insecure serialization is allowed", "Unsichere Serialisierung ist erlaubt"),
    meaning=Text(
        "VLLM_ALLOW_INSECURE_SERIALIZATION lets messages between processes carry pickled objects, "
        "which run code when read.",
        "VLLM_ALLOW_INSECURE_SERIALIZATION lässt Nachrichten zwischen Prozessen Pickle-Objekte "
        "tragen, die beim Lesen Code ausführen.",
    ),
    fix=Text("Remove the variable.", "Die Variable entfernen."),
    sources=(
        package("vllm", "0.32.0", "vllm/envs.py"),
        VLLM_SECURITY,
    ),
    versions="all",
    check=per_server(judge),
)
