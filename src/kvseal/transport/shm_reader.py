"""The reader's side of the ``shm`` handshake: from a path to a mapped, verified pool."""

import os
import secrets
import socket
import struct
import time
from pathlib import Path
from typing import Final

from kvseal.core.ids import InstanceId, short
from kvseal.memory import MappedPool, PoolRefused
from kvseal.transport import shm_handshake as words
from kvseal.transport.base import Cause, TransportError
from kvseal.transport.shm_source import peer_uid, receive_packet

_FDS_ROOM: Final = socket.CMSG_SPACE(4)  # one descriptor; the kernel drops further ones and says so


def open_pool(path: Path, hello: words.Hello, key: bytes, seconds: float) -> MappedPool:
    """Maps the pool that is served at ``path``. Raises TransportError, and keeps nothing open then."""
    deadline = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            _dial(channel, path, deadline)
            return _shake_hands(channel, hello, key, deadline)
    except TimeoutError as error:
        raise TransportError(Cause.TIMED_OUT, f"no answer at {path} within {seconds:g} s") from error
    except OSError as error:
        raise TransportError(Cause.UNREACHABLE, f"nobody answers at {path}: {error}") from error


def hello_to(reader: InstanceId, wanted: InstanceId) -> words.Hello:
    """A fresh opening."""
    return words.Hello(reader, wanted, secrets.token_bytes(words.NONCE_BYTES))


def _dial(channel: socket.socket, path: Path, deadline: float) -> None:
    while True:
        channel.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            channel.connect(os.fspath(path))
        except BlockingIOError:  # the listen queue is full, for which a unix socket does not wait
            if time.monotonic() > deadline:
                raise TimeoutError from None
            time.sleep(0.01)
        else:
            break
    if peer_uid(channel) != os.geteuid():
        raise TransportError(
            Cause.UNAUTHENTICATED,
            f"user {peer_uid(channel)} listens at {path}, this is user {os.geteuid()}",
        )


def _shake_hands(channel: socket.socket, hello: words.Hello, key: bytes, deadline: float) -> MappedPool:
    channel.sendall(words.encode_hello(hello))
    offer = words.decode_offer(receive_packet(channel, deadline), hello, key)
    if offer.source != hello.wanted:
        raise TransportError(
            Cause.WRONG_INSTANCE, f"instance {short(offer.source)} answers, {short(hello.wanted)} is wanted"
        )
    channel.sendall(words.encode_proof(hello, offer, key))
    packet, fd = _receive_granted(channel, deadline)
    try:
        words.check_grant(packet)
        if fd < 0:
            raise TransportError(Cause.MALFORMED, "the source sent no descriptor")
        return _map(fd, offer)
    finally:
        if fd >= 0:
            os.close(fd)


def _receive_granted(channel: socket.socket, deadline: float) -> tuple[bytes, int]:
    """A packet and the descriptor that came with it, -1 for none.

    Not ``socket.recv_fds``: it takes no flags in 3.11.
    """
    channel.settimeout(max(deadline - time.monotonic(), 0.001))
    packet, ancillary, flags, _ = channel.recvmsg(words.MAX_PACKET_BYTES, _FDS_ROOM, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    if len(fds) > 1 or flags & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise TransportError(Cause.MALFORMED, "the source sent more than one descriptor")
    return packet, fds[0] if fds else -1


def _map(fd: int, offer: words.Offer) -> MappedPool:
    """The pool behind ``fd``, if it is the very memfd that the source's MAC names."""
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) != (offer.device, offer.inode):
        raise TransportError(
            Cause.UNAUTHENTICATED,
            f"the descriptor is of file {status.st_ino}, the source proves file {offer.inode}",
        )
    try:
        return MappedPool.open(fd, offer.pages, offer.page_bytes)
    except (PoolRefused, ValueError) as error:
        raise TransportError(Cause.MISMATCH, str(error)) from error
    except OSError as error:
        raise TransportError(Cause.LOCAL, f"cannot map {offer.pages} pages: {error}") from error
