"""Who a source lets in, and what its socket looks like from outside."""

import os
import socket
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.transport.kinds import SECRET, instance_named
from tests.transport.pattern import pattern
from tests.transport.reader import Reader, pages_of
from tests.transport.shm_pair import (
    KEY,
    PAGE_BYTES,
    PAGES,
    QUICK,
    READER,
    SOURCE,
    endpoint_of,
    make_reader,
    nobody,
    soon,
    source,
)
from tests.transport.source_process import source_process

from kvseal.memory import PrivatePool, SourcePool
from kvseal.transport import Cause, ShmTransport, TransportError, shm_source
from kvseal.transport import shm_handshake as words


def test_a_reader_with_the_secret_is_served(directory: Path) -> None:
    with source(directory) as exporting, make_reader(directory) as made:
        made.transport.connect(SOURCE, exporting.describe())
        assert soon(lambda: exporting.counters().served_peers == 1)
        assert exporting.counters().refused_peers == 0


def test_a_reader_with_another_secret_is_refused_and_counted(directory: Path) -> None:
    """It cannot verify the source's proof and leaves; a reader that goes on regardless is the next test."""
    with source(directory) as exporting, make_reader(directory, secret=bytes(32)) as made:
        with pytest.raises(TransportError, match="does not prove") as refused:
            made.transport.connect(SOURCE, exporting.describe())
        assert refused.value.cause is Cause.UNAUTHENTICATED
        assert soon(lambda: exporting.counters().refused_peers == 1)


def dial(transport: ShmTransport) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.settimeout(5)
    channel.connect(endpoint_of(transport).path)
    return channel


def test_a_reader_that_cannot_prove_the_secret_gets_no_descriptor(directory: Path) -> None:
    hello = words.Hello(READER, SOURCE, b"n" * 32)
    wrong = words.derive_key(bytes(32))
    with source(directory) as exporting, dial(exporting) as channel:
        channel.sendall(words.encode_hello(hello))
        offer = words.decode_offer(channel.recv(256), hello, KEY)
        channel.sendall(words.encode_proof(hello, offer, wrong))
        packet, fds, _, _ = socket.recv_fds(channel, 256, 1)
        assert fds == []
        with pytest.raises(TransportError, match="does not accept our proof"):
            words.check_grant(packet)
        assert soon(lambda: exporting.counters().refused_secret == 1)


def test_a_proof_that_was_good_once_is_not_good_again(directory: Path) -> None:
    """The source's nonce is new in each handshake: a recorded proof opens nothing."""
    hello = words.Hello(READER, SOURCE, b"n" * 32)
    with source(directory) as exporting:
        with dial(exporting) as channel:
            channel.sendall(words.encode_hello(hello))
            recorded = words.encode_proof(hello, words.decode_offer(channel.recv(256), hello, KEY), KEY)
        with dial(exporting) as channel:
            channel.sendall(words.encode_hello(hello))
            channel.recv(256)
            channel.sendall(recorded)
            packet, fds, _, _ = socket.recv_fds(channel, 256, 1)
            assert fds == []
            with pytest.raises(TransportError, match="does not accept our proof"):
                words.check_grant(packet)


def test_another_user_is_refused_on_both_sides(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with source(directory) as exporting, make_reader(directory) as made:
        stranger = os.geteuid() + 1
        monkeypatch.setattr(shm_source, "peer_uid", lambda _: stranger)
        with pytest.raises(TransportError, match="serves no other user") as refused:
            made.transport.connect(SOURCE, exporting.describe())
        assert refused.value.cause is Cause.UNAUTHENTICATED
        assert soon(lambda: exporting.counters().refused_uid == 1)
        monkeypatch.undo()
        monkeypatch.setattr("kvseal.transport.shm_reader.peer_uid", lambda _: stranger)
        with pytest.raises(TransportError, match=f"user {stranger} listens") as refused:
            made.transport.connect(SOURCE, exporting.describe())
        assert refused.value.cause is Cause.UNAUTHENTICATED


def test_the_kernel_says_who_is_there() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert shm_source.peer_uid(ours) == os.geteuid()


@pytest.mark.parametrize("garbage", [b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(256)])
def test_garbage_is_refused_counted_and_hurts_nobody(directory: Path, garbage: bytes) -> None:
    with source(directory) as exporting, make_reader(directory) as made:
        with dial(exporting) as channel:
            channel.sendall(garbage)
            assert channel.recv(256)  # the refusal
            assert channel.recv(256) == b""
        assert soon(lambda: exporting.counters().refused_protocol == 1)
        made.transport.connect(SOURCE, exporting.describe())


def test_a_silent_reader_is_cut_off_in_time(directory: Path) -> None:
    with source(directory) as exporting, dial(exporting) as channel:
        began = time.monotonic()
        assert channel.recv(256) == b""
        assert 0.2 < time.monotonic() - began < 2
        assert soon(lambda: exporting.counters().refused_slow == 1)


def test_silent_readers_delay_a_good_one_by_their_time_limit_at_most(directory: Path) -> None:
    """All slots are taken: the good one waits in the listen queue, and is served when they are cut off."""
    with source(directory) as exporting, make_reader(directory) as made:
        silent = [dial(exporting) for _ in range(2 * QUICK.handshakes.concurrent)]
        try:
            assert soon(lambda: threads_named("kvseal-shm-serve") == QUICK.handshakes.concurrent)
            began = time.monotonic()
            made.transport.connect(SOURCE, exporting.describe())
            assert time.monotonic() - began < 1.5
        finally:
            for channel in silent:
                channel.close()


def threads_named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_many_readers_at_once_are_all_served(directory: Path) -> None:
    failures: list[Exception] = []

    def connect(exporting: ShmTransport, number: int) -> None:
        try:
            options = replace(QUICK, connect_seconds=10.0)
            with Reader(
                lambda wakeup: ShmTransport(SECRET, instance_named(f"r{number}"), wakeup, directory, options),
                pages=1,
                page_bytes=PAGE_BYTES,
            ) as made:
                made.transport.connect(SOURCE, exporting.describe())
                made.pull(SOURCE, 1, pages_of(number % PAGES), pages_of(0))
                np.testing.assert_array_equal(made.array[0], pattern(PAGES, PAGE_BYTES, 0)[number % PAGES])
        except Exception as error:
            failures.append(error)

    with source(directory) as exporting:
        threads = [threading.Thread(target=connect, args=(exporting, number)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert exporting.counters().served_peers == 100


# --- the socket ---------------------------------------------------------------------------------------------


def test_the_socket_and_its_directory_are_private(directory: Path) -> None:
    inside = directory / "made"
    with source(inside) as exporting:
        path = Path(endpoint_of(exporting).path)
        assert path.parent == inside
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert stat.S_IMODE(inside.lstat().st_mode) == 0o700
        assert len(os.fsencode(path)) <= 107
        assert endpoint_of(exporting).instance == SOURCE
    assert list(inside.iterdir()) == []  # closing leaves nothing behind


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_a_directory_that_others_can_enter_is_refused(directory: Path, mode: int) -> None:
    shared = directory / "shared"
    shared.mkdir(exist_ok=True)
    shared.chmod(mode)
    with pytest.raises(TransportError, match=f"mode {mode:04o}: it must be 0700"), source(shared):
        pass


def test_a_link_in_the_directorys_place_is_refused(directory: Path) -> None:
    link = directory / "link"
    link.symlink_to(directory)
    with pytest.raises(TransportError, match="not a directory"), source(link):
        pass


def test_a_path_too_long_for_a_socket_is_refused_by_both_numbers(directory: Path) -> None:
    deep = directory / ("d" * 100)
    with pytest.raises(TransportError, match=r"has \d{3} bytes, at most 107"), source(deep):
        pass


def test_the_socket_of_a_killed_source_is_replaced(directory: Path) -> None:
    with source_process("shm", directory, pages=2, page_bytes=PAGE_BYTES, address="stale.shm") as dead:
        dead.kill()
    assert (directory / "stale.shm").is_socket()
    with source(directory, replace(QUICK, name="stale.shm")) as exporting, make_reader(directory) as made:
        made.transport.connect(SOURCE, exporting.describe())


def test_the_socket_of_a_living_source_is_left_alone(directory: Path) -> None:
    options = replace(QUICK, name="taken.shm")
    with source(directory, options) as first:
        with (
            pytest.raises(TransportError, match=r"cannot listen at .*in use") as refused,
            source(directory, options),
        ):
            pass
        assert refused.value.cause is Cause.LOCAL
        with make_reader(directory) as made:
            made.transport.connect(SOURCE, first.describe())


def test_a_file_in_the_sockets_place_is_left_alone(directory: Path) -> None:
    (directory / "file.shm").write_text("precious")
    with (
        pytest.raises(TransportError, match="cannot listen"),
        source(directory, replace(QUICK, name="file.shm")),
    ):
        pass
    assert (directory / "file.shm").read_text() == "precious"


def test_closing_late_does_not_remove_the_socket_of_a_successor(directory: Path) -> None:
    options = replace(QUICK, name="successor.shm")
    with source(directory, options) as old:
        Path(endpoint_of(old).path).unlink()
        with source(directory, options) as new:
            old.close()
            with make_reader(directory) as made:
                made.transport.connect(SOURCE, new.describe())


def test_one_pool_is_exported_once(directory: Path) -> None:
    with (
        source(directory) as exporting,
        SourcePool.create(1, PAGE_BYTES) as second,
        pytest.raises(TransportError, match="exported already"),
    ):
        exporting.register(second)


def test_one_landing_pool_is_registered_once(directory: Path) -> None:
    with (
        make_reader(directory) as made,
        PrivatePool.create(1, PAGE_BYTES) as second,
        pytest.raises(TransportError, match="registered already"),
    ):
        made.transport.register_landing(second)


def test_without_a_landing_pool_nothing_can_be_read(directory: Path) -> None:
    bare = ShmTransport(SECRET, READER, nobody, directory)
    with pytest.raises(TransportError, match="no landing pool"):
        bare.read(SOURCE, 1, pages_of(0), pages_of(0))
    with pytest.raises(TransportError, match="no landing pool"):
        bare.connect(SOURCE, b"")
    bare.close()
