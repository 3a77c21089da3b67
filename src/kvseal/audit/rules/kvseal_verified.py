"""Our own server, where every page is checked before it is read."""

from kvseal.audit.ask import is_engine
from kvseal.audit.cites import package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text

RULE = Rule(
    id="kvseal-verified",
    severity=Severity.INFO,
    effect=Effect.NONE,
    title=Text(
        "kvseal checks every page against the prompt before it is read",
        "kvseal prüft jede Seite vor dem Lesen gegen den Prompt",
    ),
    meaning=Text(
        "It does not start with a pool below the advertised context, a refused request owns no "
        "pages, and a page that "
        "is not the expected one ends the request. That is what its tests show, not a statement "
        "about your network.",
        "Mit einem Pool unter dem beworbenen Kontext startet es nicht, eine abgelehnte Anfrage "
        "besitzt keine Seiten, "
        "und eine unerwartete Seite beendet die Anfrage. Das zeigen seine Tests; über Ihr Netz sagt "
        "es nichts.",
    ),
    fix=Text("Nothing to do for this class.", "Für diese Klasse ist nichts zu tun."),
    sources=(package("kvseal", "0.1.0", "core/guards.py"),),
    versions="all",
    check=per_server(lambda server: is_engine(server, "kvseal")),
)
