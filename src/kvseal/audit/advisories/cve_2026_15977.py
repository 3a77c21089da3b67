"""/server_info prints keys."""

from kvseal.audit.ask import switched_on, without_key
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span


def _gate(server: Server) -> Judged:
    return every((switched_on(server, Key.ADMIN_KEY), without_key(server)))


RULE = advisory(
    "CVE-2026-15977",
    Severity.HIGH,
    Scope("sglang", Span(None, last="0.5.15"), _gate),
    Words(
        title=Text(
            "/server_info shows keys when only --admin-api-key is set",
            "/server_info zeigt Schlüssel, wenn nur --admin-api-key gesetzt ist",
        ),
        meaning=Text(
            "The page holds the whole configuration, keys among it, and is open where no --api-key "
            "guards it.",
            "Die Seite enthält die gesamte Konfiguration samt Schlüsseln und ist ohne --api-key offen.",
        ),
        fix=Text(
            "Set --api-key too, change the admin key, update to 0.5.22 or newer.",
            "Auch --api-key setzen, Admin-Schlüssel wechseln, auf 0.5.22 oder neuer aktualisieren.",
        ),
    ),
    (
        cve("CVE-2026-15977", "SGLang /server_info credential leak"),
        Cite("CERT/CC VU#281278", "https://www.kb.cert.org/vuls/id/281278"),
    ),
)
