"""A memfd that only its owner can write: made, sealed and checked here.

The seals are what the source pool's safety towards peers rests on (G3, and no SIGBUS for readers)::

    F_SEAL_SHRINK, F_SEAL_GROW   a reader's mapping always has memory behind it
    F_SEAL_FUTURE_WRITE          no new writable mapping, no write(2), no hole punched; the owner's mapping,
                                 which was made before, still writes
    F_SEAL_SEAL                  the set of seals is final

A peer that got the descriptor cannot undo any of it, not even by opening it again through /proc.
"""

import fcntl
import os
from typing import Final

from kvseal.core.errors import KvsealError

F_SEAL_FUTURE_WRITE: Final = 0x10  # Linux 5.1; Python 3.11's fcntl does not name it

SEALS: Final = {
    "F_SEAL_SHRINK": fcntl.F_SEAL_SHRINK,
    "F_SEAL_GROW": fcntl.F_SEAL_GROW,
    "F_SEAL_FUTURE_WRITE": F_SEAL_FUTURE_WRITE,
    "F_SEAL_SEAL": fcntl.F_SEAL_SEAL,
}


class PoolRefused(KvsealError):
    """A descriptor is not the sealed pool that it should be.

    The text names what was found and what should be.
    """


def create_memfd(size_bytes: int) -> int:
    """A new, zeroed memfd that may still be sealed. Memory is taken when it is first touched."""
    fd = os.memfd_create("kvseal-source-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def seal(fd: int) -> None:
    """Seals for good. The owner's writable mapping must exist already: no other can be made afterwards."""
    wanted = 0
    for flag in SEALS.values():
        wanted |= flag
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wanted)


def check_sealed(fd: int, size_bytes: int) -> None:
    """Raises PoolRefused unless ``fd`` is a memfd of exactly ``size_bytes`` bytes with all of SEALS."""
    try:
        found = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise PoolRefused(f"descriptor {fd} is not a memfd: {error.strerror}") from error
    missing = [name for name, flag in SEALS.items() if not found & flag]
    if missing:
        raise PoolRefused(f"the pool lacks {', '.join(missing)}: its owner or a peer could change it unseen")
    size = os.fstat(fd).st_size
    if size != size_bytes:
        raise PoolRefused(f"the pool has {size} bytes, {size_bytes} were announced")
