"""From a configuration to the settings of each process: pure, but for reading the model's config and the free
memory.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvseal.core.errors import StartRefused
from kvseal.layout import Layout, context_limit, default_dtype, from_config, read_config, weight_files
from kvseal.process import GatewayProcess, WorkerProcess
from kvseal.supervisor.config import ServeConfig

RESERVE_PAGES = (
    1  # of each pool: the room in which a canary proves that the pair works while all else is taken
)
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be started. ``context`` None means: advertise what fits."""

    model: Path
    model_id: str
    layout: Layout
    context: int | None
    workers: tuple[WorkerProcess, ...]
    gateway: GatewayProcess


def make_plan(config: ServeConfig, model: Path, run_dir: Path, listen_fd: int) -> Plan:
    """Raises StartRefused (also as UnsupportedModel, ModelUnreadable) before anything is started."""
    dtype = config.dtype or default_dtype()
    described = read_config(model)
    weight_files(model)  # refused early and by name
    # Only sizes are taken from this layout, so its digest may be anything: the workers read the weights.
    layout = from_config(described, page_size=config.page_size, dtype=dtype, model_digest=bytes(16))
    limit = context_limit(described)
    context = None if config.max_context == "auto" else (config.max_context or limit)
    sized = context or limit
    pools = {
        "prefill": config.prefill_pool_tokens or 2 * sized + config.page_size,
        "decode": config.decode_pool_tokens or 4 * sized + config.page_size,
    }
    _check_memory(config, layout, pools, _available_bytes())
    model_id = config.model_id or _model_id(model)
    address = f"unix:{run_dir / 'gateway.sock'}"
    roles: list[Literal["prefill", "decode"]] = ["prefill"] * config.prefill
    roles += ["decode"] * config.decode
    threads = config.threads or max(1, (os.cpu_count() or 1) // len(roles))
    workers = tuple(
        WorkerProcess(
            role=role,
            model=model,
            model_id=model_id,
            dtype=dtype,
            page_size=config.page_size,
            pool_pages=layout.pages_for(pools[role]),
            reserve_pages=RESERVE_PAGES,
            threads=threads,
            attention=config.attention,
            run_dir=run_dir,
            gateways=(address,),
            cache_version=config.cache_version,
            chunk_tokens=config.chunk_tokens,
            max_batch=config.max_batch,
            retries=config.retries,
            prefill_timeout_s=config.prefill_timeout_s,
            queue_timeout_s=config.queue_timeout_s,
            drain_timeout_s=config.drain_timeout_s,
            prefix_reuse=config.prefix_reuse,
            log_level=config.log_level,
        )
        for role in roles
    )
    gateway = GatewayProcess(
        model=model,
        model_id=model_id,
        listen_fd=listen_fd,
        address=address,
        admin=run_dir / "admin.sock",
        prefill=config.prefill,
        decode=config.decode,
        context=context,
        tenants=config.tenants,
        max_tokens_default=config.max_tokens_default,
        request_timeout_s=config.request_timeout_s,
        drain_timeout_s=config.drain_timeout_s,
        log_level=config.log_level,
    )
    return Plan(model, model_id, layout, context, workers, gateway)


def _model_id(model: Path) -> str:
    """The folder's name; the embedded model's folder also carries a digest and a version, which are not its
    name.
    """
    name = model.resolve().name
    return "SmolLM2-135M-Instruct" if name.startswith("SmolLM2-135M-Instruct-") else name


def _check_memory(config: ServeConfig, layout: Layout, pools: dict[str, int], available: int | None) -> None:
    count = {"prefill": config.prefill, "decode": config.decode}
    wanted = sum(count[role] * layout.pages_for(tokens) * layout.page_bytes for role, tokens in pools.items())
    if available is not None and wanted > available:
        raise StartRefused(
            f"the pools need {wanted / 2**30:.1f} GiB ({layout.token_bytes} bytes a token), "
            f"{available / 2**30:.1f} GiB of memory are available: "
            f"lower --prefill-pool-tokens (now {pools['prefill']}) or "
            f"--decode-pool-tokens (now {pools['decode']})"
        )


def _available_bytes() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
