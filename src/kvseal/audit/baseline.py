"""Remembers the effective numbers of a deployment and says what moved since.

Pool size is what memory is left over: it changes with quantisation, parallelism, CUDA graphs or a new
revision of the model, without anybody setting it.
"""

from pathlib import Path
from typing import Final

import msgspec

from kvseal.audit.judge import Change
from kvseal.fleet.facts import Fleet, Key, Server
from kvseal.fleet.literals import integer_of
from kvseal.fleet.versions import parse_version

KEYS: Final = (
    Key.VERSION,
    Key.POOL,
    Key.CONTEXT,
    Key.QUANTIZATION,
    Key.KV_DTYPE,
    Key.PAGE_SIZE,
    Key.TP,
    Key.DP,
    Key.PP,
    Key.BACKEND,
    Key.CHECKSUM,
    Key.DEFERRED,
    Key.MOONCAKE_VERSION,
)
_FORMAT: Final = 1


class Snapshot(msgspec.Struct, frozen=True):
    """`servers`: role and number → fact name → value as text."""

    servers: dict[str, dict[str, str]]
    format: int = _FORMAT


class UnreadableBaseline(Exception):
    """The file exists and is not a baseline."""


def snapshot(fleet: Fleet) -> Snapshot:
    """Servers are named by role and number, since files and addresses change from run to run."""
    counted: dict[str, int] = {}
    servers: dict[str, dict[str, str]] = {}
    for server in sorted(fleet.servers, key=lambda one: one.name):
        role = f"{server.one(Key.ENGINE) or '?'}-{server.one(Key.ROLE) or '?'}"
        counted[role] = counted.get(role, 0) + 1
        servers[f"{role}-{counted[role]}"] = _numbers(server)
    return Snapshot(servers)


def _numbers(server: Server) -> dict[str, str]:
    """Where sources disagree all are kept, so that a change of either shows."""
    return {key.value: " | ".join(sorted(map(str, server.values(key)))) for key in KEYS if server.of(key)}


def load(path: Path) -> Snapshot | None:
    """None where there is no file yet. Raises UnreadableBaseline."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise UnreadableBaseline(problem.strerror or str(problem)) from problem
    try:
        found = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise UnreadableBaseline(str(problem)[:200]) from problem
    if found.format != _FORMAT:
        raise UnreadableBaseline(f"format {found.format} is not known")
    return found


def save(path: Path, now: Snapshot) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(now), indent=2) + b"\n")


def compare(before: Snapshot, now: Snapshot) -> list[Change]:
    """What moved, appeared or went, in the order of the servers."""
    changes = []
    for server in dict.fromkeys([*before.servers, *now.servers]):
        old, new = before.servers.get(server, {}), now.servers.get(server, {})
        for key in KEYS:
            was, is_now = old.get(key.value, ""), new.get(key.value, "")
            if was != is_now:
                changes.append(Change(server, key, was, is_now, _worse(key, was, is_now)))
    return changes


def _worse(key: Key, was: str, is_now: str) -> bool:
    before, after = integer_of(was), integer_of(is_now)
    match key:
        case Key.POOL:
            return before is not None and (after is None or after < before)
        case Key.CONTEXT:
            return before is not None and after is not None and after > before
        case Key.VERSION | Key.MOONCAKE_VERSION:
            older, newer = parse_version(was), parse_version(is_now)
            return older is not None and newer is not None and newer < older
        case Key.CHECKSUM | Key.DEFERRED:
            return was == "True" and is_now != "True"
        case _:
            return bool(was and is_now)
