"""PyNcclPipe listens everywhere and unpickles."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2025-47277",
    Severity.CRITICAL,
    Scope("vllm", Span("0.6.5", fixed="0.8.5"), lambda server: connector_is(server, "pynccl")),
    Words(
        title=Text(
            "vLLM's PyNcclPipe unpickles what any peer sends",
            "vLLMs PyNcclPipe liest Pickle von jeder Gegenstelle",
        ),
        meaning=Text(
            "Its TCPStore listens on all interfaces whatever kv_ip says, and messages are deserialised "
            "without a check.",
            "Sein TCPStore hört unabhängig von kv_ip auf allen Schnittstellen, Nachrichten werden "
            "ungeprüft deserialisiert.",
        ),
        fix=update_to("0.8.5"),
    ),
    (
        cve("CVE-2025-47277", "vLLM PyNcclPipe deserialises untrusted data"),
        Cite(
            "GHSA-hjq4-87xh-g4fv",
            "https://github.com/vllm-project/vllm/security/advisories/GHSA-hjq4-87xh-g4fv",
        ),
    ),
)
