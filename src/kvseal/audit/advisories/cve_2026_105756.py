"""One salt ends the engine."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-105756",
    Severity.MEDIUM,
    Scope("vllm", Span(None, fixed="0.30.0"), lambda server: connector_is(server, "lmcachemp")),
    Words(
        title=Text(
            "A malformed cache_salt ends the engine (LMCache multiprocess)",
            "Ein fehlerhaftes cache_salt beendet die Engine (LMCache-Mehrprozess)",
        ),
        meaning=Text(
            "The salt that isolates tenants is not checked before LMCache-MP rejects it with an error "
            "that ends EngineCore for everybody.",
            "Das Salz, das Mandanten trennt, wird nicht geprüft, bevor LMCache-MP es mit einem Fehler "
            "ablehnt, der EngineCore für alle beendet.",
        ),
        fix=update_to("0.30.0"),
    ),
    (
        cve("CVE-2026-105756", "vLLM loose cache_salt validation on LMCache-MP deployments"),
        Cite(
            "GHSA-2823-qmq8-rwvj",
            "https://github.com/vllm-project/vllm/security/advisories/GHSA-2823-qmq8-rwvj",
        ),
    ),
)
