"""The words of the ``shm`` handshake: bytes in, bytes out, no sockets.

::

    reader                                              source
      │ HELLO  reader, wanted instance, nonce ─────────────> │
      │ <───────── OFFER  instance, pool, nonce, source's MAC │   or REFUSAL
      │ PROOF  reader's MAC ───────────────────────────────> │
      │ <──────────────────────── GRANT  with the descriptor │   or REFUSAL

Both MACs are HMAC-SHA256 over HELLO and OFFER, so that they bind both instances, both nonces, the shape of
the pool and the very memfd (device and inode). They differ by a direction tag: what one side proved cannot
be sent back as the other side's proof. Each message is one packet of a fixed length. The cluster secret
itself is never sent.
"""

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from kvseal.core.ids import ID_BYTES, InstanceId, short
from kvseal.transport.base import Cause, TransportError

VERSION: Final = 1
NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
MAX_PACKET_BYTES: Final = 256

_HEAD: Final = struct.Struct(">5sBH")  # b"kvshm", kind, version
_HELLO: Final = struct.Struct(f">{ID_BYTES}s{ID_BYTES}s{NONCE_BYTES}s")
_OFFER: Final = struct.Struct(f">{ID_BYTES}sQQQQ{NONCE_BYTES}s")
_MAGIC: Final = b"kvshm"


class Kind(IntEnum):
    """What a packet is."""

    HELLO = 1
    OFFER = 2
    PROOF = 3
    GRANT = 4
    REFUSAL = 5


class Reason(IntEnum):
    """Why a source turns a reader away, as it tells the reader."""

    PROTOCOL = 1
    INSTANCE = 2
    SECRET = 3
    USER = 4


_REFUSED: Final = {
    Reason.PROTOCOL: (Cause.MISMATCH, "does not speak this version of the handshake"),
    Reason.INSTANCE: (Cause.WRONG_INSTANCE, "answers, and is not the one that is wanted"),
    Reason.SECRET: (Cause.UNAUTHENTICATED, "does not accept our proof of the cluster secret"),
    Reason.USER: (Cause.UNAUTHENTICATED, "serves no other user than its own"),
}


@dataclass(frozen=True, slots=True)
class Hello:
    """The reader's opening: who it is and whose pool it wants."""

    reader: InstanceId
    wanted: InstanceId
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Offer:
    """What the source has: a pool of ``pages`` x ``page_bytes``, in the memfd with this device and inode."""

    source: InstanceId
    pages: int
    page_bytes: int
    device: int
    inode: int
    nonce: bytes


def derive_key(secret: bytes) -> bytes:
    """The key of this handshake and of nothing else, from the cluster secret (32 to 64 bytes)."""
    if not 32 <= len(secret) <= 64:
        raise ValueError(f"the cluster secret must have 32 to 64 bytes, this one has {len(secret)}")
    return blake2b(key=secret, digest_size=32, person=b"kvseal-shm-key").digest()


def encode_hello(hello: Hello) -> bytes:
    """The packet of a Hello."""
    return _packet(Kind.HELLO, _HELLO.pack(hello.reader, hello.wanted, hello.nonce))


def decode_hello(packet: bytes) -> Hello:
    """Raises TransportError for anything else."""
    reader, wanted, nonce = _HELLO.unpack(_body(packet, Kind.HELLO, _HELLO.size))
    return Hello(InstanceId(reader), InstanceId(wanted), nonce)


def encode_offer(hello: Hello, offer: Offer, key: bytes) -> bytes:
    """The packet of an Offer, with the source's MAC."""
    body = _offer_body(offer)
    return _packet(Kind.OFFER, body + _mac(key, b"source", hello, offer))


def decode_offer(packet: bytes, hello: Hello, key: bytes) -> Offer:
    """The Offer that answers ``hello``.

    Raises TransportError where the source refuses, is not ours or cannot prove it.
    """
    body = _body(packet, Kind.OFFER, _OFFER.size + MAC_BYTES)
    source, pages, page_bytes, device, inode, nonce = _OFFER.unpack(body[: _OFFER.size])
    offer = Offer(InstanceId(source), pages, page_bytes, device, inode, nonce)
    if not hmac.compare_digest(body[_OFFER.size :], _mac(key, b"source", hello, offer)):
        raise TransportError(Cause.UNAUTHENTICATED, "the source does not prove the cluster secret")
    return offer


def encode_proof(hello: Hello, offer: Offer, key: bytes) -> bytes:
    """The packet that proves that the reader knows the secret too."""
    return _packet(Kind.PROOF, _mac(key, b"reader", hello, offer))


def check_proof(packet: bytes, hello: Hello, offer: Offer, key: bytes) -> None:
    """Raises TransportError where the reader does not prove it."""
    if not hmac.compare_digest(_body(packet, Kind.PROOF, MAC_BYTES), _mac(key, b"reader", hello, offer)):
        raise TransportError(Cause.UNAUTHENTICATED, "the reader does not prove the cluster secret")


def encode_grant() -> bytes:
    """The packet that the descriptor travels with."""
    return _packet(Kind.GRANT, b"")


def check_grant(packet: bytes) -> None:
    """Raises TransportError where the source refuses."""
    _body(packet, Kind.GRANT, 0)


def encode_refusal(reason: Reason, source: InstanceId) -> bytes:
    """The packet of a refusal. It proves nothing, and it need not: it can only end the handshake."""
    return _packet(Kind.REFUSAL, bytes([reason]) + source)


def _packet(kind: Kind, body: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, kind, VERSION) + body


def _body(packet: bytes, kind: Kind, length: int) -> bytes:
    """What follows the head of a packet of this kind, of exactly ``length`` bytes."""
    if not packet:
        raise TransportError(Cause.UNREACHABLE, "the other side ended the handshake")
    if len(packet) < _HEAD.size:
        raise TransportError(Cause.MALFORMED, f"a packet of {len(packet)} bytes is no part of the handshake")
    magic, found, version = _HEAD.unpack_from(packet)
    body = packet[_HEAD.size :]
    if magic != _MAGIC:
        raise TransportError(Cause.MALFORMED, "the other side speaks another protocol")
    if found == Kind.REFUSAL and kind in (Kind.OFFER, Kind.GRANT):
        raise _refused(body)
    if version != VERSION:
        raise TransportError(
            Cause.MISMATCH, f"the other side has version {version} of the handshake, this is {VERSION}"
        )
    if found != kind or len(body) != length:
        raise TransportError(
            Cause.MALFORMED, f"kind {found} with {len(body)} bytes, expected {kind.name} with {length}"
        )
    return body


def _refused(body: bytes) -> TransportError:
    if len(body) != 1 + ID_BYTES or body[0] not in list(Reason):
        return TransportError(Cause.MALFORMED, "the source refuses in words that are not ours")
    cause, what = _REFUSED[Reason(body[0])]
    return TransportError(cause, f"instance {short(body[1:])} {what}")


def _offer_body(offer: Offer) -> bytes:
    numbers = (offer.pages, offer.page_bytes, offer.device, offer.inode)
    return _OFFER.pack(offer.source, *numbers, offer.nonce)


def _mac(key: bytes, direction: bytes, hello: Hello, offer: Offer) -> bytes:
    """Over both openings.

    All parts but the tag have fixed lengths, and the tags differ in their first byte.
    """
    return hmac.digest(key, direction + encode_hello(hello) + _offer_body(offer), "sha256")
