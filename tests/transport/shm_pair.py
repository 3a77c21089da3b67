"""A source and a reader over ``shm`` in one process, for tests of what is special about it."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.transport.kinds import SECRET, instance_named
from tests.transport.pattern import pattern
from tests.transport.reader import Reader

from kvseal.memory import SourcePool
from kvseal.transport import ShmOptions, ShmTransport
from kvseal.transport import shm_handshake as words
from kvseal.transport.shm import ShmEndpoint
from kvseal.transport.shm_source import HandshakeLimits

PAGES, PAGE_BYTES = 16, 4096
SOURCE, READER = instance_named("source"), instance_named("reader")
KEY = words.derive_key(SECRET)
QUICK = ShmOptions(connect_seconds=2.0, handshakes=HandshakeLimits(seconds=0.3, concurrent=2))


def nobody() -> None:
    """A wakeup for transports that are not polled."""


@contextmanager
def source(directory: Path, options: ShmOptions = QUICK) -> Iterator[ShmTransport]:
    with SourcePool.create(PAGES, PAGE_BYTES) as pool:
        pool.array[:] = pattern(PAGES, PAGE_BYTES, 0)
        transport = ShmTransport(SECRET, SOURCE, nobody, directory, options)
        transport.register(pool)
        try:
            yield transport
        finally:
            transport.close()


def make_reader(
    directory: Path, *, secret: bytes = SECRET, options: ShmOptions = QUICK, pages: int = PAGES
) -> Reader:
    return Reader(
        lambda wakeup: ShmTransport(secret, READER, wakeup, directory, options),
        pages=pages,
        page_bytes=PAGE_BYTES,
    )


def endpoint_of(transport: ShmTransport) -> ShmEndpoint:
    return ShmEndpoint.decode(transport.describe())


def soon(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true; other threads need a moment for it."""
    deadline = time.monotonic() + 5
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def open_fds() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
