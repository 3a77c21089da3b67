"""A pool that cannot hold the context it advertises: a warning at most, up to 0.5.23."""

from kvseal.audit.ask import pool_below_context, pool_figures, sglang_disaggregated
from kvseal.audit.cites import LIMITS, REJECTED_PROMPT, package
from kvseal.audit.rule import Effect, Hit, Rule, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import every
from kvseal.fleet.facts import Fleet

_DETAIL = Text(
    "{role}: pool {pool} tokens, context {context}, {short} short. This pool holds a context of {safe}.",
    "{role}: Pool {pool} Token, Kontext {context}, es fehlen {short}. Dieser Pool fasst einen "
    "Kontext von {safe}.",
)


def check(fleet: Fleet) -> list[Hit]:
    return [
        Hit(
            (server.name,),
            every((sglang_disaggregated(server), pool_below_context(server))),
            _DETAIL.filled(**pool_figures(server)),
        )
        for server in fleet.servers
    ]


RULE = Rule(
    id="sglang-pool-below-context",
    severity=Severity.HIGH,
    effect=Effect.AT_RISK,
    title=Text(
        "The KV pool holds less than the advertised context",
        "Der KV-Pool fasst weniger als den beworbenen Kontext",
    ),
    meaning=Text(
        "Prompts that fit the window but not the pool depend on one check in the engine. Before "
        "0.5.21 that check let "
        "them through; since then one door guards them, and the engine only warns about the mismatch.",
        "Prompts, die in das Fenster, aber nicht in den Pool passen, hängen an einer einzigen "
        "Prüfung. Vor 0.5.21 "
        "ließ sie diese durch; seitdem bewacht sie eine Tür, und die Engine warnt nur vor dem "
        "Missverhältnis.",
    ),
    fix=Text(
        "Lower --context-length below the smallest pool of all roles, or enlarge the pool. The "
        "operator of the 2026 "
        "incident now keeps about twice the context. Audit again after every change.",
        "--context-length unter den kleinsten Pool aller Rollen senken oder den Pool vergrößern. Der "
        "Betreiber des "
        "Vorfalls von 2026 hält nun etwa das Doppelte des Kontexts vor. Nach jeder Änderung erneut prüfen.",
    ),
    sources=(
        REJECTED_PROMPT,
        LIMITS,
        package("sglang", "0.5.23", "srt/managers/tp_worker.py (warning only)"),
    ),
    versions="all",
    check=check,
)
