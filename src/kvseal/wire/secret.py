"""The cluster secret: 32 to 64 random bytes that all processes of one cluster know, and nobody else.

It comes by an inherited descriptor (``--secret-fd``) or by a file that only its owner can read and write.
Never by argv or the environment, which other processes can read, and never in a message.
"""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from kvseal.wire.errors import SecretRefused

MIN_SECRET_BYTES = 32
MAX_SECRET_BYTES = 64  # what BLAKE2b takes as a key
_READ_BYTES = MAX_SECRET_BYTES + 1  # one more than allowed, so that "too long" is seen without reading it all


def make_secret() -> bytes:
    """A new secret, from the kernel's random source."""
    return os.urandom(MIN_SECRET_BYTES)


def check_secret(secret: bytes, where: str = "the cluster secret") -> bytes:
    """The same bytes, if they can be a secret. Raises :class:`SecretRefused` otherwise."""
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        size = f"more than {MAX_SECRET_BYTES}" if len(secret) > MAX_SECRET_BYTES else str(len(secret))
        raise SecretRefused(
            f"{where} has {size} bytes; {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} raw bytes are wanted "
            f"(for example: head -c {MIN_SECRET_BYTES} /dev/urandom)"
        )
    return secret


def secret_descriptor(secret: bytes) -> int:
    """A descriptor from which children can read the secret: memory without a name, sealed against any change.

    It is closed on exec; hand it to a child by naming it in ``pass_fds``. The caller closes it.
    """
    check_secret(secret)
    descriptor = os.memfd_create("kvseal-secret", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, secret)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_secret_fd(descriptor: int) -> bytes:
    """The secret behind an inherited descriptor (a memfd, a file or a pipe), which is closed.

    Raises :class:`SecretRefused`.
    """
    if descriptor <= 2:
        raise SecretRefused(
            f"--secret-fd {descriptor}: standard input, output and error cannot carry the secret"
        )
    try:
        secret = _read_all(descriptor)
    except OSError as error:
        raise SecretRefused(f"--secret-fd {descriptor}: {error.strerror}") from error
    finally:
        _close_quietly(descriptor)  # so that no child of ours inherits it
    return check_secret(secret, f"--secret-fd {descriptor}")


def read_secret_file(path: Path) -> bytes:
    """The secret in a file. Raises :class:`SecretRefused` unless it is a regular file of ours with mode
    0600.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretRefused(f"secret file {path}: {error.strerror}") from error
    try:
        # Of the open descriptor, not of the path: nothing can be put in its place between check and use.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SecretRefused(f"secret file {path}: not a regular file")
        if status.st_uid != os.geteuid():
            raise SecretRefused(f"secret file {path}: owned by user {status.st_uid}, we are {os.geteuid()}")
        if (mode := stat.S_IMODE(status.st_mode)) != 0o600:
            raise SecretRefused(f"secret file {path}: mode {mode:04o}, must be 0600 (chmod 600 {path})")
        secret = _read_all(descriptor)
    finally:
        os.close(descriptor)
    return check_secret(secret, f"secret file {path}")


def write_secret_file(path: Path, secret: bytes) -> None:
    """Makes a new file with mode 0600. Raises FileExistsError: a secret in use is never overwritten."""
    check_secret(secret)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # whatever the umask is
        os.write(descriptor, secret)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    """Up to one byte more than a secret may have."""
    try:
        # Several children inherit the same open file, whose position they share: read from the start, move
        # nothing.
        return os.pread(descriptor, _READ_BYTES, 0)
    except OSError:
        pass  # a pipe has no positions
    parts = bytearray()
    while len(parts) < _READ_BYTES and (part := os.read(descriptor, _READ_BYTES - len(parts))):
        parts += part
    return bytes(parts)


def _close_quietly(descriptor: int) -> None:
    with suppress(OSError):  # it was no descriptor; the reader has already said so
        os.close(descriptor)
