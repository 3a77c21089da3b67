"""Pickle over the network in vLLM's first Mooncake integration."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2025-29783",
    Severity.CRITICAL,
    Scope("vllm", Span("0.6.5", fixed="0.8.0"), lambda server: connector_is(server, "mooncake")),
    Words(
        title=Text(
            "vLLM's Mooncake integration executes pickled messages from the network",
            "vLLMs Mooncake-Anbindung führt Pickle-Nachrichten aus dem Netz aus",
        ),
        meaning=Text(
            "Deserialisation is exposed over ZMQ/TCP: whoever reaches the port runs code on the workers.",
            "Deserialisierung ist über ZMQ/TCP erreichbar: wer den Port erreicht, führt Code auf den "
            "Workern aus.",
        ),
        fix=update_to("0.8.5"),
    ),
    (
        cve("CVE-2025-29783", "vLLM Allows Remote Code Execution via Mooncake Integration"),
        Cite("GHSA-x3m8-f7g5-qhm7", "https://github.com/advisories/GHSA-x3m8-f7g5-qhm7"),
    ),
)
