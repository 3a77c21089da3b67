"""A checksum that only one side computes."""

from collections.abc import Iterable

from kvseal.audit.ask import in_span, pairs
from kvseal.audit.cites import CHECKSUM, package
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask_pair, every
from kvseal.fleet.facts import Fleet, Key
from kvseal.fleet.versions import Span

SPAN = Span("0.5.21")


def check(fleet: Fleet) -> Iterable[Hit]:
    for prefill, decode, are_pair in pairs(fleet):
        differ = ask_pair(prefill, decode, Key.CHECKSUM, lambda one, other: one != other)
        yield Hit((prefill.name, decode.name), every((are_pair, in_span(prefill, SPAN), differ)))


RULE = Rule(
    id="sglang-checksum-one-sided",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text(
        "The KV checksum is on for one role only", "Die KV-Prüfsumme ist nur auf einer Rolle eingeschaltet"
    ),
    meaning=Text(
        "Then nothing is compared: an expected value of 0 is accepted. The two sides also register different "
        "numbers of metadata buffers, which may shift the ones that follow.",
        "Dann wird nichts verglichen: ein Sollwert von 0 gilt als richtig. Zudem melden beide Seiten "
        "verschieden viele Metadatenpuffer an, was die folgenden verschieben kann.",
    ),
    fix=Text(
        "Set --disaggregation-enable-kv-checksum on prefill and on decode, or on neither.",
        "--disaggregation-enable-kv-checksum auf Prefill und Decode setzen oder auf keiner Rolle.",
    ),
    sources=(CHECKSUM, package("sglang", "0.5.23", "srt/disaggregation/common/conn.py")),
    versions=str(SPAN),
    check=check,
)
