"""Unbounded memory on decode's rank port."""

from kvseal.audit.ask import is_disaggregated
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-93838",
    Severity.HIGH,
    Scope("sglang", Span(None, last="0.5.20"), is_disaggregated),
    Words(
        title=Text(
            "One message to decode's rank port exhausts its memory",
            "Eine Nachricht an den Rang-Port von Decode erschöpft den Speicher",
        ),
        meaning=Text(
            "STAGING_REQ carries a chunk index that decode allocates for without a bound. Sources "
            "disagree about the first repaired version.",
            "STAGING_REQ trägt einen Blockindex, für den Decode unbegrenzt Speicher anlegt. Quellen "
            "nennen verschiedene erste korrigierte Versionen.",
        ),
        fix=Text(
            "Update to 0.5.22 or newer; keep the rank ports between prefill and decode only.",
            "Auf 0.5.22 oder neuer aktualisieren; Rang-Ports nur zwischen Prefill und Decode zulassen.",
        ),
    ),
    (cve("CVE-2026-93838", "SGLang through 0.5.20 unbounded allocation via STAGING_REQ chunk_idx"),),
)
