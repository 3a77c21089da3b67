"""Faults that strike at a time and not at an event: crashes, clock jumps, flipped bits at rest, misfits."""

from random import Random
from typing import TYPE_CHECKING

import msgspec
from tests.simulation.faults import Fault
from tests.simulation.ledger import SLOT
from tests.simulation.setup import PAGE_SIZE, PLANNED

from kvseal.core import guards
from kvseal.core.decode import DecodeCore
from kvseal.core.dispatch import GatewayCore
from kvseal.core.ids import LayoutDigest
from kvseal.core.messages import Role
from kvseal.core.prefill import PrefillCore
from kvseal.core.prefix import PrefixTree
from kvseal.core.requests import State

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

OFTEN = (Fault.SOURCE_WRITE, Fault.REST_FLIP, Fault.REMOTE_WRITE)


def plan(world: "World", rng: Random) -> None:
    """Put the planned faults of this seed on the agenda."""
    for fault in PLANNED:
        if not world.dice.rate(fault):
            continue
        for _ in range(12 if fault in OFTEN else rng.choice((1, 1, 2))):
            world.agenda.at(rng.random() * world.setup.heal_s * 0.9, strike, world, fault, rng.random())


def strike(world: "World", fault: Fault, draw: float) -> None:
    """It happens now, to a process that ``draw`` (between 0 and 1) chooses, if there is a fitting one."""
    if world.dice.healed:
        return
    role = {
        Fault.CRASH_PREFILL: "prefill",
        Fault.SOURCE_WRITE: "prefill",
        Fault.CRASH_GATEWAY: "gateway",
        Fault.CRASH_DECODE: "decode",
        Fault.DRAIN: "decode",
        Fault.REMOTE_WRITE: "decode",
    }.get(fault)
    those = [p for p in world.processes.values() if p.alive and role in (None, p.role)]
    if not those:
        return
    process = those[int(draw * len(those))]
    match fault:
        case Fault.CRASH_DECODE | Fault.CRASH_PREFILL | Fault.CRASH_GATEWAY:
            if world.dice.strike(fault):
                world.crash(process, fault.value)
        case Fault.CLOCK_FORWARD | Fault.CLOCK_BACK:
            if world.dice.strike(fault):
                process.skew_s += draw * 40.0 if fault is Fault.CLOCK_FORWARD else -draw * 20.0
        case Fault.DRAIN:
            if isinstance(process.core, DecodeCore) and world.dice.strike(fault):
                process.core.drain()
                process.draining = True
        case Fault.MISFIT:
            if world.dice.strike(fault):
                _misfit(world, draw)
        case _:
            _corrupt(world, process, fault)


def _misfit(world: "World", draw: float) -> None:
    """A worker with a pool that is too small, or of another layout, wants to join."""
    role: Role = "decode" if draw < 0.5 else "prefill"
    process = world.start(role, 9, pages=1 if int(draw * 100) % 2 else 12)
    if len(process.pool or ()) != 1:
        process.hello = msgspec.structs.replace(process.hello, layout=LayoutDigest(b"another layout.."))
    for gateway in world.gateways:
        core = gateway.core if gateway is not None and gateway.alive else None
        if gateway is not None and isinstance(core, GatewayCore) and core.context:
            world.wire.connect(gateway, process)


def _corrupt(world: "World", process: "Process", fault: Fault) -> None:
    pool = process.pool
    if pool is None:
        return
    pages = _at_rest(process, fault)
    if not pages or not world.dice.strike(fault):
        return
    page = pages[world.rng.randrange(len(pages))]
    if world.trace:
        world.note(process.name, f"{fault.value}: page {page}")
    if fault is Fault.REST_FLIP:
        pool.flip(page, world.rng.randrange(8 * PAGE_SIZE * SLOT))
        return
    sources = [p.pool for p in world.processes.values() if p.role == "prefill" and p.pool is not None]
    source = sources[world.rng.randrange(len(sources))]
    pool.bytes[page][:] = source.bytes[world.rng.randrange(len(source))]


def _at_rest(process: "Process", fault: Fault) -> list[int]:
    """Pages at which this fault can strike without that any software could know it.

    A page that a pass of the same request still reads cannot be protected by a digest taken before. So bits
    flip in pages that nobody but the tree holds, and faulty writers hit those, and pages that only wait for
    their release. A decode pool is written by others only if it is exported (G3), but then at any time.
    """
    core = process.core
    if fault is Fault.REMOTE_WRITE:
        return list(range(len(process.pool or ()))) if guards.g3_exports("decode") else []
    match core:
        case DecodeCore():
            return _tree_only(core._loader._tree)
        case PrefillCore() if fault is Fault.SOURCE_WRITE:
            resting, busy = set(_tree_only(core._tree)), set[int]()
            for job in core._jobs.values():
                if job.lease is not None:
                    waits = job.state is State.ANNOUNCED and not job.sealing
                    (resting if waits else busy).update(job.lease.pins.pages.tolist())
            return sorted(resting - busy)
        case PrefillCore():
            return _tree_only(core._tree)
        case _:
            return []


def _tree_only(tree: PrefixTree) -> list[int]:
    return [cached.page for cached in tree._known.values() if tree._pool.holders(cached.page) == 1]
