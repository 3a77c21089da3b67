"""The diffusion orchestrator's socket."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-93088",
    Severity.MEDIUM,
    Scope("sglang", Span("0.5.11", last="0.5.14")),
    Words(
        title=Text(
            "SGLang's disaggregated diffusion unpickles before it checks",
            "SGLangs getrennte Diffusion liest Pickle vor jeder Prüfung",
        ),
        meaning=Text(
            "DiffusionServer binds an unauthenticated ROUTER socket. Relevant only where the diffusion "
            "runtime serves; others report later versions as affected too.",
            "DiffusionServer öffnet einen ROUTER-Socket ohne Anmeldung. Nur für die Diffusions-Laufzeit; "
            "andere Quellen nennen auch spätere Versionen.",
        ),
        fix=Text(
            "Do not expose the diffusion orchestrator; update to 0.5.22 or newer.",
            "Den Diffusions-Orchestrator nicht erreichbar machen; auf 0.5.22 oder neuer aktualisieren.",
        ),
    ),
    (cve("CVE-2026-93088", "SGLang DiffusionServer unauthenticated ZeroMQ ROUTER socket"),),
)
