"""Forged multimodal features in vLLM's scale-out path."""

from kvseal.audit.ask import is_disaggregated
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-105754",
    Severity.MEDIUM,
    Scope("vllm", Span(None, fixed="0.30.0"), is_disaggregated),
    Words(
        title=Text(
            "Forged multimodal hashes reach another request's encoder cache",
            "Gefälschte multimodale Prüfwerte erreichen den Encoder-Cache anderer Anfragen",
        ),
        meaning=Text(
            "/inference/v1/generate trusts cache identifiers and tensors from the caller: the engine can "
            "be crashed, and cached encoder states of other requests poisoned or fetched.",
            "/inference/v1/generate vertraut Cache-Kennungen und Tensoren des Aufrufers: die Engine kann "
            "abstürzen, Encoder-Zustände anderer Anfragen lassen sich vergiften oder abrufen.",
        ),
        fix=update_to("0.30.0"),
    ),
    (
        cve(
            "CVE-2026-105754",
            "vLLM scale-out disaggregated multimodal transport trusts caller-supplied features",
        ),
        Cite(
            "GHSA-ph72-cqr5-qpp7",
            "https://github.com/vllm-project/vllm/security/advisories/GHSA-ph72-cqr5-qpp7",
        ),
    ),
)
