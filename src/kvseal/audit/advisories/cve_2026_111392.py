"""The caller names the cache key."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-111392",
    Severity.HIGH,
    Scope("sglang", Span("0.5.13", last="0.5.21")),
    Words(
        title=Text(
            "Callers of /generate choose the cache key of images",
            "Aufrufer von /generate wählen den Cache-Schlüssel von Bildern",
        ),
        meaning=Text(
            "mm_hashes from the request is trusted as multimodal prefix-cache key: another request's "
            "image content can be disclosed, or its answer corrupted. Relevant for multimodal models "
            "whose /generate clients can reach.",
            "mm_hashes aus der Anfrage gilt als Schlüssel des multimodalen Präfix-Caches: Bildinhalte "
            "anderer Anfragen lassen sich offenlegen, Antworten verfälschen. Betroffen sind multimodale "
            "Modelle mit erreichbarem /generate.",
        ),
        fix=Text(
            "Update to 0.5.22 or newer; expose only the OpenAI-compatible paths.",
            "Auf 0.5.22 oder neuer aktualisieren; nur die OpenAI-kompatiblen Pfade freigeben.",
        ),
    ),
    (cve("CVE-2026-111392", "SGLang through 0.5.21 KV cache poisoning via mm_hashes in /generate"),),
)
