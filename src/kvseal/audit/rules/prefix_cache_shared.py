"""One prefix cache for everybody."""

from kvseal.audit.ask import switched_on
from kvseal.audit.cites import secondary
from kvseal.audit.rule import Cite, Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    return every(
        (
            ask(server, Key.ENGINE, lambda value: value in {"sglang", "vllm"}),
            ask(server, Key.ROLE, lambda value: value != "router"),
            switched_on(server, Key.PREFIX_CACHE),
        )
    )


RULE = Rule(
    id="prefix-cache-shared",
    severity=Severity.LOW,
    effect=Effect.NONE,
    title=Text("Prefixes are shared between all callers", "Präfixe werden zwischen allen Aufrufern geteilt"),
    meaning=Text(
        "A prompt that begins like somebody else's is answered faster, so timing tells what others "
        "sent. Neither engine separates tenants by itself; vLLM's cache_salt is the caller's choice. "
        "It matters where several customers share a server.",
        "Ein Prompt, der wie der eines anderen beginnt, wird schneller beantwortet; die Zeit verrät, "
        "was andere sandten. Keine der Engines trennt Mandanten von sich aus; vLLMs cache_salt wählt "
        "der Aufrufer. Wichtig, wo mehrere Kunden einen Server teilen.",
    ),
    fix=Text(
        "With several tenants: let the gateway set cache_salt per tenant (vLLM), or run one server "
        "per tenant, or --disable-radix-cache / --no-enable-prefix-caching.",
        "Bei mehreren Mandanten: cache_salt je Mandant im Gateway setzen (vLLM), ein Server je "
        "Mandant, oder --disable-radix-cache / --no-enable-prefix-caching.",
    ),
    sources=(
        Cite("vLLM: Automatic Prefix Caching", "https://docs.vllm.ai/en/latest/design/prefix_caching/"),
        Cite("The Early Bird Catches the Leak (arXiv 2409.20002)", "https://arxiv.org/abs/2409.20002"),
        secondary(
            "PROMPTPEEK, as summarised",
            "https://aisecurityhandbook.com/chapter-3/prompt-leakage-kv-cache-sharing.html",
        ),
    ),
    versions="all",
    check=per_server(judge),
)
