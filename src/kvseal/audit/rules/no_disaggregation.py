"""Said so, where this class of faults does not exist."""

from kvseal.audit.cites import PAGE_REUSE
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    """Only where every source says so: here a single word to the contrary is the bad case."""
    combined = ask(server, Key.ROLE, lambda value: value == "combined")
    if server.of(Key.ROLE) and set(server.values(Key.ROLE)) != {"combined"}:
        return Judged(False, server.of(Key.ROLE))
    return every((ask(server, Key.ENGINE, lambda value: value in {"sglang", "vllm"}), combined))


RULE = Rule(
    id="no-disaggregation",
    severity=Severity.INFO,
    effect=Effect.NONE,
    title=Text(
        "Prefill and decode are one process: this class of leak does not exist here",
        "Prefill und Decode sind ein Prozess: diese Art von Leck gibt es hier nicht",
    ),
    meaning=Text(
        "Pages do not travel, so neither the one-token placeholder nor a late remote write can mix requests.",
        "Seiten reisen nicht, also kann weder der Ein-Token-Platzhalter noch ein später "
        "Schreibvorgang Anfragen mischen.",
    ),
    fix=Text("Nothing to do for this class.", "Für diese Klasse ist nichts zu tun."),
    sources=(PAGE_REUSE,),
    versions="all",
    check=per_server(judge),
)
