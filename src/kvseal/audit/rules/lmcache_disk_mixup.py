"""LMCache's disk tier returns other requests' content."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import package
from kvseal.audit.rule import Cite, Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    on_disk = ask(
        server, Key.LMCACHE_DISK, lambda value: str(value).lower() not in {"", "none", "false", "0"}
    )
    return every((connector_is(server, "lmcache"), on_disk))


RULE = Rule(
    id="lmcache-disk-mixup",
    severity=Severity.CRITICAL,
    effect=Effect.AT_RISK,
    title=Text(
        "LMCache's disk tier was reported to return other requests' content",
        "LMCaches Plattenstufe soll Inhalte anderer Anfragen liefern",
    ),
    meaning=Text(
        "Open report on 0.5.2 with vLLM 0.26.0: sessions whose cache had moved to local disk were "
        "answered with facts of other conversations, without any error. No fix is known to this data.",
        "Offener Bericht zu 0.5.2 mit vLLM 0.26.0: Sitzungen, deren Cache auf die Platte ausgelagert "
        "war, wurden fehlerfrei mit Inhalten anderer Gespräche beantwortet. Eine Korrektur ist "
        "diesem Datenstand nicht bekannt.",
    ),
    fix=Text(
        "Remove LMCACHE_LOCAL_DISK (local_disk) on servers with more than one user.",
        "LMCACHE_LOCAL_DISK (local_disk) auf Servern mit mehr als einem Benutzer entfernen.",
    ),
    sources=(
        Cite(
            "LMCache #4385: Cross-request KV contamination with local disk backend",
            "https://github.com/LMCache/LMCache/issues/4385",
        ),
        package("lmcache", "0.5.6", "lmcache/v1/config.py"),
    ),
    versions="reported for 0.5.2; later not known to be fixed",
    check=per_server(judge),
)
