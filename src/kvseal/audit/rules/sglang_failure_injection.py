"""Switches for tests, left on."""

from kvseal.audit.ask import above_zero, is_engine
from kvseal.audit.cites import DEFAULTS
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every, some
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    injected = some((above_zero(server, Key.FAILURE_PROB), above_zero(server, Key.CHECKSUM_FAULT_PROB)))
    return every((is_engine(server, "sglang"), injected))


RULE = Rule(
    id="sglang-failure-injection",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text("Failure injection is left on", "Fehlereinspeisung ist noch eingeschaltet"),
    meaning=Text(
        "SGLANG_TEST_DISAGG_FAILURE_PROB makes transfers fail on purpose, "
        "SGLANG_TEST_DISAGG_KV_CHECKSUM_MISMATCH_PROB makes checksums disagree. Both drive the abort "
        "paths that this audit is about.",
        "SGLANG_TEST_DISAGG_FAILURE_PROB lässt Übertragungen absichtlich scheitern, "
        "SGLANG_TEST_DISAGG_KV_CHECKSUM_MISMATCH_PROB Prüfsummen abweichen. Beides treibt genau die "
        "Abbruchpfade, um die es hier geht.",
    ),
    fix=Text("Remove the variable and restart.", "Die Variable entfernen und neu starten."),
    sources=(DEFAULTS,),
    versions="all",
    check=per_server(judge),
)
