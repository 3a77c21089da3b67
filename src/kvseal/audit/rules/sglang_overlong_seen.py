"""The log itself names requests that took the path of the incident."""

from kvseal.audit.ask import above_zero, before_0521, sglang_disaggregated
from kvseal.audit.cites import LIMITS, REJECTED_PROMPT, package
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import every
from kvseal.fleet.facts import Fleet, Key
from kvseal.fleet.versions import Span

SPAN = Span("0.4.5", fixed="0.5.21")
_DETAIL = Text("such requests in this log: {count}", "solche Anfragen in diesem Protokoll: {count}")


def check(fleet: Fleet) -> list[Hit]:
    hits = []
    for server in fleet.servers:
        counts = [value for value in server.values(Key.OVERLONG_SEEN) if isinstance(value, int)]
        judged = every(
            (sglang_disaggregated(server), before_0521(server, SPAN), above_zero(server, Key.OVERLONG_SEEN))
        )
        hits.append(Hit((server.name,), judged, _DETAIL.filled(count=max(counts, default=0))))
    return hits


RULE = Rule(
    id="sglang-overlong-seen",
    severity=Severity.CRITICAL,
    effect=Effect.NONE,
    title=Text(
        "Requests have already taken the faulty path",
        "Anfragen haben den fehlerhaften Weg bereits genommen",
    ),
    meaning=Text(
        "Each of these lines is a prompt that was rejected for its length and, in this version, was "
        "answered all the "
        "same. The answers may hold text of other requests.",
        "Jede dieser Zeilen ist ein wegen seiner Länge abgelehnter Prompt, der in dieser Version "
        "trotzdem beantwortet "
        "wurde. Die Antworten können Text anderer Anfragen enthalten.",
    ),
    fix=Text(
        "Treat it as an incident: keep the logs, find the answers by request id (usage.prompt_tokens "
        "is 1), and tell "
        "those concerned as your law requires.",
        "Als Vorfall behandeln: Protokolle sichern, Antworten über die Anfrage-ID finden "
        "(usage.prompt_tokens = 1) "
        "und Betroffene nach geltendem Recht informieren.",
    ),
    sources=(REJECTED_PROMPT, LIMITS, package("sglang", "0.5.5 – 0.5.20", "srt/managers/utils.py")),
    versions=str(SPAN),
    check=check,
)
