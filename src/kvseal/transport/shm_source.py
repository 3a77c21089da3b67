"""The source's side of ``shm``: gives the descriptor of its pool to readers that prove the cluster secret.

A unix socket (0600) in a private directory (0700). One thread accepts; each handshake has a thread of its
own, a time limit, and a slot out of a few: while all are taken, further readers wait in the listen queue.
"""

import contextlib
import os
import secrets
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from kvseal.core.ids import InstanceId, short
from kvseal.memory import SourcePool
from kvseal.transport import shm_handshake as words
from kvseal.transport.base import Cause, TransportError

MAX_PATH_BYTES: Final = 107  # sockaddr_un has 108, the last one is NUL
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid
_REFUSALS: Final = {  # why a handshake failed: counter, and what the reader is told
    Cause.UNAUTHENTICATED: ("refused_secret", words.Reason.SECRET),
    Cause.WRONG_INSTANCE: ("refused_instance", words.Reason.INSTANCE),
    Cause.MISMATCH: ("refused_protocol", words.Reason.PROTOCOL),
    Cause.MALFORMED: ("refused_protocol", words.Reason.PROTOCOL),
}


@dataclass(frozen=True, slots=True)
class HandshakeLimits:
    """What strangers can make this process spend."""

    seconds: float = 2.0
    concurrent: int = 8


def private_directory(directory: Path) -> Path:
    """Makes ``directory`` (0700) where it is missing.

    Raises TransportError unless it is private to this user.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
    except OSError as error:
        raise TransportError(Cause.LOCAL, f"cannot make the socket directory {directory}: {error}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise TransportError(Cause.LOCAL, f"{directory} is not a directory")
    if status.st_uid != os.geteuid():
        raise TransportError(
            Cause.LOCAL, f"{directory} belongs to user {status.st_uid}, this is {os.geteuid()}"
        )
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise TransportError(Cause.LOCAL, f"{directory} has mode {mode:04o}: it must be 0700")
    return directory.absolute()


def check_path(path: Path) -> None:
    """Raises TransportError for a path that no socket address can hold."""
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise TransportError(
            Cause.LOCAL,
            f"the socket path {path} has {length} bytes, at most {MAX_PATH_BYTES} are possible: "
            "choose a shorter directory",
        )


def peer_uid(channel: socket.socket) -> int:
    """The user id of the process at the other end, as the kernel knows it."""
    _, uid, _ = _UCRED.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


def receive_packet(channel: socket.socket, deadline: float) -> bytes:
    """One packet, empty where the other side is gone.

    Raises TimeoutError at ``deadline`` (monotonic seconds).
    """
    channel.settimeout(max(deadline - time.monotonic(), 0.001))
    return channel.recv(words.MAX_PACKET_BYTES)


def _listen(path: Path) -> socket.socket:
    """A listening socket at ``path``, in the place of one that a dead process left there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        try:
            listener.bind(os.fspath(path))
        except OSError:
            if _somebody_listens(path):
                raise
            path.unlink(missing_ok=True)
            listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise TransportError(Cause.LOCAL, f"cannot listen at {path}: {error}") from error
    return listener


def _somebody_listens(path: Path) -> bool:
    """Whether what stands at ``path`` must be left alone: a living socket, or something that is no socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return not stat.S_ISSOCK(path.lstat().st_mode)
        except FileNotFoundError:
            return False
        except OSError:
            return True
    return True


@dataclass(frozen=True, slots=True)
class Export:
    """What is served: a pool, under which instance, to whom can prove ``key``."""

    pool: SourcePool
    instance: InstanceId
    key: bytes


class DescriptorServer:
    """Serves one pool at one path, from its making until it is closed."""

    def __init__(
        self, export: Export, path: Path, limits: HandshakeLimits, count: Callable[[str], None]
    ) -> None:
        """Listens and serves. ``count`` adds one to a counter of TransportCounters, by name.

        Raises TransportError where the path cannot be had.
        """
        check_path(path)
        self._export = export
        self._path = path
        self._limits = limits
        self._count = count
        self._lock = threading.Lock()
        self._closed = False
        self._open: dict[socket.socket, threading.Thread] = {}
        self._slots = threading.BoundedSemaphore(limits.concurrent)
        self._listener = _listen(path)
        self._inode = path.lstat().st_ino
        # Our own descriptor: the number of the pool's may mean another file once its owner closed it.
        self._fd = os.dup(export.pool.fd)
        self._acceptor = threading.Thread(target=self._accept, name="kvseal-shm-accept", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Stops listening and waits for the handshakes in progress, which are cut short. Call it once."""
        with self._lock:
            self._closed = True
            waiting = dict(self._open)
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the acceptor
        for channel in waiting:
            _attempt(partial(channel.shutdown, socket.SHUT_RDWR))
        self._acceptor.join()
        self._listener.close()
        for thread in waiting.values():
            thread.join()
        os.close(self._fd)
        _attempt(self._unlink)

    def _unlink(self) -> None:
        # A later instance may listen at this path by now (F10): its socket is not ours to remove.
        if self._path.lstat().st_ino == self._inode:
            self._path.unlink()

    def _accept(self) -> None:
        while True:
            self._slots.acquire()
            try:
                channel, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                self._slots.release()
                time.sleep(0.01)  # out of descriptors: readers wait in the listen queue
                continue
            thread = threading.Thread(
                target=self._serve, args=(channel,), name="kvseal-shm-serve", daemon=True
            )
            with self._lock:
                if self._closed:
                    channel.close()
                    return
                self._open[channel] = thread
                thread.start()

    def _serve(self, channel: socket.socket) -> None:
        try:
            self._count(self._handshake(channel))
        finally:
            with self._lock:
                self._open.pop(channel)
            channel.close()
            self._slots.release()

    def _handshake(self, channel: socket.socket) -> str:
        """Serves one reader; the name of the counter that says how it ended."""
        deadline = time.monotonic() + self._limits.seconds
        try:
            # Read before any refusal: closing on unread bytes resets the connection, and loses the refusal.
            opening = receive_packet(channel, deadline)
            if peer_uid(channel) != os.geteuid():
                self._refuse(channel, words.Reason.USER)
                return "refused_uid"
            self._offer_and_grant(channel, opening, deadline)
        except TransportError as error:
            if error.cause not in _REFUSALS:
                return "refused_slow"
            counter, reason = _REFUSALS[error.cause]
            self._refuse(channel, reason)
            return counter
        except OSError:  # a timeout among them
            return "refused_slow"
        return "served_peers"

    def _refuse(self, channel: socket.socket, reason: words.Reason) -> None:
        packet = words.encode_refusal(reason, self._export.instance)
        _attempt(lambda: channel.sendall(packet))

    def _offer_and_grant(self, channel: socket.socket, opening: bytes, deadline: float) -> None:
        export = self._export
        hello = words.decode_hello(opening)
        if hello.wanted != export.instance:
            raise TransportError(
                Cause.WRONG_INSTANCE, f"asked for {short(hello.wanted)}, this is {short(export.instance)}"
            )
        status = os.fstat(self._fd)
        offer = words.Offer(
            source=export.instance,
            pages=export.pool.pages,
            page_bytes=export.pool.page_bytes,
            device=status.st_dev,
            inode=status.st_ino,
            nonce=secrets.token_bytes(words.NONCE_BYTES),
        )
        channel.sendall(words.encode_offer(hello, offer, export.key))
        words.check_proof(receive_packet(channel, deadline), hello, offer, export.key)
        socket.send_fds(channel, [words.encode_grant()], [self._fd])


def _attempt(action: Callable[[], None]) -> None:
    """For steps whose failure changes nothing: the other side, or the file, is gone already."""
    with contextlib.suppress(OSError):
        action()
