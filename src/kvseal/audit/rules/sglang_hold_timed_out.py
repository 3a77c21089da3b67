"""It is happening now: pages were released although their transfer had not been proven to have ended."""

from kvseal.audit.ask import above_zero, has_role, sglang_disaggregated
from kvseal.audit.cites import DEFERRED_HARDENING, package
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import every
from kvseal.fleet.facts import Fleet, Key

_DETAIL = Text("{count} releases without proof", "{count} Freigaben ohne Nachweis")


def check(fleet: Fleet) -> list[Hit]:
    hits = []
    for server in fleet.servers:
        counts = [value for value in server.values(Key.DEFERRED_TIMEOUTS) if isinstance(value, int)]
        judged = every(
            (
                sglang_disaggregated(server),
                has_role(server, "decode"),
                above_zero(server, Key.DEFERRED_TIMEOUTS),
            )
        )
        hits.append(Hit((server.name,), judged, _DETAIL.filled(count=max(counts, default=0))))
    return hits


RULE = Rule(
    id="sglang-hold-timed-out",
    severity=Severity.HIGH,
    effect=Effect.AT_RISK,
    title=Text(
        "Pages have been released although their transfer may still run",
        "Seiten wurden freigegeben, obwohl ihre Übertragung noch laufen kann",
    ),
    meaning=Text(
        "Decode waited for prefill's word that it had stopped writing, did not get it, and released "
        "the pages anyway. "
        "Each one may have put one request's data into another's.",
        "Decode wartete auf die Meldung, dass Prefill nicht mehr schreibt, erhielt sie nicht und gab "
        "die Seiten "
        "dennoch frei. Jeder Fall kann Daten einer Anfrage in eine andere gebracht haben.",
    ),
    fix=Text(
        "Find out why prefill does not answer (network, crashes, 0.5.21's lost acknowledgements), "
        "update to 0.5.23, "
        "raise the timeout, and alert on the counter.",
        "Klären, warum Prefill nicht antwortet (Netz, Abstürze, verlorene Bestätigungen in 0.5.21), "
        "auf 0.5.23 "
        "aktualisieren, Frist erhöhen und den Zähler überwachen.",
    ),
    sources=(DEFERRED_HARDENING, package("sglang", "0.5.20 – 0.5.23", "srt/disaggregation/decode.py")),
    versions="0.5.19 ≤ v",
    check=check,
)
