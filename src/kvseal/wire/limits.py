"""A limit on everything that a peer can make us hold or wait for, and a counter for every cause of an end."""

from dataclasses import dataclass

from kvseal.wire.framing import HEADER_BYTES

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one peer may cost.

    ``max_frame_bytes``      body of one frame; a prompt of a million tokens takes about 5 MB
    ``max_handshake_bytes``  the same before the peer has authenticated
    ``max_unsent_bytes``     what waits here because the peer does not read; above it the connection ends
    ``max_unread_bytes``     what waits here because we do not read; above it we leave it in the socket
    ``max_unauthenticated``  connections at once, per listener, that have not finished the handshake
    ``handshake_seconds``    from connecting to being authenticated, on either side
    ``linger_seconds``       how long a closed connection may take to get its last bytes out
    """

    max_frame_bytes: int = 64 * MIB
    max_handshake_bytes: int = 64 * KIB
    max_unsent_bytes: int = 128 * MIB
    max_unread_bytes: int = MIB
    max_unauthenticated: int = 32
    handshake_seconds: float = 5.0
    linger_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.max_handshake_bytes <= self.max_frame_bytes < 2**32:
            raise ValueError("0 < max_handshake_bytes <= max_frame_bytes < 2**32 does not hold")
        if self.max_unsent_bytes < HEADER_BYTES + self.max_frame_bytes:
            raise ValueError("max_unsent_bytes must have room for one frame of max_frame_bytes")
        if min(self.max_unread_bytes, self.max_unauthenticated) < 1:
            raise ValueError("max_unread_bytes and max_unauthenticated must be at least 1")


@dataclass(slots=True)
class WireCounters:
    """Connections that were ended, one counter per cause, all there at zero from the start (F26).

    ``malformed``         an authenticated peer sent what is no message of ours
    ``oversized``         a frame over its limit, at any time
    ``unauthenticated``   a handshake that failed or was broken off, or a peer that runs as another user
    ``version_mismatch``  a peer of another protocol version
    ``crowded``           turned away because too many others had not authenticated yet
    ``overflow``          a peer that does not read what we send
    ``timeouts``          a handshake that took too long
    """

    malformed: int = 0
    oversized: int = 0
    unauthenticated: int = 0
    version_mismatch: int = 0
    crowded: int = 0
    overflow: int = 0
    timeouts: int = 0
