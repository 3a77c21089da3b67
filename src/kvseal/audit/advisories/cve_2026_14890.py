"""The expert backup socket."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Cite, Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-14890",
    Severity.HIGH,
    Scope("sglang", Span(None, last="0.5.14")),
    Words(
        title=Text(
            "SGLang's expert-parallel backup opens an unauthenticated pickle socket",
            "SGLangs Experten-Sicherung öffnet einen Pickle-Socket ohne Anmeldung",
        ),
        meaning=Text(
            "Where elastic expert parallelism is on, a ZeroMQ PULL socket on a routable interface "
            "unpickles what it gets.",
            "Mit elastischer Experten-Parallelität liest ein ZeroMQ-Socket auf einer erreichbaren "
            "Schnittstelle Pickle.",
        ),
        fix=update_to("0.5.15"),
    ),
    (
        cve("CVE-2026-14890", "SGLang expert-parallel backup ZeroMQ PULL socket"),
        Cite("CERT/CC VU#326070", "https://www.kb.cert.org/vuls/id/326070"),
    ),
)
