"""The model: a forward pass over real bytes that knows where each of them comes from."""

from typing import TYPE_CHECKING

import numpy as np
from tests.simulation.faults import Fault
from tests.simulation.ledger import POISON

from kvseal.core.batch import SliceResult
from kvseal.core.effects import StepEntry, StepPlan

if TYPE_CHECKING:
    from tests.simulation.oracle import Request
    from tests.simulation.process import Process
    from tests.simulation.world import World


def run_pass(world: "World", process: "Process", plan: StepPlan) -> list[SliceResult]:
    """Carry out one pass in this process's pool: read, write, draw tokens."""
    return [_slice(world, process, entry) for entry in plan.entries]


def _slice(world: "World", process: "Process", entry: StepEntry) -> SliceResult:
    work, pool, ledger = entry.slice, process.pool, world.ledger
    assert pool is not None
    request = world.requests[entry.key.request]
    tokens = work.tokens
    if process.role == "prefill" and world.dice.roll(Fault.WRONG_TOKENS):
        tokens = tuple(7 + i for i in range(len(tokens)))
    pool.clear(work.clear)
    seen = ledger.read(pool, work.table.pages, work.start, request.path)
    node, size = _node_before(world, request, work.start), pool.page_size
    for position, token in enumerate(tokens, start=work.start):
        node = ledger.child(node, token)
        raw = POISON if seen.nan else ledger.write(node, process.name, seen.cause)
        pool.put(work.table.pages[position // size], position % size, raw)
    written = np.array(tokens, np.int64)
    if work.sampling is None:
        return SliceResult(None, not seen.nan, written)
    if seen.nan or world.dice.roll(Fault.NAN_LOGITS):
        return SliceResult(None, False, written)
    own = request.path[work.start] if work.start < len(request.path) else -1
    if not seen.cause and node != own:
        return SliceResult(ledger.taint("a prompt that is not the request's own"), True, written)
    return SliceResult(ledger.taint(seen.cause) if seen.cause else ledger.answer(node), True, written)


def _node_before(world: "World", request: "Request", start: int) -> int:
    if not start:
        return world.ledger.root(request.ask.tenant, world.layout)
    return request.path[min(start, len(request.path)) - 1]
