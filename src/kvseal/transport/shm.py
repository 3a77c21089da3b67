"""``shm``: one user, one machine. The source's memfd is mapped read-only, and a read is one batched copy.

::

    caller                     copier thread                        caller
    read() ──queue──>          copy_pages(landing, mapped, …) ──>   wakeup(), poll()
                               └─ its return is the end of the read

The end of a read is the return of the copy, so DONE proves it, and there is nothing that a dead source
could still send. When the source dies, its memory stays as long as it is mapped here: a read in flight ends
as if nothing had happened, and the seal says whether the pages were complete (G5).
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kvseal.core.ids import ID_BYTES, InstanceId, short
from kvseal.core.pulls import Outcome
from kvseal.memory import MappedPool, PrivatePool, SourcePool, copy_pages
from kvseal.transport.base import Capabilities, Cause, Ended, Transport, TransportCounters, TransportError
from kvseal.transport.ledger import Ledger, checked_pages
from kvseal.transport.shm_handshake import derive_key
from kvseal.transport.shm_reader import hello_to, open_pool
from kvseal.transport.shm_source import DescriptorServer, Export, HandshakeLimits, private_directory

MAX_ENDPOINT_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class ShmOptions:
    """``name`` is the socket's file name, by default drawn from the instance."""

    name: str | None = None
    threads: int = 1  # one keeps the reads in order, and one core busy
    connect_seconds: float = 5.0
    max_reads_in_flight: int = 4096
    handshakes: HandshakeLimits = field(default_factory=HandshakeLimits)

    def __post_init__(self) -> None:
        if self.threads < 1 or self.max_reads_in_flight < 1:
            raise ValueError("an shm transport needs at least one thread and room for one read")


class ShmEndpoint(msgspec.Struct, frozen=True, tag="shm", forbid_unknown_fields=True):
    """What `describe` says. ``path`` is absolute."""

    instance: bytes
    path: str
    pages: Annotated[int, msgspec.Meta(gt=0)]
    page_bytes: Annotated[int, msgspec.Meta(gt=0)]

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Raises TransportError for what is not such an endpoint."""
        if not encoded:
            raise TransportError(Cause.MALFORMED, "the peer exports no pool")
        if len(encoded) > MAX_ENDPOINT_BYTES:
            raise TransportError(
                Cause.MALFORMED,
                f"an shm endpoint has at most {MAX_ENDPOINT_BYTES} bytes, this one {len(encoded)}",
            )
        try:
            endpoint = msgspec.msgpack.decode(encoded, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransportError(Cause.MALFORMED, f"not an shm endpoint: {error}") from error
        if not endpoint.path.startswith("/") or "\0" in endpoint.path:
            raise TransportError(Cause.MALFORMED, "the path in an shm endpoint must be absolute")
        return endpoint


class _Peer(NamedTuple):
    endpoint: bytes
    pool: MappedPool


class _Copy(NamedTuple):
    """A posted read. It holds both arrays, so that no disconnect takes the memory away under it."""

    transfer: int
    dst: NDArray[np.uint8]
    src: NDArray[np.uint8]
    dst_pages: NDArray[np.int64]
    src_pages: NDArray[np.int64]


class ShmTransport(Transport):
    """See the module. ``directory`` holds the socket of a source; it is made, 0700, where it is missing.

    ``secret`` is the cluster secret, 32 to 64 bytes. Pools must be closed after the transport, not before.
    """

    capabilities = Capabilities(
        name="shm", proves_read_end=True, crosses_hosts=False, device_memory=False, encrypted=False
    )

    def __init__(
        self,
        secret: bytes,
        instance: InstanceId,
        wakeup: Callable[[], None],
        directory: Path,
        options: ShmOptions | None = None,
    ) -> None:
        if len(instance) != ID_BYTES:
            raise ValueError(f"an instance id has {ID_BYTES} bytes, this one {len(instance)}")
        self._options = options or ShmOptions()
        self._instance = instance
        self._key = derive_key(secret)
        self._directory = directory
        self._ledger = Ledger(wakeup, self._options.max_reads_in_flight)
        self._lock = threading.Lock()  # held for moments; guards what follows
        self._closed = False
        self._server: DescriptorServer | None = None
        self._endpoint = b""
        self._landing: PrivatePool | None = None
        self._peers: dict[InstanceId, _Peer] = {}
        self._queue: deque[_Copy] = deque()
        self._queued = threading.Condition(self._lock)
        self._copiers: list[threading.Thread] = []

    # --- source -------------------------------------------------------------------------------------------

    def register(self, pool: SourcePool) -> None:
        """Exports ``pool`` through a socket in the directory; one pool per transport."""
        path = private_directory(self._directory) / (self._options.name or f"{self._instance.hex()[:16]}.shm")
        with self._lock:
            self._check_open()
            if self._server is not None:
                raise TransportError(Cause.LOCAL, "a pool is exported already")
            export = Export(pool, self._instance, self._key)
            self._server = DescriptorServer(export, path, self._options.handshakes, self._ledger.count)
            endpoint = ShmEndpoint(self._instance, os.fspath(path), pool.pages, pool.page_bytes)
            self._endpoint = msgspec.msgpack.encode(endpoint)

    def describe(self) -> bytes:
        """An encoded ShmEndpoint."""
        return self._endpoint

    # --- reader -------------------------------------------------------------------------------------------

    def register_landing(self, pool: PrivatePool) -> None:
        """Names the landing pool and starts the copier threads."""
        with self._lock:
            self._check_open()
            if self._landing is not None:
                raise TransportError(Cause.LOCAL, "a landing pool is registered already")
            self._landing = pool
            self._ledger.set_landing(pool.pages, pool.page_bytes)
            for number in range(self._options.threads):
                copier = threading.Thread(target=self._copy, name=f"kvseal-shm-copy-{number}", daemon=True)
                self._copiers.append(copier)
                copier.start()

    def connect(self, peer: InstanceId, endpoint: bytes) -> None:
        """Maps the pool of ``peer``. See Transport.connect."""
        try:
            connected = self._connect(peer, endpoint)
        except TransportError:
            self._ledger.count("failed_connects")
            raise
        if connected:
            self._ledger.count("connects")

    def _connect(self, peer: InstanceId, endpoint: bytes) -> bool:
        """Whether there was anything to do."""
        with self._lock:
            landing = self._check_landing()
            if self._is_connected(peer, endpoint):
                return False
        where = ShmEndpoint.decode(endpoint)
        if where.instance != peer:
            raise TransportError(
                Cause.WRONG_INSTANCE,
                f"the endpoint belongs to instance {short(where.instance)}, {short(peer)} is wanted",
            )
        if where.page_bytes != landing.page_bytes:
            raise TransportError(
                Cause.MISMATCH,
                f"pages of the source have {where.page_bytes} bytes, landing pages {landing.page_bytes}",
            )
        seconds = self._options.connect_seconds
        pool = open_pool(Path(where.path), hello_to(self._instance, peer), self._key, seconds)
        if (pool.pages, pool.page_bytes) != (where.pages, where.page_bytes):
            raise TransportError(
                Cause.MISMATCH,
                f"the source proves {pool.pages} pages of {pool.page_bytes} bytes, "
                f"its endpoint says {where.pages} of {where.page_bytes}",
            )
        with self._lock:
            self._check_open()
            if self._is_connected(peer, endpoint):
                return False  # somebody else was faster
            self._peers[peer] = _Peer(endpoint, pool)
            return True

    def disconnect(self, peer: InstanceId) -> None:
        """Lets go of the mapping; reads in flight keep it until they end."""
        with self._lock:
            self._peers.pop(peer, None)

    def read(
        self, peer: InstanceId, transfer: int, src_pages: NDArray[np.int64], dst_pages: NDArray[np.int64]
    ) -> None:
        """Queues one batched copy. See Transport.read."""
        try:
            with self._lock:
                self._post(peer, transfer, src_pages, dst_pages)
        except TransportError:
            self._ledger.count("refused_reads")
            raise

    def _post(
        self, peer: InstanceId, transfer: int, src_pages: NDArray[np.int64], dst_pages: NDArray[np.int64]
    ) -> None:
        landing = self._check_landing()
        if peer not in self._peers:
            raise TransportError(Cause.UNKNOWN_PEER, f"instance {short(peer)} is not connected")
        source = self._peers[peer].pool
        src = checked_pages(src_pages, source.pages, "source")
        dst = checked_pages(dst_pages, landing.pages, "landing")
        if len(src) != len(dst):
            raise TransportError(Cause.BAD_PAGES, f"{len(src)} source pages for {len(dst)} landing pages")
        self._ledger.begin(transfer, dst)
        self._queue.append(_Copy(transfer, landing.array, source.array, dst, src))
        self._queued.notify()

    def poll(self) -> list[Ended]:
        """The reads that ended since the last call."""
        return self._ledger.poll()

    def counters(self) -> TransportCounters:
        """A snapshot."""
        return self._ledger.counters()

    def close(self) -> None:
        """Reads that are still queued end as ERROR; the one that is being copied is waited for."""
        with self._lock:
            self._closed = True
            abandoned = list(self._queue)
            self._queue.clear()
            self._peers.clear()
            self._queued.notify_all()
            server, self._server = self._server, None
            copiers, self._copiers = self._copiers, []
        if server is not None:
            server.close()
        for read in abandoned:
            self._ledger.end(read.transfer, Outcome.ERROR, "the transport was closed before the copy began")
        for copier in copiers:
            copier.join()
        self._ledger.wait_until_idle()

    def _copy(self) -> None:
        """Body of a copier thread."""
        while (read := self._next()) is not None:
            try:
                copy_pages(read.dst, read.src, read.dst_pages, read.src_pages)
            except Exception as error:
                # The copy has returned, so this is an end too; but nobody is told that it proves anything
                # (G4).
                self._ledger.end(read.transfer, Outcome.ERROR, f"{type(error).__name__}: {error}")
            else:
                self._ledger.end(read.transfer, Outcome.DONE)
            del read  # or an idle thread would keep the pool of a lost peer mapped

    def _next(self) -> _Copy | None:
        """Waits for the next read; None when there will be no more."""
        with self._queued:
            self._queued.wait_for(lambda: self._queue or self._closed)
            return self._queue.popleft() if self._queue else None

    # --- checks, all under the lock -----------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError(Cause.LOCAL, "the transport is closed")

    def _check_landing(self) -> PrivatePool:
        self._check_open()
        if self._landing is None:
            raise TransportError(Cause.LOCAL, "no landing pool is registered")
        return self._landing

    def _is_connected(self, peer: InstanceId, endpoint: bytes) -> bool:
        """Raises TransportError where ``peer`` is connected at another endpoint: one life has one."""
        known = self._peers.get(peer)
        if known is not None and known.endpoint != endpoint:
            raise TransportError(
                Cause.WRONG_INSTANCE, f"instance {short(peer)} is connected at another endpoint already"
            )
        return known is not None
