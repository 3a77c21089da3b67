"""Connectors that nobody has read for these rules."""

from kvseal.audit.ask import is_engine
from kvseal.audit.cites import package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, Missing, ask, every
from kvseal.fleet.facts import Key, Server, Value

# Parts of names. Those with rules of their own, and those that keep blocks on the same machine.
REVIEWED = ("nixl", "mooncake", "moriio", "lmcache", "offloading", "simplecpu", "multiconnector")


def _unknown(value: Value) -> bool:
    parts = str(value).lower().split("+")
    return value is not None and not all(any(name in part for name in REVIEWED) for part in parts)


def judge(server: Server) -> Judged:
    """Unknown instead of yes: an unread connector is not a fault."""
    unread = every((is_engine(server, "vllm"), ask(server, Key.CONNECTOR, _unknown)))
    if unread.truth is not True:
        return unread
    return Judged(None, unread.because, (Missing(server.name, Key.CONNECTOR),))


RULE = Rule(
    id="vllm-connector-not-reviewed",
    severity=Severity.INFO,
    effect=Effect.AT_RISK,
    title=Text(
        "This KV connector was not reviewed for these rules",
        "Dieser KV-Connector wurde für diese Regeln nicht geprüft",
    ),
    meaning=Text(
        "Whether its blocks can be read or written after they have changed owner is not known here.",
        "Ob seine Blöcke nach einem Besitzerwechsel gelesen oder beschrieben werden können, ist hier "
        "nicht bekannt.",
    ),
    fix=Text(
        "Ask its authors how a late read or write is fenced.",
        "Die Autoren fragen, wie ein später Zugriff gesperrt wird.",
    ),
    sources=(package("vllm", "0.32.0", "kv_connector/factory.py"),),
    versions="all",
    check=per_server(judge),
)
