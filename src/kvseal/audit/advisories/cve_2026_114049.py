"""A token mask of an earlier request."""

from kvseal.audit.cites import cve
from kvseal.audit.published import Scope, Words, advisory
from kvseal.audit.rule import Severity
from kvseal.audit.texts import Text, update_to
from kvseal.fleet.versions import Span

RULE = advisory(
    "CVE-2026-114049",
    Severity.MEDIUM,
    Scope("vllm", Span(None, fixed="0.31.0")),
    Words(
        title=Text(
            "A stale allowed_token_ids mask constrains other clients' answers",
            "Eine alte allowed_token_ids-Maske beschränkt Antworten anderer Clients",
        ),
        meaning=Text(
            "Reused batch slots keep the mask of the request before. Content does not leak, but answers "
            "are changed by somebody else's request.",
            "Wiederverwendete Batch-Plätze behalten die Maske der vorigen Anfrage. Inhalte treten nicht "
            "aus, aber fremde Anfragen verändern Antworten.",
        ),
        fix=update_to("0.31.0"),
    ),
    (cve("CVE-2026-114049", "vLLM before 0.31.0 stale allowed_token_ids mask via InputBatch.condense"),),
)
