"""LMCache's multiprocess transport unpickles."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.facts import Key
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-105192",
    Severity.HIGH,
    Scope(None, Span("0.3.9"), key=Key.LMCACHE_VERSION),
    Words(
        title=Text(
            "LMCache's multiprocess mode runs pickled code from the network",
            "LMCaches Mehrprozess-Modus führt Pickle-Code aus dem Netz aus",
        ),
        meaning=Text(
            "An unauthenticated ZeroMQ socket (port 5555). It listens on localhost by default: relevant "
            "where it was bound to a routable address. The record names no repaired version.",
            "Ein ZeroMQ-Socket ohne Anmeldung (Port 5555). Voreingestellt nur lokal: betroffen, wo er an "
            "eine erreichbare Adresse gebunden wurde. Der Eintrag nennt keine korrigierte Version.",
        ),
        fix=Text(
            "Keep it on localhost or in a closed network; LMCache inside the vLLM process does not open "
            "this port.",
            "Auf localhost oder in geschlossenem Netz halten; LMCache im vLLM-Prozess öffnet diesen Port "
            "nicht.",
        ),
    ),
    (cve("CVE-2026-105192", "LMCache Unauthenticated RCE in multiprocess mode via pickle deserialization"),),
)
