"""What is known about a deployment: facts with their sources, grouped by server.

    Fleet ── servers ── Server ── facts ── Fact(key, value, source)
          └─ notes: what could not be read, and why

A missing fact is unknown, never a default: where a source is complete (a whole command line), its reader
writes the default down as a fact of its own (`Fact.assumed`), so that taking a fact away always leaves less
knowledge.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

Value = str | int | float | bool | None
"""None: known to be unset."""


class Key(StrEnum):
    """Names of facts. The value is what reports and JSON print."""

    ENGINE = "engine"
    VERSION = "version"
    PREDATES_FIX = "predates-0.5.21"
    ROLE = "role"
    MODEL = "model"
    BACKEND = "transfer-backend"
    POOL = "kv-pool-tokens"
    CONTEXT = "context-tokens"
    TP = "tensor-parallel"
    DP = "data-parallel"
    PP = "pipeline-parallel"
    CP = "context-parallel"
    PAGE_SIZE = "page-size"
    KV_DTYPE = "kv-cache-dtype"
    QUANTIZATION = "quantization"
    HOST = "bind-host"
    PORT = "port"
    API_KEY = "api-key-set"
    ADMIN_KEY = "admin-key-set"
    DIST_INIT = "dist-init-addr"
    DP_ATTENTION = "dp-attention"
    CHECKSUM = "kv-checksum"
    RESERVED_DECODE = "reserved-decode-tokens"
    PREFIX_CACHE = "prefix-cache"
    DECODE_RADIX = "decode-radix-cache"
    DEVICE = "device"
    # environment
    DEFERRED = "deferred-release"
    DEFERRED_TIMEOUT = "deferred-release-timeout"
    FAILURE_PROB = "injected-failures"
    CHECKSUM_FAULT_PROB = "injected-checksum-faults"
    PICKLE_IPC = "pickle-ipc"
    ZMQ_PEERS = "zmq-allowed-peers"
    DUMPER_PORT = "debug-dumper"
    DEV_MODE = "dev-mode"
    INSECURE_SERIALIZATION = "insecure-serialization"
    SIDE_CHANNEL_HOST = "nixl-side-channel-host"
    MOONCAKE_METADATA = "mooncake-metadata-server"
    LMCACHE_DISK = "lmcache-local-disk"
    # vLLM
    CONNECTOR = "kv-connector"
    KV_ROLE = "kv-role"
    LOAD_FAILURE_POLICY = "kv-load-failure-policy"
    LEASE_S = "kv-lease-seconds"
    KV_IP = "kv-ip"
    # other packages
    MOONCAKE_VERSION = "mooncake-version"
    LMCACHE_VERSION = "lmcache-version"
    LITELLM_VERSION = "litellm-version"
    ROUTER_VERSION = "router-version"
    # what has happened
    DEFERRED_TIMEOUTS = "deferred-release-timeouts"
    TRANSFER_FAILED = "transfer-failures"
    BOOTSTRAP_FAILED = "bootstrap-failures"
    OVERLONG_SEEN = "overlong-prompts-seen"
    CHECKSUM_MISMATCH = "checksum-mismatches"
    CHECKSUM_SKIPPED = "checksum-skipped"
    LEASE_EXPIRED = "kv-leases-expired"
    PUBLISHED_PORTS = "published-ports"


_SECRET: Final = re.compile(
    r"""(?ix)
    ( (?<![a-z]) (?:[a-z]+[-_])* (?:api[-_]?key|token|secret|password|passwd|authorization|credentials?)
      (?![a-z]) ['"]? \s* [=:] \s*
    | --[a-z-]* (?:api-key|token|secret|password) (?![a-z-]) \s+ (?!is\b) )
    (?:bearer\s+)? (?!None\b|null\b|true\b|false\b|\*\*\*) ('[^']*'|"[^"]*"|[^\s,;)}'"]+)"""
)
_EXCERPT_CHARS: Final = 200
_EVIDENCE_CHARS: Final = 4000


def redact(text: str) -> str:
    """Text without keys and passwords: logs of both engines print them."""
    return _SECRET.sub(lambda match: match[1] + "***", text)


@dataclass(frozen=True, order=True)
class Source:
    """Where a fact stands. `text` is the evidence, redacted and cut."""

    kind: str
    """log, command, env, packages, url, option"""
    name: str
    line: int | None = None
    text: str = ""

    @property
    def where(self) -> str:
        return self.name if self.line is None else f"{self.name}:{self.line}"


def source(kind: str, name: str, line: int | None, text: str) -> Source:
    """A `Source` whose text is safe to print."""
    clean = "".join(char if char.isprintable() else " " for char in redact(text[:_EVIDENCE_CHARS]))
    clean = " ".join(clean.split())
    return Source(
        kind, name, line, clean if len(clean) <= _EXCERPT_CHARS else clean[: _EXCERPT_CHARS - 1] + "…"
    )


@dataclass(frozen=True)
class Fact:
    key: Key
    value: Value
    source: Source
    assumed: bool = False
    """The source is complete and does not set it, so this is the engine's default."""
    count: int = 1
    """How many lines say so, for facts that count events."""


@dataclass(frozen=True)
class Note:
    """Something that could not be read or that the reader has to know. `code` is translated by the report."""

    code: str
    subject: str
    detail: str = ""


@dataclass(frozen=True)
class Server:
    """One serving process (all ranks of it), or the one that loose facts are about."""

    name: str
    facts: tuple[Fact, ...] = ()

    @cached_property
    def _by_key(self) -> dict[Key, tuple[Fact, ...]]:
        grouped: dict[Key, list[Fact]] = {}
        for fact in self.facts:
            grouped.setdefault(fact.key, []).append(fact)
        return {key: tuple(facts) for key, facts in grouped.items()}

    def of(self, key: Key) -> tuple[Fact, ...]:
        return self._by_key.get(key, ())

    def values(self, key: Key) -> tuple[Value, ...]:
        """Distinct values, in the order of their sources."""
        return tuple(dict.fromkeys(fact.value for fact in self.of(key)))

    def one(self, key: Key) -> Value:
        """The first value or None: for names and grouping, never for a verdict."""
        values = self.values(key)
        return values[0] if values else None

    def conflicts(self) -> tuple[Key, ...]:
        """Keys whose sources contradict each other."""
        return tuple(key for key in Key if len(set(map(_comparable, self.values(key)))) > 1)

    def plus(self, facts: Iterable[Fact]) -> "Server":
        """With further facts. An assumed default yields to an explicit word from the same place."""
        merged = list(dict.fromkeys([*self.facts, *facts]))
        explicit = {fact.key for fact in merged if not fact.assumed}
        return replace(self, facts=tuple(f for f in merged if not (f.assumed and f.key in explicit)))


_COUNTERS: Final = frozenset(
    {
        Key.DEFERRED_TIMEOUTS,
        Key.TRANSFER_FAILED,
        Key.BOOTSTRAP_FAILED,
        Key.OVERLONG_SEEN,
        Key.CHECKSUM_MISMATCH,
        Key.CHECKSUM_SKIPPED,
        Key.LEASE_EXPIRED,
        Key.PUBLISHED_PORTS,
        Key.PORT,
        Key.HOST,
    }
)


def contradicted(server: Server) -> tuple[Key, ...]:
    """Conflicts that mean something: two counters or two ports are no contradiction."""
    return tuple(key for key in server.conflicts() if key not in _COUNTERS)


def _comparable(value: Value) -> str:
    return str(value).lower()


@dataclass(frozen=True)
class Fleet:
    servers: tuple[Server, ...] = ()
    notes: tuple[Note, ...] = ()

    def without(self, server: int, index: int) -> "Fleet":
        """One fact less: what the metamorphic tests take away."""
        chosen = self.servers[server]
        less = replace(chosen, facts=chosen.facts[:index] + chosen.facts[index + 1 :])
        return replace(self, servers=(*self.servers[:server], less, *self.servers[server + 1 :]))
