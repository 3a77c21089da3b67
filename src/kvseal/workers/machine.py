"""The heavy parts of a worker: model, layout, pool, engine, transport. Imports torch."""

import logging
import time
from dataclasses import dataclass, replace

from kvseal.core import guards
from kvseal.core.ids import InstanceId
from kvseal.core.messages import Hello
from kvseal.engine import Engine, choose_kernel, load_model
from kvseal.layout import context_limit, from_config, model_digest, read_config
from kvseal.memory import PrivatePool, SourcePool
from kvseal.process import WorkerProcess
from kvseal.transport import Transport
from kvseal.workers.canary import make_canary

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """What was loaded and allocated. ``hello`` says it to peers."""

    engine: Engine
    pool: SourcePool | PrivatePool
    hello: Hello


def build(settings: WorkerProcess, instance: InstanceId, transport: Transport, address: str = "") -> Machine:
    """Load, allocate, register with the transport, and measure the canary where we prefill.

    Raises ModelUnreadable, UnsupportedModel, KernelUnavailable, MemoryError, OSError.
    """
    began = time.monotonic()
    config = read_config(settings.model)
    layout = from_config(
        config,
        page_size=settings.page_size,
        dtype=settings.dtype,
        model_digest=model_digest(settings.model),
    )
    # How a kernel orders a block is part of what a page means: workers with another order are refused.
    kernel = choose_kernel(settings.attention, layout.head_dim, layout.dtype)
    layout = replace(layout, inner_order=kernel.inner_order)
    pool: SourcePool | PrivatePool
    if guards.g3_exports(settings.role):
        pool = SourcePool.create(settings.pool_pages, layout.page_bytes)
        transport.register(pool)
    else:
        pool = PrivatePool.create(settings.pool_pages, layout.page_bytes)
        transport.register_landing(pool)
    engine = Engine(load_model(settings.model, settings.dtype, settings.threads), layout, pool.array, kernel)
    canary: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if settings.role == "prefill":
        canary = _canary(engine, settings, int(config["vocab_size"]))
    hello = Hello(
        role=settings.role,
        instance=instance,
        model=settings.model_id,
        layout=layout.digest(),
        page_size=settings.page_size,
        dtype=settings.dtype,
        model_context=context_limit(config),
        pool_tokens=pool.pages * settings.page_size,
        reserve_tokens=settings.reserve_pages * settings.page_size,
        transport=transport.capabilities.name,
        address=address,
        endpoint=transport.describe(),
        attention=engine.attention,
        guards=guards.active(),
        canary_prompt=canary[0],
        canary_output=canary[1],
    )
    _log.info(
        "ready after %.1f s: %d pages of %d bytes", time.monotonic() - began, pool.pages, layout.page_bytes
    )
    return Machine(engine, pool, hello)


def _canary(
    engine: Engine, settings: WorkerProcess, vocabulary: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    room = (settings.pool_pages - settings.reserve_pages) * settings.page_size
    length = min(2 * settings.page_size + settings.page_size // 2 + 1, room - 8)

    def reference(tokens: object, count: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        found = engine.reference_greedy(tuple(tokens), count)  # type: ignore[arg-type]
        return found.tokens, found.gaps

    return make_canary(reference, vocabulary, max(1, length), settings.dtype)
