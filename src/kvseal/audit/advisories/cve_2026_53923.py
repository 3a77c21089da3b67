"""Uninitialised GPU memory in the GGUF kernels."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, isolation
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text, update_to
from kvseal.audit.truth import Judged, ask, some
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span


def _gate(server: Server) -> Judged:
    return some(
        (
            ask(server, Key.QUANTIZATION, lambda value: str(value).lower() == "gguf"),
            ask(server, Key.MODEL, lambda value: "gguf" in str(value).lower()),
        )
    )


RULE = isolation(
    "CVE-2026-53923",
    Severity.HIGH,
    Scope("vllm", Span("0.5.5", fixed="0.24.0"), _gate),
    Words(
        title=Text(
            "GGUF models can read uninitialised GPU memory",
            "GGUF-Modelle können nicht initialisierten GPU-Speicher lesen",
        ),
        meaning=Text(
            "An integer truncation leaves part of a dequantised tensor unwritten; it holds what was in "
            "GPU memory before, on a shared server somebody else's data.",
            "Eine abgeschnittene Ganzzahl lässt einen Teil des dequantisierten Tensors unbeschrieben; er "
            "enthält früheren GPU-Speicher, auf geteilten Servern fremde Daten.",
        ),
        fix=update_to("0.24.0"),
    ),
    (
        cve("CVE-2026-53923", "vLLM GGUF dequantize kernel int truncation exposes uninitialized GPU memory"),
        Cite("GHSA-5jv2-g5wq-cmr4", "https://github.com/advisories/GHSA-5jv2-g5wq-cmr4"),
    ),
)
