"""Pickle that survives the switch against pickle."""

from kvseal.audit.ask import listens_widely, switched_on
from kvseal.audit.cites import cve, package
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span


def _gate(server: Server) -> Judged:
    return every((switched_on(server, Key.DP_ATTENTION), listens_widely(server, Key.DIST_INIT)))


RULE = advisory(
    "CVE-2026-93034",
    Severity.CRITICAL,
    Scope("sglang", Span(None, fixed="0.5.23"), _gate),
    Words(
        title=Text(
            "SGLang's ZMQ decoder runs pickled code, also with pickle switched off",
            "SGLangs ZMQ-Decoder führt Pickle-Code aus, auch mit abgeschaltetem Pickle",
        ),
        meaning=Text(
            "Reachable over the network when data-parallel attention is on and --dist-init-addr is not "
            "loopback. The record names versions up to 0.5.20; the list of allowed peers against it is "
            "in 0.5.23.",
            "Über das Netz erreichbar, wenn DP-Attention an und --dist-init-addr nicht Loopback ist. Der "
            "Eintrag nennt Versionen bis 0.5.20; die Liste erlaubter Partner dagegen steht in 0.5.23.",
        ),
        fix=Text(
            "Update to 0.5.23 and set SGLANG_ZMQ_ALLOWED_PEERS; keep the cluster network closed.",
            "Auf 0.5.23 aktualisieren und SGLANG_ZMQ_ALLOWED_PEERS setzen; das Cluster-Netz geschlossen "
            "halten.",
        ),
    ),
    (
        cve("CVE-2026-93034", "SGLang ZMQ message decoder deserializes PickleWrapper payloads"),
        package("sglang", "0.5.23", "srt/utils/network.py"),
    ),
)
