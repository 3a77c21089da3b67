"""Somebody else's end of reasoning."""

from kvseal.audit.cites import secondary
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "GHSA-fpch-3xrf-7q96",
    Severity.LOW,
    Scope("vllm", Span("0.21.0", fixed="0.28.0")),
    Words(
        title=Text(
            "A thinking budget can end another request's reasoning",
            "Ein Denkbudget kann das Nachdenken einer anderen Anfrage beenden",
        ),
        meaning=Text(
            "With reasoning_end_str configured, the end string may be forced into a concurrent request "
            "when the batch is reordered. Only a secondary source was found.",
            "Mit reasoning_end_str kann die Endezeichenkette beim Umordnen des Batches in eine "
            "gleichzeitige Anfrage geraten. Nur eine Sekundärquelle wurde gefunden.",
        ),
        fix=update_to("0.28.0"),
    ),
    (
        secondary(
            "ai-stack-advisories v1.2.6, naming GHSA-fpch-3xrf-7q96",
            "https://github.com/munimtechnologies/ai-stack-advisories/releases/tag/v1.2.6",
        ),
    ),
)
