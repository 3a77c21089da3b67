"""The control wire: framing, mutual authentication and limits for core's messages (G11)."""

from kvseal.wire.connection import Connection
from kvseal.wire.dial import backoff, connect, dial_forever
from kvseal.wire.errors import (
    AddressRefused,
    ConnectionLost,
    FrameTooLong,
    HandshakeTimeout,
    NotAuthenticated,
    SecretRefused,
    Unreachable,
    VersionMismatch,
)
from kvseal.wire.limits import Limits, WireCounters
from kvseal.wire.listener import Listener, serve
from kvseal.wire.secret import (
    make_secret,
    read_secret_fd,
    read_secret_file,
    secret_descriptor,
    write_secret_file,
)

__all__ = [
    "AddressRefused",
    "Connection",
    "ConnectionLost",
    "FrameTooLong",
    "HandshakeTimeout",
    "Limits",
    "Listener",
    "NotAuthenticated",
    "SecretRefused",
    "Unreachable",
    "VersionMismatch",
    "WireCounters",
    "backoff",
    "connect",
    "dial_forever",
    "make_secret",
    "read_secret_fd",
    "read_secret_file",
    "secret_descriptor",
    "serve",
    "write_secret_file",
]
