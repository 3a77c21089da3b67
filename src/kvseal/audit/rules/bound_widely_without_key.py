"""An engine that answers anyone."""

from kvseal.audit.ask import listens_widely, without_key
from kvseal.audit.cites import VLLM_SECURITY, cve
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every(
        (
            ask(server, Key.ROLE, lambda value: value != "router"),
            listens_widely(server),
            without_key(server),
        )
    )


RULE = Rule(
    id="bound-widely-without-key",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text("The engine answers anyone who reaches it", "Die Engine antwortet jedem, der sie erreicht"),
    meaning=Text(
        "It listens beyond this machine and has no API key. Besides generating, its endpoints load "
        "adapters, update weights and show the configuration; several CVEs need nothing more.",
        "Sie hört über diese Maschine hinaus und hat keinen API-Schlüssel. Neben dem Generieren "
        "laden ihre Endpunkte Adapter, ändern Gewichte und zeigen die Konfiguration; mehrere CVEs "
        "brauchen nicht mehr.",
    ),
    fix=Text(
        "Bind to loopback or a private address behind your gateway; set --api-key (SGLang: "
        "--admin-api-key too).",
        "An Loopback oder eine private Adresse hinter dem Gateway binden; --api-key setzen (SGLang: "
        "auch --admin-api-key).",
    ),
    sources=(
        VLLM_SECURITY,
        cve("CVE-2026-15969", "unauthenticated RCE in /load_lora_adapter_from_tensors"),
    ),
    versions="all",
    check=per_server(judge),
)
