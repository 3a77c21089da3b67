"""Different numbers of ranks on the two sides."""

from collections.abc import Iterable

from kvseal.audit.ask import pairs
from kvseal.audit.cites import CHECKSUM_SAFETY, sglang_pull
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask_pair, every, some
from kvseal.fleet.facts import Fleet, Key

NAMED = (("TP", Key.TP), ("PP", Key.PP))


def check(fleet: Fleet) -> Iterable[Hit]:
    for prefill, decode, are_pair in pairs(fleet):
        differ = some([ask_pair(prefill, decode, key, lambda a, b: a != b) for _, key in NAMED])
        figures = ", ".join(f"{name} {prefill.one(key)} / {decode.one(key)}" for name, key in NAMED)
        yield Hit(
            (prefill.name, decode.name),
            every((are_pair, differ)),
            Text(f"prefill / decode: {figures}", f"Prefill / Decode: {figures}"),
        )


RULE = Rule(
    id="sglang-parallelism-differs",
    severity=Severity.LOW,
    effect=Effect.NONE,
    title=Text(
        "Prefill and decode differ in tensor or pipeline parallelism",
        "Prefill und Decode unterscheiden sich in Tensor- oder Pipeline-Parallelität",
    ),
    meaning=Text(
        "Supported for some models only, and the KV checksum is skipped for such pairs. Each change "
        "of parallelism also "
        "changes the size of the pools.",
        "Nur für manche Modelle unterstützt; die KV-Prüfsumme wird bei solchen Paaren übersprungen. "
        "Jede Änderung der "
        "Parallelität ändert auch die Größe der Pools.",
    ),
    fix=Text(
        "Use equal parallelism where you rely on the checksum; audit again after each change.",
        "Gleiche Parallelität verwenden, wo die Prüfsumme zählt; nach jeder Änderung erneut prüfen.",
    ),
    sources=(sglang_pull(15675, "Validate TP size compatibility for non-MLA models"), CHECKSUM_SAFETY),
    versions="all",
    check=check,
)
