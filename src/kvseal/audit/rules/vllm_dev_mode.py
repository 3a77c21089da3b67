"""Development endpoints in production."""

from kvseal.audit.ask import is_engine, switched_on
from kvseal.audit.cites import VLLM_SECURITY, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every((is_engine(server, "vllm"), switched_on(server, Key.DEV_MODE)))


RULE = Rule(
    id="vllm-dev-mode",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text("Development endpoints are on", "Entwicklungs-Endpunkte sind an"),
    meaning=Text(
        "VLLM_SERVER_DEV_MODE opens endpoints that reset caches, put the engine to sleep and show "
        "its configuration, to anyone who reaches the port.",
        "VLLM_SERVER_DEV_MODE öffnet Endpunkte, die Caches leeren, die Engine schlafen legen und die "
        "Konfiguration zeigen, für jeden, der den Port erreicht.",
    ),
    fix=Text("Remove VLLM_SERVER_DEV_MODE.", "VLLM_SERVER_DEV_MODE entfernen."),
    sources=(
        package("vllm", "0.32.0", "vllm/envs.py"),
        VLLM_SECURITY,
    ),
    versions="all",
    check=per_server(judge),
)
