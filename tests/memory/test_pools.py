"""Pools: what their owner can do with them, and what a peer in another process cannot."""

import errno
import fcntl
import gc
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
import pytest

from kvseal.memory import MappedPool, PoolRefused, PrivatePool, SourcePool

PAGES, PAGE_BYTES = 3, 5000


@contextmanager
def process(code: str, *arguments: str, fds: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs ``code`` and answers over its stdout; dead when the block is left."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds) as child:
        try:
            yield child
        finally:
            child.kill()


def line(child: subprocess.Popen[bytes]) -> str:
    stream: IO[bytes] | None = child.stdout
    assert stream is not None
    return stream.readline().decode().strip()


@pytest.fixture
def pool() -> Iterator[SourcePool]:
    with SourcePool.create(PAGES, PAGE_BYTES) as created:
        yield created


def mapped(pool: SourcePool) -> MappedPool:
    return MappedPool.open(pool.fd, pool.pages, pool.page_bytes)


@pytest.mark.parametrize("kind", [SourcePool, PrivatePool])
def test_a_new_pool_is_zeroed_writable_and_page_aligned(kind: type[SourcePool] | type[PrivatePool]) -> None:
    with kind.create(PAGES, PAGE_BYTES) as pool:
        assert pool.array.shape == (PAGES, PAGE_BYTES) == (pool.pages, pool.page_bytes)
        assert pool.array.dtype == np.uint8
        assert pool.array.flags.c_contiguous
        assert pool.array.ctypes.data % mmap.PAGESIZE == 0
        assert not pool.array.any()
        pool.array[:] = 9
        assert (pool.array == 9).all()


@pytest.mark.parametrize("kind", [SourcePool, PrivatePool])
@pytest.mark.parametrize(("pages", "page_bytes"), [(0, 4096), (-1, 4096), (4, 0), (2**40, 2**40)])
def test_an_impossible_shape_is_refused(
    kind: type[SourcePool] | type[PrivatePool], pages: int, page_bytes: int
) -> None:
    with pytest.raises(ValueError, match=f"{pages} pages of {page_bytes} bytes"):
        kind.create(pages, page_bytes)


@pytest.mark.parametrize("kind", [SourcePool, PrivatePool])
def test_a_pool_takes_memory_only_when_it_is_touched(kind: type[SourcePool] | type[PrivatePool]) -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * mmap.PAGESIZE

    before = resident_bytes()
    with kind.create(1024, 1 << 20) as pool:
        pool.array[5] = 1
        assert resident_bytes() - before < 64 << 20


@pytest.mark.parametrize("kind", [SourcePool, PrivatePool])
def test_closing_twice_is_fine_and_a_closed_pool_gives_no_array(
    kind: type[SourcePool] | type[PrivatePool],
) -> None:
    pool = kind.create(PAGES, PAGE_BYTES)
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        _ = pool.array


def test_an_array_in_use_outlives_its_closed_pool() -> None:
    pool = PrivatePool.create(PAGES, PAGE_BYTES)
    row = pool.array[1]
    pool.close()
    row[:] = 7
    assert (row == 7).all()


def test_a_closed_source_pool_gives_no_descriptor(pool: SourcePool) -> None:
    fd = pool.fd
    pool.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(ValueError, match="closed"):
        _ = pool.fd


def test_pools_leave_no_descriptor_and_no_mapping_behind() -> None:
    def maps() -> int:
        with open("/proc/self/maps") as lines:
            return sum("kvseal-source-pool" in entry for entry in lines)

    fds = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        source = SourcePool.create(PAGES, PAGE_BYTES)
        reader = mapped(source)
        source.close()
        reader.close()
        del source, reader
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == fds
    assert maps() == 0


def test_the_descriptor_is_not_inherited(pool: SourcePool) -> None:
    assert not os.get_inheritable(pool.fd)


def test_a_reader_sees_what_the_owner_writes_before_and_after_it_mapped(pool: SourcePool) -> None:
    pool.array[0] = 1
    with mapped(pool) as reader:
        pool.array[2] = 3
        np.testing.assert_array_equal(reader.array, pool.array)


def test_a_reader_array_cannot_be_written(pool: SourcePool) -> None:
    with mapped(pool) as reader:
        with pytest.raises(ValueError, match="read-only"):
            reader.array[0, 0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            reader.array.flags.writeable = True


# --- what a peer with the descriptor can do (G3) ----------------------------------------------------------

ATTACK = """
import ctypes, errno, fcntl, mmap, os, sys
fd, size = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)

def attempt(name, action):
    try:
        action()
    except OSError as error:
        print(name, errno.errorcode[error.errno])
    else:
        print(name, "SUCCEEDED")

def protect():
    mapping = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
    holder = ctypes.py_object(mapping)
    with open("/proc/self/maps") as maps:
        address = int(next(entry for entry in maps if "kvseal-source-pool" in entry).split("-")[0], 16)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4096), 3):
        raise OSError(ctypes.get_errno(), "mprotect")

def punch():
    if libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096)):  # KEEP_SIZE | PUNCH_HOLE
        raise OSError(ctypes.get_errno(), "fallocate")

def reopened():
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    mmap.mmap(again, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

attempt("map", lambda: mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
attempt("reopen", reopened)
attempt("protect", protect)
attempt("write", lambda: os.pwrite(fd, b"x", 0))
attempt("shrink", lambda: os.ftruncate(fd, size - 1))
attempt("grow", lambda: os.ftruncate(fd, size + 1))
attempt("punch", punch)
attempt("seal", lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE))
"""


def test_a_peer_with_the_descriptor_can_neither_write_nor_resize_the_pool(pool: SourcePool) -> None:
    pool.array[:] = 5
    with process(ATTACK, str(pool.fd), str(PAGES * PAGE_BYTES), fds=(pool.fd,)) as peer:
        output, _ = peer.communicate(timeout=30)
    outcomes = dict(entry.split() for entry in output.decode().splitlines())
    assert outcomes == {
        "map": "EPERM",
        "reopen": "EPERM",
        "protect": "EACCES",
        "write": "EPERM",
        "shrink": "EPERM",
        "grow": "EPERM",
        "punch": "EPERM",
        "seal": "EPERM",
    }
    assert (pool.array == 5).all()
    pool.array[:] = 6  # and the owner still can
    assert (pool.array == 6).all()


READER = """
import sys
from kvseal.memory import MappedPool
fd, pages, page_bytes = map(int, sys.argv[1:])
pool = MappedPool.open(fd, pages, page_bytes)
print(int(pool.array[0, 0]), flush=True)
sys.stdin.read()
"""


def test_killing_a_peer_leaves_the_pool_alive_and_writable(pool: SourcePool) -> None:
    """Python 3.11's SharedMemory unlinks the owner's segment in this case; a memfd has no name to unlink."""
    pool.array[0, 0] = 42
    with process(READER, str(pool.fd), str(PAGES), str(PAGE_BYTES), fds=(pool.fd,)) as peer:
        assert line(peer) == "42"
        peer.send_signal(signal.SIGKILL)
        assert peer.wait(30) == -signal.SIGKILL
    pool.array[:] = 43
    with mapped(pool) as reader:
        assert (reader.array == 43).all()


OWNER = """
import os, socket, sys
from kvseal.memory import SourcePool
pool = SourcePool.create(int(sys.argv[2]), int(sys.argv[3]))
pool.array[:] = 77
with socket.socket(fileno=int(sys.argv[1])) as channel:
    socket.send_fds(channel, [b"pool"], [pool.fd])
    channel.recv(1)
"""


def test_killing_the_owner_leaves_the_readers_mapping_alive_and_readable() -> None:
    import socket  # noqa: PLC0415 - only this test passes a descriptor the other way

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        arguments = (str(theirs.fileno()), str(PAGES), str(PAGE_BYTES))
        with process(OWNER, *arguments, fds=(theirs.fileno(),)) as owner:
            _, fds, _, _ = socket.recv_fds(ours, 4, 1)
            reader = MappedPool.open(fds[0], PAGES, PAGE_BYTES)
            os.close(fds[0])
            owner.send_signal(signal.SIGKILL)
            assert owner.wait(30) == -signal.SIGKILL
    assert (reader.array == 77).all()
    reader.close()


# --- what a reader refuses --------------------------------------------------------------------------------


def sealed_memfd(size_bytes: int, seals: int) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@pytest.mark.parametrize(
    ("seals", "missing"),
    [
        (0x10 | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL, "F_SEAL_SHRINK"),
        (0x10 | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL, "F_SEAL_GROW"),
        (fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL, "F_SEAL_FUTURE_WRITE"),
        (0x10 | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK, "F_SEAL_SEAL"),
        (0, "F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL"),
    ],
)
def test_a_pool_without_all_seals_is_refused_by_name(seals: int, missing: str) -> None:
    fd = sealed_memfd(PAGES * PAGE_BYTES, seals)
    try:
        with pytest.raises(PoolRefused, match=f"lacks {missing}:"):
            MappedPool.open(fd, PAGES, PAGE_BYTES)
    finally:
        os.close(fd)


def test_a_plain_file_is_refused() -> None:
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        file.truncate(PAGES * PAGE_BYTES)
        with pytest.raises(PoolRefused, match="is not a memfd"):
            MappedPool.open(file.fileno(), PAGES, PAGE_BYTES)


def test_a_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(PoolRefused, match="is not a memfd"):
            MappedPool.open(reading, PAGES, PAGE_BYTES)
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("pages", [PAGES - 1, PAGES + 1, 2**50])
def test_another_size_than_announced_is_refused_by_both_numbers(pool: SourcePool, pages: int) -> None:
    expected = f"has {PAGES * PAGE_BYTES} bytes, {pages * PAGE_BYTES} were announced"
    with pytest.raises(PoolRefused, match=expected):
        MappedPool.open(pool.fd, pages, PAGE_BYTES)


def test_opening_leaves_the_descriptor_to_the_caller(pool: SourcePool) -> None:
    fd = os.dup(pool.fd)
    with mapped(pool):
        os.close(fd)  # ours to close, and still open
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        os.fstat(fd)
    assert caught.value.errno == errno.EBADF
