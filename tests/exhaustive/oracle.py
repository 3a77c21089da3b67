"""What must hold in every state, and the only way on from one to the next."""

from tests.exhaustive.memory import Page, Slot, read
from tests.exhaustive.parts import Passes, Violation
from tests.exhaustive.world import World

from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import RequestId
from kvseal.core.leases import Lease


def advance(world: World, action: str) -> None:
    """Let it happen, and check everything afterwards. Raises :class:`Violation`."""
    try:
        world.act(action)
        check(world)
    except InvariantViolation as error:
        raise Violation("assertion", str(error)) from error


def check(world: World) -> None:
    """Provenance of everything that can be read now, and the books of all pools."""
    for job in world.decode._jobs.values():
        if job.lease is not None:
            _check_extent(world, world.pages, job.request, job.lease)
    alive = [source for source in world.sources.values() if source.alive]
    for source in alive:
        for work in source.core._jobs.values():
            if work.lease is not None:
                _check_extent(world, source.pages, work.key.request, work.lease)
        _check_pass(world, source.pages, source.passes)
    _check_pass(world, world.pages, world.passes)
    for pool in (world.decode.pool, *(source.core.pool for source in alive)):
        try:
            pool.check()
        except InvariantViolation as error:
            raise Violation("book", str(error)) from error


def check_stuck(world: World) -> None:
    """Waiting changed nothing: whoever has no answer lacks pages that are in quarantine (F06)."""
    if world.decode.pool.count().quarantined == 0 and world.unfinished():
        raise Violation("stuck", f"nothing can happen any more, answers: {world.answers}")


def _check_extent(world: World, pages: list[Page], request: RequestId, lease: Lease) -> None:
    """Whatever a lease says is proven is the request's own, slot by slot."""
    tenant, tokens = world.sequence(request)
    for position in range(lease.extent):
        page, offset = divmod(position, world.scope.page_size)
        cell = pages[int(lease.pins.pages[page])][offset]
        if cell != Slot(tenant, tokens[: position + 1]):
            kind = "leak" if isinstance(cell, Slot) else "unproven"
            raise Violation(kind, f"{request}: position {position} is proven and holds {cell}")


def _check_pass(world: World, pages: list[Page], passes: Passes) -> None:
    """A running pass may read at any moment. NaN ends the request, anything else would be told."""
    for entry in passes.running.entries if passes.running else ():
        tenant, tokens = world.sequence(entry.key.request)
        found = read(pages, entry.slice.table.pages, tenant, tokens[: entry.slice.start])
        if found.finite and not found.clean:
            raise Violation("leak", f"a running pass of {entry.key.request} reads foreign bytes")
