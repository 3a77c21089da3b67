"""Mooncake's store service has no door."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.facts import Key
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-106037",
    Severity.MEDIUM,
    Scope(None, Span(None, last="0.3.13.post1"), key=Key.MOONCAKE_VERSION),
    Words(
        title=Text(
            "Mooncake's Store REST service is open to everybody",
            "Mooncakes Store-REST-Dienst steht jedem offen",
        ),
        meaning=Text(
            "It binds to 0.0.0.0 without authentication; cached KV data with prompts can be read and "
            "replaced. Relevant only where the store service runs.",
            "Er bindet ohne Anmeldung an 0.0.0.0; zwischengespeicherte KV-Daten mit Prompts lassen sich "
            "lesen und ersetzen. Nur wo der Store-Dienst läuft.",
        ),
        fix=Text(
            "Fence the store service off; no repaired release was known when this data was made.",
            "Den Store-Dienst abschotten; eine korrigierte Ausgabe war beim Stand dieser Daten nicht "
            "bekannt.",
        ),
    ),
    (cve("CVE-2026-106037", "Mooncake through 0.3.13.post1 missing authentication in Store REST service"),),
)
