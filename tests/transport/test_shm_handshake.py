"""The handshake as bytes: what each side accepts, and that nothing else passes."""

import re
from dataclasses import replace

import pytest
from tests.transport.kinds import instance_named

from kvseal.transport import Cause, TransportError
from kvseal.transport import shm_handshake as words

SECRET, OTHER_SECRET = bytes(range(32)), bytes(range(1, 33))
KEY = words.derive_key(SECRET)
HELLO = words.Hello(instance_named("reader"), instance_named("source"), b"n" * 32)
OFFER = words.Offer(instance_named("source"), 64, 4096, 1, 77, b"m" * 32)


def cause_of(refused: pytest.ExceptionInfo[TransportError]) -> Cause:
    return refused.value.cause


def test_both_sides_accept_each_other() -> None:
    assert words.decode_hello(words.encode_hello(HELLO)) == HELLO
    assert words.decode_offer(words.encode_offer(HELLO, OFFER, KEY), HELLO, KEY) == OFFER
    words.check_proof(words.encode_proof(HELLO, OFFER, KEY), HELLO, OFFER, KEY)
    words.check_grant(words.encode_grant())


def test_no_packet_holds_the_secret_or_the_key() -> None:
    for packet in (
        words.encode_hello(HELLO),
        words.encode_offer(HELLO, OFFER, KEY),
        words.encode_proof(HELLO, OFFER, KEY),
    ):
        assert SECRET not in packet
        assert KEY not in packet
        assert len(packet) <= words.MAX_PACKET_BYTES


def test_another_secret_convinces_neither_side() -> None:
    other = words.derive_key(OTHER_SECRET)
    with pytest.raises(TransportError, match="source does not prove") as refused:
        words.decode_offer(words.encode_offer(HELLO, OFFER, other), HELLO, KEY)
    assert cause_of(refused) is Cause.UNAUTHENTICATED
    with pytest.raises(TransportError, match="reader does not prove") as refused:
        words.check_proof(words.encode_proof(HELLO, OFFER, other), HELLO, OFFER, KEY)
    assert cause_of(refused) is Cause.UNAUTHENTICATED


def test_a_proof_that_is_reflected_convinces_neither_side() -> None:
    """Without the secret, an attacker has only the other side's MAC to send back."""
    head = len(words.encode_grant())
    source_mac = words.encode_offer(HELLO, OFFER, KEY)[-words.MAC_BYTES :]
    reader_mac = words.encode_proof(HELLO, OFFER, KEY)[-words.MAC_BYTES :]
    assert source_mac != reader_mac
    with pytest.raises(TransportError, match="reader does not prove"):
        words.check_proof(words.encode_proof(HELLO, OFFER, KEY)[:head] + source_mac, HELLO, OFFER, KEY)
    with pytest.raises(TransportError, match="source does not prove"):
        words.decode_offer(words.encode_offer(HELLO, OFFER, KEY)[: -words.MAC_BYTES] + reader_mac, HELLO, KEY)


@pytest.mark.parametrize(
    "other",
    [
        replace(HELLO, reader=instance_named("another")),
        replace(HELLO, wanted=instance_named("another")),
        replace(HELLO, nonce=b"x" * 32),
    ],
    ids=["reader", "wanted", "nonce"],
)
def test_proofs_are_bound_to_the_readers_opening(other: words.Hello) -> None:
    with pytest.raises(TransportError, match="source does not prove"):
        words.decode_offer(words.encode_offer(HELLO, OFFER, KEY), other, KEY)
    with pytest.raises(TransportError, match="reader does not prove"):
        words.check_proof(words.encode_proof(HELLO, OFFER, KEY), other, OFFER, KEY)


@pytest.mark.parametrize(
    "other",
    [
        replace(OFFER, source=instance_named("another")),
        replace(OFFER, pages=65),
        replace(OFFER, page_bytes=4097),
        replace(OFFER, device=2),
        replace(OFFER, inode=78),
        replace(OFFER, nonce=b"x" * 32),
    ],
    ids=["source", "pages", "page_bytes", "device", "inode", "nonce"],
)
def test_proofs_are_bound_to_all_of_the_offer(other: words.Offer) -> None:
    true, false = words.encode_offer(HELLO, OFFER, KEY), words.encode_offer(HELLO, other, KEY)
    altered = false[: -words.MAC_BYTES] + true[-words.MAC_BYTES :]
    with pytest.raises(TransportError, match="source does not prove"):
        words.decode_offer(altered, HELLO, KEY)
    with pytest.raises(TransportError, match="reader does not prove"):
        words.check_proof(words.encode_proof(HELLO, OFFER, KEY), HELLO, other, KEY)


def test_every_flipped_bit_of_an_offer_is_refused() -> None:
    packet = words.encode_offer(HELLO, OFFER, KEY)
    for bit in range(8 * len(packet)):
        altered = bytearray(packet)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TransportError):
            words.decode_offer(bytes(altered), HELLO, KEY)


@pytest.mark.parametrize(
    "packet", [b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(200), words.encode_hello(HELLO)[:-1]]
)
def test_what_is_no_hello_is_malformed(packet: bytes) -> None:
    with pytest.raises(TransportError) as refused:
        words.decode_hello(packet)
    assert cause_of(refused) is Cause.MALFORMED


def test_a_packet_of_another_kind_is_malformed() -> None:
    with pytest.raises(TransportError, match="expected HELLO") as refused:
        words.decode_hello(words.encode_proof(HELLO, OFFER, KEY))
    assert cause_of(refused) is Cause.MALFORMED


def test_another_version_is_refused_by_both_numbers() -> None:
    """F18: what two workers do not share is named."""
    packet = bytearray(words.encode_hello(HELLO))
    packet[7] = 9  # low byte of the version
    with pytest.raises(TransportError, match="version 9 of the handshake, this is 1") as refused:
        words.decode_hello(bytes(packet))
    assert cause_of(refused) is Cause.MISMATCH


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (words.Reason.PROTOCOL, Cause.MISMATCH),
        (words.Reason.INSTANCE, Cause.WRONG_INSTANCE),
        (words.Reason.SECRET, Cause.UNAUTHENTICATED),
        (words.Reason.USER, Cause.UNAUTHENTICATED),
    ],
)
def test_a_refusal_says_who_refuses_and_why(reason: words.Reason, cause: Cause) -> None:
    packet = words.encode_refusal(reason, OFFER.source)
    for receive in (lambda: words.decode_offer(packet, HELLO, KEY), lambda: words.check_grant(packet)):
        with pytest.raises(TransportError, match=re.escape(OFFER.source.hex()[:8])) as refused:
            receive()
        assert cause_of(refused) is cause


def test_a_reader_cannot_refuse_a_source() -> None:
    packet = words.encode_refusal(words.Reason.SECRET, HELLO.reader)
    with pytest.raises(TransportError) as refused:
        words.decode_hello(packet)
    assert cause_of(refused) is Cause.MALFORMED


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(65)])
def test_a_secret_of_another_length_is_refused(secret: bytes) -> None:
    with pytest.raises(ValueError, match=f"this one has {len(secret)}"):
        words.derive_key(secret)
