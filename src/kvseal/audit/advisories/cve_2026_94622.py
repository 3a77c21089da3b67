"""Six ways to end a vLLM worker through kv_transfer_params."""

from kvseal.audit.ask import is_disaggregated
from kvseal.audit.cites import cve, secondary
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-94622",
    Severity.HIGH,
    Scope("vllm", Span(None, fixed="0.30.0"), is_disaggregated),
    Words(
        title=Text(
            "Clients can end vLLM's KV workers through kv_transfer_params (CVE-2026-94622 to -94627)",
            "Clients können vLLMs KV-Worker über kv_transfer_params beenden (CVE-2026-94622 bis -94627)",
        ),
        meaning=Text(
            "Incomplete or crafted transfer parameters and prompts of unequal length crash the decode "
            "engine or leak its blocks, from the public API. PYSEC names 0.30.0 as the repaired version; "
            "one report says that release was made without all of them.",
            "Unvollständige oder präparierte Parameter und ungleich lange Prompts bringen die "
            "Decode-Engine zum Absturz oder verlieren Blöcke, über die öffentliche API. PYSEC nennt "
            "0.30.0 als korrigiert; ein Bericht bezweifelt das für einen Teil.",
        ),
        fix=Text(
            "Update to 0.33.0; strip kv_transfer_params from client requests at the gateway.",
            "Auf 0.33.0 aktualisieren; kv_transfer_params im Gateway aus Client-Anfragen entfernen.",
        ),
    ),
    (
        cve("CVE-2026-94622", "vLLM through 0.29.0 NIXL connector metadata handling"),
        cve("CVE-2026-94627", "vLLM Mooncake connector through 0.29.0 KV block ownership"),
        secondary(
            "fixed in 0.30.0 according to PYSEC-2026-4004 to -4008",
            "https://osv.dev/vulnerability/PYSEC-2026-4004",
        ),
    ),
)
