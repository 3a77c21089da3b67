"""One rule per file; each module has a `RULE`. The order here is the order of equal severity in reports."""

from importlib import import_module
from typing import Final

from kvseal.audit.rule import Rule

MODULES: Final = (
    "sglang_placeholder",
    "sglang_version_affected",
    "sglang_mori_before_0522",
    "sglang_backend_without_hold",
    "sglang_hold_switched_off",
    "sglang_pool_below_context",
    "sglang_hold_timeout_short",
    "sglang_hold_timed_out",
    "sglang_overlong_seen",
    "sglang_layouts_differ",
    "sglang_stopgap_missing",
    "sglang_stopgap_is_no_fix",
    "sglang_branch_without_fixes",
    "sglang_fixes_in_0523",
    "sglang_pool_without_margin",
    "sglang_pools_differ",
    "sglang_contexts_differ",
    "sglang_parallelism_differs",
    "sglang_checksum_off",
    "sglang_checksum_one_sided",
    "sglang_checksum_skipped",
    "sglang_checksum_mismatch_seen",
    "sglang_transfers_failing",
    "sglang_failure_injection",
    "sglang_pickle_ipc",
    "sglang_bootstrap_open",
    "sglang_router_open",
    "bound_widely_without_key",
    "mooncake_memory_open",
    "mooncake_metadata_open",
    "vllm_stale_handle",
    "vllm_remote_writes",
    "vllm_connector_not_reviewed",
    "vllm_recompute_policy",
    "vllm_short_lease",
    "vllm_leases_expired",
    "vllm_transfer_network",
    "vllm_dev_mode",
    "vllm_insecure_serialization",
    "lmcache_disk_mixup",
    "prefix_cache_shared",
    "peer_not_given",
    "version_newer_than_data",
    "no_disaggregation",
    "kvseal_verified",
)


def load_rules() -> tuple[Rule, ...]:
    return tuple(import_module(f"kvseal.audit.rules.{name}").RULE for name in MODULES)
