"""Mooncake's metadata server lets anyone redirect transfers."""

from kvseal.audit.ask import in_span
from kvseal.audit.cites import cve
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span

SPAN = Span(None, last="0.3.13.post1")


def judge(server: Server) -> Judged:
    served = ask(
        server, Key.MOONCAKE_METADATA, lambda value: str(value).lower().startswith(("http://", "https://"))
    )
    return every((served, in_span(server, SPAN, key=Key.MOONCAKE_VERSION)))


RULE = Rule(
    id="mooncake-metadata-open",
    severity=Severity.HIGH,
    effect=Effect.NONE,
    title=Text(
        "Mooncake's HTTP metadata server has no authentication",
        "Mooncakes HTTP-Metadatenserver hat keine Authentifizierung",
    ),
    meaning=Text(
        "Whoever reaches it can rewrite where segments live and redirect KV transfers to a listener "
        "of their own. No fixed release was known when this data was made.",
        "Wer ihn erreicht, kann umschreiben, wo Segmente liegen, und KV-Übertragungen zu sich "
        "umleiten. Eine korrigierte Ausgabe war beim Stand dieser Daten nicht bekannt.",
    ),
    fix=Text(
        "Use P2PHANDSHAKE instead of the HTTP metadata server, or fence it off.",
        "P2PHANDSHAKE statt des HTTP-Metadatenservers verwenden oder ihn abschotten.",
    ),
    sources=(
        cve(
            "CVE-2026-103765", "Mooncake through 0.3.13.post1 missing authentication in HTTP metadata server"
        ),
    ),
    versions=str(SPAN),
    check=per_server(judge),
)
