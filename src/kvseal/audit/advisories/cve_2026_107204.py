"""LMCache's HTTP servers trust everybody."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.facts import Key
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-107204",
    Severity.HIGH,
    Scope(None, Span(None, last="0.5.5"), key=Key.LMCACHE_VERSION),
    Words(
        title=Text(
            "LMCache's HTTP server runs scripts and shows its environment to anyone (with CVE-2026-107206)",
            "LMCaches HTTP-Server führt Skripte aus und zeigt seine Umgebung jedem (mit CVE-2026-107206)",
        ),
        meaning=Text(
            "/run_script executes commands; in multiprocess mode the server listens on all interfaces "
            "and GET /env shows credentials.",
            "/run_script führt Kommandos aus; im Mehrprozess-Modus hört der Server auf allen "
            "Schnittstellen, GET /env zeigt Zugangsdaten.",
        ),
        fix=Text(
            "Update to 0.5.6 or newer and do not publish LMCache's ports.",
            "Auf 0.5.6 oder neuer aktualisieren, LMCaches Ports nicht veröffentlichen.",
        ),
    ),
    (
        cve("CVE-2026-107204", "LMCache through 0.5.5 unauthenticated remote code execution"),
        cve(
            "CVE-2026-107206", "LMCache through 0.5.5 missing authentication in the multiprocess HTTP server"
        ),
    ),
)
