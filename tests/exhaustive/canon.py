"""When are two worlds the same? When no future can tell them apart.

So a state is written down without what nothing depends on: counters, transfer and digest numbers, absolute
generations (a pin is current or it is not, and never becomes current again), the order of an unordered
network. Pages are renamed by first appearance, and so are requests where the scope says that they are alike.
"""

from collections.abc import Hashable, Iterable
from hashlib import blake2b

import numpy as np
from tests.exhaustive.memory import Filler, Page
from tests.exhaustive.parts import DECODE, Packet, Passes, Source
from tests.exhaustive.world import World

from kvseal.core import guards
from kvseal.core.decode import DecodeCore
from kvseal.core.effects import StepPlan
from kvseal.core.ids import AttemptKey, InstanceId, PageId, RequestId, Seal, TenantId
from kvseal.core.job import Job
from kvseal.core.leases import Lease
from kvseal.core.loading import CheckJob, PullJob
from kvseal.core.messages import Manifest, Prefill, PrefillEnded, Release, Released, SealedPage
from kvseal.core.pages import PagePool, Pins
from kvseal.core.prefill import PrefillCore
from kvseal.core.prefix import PrefixTree

Key = Hashable


class Book:
    """One pool's pages, renamed in the order in which they are spoken of."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._names: dict[int, int] = {}
        self._stack = tuple(self.name(page) for page in pool._stack[: pool._free].tolist())

    def name(self, page: int) -> int:
        return self._names.setdefault(page, len(self._names))

    def pins(self, pins: Pins) -> Key:
        current = pins.generations == self._pool._generation[pins.pages]
        return tuple(zip(map(self.name, pins.pages.tolist()), current.tolist(), strict=True))

    def rest(self, contents: list[Key]) -> Key:
        """Holders, open pulls and contents of all pages. Comes last: it names those that nobody spoke of."""
        pool = self._pool
        rows = zip(pool._holders.tolist(), pool._unproven.tolist(), contents, strict=True)
        return self._stack, tuple(sorted((self.name(page), row) for page, row in enumerate(rows)))


class Canon:
    """Writes one world down. Made anew for each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.poisoned = len(guards.g8_poison(np.zeros(1, np.int64))) == 1
        self.symmetric = world.symmetric
        self._requests: dict[RequestId, int] = {}
        self._owner = {ask.tenant: i for i, ask in enumerate(world.scope.asks)}

    # --- names
    # ---------------------------------------------------------------------------------------------------

    def request(self, request: RequestId) -> int:
        index = int(request[1:])
        return self._requests.setdefault(request, len(self._requests)) if self.symmetric else index

    def attempt(self, key: AttemptKey) -> Key:
        return self.request(key.request), key.attempt

    def life(self, instance: InstanceId | None) -> int | None:
        return None if instance is None else self.world.life - int(instance[-3:])

    def page(self, page: Page) -> Key:
        return tuple(
            cell.name
            if isinstance(cell, Filler)
            else (self._tenant(cell.tenant), len(cell.tokens), cell.clean)
            if self.symmetric
            else cell
            for cell in page
        )

    def _tenant(self, tenant: TenantId) -> int:
        return self.request(RequestId(f"r{self._owner[tenant]}"))

    def seal(self, seal: Seal) -> Key:
        page = self.world.sealer.page_of(seal)
        return None if page is None else self.page(page)

    def row(self, row: SealedPage) -> Key:
        return row.ordinal, self.identity(row.page_id), self.seal(row.seal)

    def identity(self, identity: PageId) -> Key:
        known = self.world.sealer.tokens_of(identity)
        if known is None:
            return identity
        tenant, length = known
        return (self._tenant(tenant), length) if self.symmetric else identity

    # --- parts
    # ---------------------------------------------------------------------------------------------------

    def lease(self, book: Book, lease: Lease | None) -> Key:
        if lease is None:
            return None
        return book.pins(lease.pins), lease.shared, lease.extent, tuple(sorted(lease._proven))

    def decode_job(self, book: Book, job: Job) -> Key:
        return (
            self.attempt(job.key),
            job.state,
            len(job.output),
            self.lease(book, job.lease),
            len(job.expected),
            len(job.names),
            tuple((ordinal, self.seal(seal)) for ordinal, seal in sorted(job.seals.items())),
            tuple(sorted(job.posted)),
            self.life(job.source),
            self.life(job.avoid),
            job.planned,
            job.cached_tokens,
        )

    def tree(self, book: Book, tree: PrefixTree) -> Key:
        return tuple(
            (
                self.identity(i),
                book.name(c.page),
                c.generation == tree._pool._generation[c.page],
                self.seal(c.seal),
            )
            for i, c in tree._known.items()
        )

    def passes(self, book: Book, core: DecodeCore | PrefillCore, passes: Passes) -> Key:
        return self.plan(book, core, passes.planned), self.plan(book, core, passes.running)

    def plan(self, book: Book, core: DecodeCore | PrefillCore, plan: StepPlan | None) -> Key:
        if plan is None:
            return None
        entries = []
        for entry in plan.entries:
            job = core._planned[entry]
            work = (entry.slice.start, tuple(map(book.name, entry.slice.table.pages)), len(entry.slice.clear))
            entries.append(
                (self.attempt(entry.key), book.pins(entry.pins), work, job.state, self.attempt(job.key))
            )
        return tuple(entries)

    # --- the whole
    # ---------------------------------------------------------------------------------------------------

    def key(self) -> Key:
        world = self.world
        core = world.decode
        loader = core._loader
        book = Book(core.pool)
        jobs = tuple(self.decode_job(book, job) for job in core._jobs.values())
        source_books = {i: Book(s.core.pool) for i, s in world.sources.items()}
        prefill = tuple(self.source_jobs(source_books[i], s) for i, s in world.sources.items() if s.alive)
        plans = self.passes(book, core, world.passes)
        tree = self.tree(book, loader._tree)
        network = self.bag(self.packet(source_books, p) for p in world.network)
        flights = self.bag(
            (
                self.life(f.pull.source),
                tuple(map(source_books[f.pull.source].name, f.pull.src.tolist())),
                tuple(map(book.name, f.pull.dst.tolist())),
                f.bytes is not None and tuple(map(self.page, f.bytes)),
                self.pull(loader._pulls.get(n)),
            )
            for n, f in world.flights.items()
        )
        asked = self.bag(
            (
                a.by == DECODE or self.life(a.by),
                tuple(map((book if a.by == DECODE else source_books[a.by]).name, a.digest.pages.tolist())),
                tuple(map(self.identity, a.digest.ids)),
                self.check(a.by, a.digest.job),
            )
            for a in world.asked
        )
        held = self.bag(
            (self.life(i), self.attempt(k), sent is None) for (i, k), sent in loader._asked.items()
        )
        live = self.bag(map(self.attempt, loader._live))
        answers = self.bag(
            (self.request(RequestId(f"r{i}")), len(world.answers[i].tokens), world.answers[i].ends)
            for i in range(world.submitted)
            if not world.answers[i].ends
        )
        memory = book.rest(self.contents())
        sources = tuple(self.source_memory(source_books[i], i, s) for i, s in world.sources.items())
        rest = (world.submitted, world.faults, world.known, loader.stopped)
        return rest, jobs, prefill, plans, tree, network, flights, asked, held, live, answers, memory, sources

    def bag(self, items: Iterable[Key]) -> Key:
        """Their order says nothing."""
        return tuple(sorted(items, key=repr))

    def packet(self, books: dict[InstanceId, Book], packet: Packet) -> Key:
        message = packet.message
        assert isinstance(message, Prefill | Manifest | PrefillEnded | Release | Released)
        who = (packet.to == DECODE, self.life(packet.sender if packet.to == DECODE else packet.to))
        what: Key = ()
        match message:
            case Manifest(pages=rows, cached_tokens=cached):
                names = books[packet.sender].name
                what = (*(self.row(row) for row in rows), *(names(row.place) for row in rows), cached)
            case Prefill(skip_pages=skip, tokens=tokens):
                what = skip, len(tokens)
            case PrefillEnded(end=end):
                what = end.code
            case _:
                pass
        return who, type(message).__name__, self.attempt(AttemptKey(message.request, message.attempt)), what

    def source_jobs(self, book: Book, source: Source) -> Key:
        core = source.core
        jobs = tuple(
            (
                self.attempt(job.key),
                job.state,
                self.lease(book, job.lease),
                len(job.written),
                job.named_pages,
                job.planned,
                job.sealing,
                job.skip_pages,
            )
            for job in core._jobs.values()
        )
        return jobs, self.passes(book, core, source.passes), self.tree(book, core._tree)

    def check(self, by: InstanceId, number: int) -> Key:
        """What the core will do with a digest; None where it has forgotten it."""
        if by == DECODE:
            check = self.world.decode._loader._checks.get(number)
            if check is None:
                return None
            return self.attempt(check.key), self.lives(check), check.purpose, tuple(map(self.row, check.rows))
        seal = self.world.sources[by].core._seals.get(number)
        if seal is None:
            return None
        state = seal.job.lease is not None
        return self.attempt(seal.job.key), state, seal.first, tuple(map(self.seal, seal.known))

    def pull(self, pull: PullJob | None) -> Key:
        return pull and (self.attempt(pull.key), self.lives(pull), tuple(map(self.row, pull.rows)))

    def lives(self, work: PullJob | CheckJob) -> bool:
        return self.world.decode._loader._of(work) is not None

    def contents(self) -> list[Key]:
        """Of the decode worker's pages. A free page is overwritten before anybody may look at it (G8), and
        one that is quarantined for good, with nothing on its way, is never looked at."""
        pool = self.world.decode.pool
        landing = {page for flight in self.world.flights.values() for page in flight.pull.dst.tolist()}
        dead = [
            (free and self.poisoned) or not (free or held or page in landing)
            for page, (free, held) in enumerate(
                zip(pool._is_free.tolist(), pool._holders.tolist(), strict=True)
            )
        ]
        return [None if dead[i] else self.page(page) for i, page in enumerate(self.world.pages)]

    def source_memory(self, book: Book, instance: InstanceId, source: Source) -> Key:
        """Nobody looks at a free page that no manifest and no read on its way names."""
        world, pool = self.world, source.core.pool
        named = {p for f in world.flights.values() if f.pull.source == instance for p in f.pull.src.tolist()}
        for packet in world.network:
            if packet.sender == instance and isinstance(packet.message, Manifest):
                named |= {row.place for row in packet.message.pages}
        free = pool._is_free.tolist() if source.alive else [True] * len(source.pages)
        seen = [i in named or not free[i] or not self.poisoned for i in range(len(source.pages))]
        return self.life(instance), book.rest(
            [self.page(page) if seen[i] else None for i, page in enumerate(source.pages)]
        )


def digest(world: World) -> bytes:
    """16 bytes that stand for the state."""
    return blake2b(repr(Canon(world).key()).encode(), digest_size=16).digest()
