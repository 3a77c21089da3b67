"""The transports that the conformance suite runs over. A new one is one entry in KINDS."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kvseal.core.ids import InstanceId
from kvseal.transport import ShmOptions, ShmTransport, Transport

SECRET = bytes(range(32))


@dataclass(frozen=True)
class Setup:
    """What any transport is made from."""

    instance: InstanceId
    directory: Path
    wakeup: Callable[[], None] = field(default=lambda: None)
    secret: bytes = SECRET
    address: str | None = None  # a name that outlives the instance, for kinds whose addresses can


@dataclass(frozen=True)
class Kind:
    """How to make one transport, and what must be installed for it."""

    make: Callable[[Setup], Transport]
    needs: str = "kvseal"

    @property
    def missing(self) -> bool:
        return importlib.util.find_spec(self.needs) is None


def make_shm(setup: Setup) -> Transport:
    options = ShmOptions(name=setup.address)
    return ShmTransport(setup.secret, setup.instance, setup.wakeup, setup.directory, options)


KINDS = {"shm": Kind(make_shm)}


def instance_named(name: str) -> InstanceId:
    """The same 16 bytes for the same name."""
    return InstanceId(name.encode().ljust(16, b".")[:16])
