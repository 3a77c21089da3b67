"""A pool that holds the context today and may not after the next change."""

from collections.abc import Iterable

from kvseal.audit.ask import pool_below_context, pool_figures, sglang_disaggregated
from kvseal.audit.cites import LIMITS
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask_all, every
from kvseal.fleet.facts import Fleet, Key
from kvseal.fleet.literals import integer_of

MARGIN = 1.25
_DETAIL = Text("{role}: pool {pool}, context {context}", "{role}: Pool {pool}, Kontext {context}")


def check(fleet: Fleet) -> Iterable[Hit]:
    for server in fleet.servers:
        if pool_below_context(server).truth is True:
            continue
        narrow = ask_all(
            server,
            (Key.POOL, Key.CONTEXT),
            lambda pool, context: (integer_of(pool) or 0) < MARGIN * (integer_of(context) or 0),
        )
        yield Hit(
            (server.name,),
            every((sglang_disaggregated(server), narrow)),
            _DETAIL.filled(**pool_figures(server)),
        )


RULE = Rule(
    id="sglang-pool-without-margin",
    severity=Severity.LOW,
    effect=Effect.NONE,
    title=Text(
        "The KV pool exceeds the context by less than a quarter",
        "Der KV-Pool übersteigt den Kontext um weniger als ein Viertel",
    ),
    meaning=Text(
        "Pool size is what is left of the memory: quantisation, parallelism, CUDA graphs or a new "
        "model revision move "
        "it without a word.",
        "Die Poolgröße ist, was vom Speicher übrig bleibt: Quantisierung, Parallelität, CUDA-Graphen "
        "oder eine neue "
        "Modellfassung ändern sie stillschweigend.",
    ),
    fix=Text(
        "Keep up to twice the context in the pool, and run this audit with --baseline after every change.",
        "Im Pool bis zum Doppelten des Kontexts vorhalten und diese Prüfung nach jeder Änderung mit "
        "--baseline laufen "
        "lassen.",
    ),
    sources=(LIMITS,),
    versions="all",
    check=check,
)
