"""What can go wrong between two processes, cut by what the caller can do about it.

::

    KvsealError
    ├── StartRefused
    │   ├── AddressRefused      not a safe place to listen or to dial: the operator must change it
    │   └── SecretRefused       not a usable cluster secret, or one that others can read
    ├── ProtocolError           the peer's fault: its connection has ended and the cause is counted (G11)
    │   ├── FrameTooLong
    │   ├── NotAuthenticated    deliberately says nothing more
    │   └── VersionMismatch     names both versions
    └── ConnectionLost          the peer is gone; what it had sent before was delivered
        ├── Unreachable         nobody listens there: try again later
        └── HandshakeTimeout    somebody listens, but did not answer in time: try again later
"""

from kvseal.core.errors import KvsealError, ProtocolError, StartRefused


class AddressRefused(StartRefused):
    """The address cannot be used safely; the text says which and why."""


class SecretRefused(StartRefused):
    """The cluster secret cannot be used; the text says why, never what it is."""


class FrameTooLong(ProtocolError):
    """A frame is longer than its limit. From a peer: its connection ends. Of our own: nothing was sent."""


class NotAuthenticated(ProtocolError):
    """The handshake failed. The text is always the same, so that it helps nobody to find out why."""

    def __init__(self) -> None:
        super().__init__("not authenticated")


class VersionMismatch(ProtocolError):
    """The peer speaks another version of the protocol."""

    def __init__(self, ours: int, theirs: int) -> None:
        super().__init__(f"protocol version: {ours} here, {theirs} there")
        self.ours = ours
        self.theirs = theirs


class ConnectionLost(KvsealError):
    """The connection has ended, for the reason in the text. What became of our last words is unknown."""


class Unreachable(ConnectionLost):
    """Nobody accepts connections at the address."""


class HandshakeTimeout(ConnectionLost):
    """The peer did not finish the handshake in time."""
