"""The checksum is on, and skipped all the same."""

from kvseal.audit.ask import above_zero, sglang_disaggregated, switched_on, uses_backend
from kvseal.audit.cites import CHECKSUM_SAFETY, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every, some
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    skipped = above_zero(server, Key.CHECKSUM_SKIPPED)
    unsupported = every(
        (
            switched_on(server, Key.CHECKSUM),
            some(
                (
                    uses_backend(server, "mori", "ascend"),
                    switched_on(server, Key.DECODE_RADIX),
                    ask(server, Key.DEVICE, lambda value: str(value).lower() not in {"cuda", "none", "auto"}),
                )
            ),
        )
    )
    return every((sglang_disaggregated(server), some((skipped, unsupported))))


RULE = Rule(
    id="sglang-checksum-skipped",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text(
        "The KV checksum does not cover this deployment", "Die KV-Prüfsumme deckt diese Installation nicht ab"
    ),
    meaning=Text(
        "Checksums exist for CUDA only; pages from a decode-side radix cache are not covered; a "
        "prefill with another layout is admitted unverified with one warning.",
        "Prüfsummen gibt es nur mit CUDA; Seiten aus dem Radix-Cache von Decode sind nicht "
        "abgedeckt; ein Prefill mit anderem Layout wird nach einer Warnung ungeprüft angenommen.",
    ),
    fix=Text(
        "Make layouts equal on both roles, or do not count on the checksum.",
        "Layouts beider Rollen angleichen oder nicht auf die Prüfsumme bauen.",
    ),
    sources=(
        CHECKSUM_SAFETY,
        package("sglang", "0.5.23", "srt/arg_groups/fields/disagg.py, srt/disaggregation/decode.py"),
    ),
    versions="0.5.21 ≤ v",
    check=per_server(judge),
)
