"""Corruption has been caught."""

from kvseal.audit.ask import above_zero, sglang_disaggregated
from kvseal.audit.cites import CHECKSUM, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every((sglang_disaggregated(server), above_zero(server, Key.CHECKSUM_MISMATCH)))


RULE = Rule(
    id="sglang-checksum-mismatch-seen",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text(
        "The checksum has caught pages that were not what was sent",
        "Die Prüfsumme hat Seiten ertappt, die nicht die gesendeten waren",
    ),
    meaning=Text(
        "Each such line is a request that was about to be answered from wrong pages. What the "
        "checksum does not cover may have gone through.",
        "Jede solche Zeile ist eine Anfrage, die aus falschen Seiten beantwortet worden wäre. Was "
        "die Prüfsumme nicht abdeckt, kann durchgegangen sein.",
    ),
    fix=Text(
        "Look for its cause in transfers and aborts around that time; take affected hosts out.",
        "Ursache in Übertragungen und Abbrüchen um diese Zeit suchen; betroffene Hosts herausnehmen.",
    ),
    sources=(
        CHECKSUM,
        package("sglang", "0.5.23", "srt/disaggregation/decode.py"),
    ),
    versions="0.5.21 ≤ v",
    check=per_server(judge),
)
