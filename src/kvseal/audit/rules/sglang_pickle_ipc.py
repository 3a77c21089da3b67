"""Pickle between processes, on by default."""

from kvseal.audit.ask import in_span, is_engine
from kvseal.audit.cites import DEFAULTS, cve
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span("0.5.18")


def judge(server: Server) -> Judged:
    on = ask(server, Key.PICKLE_IPC, lambda value: value is not False)
    return every((is_engine(server, "sglang"), in_span(server, SPAN), on))


RULE = Rule(
    id="sglang-pickle-ipc",
    severity=Severity.LOW,
    effect=Effect.NONE,
    title=Text("Processes talk in pickle", "Prozesse sprechen Pickle miteinander"),
    meaning=Text(
        "SGLANG_USE_PICKLE_IPC is on by default. Whoever reaches such a socket runs code. Sockets "
        "are local unless data-parallel attention spans hosts. Switching it off does not remove "
        "every pickle path (CVE-2026-93034).",
        "SGLANG_USE_PICKLE_IPC ist voreingestellt an. Wer einen solchen Socket erreicht, führt Code "
        "aus. Die Sockets sind lokal, solange DP-Attention nicht über Hosts geht. Abschalten "
        "entfernt nicht jeden Pickle-Weg (CVE-2026-93034).",
    ),
    fix=Text(
        "Set SGLANG_USE_PICKLE_IPC=0, and SGLANG_ZMQ_ALLOWED_PEERS from 0.5.23 on; keep these ports "
        "off every network you do not own.",
        "SGLANG_USE_PICKLE_IPC=0 setzen, ab 0.5.23 auch SGLANG_ZMQ_ALLOWED_PEERS; diese Ports aus "
        "fremden Netzen heraushalten.",
    ),
    sources=(
        DEFAULTS,
        cve("CVE-2026-93034", "SGLang ZMQ message decoder deserializes PickleWrapper payloads"),
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
