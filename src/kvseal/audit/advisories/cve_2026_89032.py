"""A gateway cache that mixes tenants."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text
from kvseal.fleet.facts import Key
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-89032",
    Severity.HIGH,
    Scope(None, Span(None, fixed="1.101.0rc1"), key=Key.LITELLM_VERSION),
    Words(
        title=Text(
            "LiteLLM's semantic cache answers one tenant with another's response",
            "LiteLLMs semantischer Cache beantwortet einen Mandanten mit der Antwort eines anderen",
        ),
        meaning=Text(
            "With the semantic cache on, /v1/responses and other routes look for the tenant in the wrong "
            "field. Any valid key reads others' cached answers.",
            "Mit semantischem Cache suchen /v1/responses und andere Routen den Mandanten im falschen "
            "Feld. Jeder gültige Schlüssel liest fremde zwischengespeicherte Antworten.",
        ),
        fix=Text(
            "Update LiteLLM to 1.101.0 or newer, or switch its semantic cache off.",
            "LiteLLM auf 1.101.0 oder neuer aktualisieren oder den semantischen Cache abschalten.",
        ),
    ),
    (
        cve("CVE-2026-89032", "LiteLLM before 1.101.0-rc.1 tenant isolation bypass in semantic cache"),
        Cite("GHSA-237m-2qxv-ww7c", "https://github.com/advisories/GHSA-237m-2qxv-ww7c"),
    ),
)
