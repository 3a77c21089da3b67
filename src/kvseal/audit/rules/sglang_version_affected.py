"""Late writes into freed pages: every default disaggregated installation before 0.5.21."""

from kvseal.audit.ask import before_0521, sglang_disaggregated
from kvseal.audit.cites import DEFAULTS, DEFERRED_RELEASE, PAGE_REUSE, REJECTED_PROMPT
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Server
from kvseal.fleet.versions import Span

# Disaggregation appears in the packages of the 0.4.5 line; earlier ones lack the flag.
SPAN = Span("0.4.0", fixed="0.5.21")


def judge(server: Server) -> Judged:
    return every((sglang_disaggregated(server), before_0521(server, SPAN)))


RULE = Rule(
    id="sglang-version-affected",
    severity=Severity.CRITICAL,
    effect=Effect.AFFECTED,
    title=Text(
        "This SGLang version returns KV pages while a transfer still writes into them",
        "Diese SGLang-Version gibt KV-Seiten frei, während eine Übertragung noch hineinschreibt",
    ),
    meaning=Text(
        "When a request is aborted during its transfer, decode frees the pages at once. The "
        "one-sided write cannot be "
        "recalled and lands in pages that belong to the next request. A prompt rejected for its "
        "length also still "
        "enters the transfer path in these versions.",
        "Wird eine Anfrage während der Übertragung abgebrochen, gibt Decode die Seiten sofort frei. "
        "Der einseitige "
        "Schreibvorgang lässt sich nicht zurückrufen und landet in Seiten der nächsten Anfrage. Auch "
        "ein wegen seiner "
        "Länge abgelehnter Prompt gelangt in diesen Versionen noch in die Übertragung.",
    ),
    fix=Text(
        "Update prefill, decode and router to 0.5.22 or newer (0.5.23 holds further fixes).",
        "Prefill, Decode und Router auf 0.5.22 oder neuer aktualisieren (0.5.23 enthält weitere "
        "Korrekturen).",
    ),
    sources=(PAGE_REUSE, DEFERRED_RELEASE, REJECTED_PROMPT, DEFAULTS),
    versions=str(SPAN),
    check=per_server(judge),
)
