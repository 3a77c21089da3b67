"""Where a process listens. So far one kind of place: ``unix:/absolute/path``, in a directory of our own.

The place is safe by itself, before any handshake: only our user can reach the directory (0700) or the socket
(0600), and the kernel says which user is at the other end (SO_PEERCRED).

A network address will be another member of :data:`Address`: it needs ``start_server``, ``open``, ``admit``
and ``release``, and nothing else in this package has to know. What it must add is said in
:mod:`kvseal.wire.handshake`.
"""

import asyncio
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kvseal.wire.errors import AddressRefused, NotAuthenticated, Unreachable

MAX_PATH_BYTES = 107  # of sun_path's 108, one ends the string
BACKLOG = 128
_SCHEME = "unix:"
_UCRED = struct.Struct("3i")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A unix socket at ``path``, absolute."""

    path: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.path}"

    async def start_server(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
        """Accepts connections, one protocol for each. Raises :class:`AddressRefused`."""
        listening = self.listen()
        return await asyncio.get_running_loop().create_unix_server(factory, sock=listening, backlog=BACKLOG)

    async def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Connects and hands the connection to the protocol.

        Raises :class:`Unreachable` or :class:`AddressRefused`.
        """
        await asyncio.get_running_loop().create_unix_connection(factory, sock=self.dial())

    def admit(self, transport: asyncio.BaseTransport) -> bytes:
        """Looks at who is at the other end before a byte is exchanged, on either side.

        Returns what ties a handshake to this very channel: nothing here, the kernel does it. Raises
        :class:`NotAuthenticated`.
        """
        check_peer(transport.get_extra_info("socket"))
        return b""

    def release(self) -> None:
        """Removes the socket file. For the process that served it, when it serves no more."""
        with suppress(FileNotFoundError, AddressRefused), self._locked_directory():
            # A successor's socket is left alone, and so is whatever else was put there.
            if stat.S_ISSOCK(os.lstat(self.path).st_mode) and not self._is_served():
                os.unlink(self.path)

    def listen(self) -> socket.socket:
        """A listening, non-blocking socket, mode 0600. A socket file that nobody serves any more is replaced.

        Raises :class:`AddressRefused` for an unsafe directory, and where somebody serves there already.
        """
        # Locked, so that two processes that both find a stale file cannot unlink each other's new one.
        with self._locked_directory():
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.setblocking(False)
                self._bind(listener)
                os.chmod(self.path, 0o600)  # before anybody can connect
                listener.listen(BACKLOG)
            except BaseException:
                listener.close()
                raise
            return listener

    def dial(self) -> socket.socket:
        """A connected, non-blocking socket. Raises :class:`Unreachable` or :class:`AddressRefused`."""
        try:
            _check_directory(os.path.dirname(self.path))
        except FileNotFoundError:
            raise Unreachable(f"{self}: no such directory") from None
        dialer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        dialer.setblocking(False)
        try:
            # Ends at once, one way or the other. asyncio would take "the backlog is full" for "in progress".
            dialer.connect(self.path)
        except OSError as error:
            dialer.close()
            raise Unreachable(f"{self}: {error.strerror}") from error
        return dialer

    @contextmanager
    def _locked_directory(self) -> Iterator[None]:
        directory = os.path.dirname(self.path)
        try:
            _check_directory(directory)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise AddressRefused(f"{self}: there is no directory {directory}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _bind(self, listener: socket.socket) -> None:
        try:
            listener.bind(self.path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise AddressRefused(f"{self}: {error.strerror}") from error
            self._remove_stale()
            listener.bind(self.path)

    def _remove_stale(self) -> None:
        status = os.lstat(self.path)
        if not stat.S_ISSOCK(status.st_mode):
            raise AddressRefused(f"{self}: a file that is no socket lies there")
        if status.st_uid != os.geteuid():
            raise AddressRefused(f"{self}: a socket of user {status.st_uid}, we are {os.geteuid()}")
        if self._is_served():
            raise AddressRefused(f"{self}: another process serves there")
        os.unlink(self.path)

    def _is_served(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            match probe.connect_ex(self.path):
                case errno.ECONNREFUSED:
                    return False
                case errno.ENOENT:
                    raise FileNotFoundError(self.path)
                case _:  # connected, or its backlog is full
                    return True


Address = UnixAddress


def parse_address(text: str) -> Address:
    """The address that is written in ``text``. Raises :class:`AddressRefused`."""
    if not text.startswith(_SCHEME):
        raise AddressRefused(f"address {text!r}: only unix:/absolute/path is known")
    path = text.removeprefix(_SCHEME)
    if "\0" in path or path != os.path.normpath(path) or not path.startswith("/") or path.startswith("//"):
        raise AddressRefused(f"address {text!r}: the path must be absolute and in its shortest form")
    if (size := len(os.fsencode(path))) > MAX_PATH_BYTES:
        raise AddressRefused(
            f"address {text!r}: the path has {size} bytes, the kernel takes {MAX_PATH_BYTES}: "
            "choose a shorter directory"
        )
    return UnixAddress(path)


def check_peer(connected: socket.socket) -> None:
    """The process at the other end must run as our user. Raises :class:`NotAuthenticated`."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _, uid, _ = _UCRED.unpack(credentials)
    if uid != os.geteuid():
        raise NotAuthenticated


def _check_directory(directory: str) -> None:
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        raise AddressRefused(f"{directory} is not a directory (a link to one is not enough)")
    if status.st_uid != os.geteuid():
        raise AddressRefused(f"directory {directory} belongs to user {status.st_uid}, we are {os.geteuid()}")
    if (mode := stat.S_IMODE(status.st_mode)) != 0o700:
        raise AddressRefused(
            f"directory {directory} has mode {mode:04o}, must be 0700 (chmod 700 {directory})"
        )
