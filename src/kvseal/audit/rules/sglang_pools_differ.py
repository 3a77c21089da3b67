"""The two pools compared: the prompt that prefill cannot hold and decode can."""

from collections.abc import Iterable

from kvseal.audit.ask import pairs
from kvseal.audit.cites import sglang_pull
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask_all, ask_pair, every, some
from kvseal.fleet.facts import Fleet, Key, Server, Value
from kvseal.fleet.literals import integer_of


def _smaller(one: Value, other: Value) -> bool:
    mine, theirs = integer_of(one), integer_of(other)
    return mine is not None and theirs is not None and mine < theirs


def _tight(server: Server) -> bool:
    """Pools far above the context may differ without harm."""
    return (
        ask_all(
            server, (Key.POOL, Key.CONTEXT), lambda p, c: (integer_of(p) or 0) < 2 * (integer_of(c) or 0)
        ).truth
        is not False
    )


def check(fleet: Fleet) -> Iterable[Hit]:
    for prefill, decode, are_pair in pairs(fleet):
        if not _tight(prefill):
            continue
        smaller = some([ask_pair(prefill, decode, Key.POOL, _smaller)])
        figures = f"{prefill.one(Key.POOL)} / {decode.one(Key.POOL)}"
        yield Hit(
            (prefill.name, decode.name),
            every((are_pair, smaller)),
            Text(f"prefill / decode: {figures} tokens", f"Prefill / Decode: {figures} Token"),
        )


RULE = Rule(
    id="sglang-pools-differ",
    severity=Severity.LOW,
    effect=Effect.NONE,
    title=Text(
        "The prefill pool is smaller than the decode pool", "Der Prefill-Pool ist kleiner als der Decode-Pool"
    ),
    meaning=Text(
        "Decode then reserves pages for prompts that prefill rejects. Correct engines end such a "
        "request; the fault of "
        "2026 read the reserved pages.",
        "Decode reserviert dann Seiten für Prompts, die Prefill ablehnt. Korrekte Versionen beenden "
        "die Anfrage; der "
        "Fehler von 2026 las die reservierten Seiten.",
    ),
    fix=Text(
        "Size the context by the smaller pool, or enlarge prefill's pool to twice the context.",
        "Den Kontext nach dem kleineren Pool richten oder den Prefill-Pool auf das Doppelte des "
        "Kontexts bringen.",
    ),
    sources=(sglang_pull(35421, "reject oversized requests at prefill admission (asymmetric pools)"),),
    versions="all",
    check=check,
)
