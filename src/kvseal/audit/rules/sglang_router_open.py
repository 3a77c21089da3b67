"""The router is the front door."""

from kvseal.audit.ask import listens_widely, without_key
from kvseal.audit.cites import package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every(
        (
            ask(server, Key.ROLE, lambda value: value == "router"),
            listens_widely(server),
            without_key(server),
        )
    )


RULE = Rule(
    id="sglang-router-open",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text(
        "The router answers anyone on every interface", "Der Router antwortet jedem auf allen Schnittstellen"
    ),
    meaning=Text(
        "Its default address is 0.0.0.0. Without --api-key everybody on that network can send "
        "requests and use its control plane (adding and removing workers).",
        "Seine voreingestellte Adresse ist 0.0.0.0. Ohne --api-key kann jeder in diesem Netz "
        "Anfragen stellen und die Steuerung nutzen (Worker hinzufügen und entfernen).",
    ),
    fix=Text(
        "Bind it to the address that your gateway uses, and set --api-key.",
        "An die Adresse binden, die das Gateway nutzt, und --api-key setzen.",
    ),
    sources=(package("sglang-router", "0.3.2", "router_args.py"),),
    versions="all",
    check=per_server(judge),
)
