"""The debugging port runs code."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import ask
from kvseal.fleet.facts import Key
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-111391",
    Severity.CRITICAL,
    Scope(
        "sglang",
        Span("0.5.10", last="0.5.22"),
        lambda server: ask(server, Key.DUMPER_PORT, lambda value: value not in {None, "", "-1"}),
    ),
    Words(
        title=Text("The debug dumper runs code for anyone", "Der Debug-Dumper führt Code für jeden aus"),
        meaning=Text(
            "With DUMPER_SERVER_PORT set, /dumper/configure evaluates a filter expression whose sandbox "
            "can be left.",
            "Mit DUMPER_SERVER_PORT wertet /dumper/configure einen Filterausdruck aus, dessen Schranke "
            "sich überwinden lässt.",
        ),
        fix=Text(
            "Remove DUMPER_SERVER_PORT; update to 0.5.23.",
            "DUMPER_SERVER_PORT entfernen; auf 0.5.23 aktualisieren.",
        ),
    ),
    (cve("CVE-2026-111391", "SGLang 0.5.10 through 0.5.22 code injection via debug dumper filter"),),
)
