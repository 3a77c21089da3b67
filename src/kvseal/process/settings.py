"""The settings of one gateway and of one worker process."""

import os
from pathlib import Path
from typing import Literal, TypeVar

import msgspec


class SettingsUnreadable(Exception):
    """The file is not the settings that the process needs; the text names the field."""


class Tenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who pays. ``key_hash`` is what ``kvseal keys hash`` prints; the key itself is stored nowhere."""

    name: str
    key_hash: str


class WorkerProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One prefill or decode worker. ``run_dir`` is a 0700 directory for its sockets; ``gateways`` are
    addresses.

    ``faults`` are names that only the lab's builds know; a worker that serves refuses to start with any.
    """

    role: Literal["prefill", "decode"]
    model: Path
    model_id: str
    dtype: str
    page_size: int
    pool_pages: int
    reserve_pages: int
    threads: int
    attention: Literal["auto", "native", "sdpa"] = "auto"
    run_dir: Path
    gateways: tuple[str, ...]
    cache_version: int = 0
    chunk_tokens: int = 512
    max_batch: int = 64
    retries: int = 1
    prefill_timeout_s: float = 120.0
    queue_timeout_s: float = 120.0
    drain_timeout_s: float = 30.0
    heartbeat_s: float = 0.5
    log_level: str = "WARNING"
    prefix_reuse: bool = False
    faults: tuple[str, ...] = ()


class GatewayProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gateway. ``listen_fd`` is the inherited socket that clients reach, ``address`` where workers join,
    ``admin`` a unix socket for the operator. ``context`` None advertises what the smallest pool holds.
    """

    role: Literal["gateway"] = "gateway"
    model: Path
    model_id: str
    listen_fd: int
    address: str
    admin: Path
    prefill: int
    decode: int
    context: int | None = None
    tenants: tuple[Tenant, ...] = ()
    max_tokens_default: int = 1024
    request_timeout_s: float = 600.0
    drain_timeout_s: float = 30.0
    log_level: str = "WARNING"
    faults: tuple[str, ...] = ()


Settings = TypeVar("Settings", WorkerProcess, GatewayProcess)


def write_settings(path: Path, settings: WorkerProcess | GatewayProcess) -> None:
    """A new file, readable by its owner only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(settings, enc_hook=str)))


def read_settings(path: Path, kind: type[Settings]) -> Settings:
    """Raises :class:`SettingsUnreadable`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind, dec_hook=_decode)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsUnreadable(f"{path}: {error}") from error


def _decode(kind: type, value: object) -> object:
    """msgspec has no Path of its own."""
    if kind is not Path:
        raise NotImplementedError(kind)
    return Path(str(value))
