"""Small fleets for tests, made of facts alone."""

from collections.abc import Mapping

from kvseal.fleet.facts import Fact, Fleet, Key, Server, Source, Value

Known = Mapping[Key, Value]

PREFILL: dict[Key, Value] = {
    Key.ENGINE: "sglang",
    Key.VERSION: "0.5.23",
    Key.ROLE: "prefill",
    Key.BACKEND: "mooncake",
    Key.POOL: 4_000_000,
    Key.CONTEXT: 1_000_000,
    Key.RESERVED_DECODE: 512,
    Key.PAGE_SIZE: 64,
    Key.KV_DTYPE: "auto",
    Key.QUANTIZATION: None,
    Key.TP: 8,
    Key.PP: 1,
    Key.HOST: "127.0.0.1",
    Key.API_KEY: True,
    Key.ADMIN_KEY: True,
    Key.CHECKSUM: True,
    Key.DECODE_RADIX: False,
    Key.DEVICE: "cuda",
    Key.PREFIX_CACHE: False,
    Key.DP_ATTENTION: False,
    Key.DIST_INIT: None,
    Key.DEFERRED: None,
    Key.DEFERRED_TIMEOUT: None,
    Key.FAILURE_PROB: None,
    Key.CHECKSUM_FAULT_PROB: None,
    Key.PICKLE_IPC: False,
    Key.DUMPER_PORT: None,
    Key.MOONCAKE_VERSION: "0.3.14",
    Key.MOONCAKE_METADATA: None,
    Key.TRANSFER_FAILED: 0,
    Key.OVERLONG_SEEN: 0,
    Key.CHECKSUM_MISMATCH: 0,
    Key.CHECKSUM_SKIPPED: 0,
    Key.PUBLISHED_PORTS: "30000:30000",
}
DECODE: dict[Key, Value] = {**PREFILL, Key.ROLE: "decode", Key.DEFERRED_TIMEOUTS: 0}
VLLM: dict[Key, Value] = {
    Key.ENGINE: "vllm",
    Key.VERSION: "0.33.0",
    Key.ROLE: "combined",
    Key.CONNECTOR: None,
    Key.MODEL: "m",
    Key.QUANTIZATION: None,
    Key.PP: 1,
    Key.HOST: "127.0.0.1",
    Key.API_KEY: True,
    Key.PREFIX_CACHE: False,
    Key.KV_IP: "127.0.0.1",
    Key.SIDE_CHANNEL_HOST: None,
    Key.DEV_MODE: None,
    Key.INSECURE_SERIALIZATION: None,
    Key.LEASE_S: 30,
    Key.LEASE_EXPIRED: 0,
    Key.LOAD_FAILURE_POLICY: "fail",
    Key.LMCACHE_DISK: None,
    Key.MOONCAKE_VERSION: "0.3.14",
}
NIXL: dict[Key, Value] = {**VLLM, Key.ROLE: "decode", Key.CONNECTOR: "NixlConnector"}


def server(name: str, known: Known) -> Server:
    return Server(
        name,
        tuple(Fact(key, value, Source("log", f"{name}.log", 1, key.value)) for key, value in known.items()),
    )


def fleet(*known: Known) -> Fleet:
    return Fleet(tuple(server(f"s{number}", one) for number, one in enumerate(known)))
