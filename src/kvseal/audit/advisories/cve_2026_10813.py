"""Cache keys cut to sixteen bits."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.facts import Key
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-10813",
    Severity.MEDIUM,
    Scope(None, Span("0.5.0", last="0.5.4"), key=Key.LMCACHE_VERSION),
    Words(
        title=Text(
            "LMCache identifies multimodal content by a weak hash",
            "LMCache erkennt multimodale Inhalte an einem schwachen Prüfwert",
        ),
        meaning=Text(
            "hex_hash_to_int16 leaves so few bits of a content hash that different contents can get the "
            "same cache key.",
            "hex_hash_to_int16 lässt so wenige Bits eines Prüfwerts übrig, dass verschiedene Inhalte "
            "denselben Cache-Schlüssel erhalten können.",
        ),
        fix=update_to("0.5.5"),
    ),
    (cve("CVE-2026-10813", "LMCache KV Cache utils.py hex_hash_to_int16 weak hash"),),
)
