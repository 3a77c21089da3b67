"""The LoRA loader's list of forbidden names was too short."""

from kvseal.audit.ask import without_key
from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-15969",
    Severity.CRITICAL,
    Scope("sglang", Span(None, last="0.5.15"), without_key),
    Words(
        title=Text(
            "Anyone can run code through SGLang's LoRA loader",
            "Jeder kann über SGLangs LoRA-Lader Code ausführen",
        ),
        meaning=Text(
            "/load_lora_adapter_from_tensors unpickles base64 data; the deny list can be bypassed. Needs "
            "no authentication where no key is set.",
            "/load_lora_adapter_from_tensors liest base64-Pickle; die Sperrliste lässt sich umgehen. "
            "Ohne Schlüssel ist keine Anmeldung nötig.",
        ),
        fix=Text(
            "Update to 0.5.22 or newer and set --api-key and --admin-api-key.",
            "Auf 0.5.22 oder neuer aktualisieren, --api-key und --admin-api-key setzen.",
        ),
    ),
    (cve("CVE-2026-15969", "SGLang unauthenticated RCE in /load_lora_adapter_from_tensors"),),
)
