"""The rendezvous of prefill and decode authenticates nobody."""

from kvseal.audit.ask import has_role, listens_widely, sglang_disaggregated
from kvseal.audit.cites import package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every, some
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    published = ask(server, Key.PUBLISHED_PORTS, lambda value: "8998" in str(value))
    wide = every((has_role(server, "prefill"), listens_widely(server)))
    return every((sglang_disaggregated(server), some((published, wide))))


RULE = Rule(
    id="sglang-bootstrap-open",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text(
        "The bootstrap port of prefill is open to the network",
        "Der Bootstrap-Port von Prefill ist im Netz offen",
    ),
    meaning=Text(
        "The bootstrap server (port 8998) and the transfer's control sockets bind with the server "
        "and authenticate nobody. Who reaches them can register as a peer.",
        "Der Bootstrap-Server (Port 8998) und die Steuer-Sockets der Übertragung hängen an derselben "
        "Adresse und authentifizieren niemanden. Wer sie erreicht, kann sich als Gegenstelle "
        "anmelden.",
    ),
    fix=Text(
        "Put prefill and decode in a network of their own; allow 8998 and the ZMQ ports between them only.",
        "Prefill und Decode in ein eigenes Netz stellen; 8998 und die ZMQ-Ports nur untereinander zulassen.",
    ),
    sources=(package("sglang", "0.5.23", "srt/disaggregation/common/conn.py"),),
    versions="all",
    check=per_server(judge),
)
