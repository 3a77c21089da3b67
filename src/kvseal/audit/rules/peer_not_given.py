"""One half of a deployment cannot be judged without the other."""

from collections.abc import Iterable

from kvseal.audit.ask import is_disaggregated, is_engine
from kvseal.audit.cites import REJECTED_PROMPT
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, Missing
from kvseal.fleet.facts import Fleet, Key


def check(fleet: Fleet) -> Iterable[Hit]:
    """Unknown where a role has no partner. It never says yes: what is not given cannot be at fault."""
    for server in fleet.servers:
        if not server.of(Key.ROLE) and is_engine(server, "kvseal").truth is not True:
            yield Hit((server.name,), Judged(None, (), (Missing(server.name, Key.ROLE),)))
    for mine, other in (("prefill", "decode"), ("decode", "prefill")):
        for server in fleet.servers:
            if mine not in server.values(Key.ROLE):
                continue
            partners = [one for one in fleet.servers if one is not server and other in one.values(Key.ROLE)]
            if not partners and is_disaggregated(server).truth is True:
                unknown = Judged(None, server.of(Key.ROLE), (Missing(other, Key.ROLE),))
                yield Hit((server.name,), unknown)
    if fleet.servers and all(set(server.values(Key.ROLE)) == {"router"} for server in fleet.servers):
        # A router says nothing about the workers behind it.
        yield Hit((fleet.servers[0].name,), Judged(None, (), (Missing("prefill, decode", Key.ROLE),)))


RULE = Rule(
    id="peer-not-given",
    severity=Severity.INFO,
    effect=Effect.AT_RISK,
    title=Text(
        "Only one side of the deployment was given", "Nur eine Seite der Installation wurde angegeben"
    ),
    meaning=Text(
        "Pool, version and layout of prefill and decode have to be compared with each other.",
        "Pool, Version und Layout von Prefill und Decode müssen miteinander verglichen werden.",
    ),
    fix=Text(
        "Give the log, command or URL of the other role too.",
        "Auch Protokoll, Kommando oder URL der anderen Rolle angeben.",
    ),
    sources=(REJECTED_PROMPT,),
    versions="all",
    check=check,
)
