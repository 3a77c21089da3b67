"""Pickle between the nodes of a vLLM V0 cluster."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2025-30165",
    Severity.HIGH,
    Scope("vllm", Span("0.5.2", fixed="0.10.0")),
    Words(
        title=Text(
            "Multi-node vLLM (V0 engine) deserialises pickle from its peers",
            "vLLM über mehrere Knoten (V0) deserialisiert Pickle von Gegenstellen",
        ),
        meaning=Text(
            "Secondary nodes read pickled objects from a ZeroMQ socket: one node taken is all nodes "
            "taken. Only multi-node tensor parallelism on the V0 engine.",
            "Nebenknoten lesen Pickle-Objekte von einem ZeroMQ-Socket: ein übernommener Knoten übernimmt "
            "alle. Nur mehrknotige Tensor-Parallelität mit V0.",
        ),
        fix=update_to("0.10.0"),
    ),
    (
        cve("CVE-2025-30165", "Remote Code Execution Vulnerability in vLLM Multi-Node Cluster Configuration"),
        Cite("GHSA-9pcc-gvx5-r5wm", "https://github.com/advisories/GHSA-9pcc-gvx5-r5wm"),
    ),
)
