"""ZMQ broker of multimodal generation."""

from kvseal.audit.cites import cve, secondary
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-3059",
    Severity.HIGH,
    Scope("sglang", Span("0.5.5", fixed="0.5.10")),
    Words(
        title=Text(
            "SGLang's multimodal generation runs pickled code from the network",
            "SGLangs multimodale Erzeugung führt Pickle-Code aus dem Netz aus",
        ),
        meaning=Text(
            "The ZMQ broker of the multimodal generation module unpickles messages from anyone. Relevant "
            "where that module runs.",
            "Der ZMQ-Broker des Moduls für multimodale Erzeugung liest Pickle von jedem. Betroffen, wo "
            "dieses Modul läuft.",
        ),
        fix=update_to("0.5.10"),
    ),
    (
        cve("CVE-2026-3059", "SGLang multimodal generation ZMQ broker unauthenticated RCE"),
        secondary(
            "Orca Security: three SGLang vulnerabilities",
            "https://orca.security/resources/blog/sglang-llm-framework-rce-vulnerabilities/",
        ),
    ),
)
