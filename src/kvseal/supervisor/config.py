"""What ``kvseal serve`` is told: defaults, a TOML file over them, flags over both."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvseal.core.errors import StartRefused
from kvseal.process import Tenant

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every field is an option of the file, and most are flags (``prefill_pool_tokens`` is
    ``--prefill-pool-tokens``).

    ``max_context`` None is the model's own context, which must fit the pools; "auto" lowers it to what fits
    (G1). Pools are in tokens and are rounded up to pages; None: two contexts for prefill, four for decode.
    """

    model: str | None = None
    model_id: str | None = None
    dtype: Literal["float32", "bfloat16"] | None = None
    prefill: Positive = 1
    decode: Positive = 1
    max_context: Positive | Literal["auto"] | None = None
    prefill_pool_tokens: Positive | None = None
    decode_pool_tokens: Positive | None = None
    page_size: Annotated[int, Meta(ge=1, le=4096)] = 16
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    threads: Positive | None = None
    attention: Literal["auto", "native", "sdpa"] = "auto"
    tenants: tuple[Tenant, ...] = ()
    max_tokens_default: Positive = 1024
    chunk_tokens: Positive = 512
    max_batch: Positive = 64
    retries: Annotated[int, Meta(ge=0, le=16)] = 1
    cache_version: Annotated[int, Meta(ge=0)] = 0
    prefix_reuse: bool = False
    request_timeout_s: Seconds = 600.0
    prefill_timeout_s: Seconds = 120.0
    queue_timeout_s: Seconds = 120.0
    drain_timeout_s: Seconds = 30.0
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "WARNING"


def load_config(path: Path | None, flags: Mapping[str, Any]) -> ServeConfig:
    """Defaults, then the file, then the flags that are not None. Raises StartRefused that names the field."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise StartRefused(f"--config {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StartRefused(f"--config {path}: {error}") from error
    where = f"--config {path}" if path is not None else "options"
    values |= {name: value for name, value in flags.items() if value is not None}
    try:
        config = msgspec.convert(values, ServeConfig)
    except msgspec.ValidationError as error:
        raise StartRefused(f"{where}: {error}") from error
    _check_tenants(config)
    return config


def _check_tenants(config: ServeConfig) -> None:
    names = [tenant.name for tenant in config.tenants]
    for name in names:
        if not name or "/" in name or len(name) > 64:
            raise StartRefused(f"tenant {name!r}: a name has 1 to 64 characters and no slash")
    hashes = [tenant.key_hash for tenant in config.tenants]
    if len(set(hashes)) != len(hashes):
        raise StartRefused("two tenants have the same key")
    if not config.tenants and config.host not in ("127.0.0.1", "localhost", "::1"):
        raise StartRefused(
            f"--host {config.host}: without API keys this server listens on loopback only. "
            "Add [[tenants]] to the configuration file (`kvseal keys hash` makes a key's hash)"
        )
