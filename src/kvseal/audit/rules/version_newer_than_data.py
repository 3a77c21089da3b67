"""Versions that did not exist when the rules were written."""

from kvseal.audit.ask import is_disaggregated, newer_than_data
from kvseal.audit.cites import package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, Missing, ask, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    """Unknown instead of yes: a newer version is not a fault, but nobody has looked at it for these rules."""
    engine = ask(server, Key.ENGINE, lambda value: value in {"sglang", "vllm"})
    newer = every((engine, is_disaggregated(server), newer_than_data(server)))
    if newer.truth is not True:
        return newer
    return Judged(None, newer.because, (Missing(server.name, Key.VERSION),))


RULE = Rule(
    id="version-newer-than-data",
    severity=Severity.INFO,
    effect=Effect.AT_RISK,
    title=Text("This version is newer than the data", "Diese Version ist neuer als die Daten"),
    meaning=Text(
        "Defaults may have changed and new faults may be known. Rules without a last version are "
        "still applied.",
        "Voreinstellungen können sich geändert haben, neue Fehler bekannt sein. Regeln ohne letzte "
        "Version gelten weiter.",
    ),
    fix=Text("Update kvseal and audit again.", "kvseal aktualisieren und erneut prüfen."),
    sources=(package("sglang", "up to 0.5.23", "read"), package("vllm", "up to 0.33.0", "read")),
    versions="newer than the data",
    check=per_server(judge),
)
