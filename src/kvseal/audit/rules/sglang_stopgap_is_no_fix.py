"""The stop-gap is on: what it does not do."""

from kvseal.audit.ask import in_span, sglang_disaggregated
from kvseal.audit.cites import DEFERRED_HARDENING, REJECTED_PROMPT
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.19", fixed="0.5.21")


def judge(server: Server) -> Judged:
    on = ask(server, Key.DEFERRED, lambda value: value is True)
    return every((sglang_disaggregated(server), in_span(server, SPAN), on))


RULE = Rule(
    id="sglang-stopgap-is-no-fix",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text(
        "The stop-gap is on, but does not replace the update",
        "Die Notlösung ist an, ersetzt aber die Aktualisierung nicht",
    ),
    meaning=Text(
        "Pages of aborted requests are held, then released after the timeout with or without proof. "
        "Prompts that exceed the pool still take the faulty path.",
        "Seiten abgebrochener Anfragen werden zurückgehalten und nach der Frist mit oder ohne "
        "Nachweis freigegeben. Prompts über der Poolgröße nehmen weiterhin den fehlerhaften Weg.",
    ),
    fix=Text(
        "Update to 0.5.22 or newer; until then keep the context below the pool.",
        "Auf 0.5.22 oder neuer aktualisieren; bis dahin den Kontext unter dem Pool halten.",
    ),
    sources=(
        DEFERRED_HARDENING,
        REJECTED_PROMPT,
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
