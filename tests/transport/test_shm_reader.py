"""What a reader refuses, from a source that knows the secret and from one that does not."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.transport.kinds import instance_named
from tests.transport.shm_pair import (
    KEY,
    PAGE_BYTES,
    PAGES,
    QUICK,
    SOURCE,
    endpoint_of,
    make_reader,
    open_fds,
    soon,
    source,
)

from kvseal.memory import SourcePool
from kvseal.transport import Cause, TransportError
from kvseal.transport import shm_handshake as words
from kvseal.transport.shm import ShmEndpoint


@contextmanager
def impostor(directory: Path, serve: Callable[[socket.socket], None]) -> Iterator[bytes]:
    """Something that listens like a source and behaves as ``serve`` does; gives its endpoint."""
    path = directory / "impostor"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.fspath(path))
        listener.listen()

        def run() -> None:
            channel, _ = listener.accept()
            with channel, contextlib.suppress(OSError):  # the reader may leave at any step
                serve(channel)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield msgspec.msgpack.encode(ShmEndpoint(SOURCE, os.fspath(path), PAGES, PAGE_BYTES))
        finally:
            thread.join()
            path.unlink()


def offer_for(fd: int, **changes: Any) -> words.Offer:
    status = os.fstat(fd)
    return replace(words.Offer(SOURCE, PAGES, PAGE_BYTES, status.st_dev, status.st_ino, b"m" * 32), **changes)


def serve_fds(offer: words.Offer, fds: list[int], channel: socket.socket) -> None:
    """A source that knows the secret and hands out what it likes."""
    hello = words.decode_hello(channel.recv(256))
    channel.sendall(words.encode_offer(hello, offer, KEY))
    channel.recv(256)
    socket.send_fds(channel, [words.encode_grant()], fds)


@pytest.mark.parametrize(
    ("case", "cause", "reason"),
    [
        ("none", Cause.MALFORMED, "sent no descriptor"),
        ("two", Cause.MALFORMED, "more than one descriptor"),
        ("swapped", Cause.UNAUTHENTICATED, "the source proves file"),
        ("unsealed", Cause.MISMATCH, "lacks F_SEAL_SHRINK"),
        ("short", Cause.MISMATCH, f"has {PAGES * PAGE_BYTES} bytes, {2 * PAGES * PAGE_BYTES} were announced"),
        ("other", Cause.WRONG_INSTANCE, "is wanted"),
    ],
)
def test_a_source_that_knows_the_secret_and_hands_out_something_else_is_refused(
    directory: Path, case: str, cause: Cause, reason: str
) -> None:
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, PAGES * PAGE_BYTES)
    with SourcePool.create(PAGES, PAGE_BYTES) as pool, SourcePool.create(PAGES, PAGE_BYTES) as other:
        offer, fds = {
            "none": (offer_for(pool.fd), []),
            "two": (offer_for(pool.fd), [pool.fd, pool.fd]),
            "swapped": (offer_for(pool.fd), [other.fd]),
            "unsealed": (offer_for(unsealed), [unsealed]),
            "short": (offer_for(pool.fd, pages=2 * PAGES), [pool.fd]),
            "other": (offer_for(pool.fd, source=instance_named("other")), [pool.fd]),
        }[case]
        with make_reader(directory) as made:
            before = open_fds()
            with (
                impostor(directory, partial(serve_fds, offer, fds)) as endpoint,
                pytest.raises(TransportError, match=reason) as refused,
            ):
                made.transport.connect(SOURCE, endpoint)
            assert refused.value.cause is cause
            assert open_fds() == before
    os.close(unsealed)


def test_a_source_without_the_secret_is_refused_and_learns_no_proof(directory: Path) -> None:
    learned: list[bytes] = []

    def serve(channel: socket.socket) -> None:
        hello = words.decode_hello(channel.recv(256))
        offer = words.Offer(SOURCE, PAGES, PAGE_BYTES, 1, 1, b"m" * 32)
        channel.sendall(words.encode_offer(hello, offer, words.derive_key(bytes(32))))
        learned.append(channel.recv(256))

    with (
        make_reader(directory) as made,
        impostor(directory, serve) as endpoint,
        pytest.raises(TransportError, match="source does not prove"),
    ):
        made.transport.connect(SOURCE, endpoint)
    assert learned == [b""]


def test_a_source_that_never_answers_is_given_up_in_time(directory: Path) -> None:
    done = threading.Event()

    def serve(channel: socket.socket) -> None:
        assert done.wait(20)

    options = replace(QUICK, connect_seconds=0.3)
    with make_reader(directory, options=options) as made, impostor(directory, serve) as endpoint:
        began = time.monotonic()
        with pytest.raises(TransportError, match=r"no answer at .* within 0\.3 s") as refused:
            made.transport.connect(SOURCE, endpoint)
        assert time.monotonic() - began < 2
        done.set()
    assert refused.value.cause is Cause.TIMED_OUT


def test_an_endpoint_that_lies_about_the_pool_is_refused(directory: Path) -> None:
    with source(directory) as exporting, make_reader(directory) as made:
        lie = msgspec.structs.replace(endpoint_of(exporting), pages=PAGES + 1)
        with pytest.raises(TransportError, match=f"proves {PAGES} pages .* says {PAGES + 1}") as refused:
            made.transport.connect(SOURCE, msgspec.msgpack.encode(lie))
        assert refused.value.cause is Cause.MISMATCH


@pytest.mark.parametrize("path", ["relative", "/with\0nul", ""])
def test_an_endpoint_with_an_odd_path_is_malformed(directory: Path, path: str) -> None:
    encoded = msgspec.msgpack.encode(ShmEndpoint(SOURCE, path, PAGES, PAGE_BYTES))
    with make_reader(directory) as made, pytest.raises(TransportError, match="absolute") as refused:
        made.transport.connect(SOURCE, encoded)
    assert refused.value.cause is Cause.MALFORMED


def test_an_instance_has_one_endpoint_in_its_life(directory: Path) -> None:
    with source(directory) as exporting, make_reader(directory) as made:
        made.transport.connect(SOURCE, exporting.describe())
        moved = msgspec.structs.replace(endpoint_of(exporting), path="/elsewhere")
        with pytest.raises(TransportError, match="connected at another endpoint already"):
            made.transport.connect(SOURCE, msgspec.msgpack.encode(moved))


def test_an_older_life_at_the_same_address_is_refused_by_both_names(directory: Path) -> None:
    """F10: the endpoint is stale, the path is served again by a new instance."""
    old = instance_named("old life")
    with source(directory) as exporting, make_reader(directory) as made:
        stale = msgspec.structs.replace(endpoint_of(exporting), instance=old)
        with pytest.raises(TransportError, match=f"instance {SOURCE.hex()[:8]} answers") as refused:
            made.transport.connect(old, msgspec.msgpack.encode(stale))
        assert refused.value.cause is Cause.WRONG_INSTANCE
        assert soon(lambda: exporting.counters().refused_instance == 1)
