"""Mooncake's TCP transport gives its memory to anyone."""

from kvseal.audit.ask import connector_is, in_span, sglang_disaggregated, uses_backend
from kvseal.audit.cites import cve
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every, some
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span(None, fixed="0.3.13")


def judge(server: Server) -> Judged:
    by_sglang = every((sglang_disaggregated(server), uses_backend(server, "mooncake", "mooncake_tcp")))
    by_vllm = connector_is(server, "mooncake")
    return every((some((by_sglang, by_vllm)), in_span(server, SPAN, key=Key.MOONCAKE_VERSION)))


RULE = Rule(
    id="mooncake-memory-open",
    severity=Severity.CRITICAL,
    effect=Effect.AT_RISK,
    title=Text(
        "Mooncake before 0.3.13: anyone on the network can read and write its memory",
        "Mooncake vor 0.3.13: Jeder im Netz kann seinen Speicher lesen und schreiben",
    ),
    meaning=Text(
        "The TCP data port takes an address and a size from the peer and reads or writes there, "
        "without authentication: KV pages, prompts, secrets. Relevant where the TCP transport is in "
        "use, also as a fallback from RDMA.",
        "Der TCP-Datenport nimmt Adresse und Größe von der Gegenstelle und liest oder schreibt dort, "
        "ohne Authentifizierung: KV-Seiten, Prompts, Geheimnisse. Betroffen ist der TCP-Transport, "
        "auch als Rückfall von RDMA.",
    ),
    fix=Text(
        "Update mooncake-transfer-engine to 0.3.13 or newer; keep its ports in a closed network.",
        "mooncake-transfer-engine auf 0.3.13 oder neuer aktualisieren; seine Ports in ein "
        "geschlossenes Netz stellen.",
    ),
    sources=(
        cve("CVE-2026-103764", "Mooncake before 0.3.13 unauthenticated arbitrary memory read/write via TCP"),
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
