"""The roles disagree about the longest prompt."""

from collections.abc import Iterable

from kvseal.audit.ask import pairs
from kvseal.audit.cites import REJECTED_PROMPT
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask_pair, every
from kvseal.fleet.facts import Fleet, Key


def check(fleet: Fleet) -> Iterable[Hit]:
    for prefill, decode, are_pair in pairs(fleet):
        differ = ask_pair(prefill, decode, Key.CONTEXT, lambda a, b: a != b)
        figures = f"{prefill.one(Key.CONTEXT)} / {decode.one(Key.CONTEXT)}"
        yield Hit(
            (prefill.name, decode.name),
            every((are_pair, differ)),
            Text(f"prefill / decode: {figures} tokens", f"Prefill / Decode: {figures} Token"),
        )


RULE = Rule(
    id="sglang-contexts-differ",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text(
        "Prefill and decode advertise different contexts", "Prefill und Decode nennen verschiedene Kontexte"
    ),
    meaning=Text(
        "A prompt that one side admits and the other rejects is the raw material of the 2026 incident.",
        "Ein Prompt, den eine Seite annimmt und die andere ablehnt, ist der Ausgangspunkt des "
        "Vorfalls von 2026.",
    ),
    fix=Text(
        "Set the same --context-length on every server, not above the smallest pool.",
        "Auf jedem Server dieselbe --context-length setzen, nicht größer als der kleinste Pool.",
    ),
    sources=(REJECTED_PROMPT,),
    versions="all",
    check=check,
)
