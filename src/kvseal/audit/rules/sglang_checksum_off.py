"""Detection that exists and is not used."""

from kvseal.audit.ask import in_span, sglang_disaggregated
from kvseal.audit.cites import CHECKSUM, CHECKSUM_SAFETY, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.21")


def judge(server: Server) -> Judged:
    off = ask(server, Key.CHECKSUM, lambda value: value is not True)
    return every((sglang_disaggregated(server), in_span(server, SPAN), off))


RULE = Rule(
    id="sglang-checksum-off",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text("The KV checksum is off", "Die KV-Prüfsumme ist aus"),
    meaning=Text(
        "Decode can compare a checksum of the pages that arrived with what prefill sent. It is off "
        "by default. It is one Adler-32 per request, compared once: it finds accidents, not "
        "everything.",
        "Decode kann eine Prüfsumme der empfangenen Seiten mit der gesendeten vergleichen. "
        "Voreingestellt ist sie aus. Es ist ein Adler-32 je Anfrage, einmal verglichen: sie findet "
        "Unfälle, nicht alles.",
    ),
    fix=Text(
        "Add --disaggregation-enable-kv-checksum on prefill and decode, on 0.5.23 (before it the "
        "flag can hang tensor parallelism).",
        "--disaggregation-enable-kv-checksum auf Prefill und Decode setzen, ab 0.5.23 (davor kann "
        "der Schalter Tensor-Parallelität blockieren).",
    ),
    sources=(
        CHECKSUM,
        CHECKSUM_SAFETY,
        package("sglang", "0.5.23", "srt/arg_groups/fields/disagg.py"),
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
