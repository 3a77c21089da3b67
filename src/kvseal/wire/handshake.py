"""Mutual challenge: both sides prove that they know the cluster secret, over everything that both have said.

::

    dialer                                        listener
    opening = magic version nonce hello   ──>
                                          <──     opening = magic version nonce hello
    proof = MAC("dialer", openings)       ──>
                                          <──     proof = MAC("listener", openings)

    AWAIT_OPENING ──opening──> AWAIT_PROOF ──proof──> ESTABLISHED
          └───────anything else────┴──────> FAILED

Both openings are sent at once and so are both proofs: one round trip. The MAC is BLAKE2b under a key that is
derived from the secret for this purpose only. It covers the direction, so that a proof cannot be sent back to
its maker (reflection), both nonces, so that nothing of an earlier handshake fits (replay), and both hellos
byte for byte. Magic, version and nonce have fixed places for all versions to come, so that versions can be
compared before anything else is understood; the version is covered by the MAC too, so nobody can talk two
peers down to an older one.

After the handshake frames carry no MAC of their own: on a unix socket nobody but the kernel lies between the
two ends. **A transport over a network must add** secrecy and integrity of every byte (mutual TLS), and pass
as ``binding`` what ties this handshake to that very channel (a digest over both certificates): without it,
somebody in the middle could relay both openings and both proofs and then go on in the name of either.
"""

from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from hmac import compare_digest
from typing import assert_never

from kvseal.core.errors import InvariantViolation, ProtocolError
from kvseal.core.ids import ID_BYTES
from kvseal.core.messages import Hello, decode_hello, encode
from kvseal.wire.errors import NotAuthenticated, VersionMismatch
from kvseal.wire.secret import check_secret

MAGIC = b"kvseal"
NONCE_BYTES = 32
PROOF_BYTES = 32
_VERSION_END = len(MAGIC) + 2
_NONCE_END = _VERSION_END + NONCE_BYTES


class Side(Enum):
    """Who is who; the value goes into the MAC."""

    DIALER = b"dialer"
    LISTENER = b"listener"


class State(Enum):
    """What the handshake waits for; see the drawing above."""

    AWAIT_OPENING = "await opening"
    AWAIT_PROOF = "await proof"
    ESTABLISHED = "established"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this body to the peer; the handshake goes on."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Established:
    """The peer knows the secret, and this is what it said about itself."""

    peer: Hello


class Handshake:
    """One side of one handshake. Send :attr:`opening` first; each body that arrives goes to :meth:`receive`.

    ``secret`` is the cluster secret, 32 to 64 bytes. ``nonce`` are 32 random bytes, never used before.
    ``binding`` names the channel underneath and is the same on both sides; empty on a unix socket.
    """

    def __init__(self, side: Side, secret: bytes, hello: Hello, nonce: bytes, binding: bytes = b"") -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self._side = side
        self._version = hello.version
        self._key = _derive_key(secret)
        self._binding = binding
        self._state = State.AWAIT_OPENING
        self._theirs = b""  # the peer's opening, as it was sent
        self._peer: Hello | None = None
        self.opening = MAGIC + hello.version.to_bytes(2, "big") + nonce + encode(hello)

    @property
    def state(self) -> State:
        """What the handshake waits for."""
        return self._state

    def receive(self, body: bytes) -> Answer | Established:
        """The answer to one body from the peer.

        Raises :class:`VersionMismatch` or :class:`NotAuthenticated`; the connection must then end in silence.
        """
        state, self._state = self._state, State.FAILED  # until shown otherwise
        match state:
            case State.AWAIT_OPENING:
                self._peer = _read_opening(body, self._version)
                self._theirs = body
                self._state = State.AWAIT_PROOF
                return Answer(self._proof(self._side))
            case State.AWAIT_PROOF:
                other = Side.LISTENER if self._side is Side.DIALER else Side.DIALER
                if not compare_digest(self._proof(other), body):
                    raise NotAuthenticated
                assert self._peer is not None
                self._state = State.ESTABLISHED
                return Established(self._peer)
            case State.ESTABLISHED | State.FAILED:
                raise InvariantViolation(f"a handshake that is {state.value} was given another frame")
        assert_never(state)

    def _proof(self, side: Side) -> bytes:
        openings = (self.opening, self._theirs)
        mac = blake2b(key=self._key, digest_size=PROOF_BYTES, person=b"kvseal-wire-mac")
        # Each part with its length: no two different transcripts have the same bytes.
        for part in (side.value, self._binding, *(openings if self._side is Side.DIALER else openings[::-1])):
            mac.update(len(part).to_bytes(8, "big"))
            mac.update(part)
        return mac.digest()


def _derive_key(secret: bytes) -> bytes:
    check_secret(secret)
    return blake2b(key=secret, digest_size=32, person=b"kvseal-wire-key").digest()


def _read_opening(body: bytes, our_version: int) -> Hello:
    if len(body) < _NONCE_END or not body.startswith(MAGIC):
        raise NotAuthenticated
    version = int.from_bytes(body[len(MAGIC) : _VERSION_END], "big")
    if version != our_version:
        raise VersionMismatch(our_version, version)
    try:
        hello = decode_hello(body[_NONCE_END:])
    except ProtocolError:
        raise NotAuthenticated from None
    if hello.version != version or len(hello.instance) != ID_BYTES:
        raise NotAuthenticated
    return hello
