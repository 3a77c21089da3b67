"""The second round of pickle in vLLM's Mooncake integration."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2025-32444",
    Severity.CRITICAL,
    Scope("vllm", Span("0.6.5", fixed="0.8.5"), lambda server: connector_is(server, "mooncake")),
    Words(
        title=Text(
            "vLLM with Mooncake: code execution through an open ZeroMQ socket",
            "vLLM mit Mooncake: Codeausführung über einen offenen ZeroMQ-Socket",
        ),
        meaning=Text(
            "The sockets listen on all interfaces and their messages are unpickled.",
            "Die Sockets hören auf allen Schnittstellen, ihre Nachrichten werden als Pickle gelesen.",
        ),
        fix=update_to("0.8.5"),
    ),
    (cve("CVE-2025-32444", "vLLM Mooncake integration, unsafe deserialization"),),
)
