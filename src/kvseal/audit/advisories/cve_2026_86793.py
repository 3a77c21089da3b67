"""The unpickler's list bypassed again."""

from kvseal.audit.ask import without_key
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-86793",
    Severity.CRITICAL,
    Scope("sglang", Span(None, last="0.5.18"), without_key),
    Words(
        title=Text(
            "Anyone can run code through /update_weights_from_tensor",
            "Jeder kann über /update_weights_from_tensor Code ausführen",
        ),
        meaning=Text(
            "The safe unpickler allows builtins.__import__ and getattr. Needs no authentication where no "
            "key is set.",
            "Der sichere Unpickler lässt builtins.__import__ und getattr zu. Ohne Schlüssel ist keine "
            "Anmeldung nötig.",
        ),
        fix=Text(
            "Update to 0.5.22 or newer and set --api-key and --admin-api-key.",
            "Auf 0.5.22 oder neuer aktualisieren, --api-key und --admin-api-key setzen.",
        ),
    ),
    (
        cve(
            "CVE-2026-86793",
            "SGLang unauthenticated pickle deserialization through /update_weights_from_tensor",
        ),
    ),
)
