"""Encoder disaggregation unpickles."""

from kvseal.audit.cites import cve, secondary
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-3060",
    Severity.HIGH,
    Scope("sglang", Span(None, fixed="0.5.10")),
    Words(
        title=Text(
            "SGLang's encoder disaggregation runs pickled code from the network",
            "SGLangs Encoder-Trennung führt Pickle-Code aus dem Netz aus",
        ),
        meaning=Text(
            "The receiver of separated encoders unpickles messages from anyone who reaches its socket.",
            "Der Empfänger getrennter Encoder liest Pickle von jedem, der seinen Socket erreicht.",
        ),
        fix=update_to("0.5.10"),
    ),
    (
        cve("CVE-2026-3060", "SGLang encoder parallel disaggregation unauthenticated RCE"),
        secondary(
            "Orca Security: three SGLang vulnerabilities",
            "https://orca.security/resources/blog/sglang-llm-framework-rce-vulnerabilities/",
        ),
    ),
)
