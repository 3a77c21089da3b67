"""One caller ends everybody's requests."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-112266",
    Severity.MEDIUM,
    Scope("sglang", Span(None, last="0.5.22")),
    Words(
        title=Text(
            "A caller's short request id aborts other callers' requests",
            "Eine kurze Anfrage-ID bricht Anfragen anderer Aufrufer ab",
        ),
        meaning=Text(
            "Aborts match request ids by their beginning, and /generate lets callers choose theirs: one "
            "character and a disconnect end many requests at once. Mass aborts are also when pages are "
            "reused too early.",
            "Abbrüche vergleichen Anfrage-IDs nach ihrem Anfang, und /generate lässt Aufrufer ihre "
            "wählen: ein Zeichen und ein Verbindungsende beenden viele Anfragen auf einmal. Massenhafte "
            "Abbrüche sind zudem der Moment, in dem Seiten zu früh wiederverwendet werden.",
        ),
        fix=update_to("0.5.23"),
    ),
    (cve("CVE-2026-112266", "SGLang through 0.5.22 aborts other requests by client-controlled rid"),),
)
