"""Uninitialised logprobs with a KV connector."""

from kvseal.audit.ask import is_disaggregated
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-116180",
    Severity.MEDIUM,
    Scope("vllm", Span("0.8.5", fixed="0.31.0"), is_disaggregated),
    Words(
        title=Text(
            "prompt_logprobs over a connector's prefix reads uninitialised memory and ends the engine",
            "prompt_logprobs über ein Connector-Präfix liest nicht initialisierten Speicher und beendet "
            "die Engine",
        ),
        meaning=Text(
            "Positions that a KV connector reports as computed are never written, so decoding them may "
            "raise an error that ends EngineCore for all tenants.",
            "Positionen, die ein KV-Connector als berechnet meldet, werden nie beschrieben; ihr "
            "Dekodieren kann EngineCore für alle Mandanten beenden.",
        ),
        fix=update_to("0.31.0"),
    ),
    (
        cve(
            "CVE-2026-116180",
            "vLLM from 0.8.5 before 0.31.0 cross-tenant DoS via uninitialized LogprobsTensors",
        ),
    ),
)
