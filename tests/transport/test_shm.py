"""What is special about ``shm``: who is let in, what is left behind, and why a dead source hurts nobody."""

import contextlib
import gc
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.transport.kinds import SECRET, instance_named
from tests.transport.pattern import pattern
from tests.transport.reader import UNTOUCHED, Reader, pages_of
from tests.transport.source_process import source_process

from kvseal.core.pulls import Outcome
from kvseal.memory import PrivatePool, SourcePool, copy_pages
from kvseal.transport import Capabilities, Cause, ShmOptions, ShmTransport, TransportError, shm, shm_source
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


# --- who is let in ----------------------------------------------------------------------------------------


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


# --- what a reader refuses --------------------------------------------------------------------------------


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


def open_fds() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


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


# --- the socket -------------------------------------------------------------------------------------------


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


# --- reads ------------------------------------------------------------------------------------------------


@contextmanager
def held_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Copies that wait before they move a byte: (a copy has begun, let them go)."""
    begun, go = threading.Event(), threading.Event()

    def copy(*arguments: Any) -> None:
        begun.set()
        assert go.wait(20)
        copy_pages(*arguments)

    monkeypatch.setattr(shm, "copy_pages", copy)
    try:
        yield begun, go
    finally:
        go.set()


def test_posting_does_not_wait_for_the_copy(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with source(directory) as exporting, make_reader(directory) as made, held_copies(monkeypatch) as (_, go):
        made.transport.connect(SOURCE, exporting.describe())
        for transfer in range(3):
            made.transport.read(SOURCE, transfer, pages_of(transfer), pages_of(transfer))
        assert made.transport.poll() == []
        assert (made.array == UNTOUCHED).all()
        go.set()
        assert [end.transfer for end in made.wait(3)] == [0, 1, 2]  # one thread keeps the order


def test_a_source_killed_while_the_copy_runs_leaves_the_bytes_readable(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mapping outlives its maker: the read ends DONE with the source's bytes, and nothing crashes."""
    with (
        source_process("shm", directory, pages=PAGES, page_bytes=PAGE_BYTES, name="victim") as victim,
        make_reader(directory) as made,
        held_copies(monkeypatch) as (begun, go),
    ):
        made.transport.connect(victim.instance, victim.endpoint)
        made.transport.read(victim.instance, 1, np.arange(PAGES), np.arange(PAGES))
        assert begun.wait(20)
        victim.kill()
        go.set()
        assert made.wait(1) == [(1, Outcome.DONE, "")]
        np.testing.assert_array_equal(made.array, pattern(PAGES, PAGE_BYTES, 0))


def test_a_disconnect_while_the_copy_runs_takes_no_memory_away(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        source(directory) as exporting,
        make_reader(directory) as made,
        held_copies(monkeypatch) as (begun, go),
    ):
        made.transport.connect(SOURCE, exporting.describe())
        made.transport.read(SOURCE, 1, np.arange(PAGES), np.arange(PAGES))
        assert begun.wait(20)
        made.transport.disconnect(SOURCE)
        go.set()
        assert made.wait(1) == [(1, Outcome.DONE, "")]
        np.testing.assert_array_equal(made.array, pattern(PAGES, PAGE_BYTES, 0))


def test_a_disconnected_pool_is_unmapped_once_its_reads_ended(directory: Path) -> None:
    """A decode worker outlives many prefill workers; their memory must not add up."""

    def mapped() -> int:
        gc.collect()
        with open("/proc/self/maps") as maps:
            return sum("kvseal-source-pool" in line for line in maps)

    with (
        source_process("shm", directory, pages=PAGES, page_bytes=PAGE_BYTES, name="brief") as brief,
        make_reader(directory) as made,
    ):
        made.transport.connect(brief.instance, brief.endpoint)
        made.pull(brief.instance, 1, pages_of(0), pages_of(0))
        assert mapped() == 1
        made.transport.disconnect(brief.instance)
        assert soon(lambda: mapped() == 0)


def test_closing_waits_for_the_copy_that_runs_and_ends_those_that_have_not_begun(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        source(directory) as exporting,
        make_reader(directory) as made,
        held_copies(monkeypatch) as (begun, go),
    ):
        made.transport.connect(SOURCE, exporting.describe())
        made.transport.read(SOURCE, 1, pages_of(1), pages_of(1))
        made.transport.read(SOURCE, 2, pages_of(2), pages_of(2))
        assert begun.wait(20)
        closing = threading.Thread(target=made.transport.close)
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()  # a copy is running
        go.set()
        closing.join(20)
        made.ended += made.transport.poll()
        assert made.outcomes() == {1: Outcome.DONE, 2: Outcome.ERROR}
        np.testing.assert_array_equal(made.array[1], pattern(PAGES, PAGE_BYTES, 0)[1])
        assert (made.array[2] == UNTOUCHED).all()


def test_a_copy_that_fails_ends_as_an_error_and_the_next_one_works(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22, G12: one read ends, with a reason; the thread lives on."""

    def fail(*arguments: Any) -> None:
        raise MemoryError("no room for the batch")

    with source(directory) as exporting, make_reader(directory) as made:
        made.transport.connect(SOURCE, exporting.describe())
        monkeypatch.setattr(shm, "copy_pages", fail)
        end = made.pull(SOURCE, 1, pages_of(0), pages_of(0))
        assert end == (1, Outcome.ERROR, "MemoryError: no room for the batch")
        assert made.transport.counters().errors == 1
        monkeypatch.undo()
        assert made.pull(SOURCE, 2, pages_of(0), pages_of(0)).outcome is Outcome.DONE


def test_several_copier_threads_move_everything_once(directory: Path) -> None:
    with source(directory) as exporting, make_reader(directory, options=replace(QUICK, threads=3)) as made:
        made.transport.connect(SOURCE, exporting.describe())
        for transfer in range(PAGES):
            made.transport.read(SOURCE, transfer, pages_of(transfer), pages_of(transfer))
        made.wait(PAGES)
        assert made.outcomes() == dict.fromkeys(range(PAGES), Outcome.DONE)
        np.testing.assert_array_equal(made.array, pattern(PAGES, PAGE_BYTES, 0))


def test_reads_beyond_the_limit_are_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(QUICK, max_reads_in_flight=2)
    with (
        source(directory) as exporting,
        make_reader(directory, options=options) as made,
        held_copies(monkeypatch),
    ):
        made.transport.connect(SOURCE, exporting.describe())
        for transfer in range(2):
            made.transport.read(SOURCE, transfer, pages_of(transfer), pages_of(transfer))
        with pytest.raises(TransportError, match="2 reads are in flight") as refused:
            made.transport.read(SOURCE, 2, pages_of(2), pages_of(2))
        assert refused.value.cause is Cause.OVERLOADED


def test_a_closed_transport_leaves_no_thread_and_no_descriptor(directory: Path) -> None:
    before = open_fds(), threading.active_count()
    with source(directory) as exporting, make_reader(directory) as made:
        made.transport.connect(SOURCE, exporting.describe())
        made.pull(SOURCE, 1, pages_of(0), pages_of(0))
    assert (open_fds(), threading.active_count()) == before


@pytest.mark.parametrize("options", [{"threads": 0}, {"max_reads_in_flight": 0}])
def test_impossible_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        ShmOptions(**options)  # type: ignore[arg-type]


def test_the_record_says_what_shm_proves() -> None:
    assert ShmTransport.capabilities == Capabilities(
        name="shm", proves_read_end=True, crosses_hosts=False, device_memory=False, encrypted=False
    )
