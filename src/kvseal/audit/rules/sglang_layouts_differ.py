"""Prefill and decode give a page different meanings."""

from collections.abc import Iterable

from kvseal.audit.ask import pairs
from kvseal.audit.cites import package
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask_pair, every, some
from kvseal.fleet.facts import Fleet, Key, Server, Value

KEYS = (Key.PAGE_SIZE, Key.KV_DTYPE, Key.QUANTIZATION)


def _differs(one: Value, other: Value) -> bool:
    return str(one).lower() != str(other).lower()


def _detail(prefill: Server, decode: Server) -> Text:
    parts = [
        f"{key.value}: {prefill.one(key)} / {decode.one(key)}"
        for key in KEYS
        if prefill.of(key) and decode.of(key) and _differs(prefill.one(key), decode.one(key))
    ]
    joined = ", ".join(parts)
    return Text(f"prefill / decode: {joined}", f"Prefill / Decode: {joined}")


def check(fleet: Fleet) -> Iterable[Hit]:
    for prefill, decode, are_pair in pairs(fleet):
        differ = some([ask_pair(prefill, decode, key, _differs) for key in KEYS])
        yield Hit((prefill.name, decode.name), every((are_pair, differ)), _detail(prefill, decode))


RULE = Rule(
    id="sglang-layouts-differ",
    severity=Severity.HIGH,
    effect=Effect.AT_RISK,
    title=Text(
        "Prefill and decode use different page layouts",
        "Prefill und Decode verwenden verschiedene Seitenformate",
    ),
    meaning=Text(
        "Page size, cache type and quantisation decide what a page's bytes mean and how many there "
        "are. Where the two "
        "sides differ, pages may be read wrongly or partly, and the checksum is skipped with a warning.",
        "Seitengröße, Datentyp und Quantisierung bestimmen, was die Bytes einer Seite bedeuten und "
        "wie viele es sind. "
        "Weichen beide Seiten ab, werden Seiten falsch oder teilweise gelesen; die Prüfsumme wird "
        "übersprungen.",
    ),
    fix=Text(
        "Give both roles the same --page-size, --kv-cache-dtype and --quantization.",
        "Beiden Rollen gleiche Werte für --page-size, --kv-cache-dtype und --quantization geben.",
    ),
    sources=(package("sglang", "0.5.23", "srt/arg_groups/fields/disagg.py, srt/disaggregation/checksum.py"),),
    versions="all",
    check=check,
)
