"""Tokens of an earlier request in a reused batch slot."""

from kvseal.audit.cites import secondary
from kvseal.audit.published import Scope, Words, isolation
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask
from kvseal.fleet.facts import Key
from kvseal.fleet.versions import Span

RULE = isolation(
    "GHSA-v97p-wpxp-px84",
    Severity.HIGH,
    Scope(
        "vllm",
        Span("0.16.0", fixed="0.21.0"),
        lambda server: ask(server, Key.PP, lambda value: isinstance(value, int) and value > 1),
    ),
    Words(
        title=Text(
            "Pipeline parallelism with async scheduling feeds one request's tokens into another",
            "Pipeline-Parallelität mit asynchroner Planung speist Token einer Anfrage in eine andere",
        ),
        meaning=Text(
            "Tokens left in a batch slot can be fed into another user's request and end up in its cache "
            "and answer. Only a secondary source was found.",
            "Token in einem Batch-Platz können in die Anfrage eines anderen Benutzers gelangen und in "
            "dessen Cache und Antwort landen. Nur eine Sekundärquelle wurde gefunden.",
        ),
        fix=Text(
            "Update to 0.21.0 or newer; until then --no-async-scheduling or no pipeline parallelism.",
            "Auf 0.21.0 oder neuer aktualisieren; bis dahin --no-async-scheduling oder keine "
            "Pipeline-Parallelität.",
        ),
    ),
    (
        secondary(
            "ai-stack-advisories v1.2.6, naming GHSA-v97p-wpxp-px84",
            "https://github.com/munimtechnologies/ai-stack-advisories/releases/tag/v1.2.6",
        ),
    ),
)
