"""The incident of August and September 2026: an over-long prompt answered from other customers' pages."""

from kvseal.audit.ask import before_0521, pool_below_context, pool_figures, sglang_disaggregated
from kvseal.audit.cites import LIMITS, REJECTED_PROMPT, REJECTED_PROMPT_FIX
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import every
from kvseal.fleet.facts import Fleet
from kvseal.fleet.versions import Span

SPAN = Span("0.4.5", fixed="0.5.21")
_DETAIL = Text(
    "{role}: pool {pool} tokens, context {context}: every prompt in the last {short} tokens of the window "
    "takes the faulty path. This pool holds a context of {safe}.",
    "{role}: Pool {pool} Token, Kontext {context}: jeder Prompt in den letzten {short} Token des Fensters "
    "nimmt den fehlerhaften Weg. Dieser Pool fasst einen Kontext von {safe}.",
)


def check(fleet: Fleet) -> list[Hit]:
    return [
        Hit(
            (server.name,),
            every((sglang_disaggregated(server), pool_below_context(server), before_0521(server, SPAN))),
            _DETAIL.filled(**pool_figures(server)),
        )
        for server in fleet.servers
    ]


RULE = Rule(
    id="sglang-placeholder",
    severity=Severity.CRITICAL,
    effect=Effect.AFFECTED,
    title=Text(
        "Over-long prompts are answered from other requests' memory",
        "Überlange Prompts werden aus dem Speicher fremder Anfragen beantwortet",
    ),
    meaning=Text(
        "A prompt that fits the advertised context but not the KV pool is rejected by swapping it "
        "for one token. With "
        "prefill and decode apart the request goes on: one page is sent, decode reads all the pages that it "
        "reserved, and the rest still hold what earlier requests left there. The client gets HTTP 200.",
        "Ein Prompt, der in den beworbenen Kontext passt, aber nicht in den KV-Pool, wird abgelehnt, "
        "indem er durch "
        "ein einziges Token ersetzt wird. Sind Prefill und Decode getrennt, läuft die Anfrage "
        "weiter: eine Seite wird "
        "übertragen, Decode liest alle reservierten Seiten, und die übrigen enthalten noch die Daten "
        "früherer "
        "Anfragen. Der Client erhält HTTP 200.",
    ),
    fix=Text(
        "Today: set --context-length below the smallest pool on every server and restart. Then "
        "update to 0.5.22 or "
        "newer. Check earlier answers whose usage.prompt_tokens is 1.",
        "Heute: --context-length auf jedem Server unter den kleinsten Pool setzen und neu starten. "
        "Dann auf 0.5.22 "
        "oder neuer aktualisieren. Frühere Antworten mit usage.prompt_tokens = 1 prüfen.",
    ),
    sources=(REJECTED_PROMPT, REJECTED_PROMPT_FIX, LIMITS),
    versions=str(SPAN),
    check=check,
    supersedes=("sglang-pool-below-context", "sglang-version-affected"),
)
