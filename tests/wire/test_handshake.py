"""Only who knows the secret gets in, and nothing that was seen on the wire helps (F24)."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import InstanceId
from kvseal.core.messages import Hello
from kvseal.wire.errors import NotAuthenticated, SecretRefused, VersionMismatch
from kvseal.wire.handshake import Answer, Established, Handshake, Side, State

SECRET = bytes(range(32))
DECODE = Hello(role="decode", instance=InstanceId(b"d" * 16), model="m", page_size=16)
PREFILL = Hello(role="prefill", instance=InstanceId(b"p" * 16), model="m", page_size=16, endpoint=b"e" * 99)


def dialer(secret: bytes = SECRET, nonce: int = 1, binding: bytes = b"", hello: Hello = DECODE) -> Handshake:
    return Handshake(Side.DIALER, secret, hello, bytes([nonce]) * 32, binding)


def listener(secret: bytes = SECRET, nonce: int = 2, binding: bytes = b"") -> Handshake:
    return Handshake(Side.LISTENER, secret, PREFILL, bytes([nonce]) * 32, binding)


def answer(handshake: Handshake, body: bytes) -> bytes:
    reply = handshake.receive(body)
    assert isinstance(reply, Answer)
    return reply.body


def refused(handshake: Handshake, body: bytes) -> None:
    """The body is refused, with the one text that there is, and the handshake has failed for good."""
    with pytest.raises(NotAuthenticated) as caught:
        handshake.receive(body)
    assert str(caught.value) == "not authenticated"
    assert handshake.state is State.FAILED


def test_two_that_know_the_secret_learn_who_the_other_is() -> None:
    d, p = dialer(), listener()
    d_proof, p_proof = answer(d, p.opening), answer(p, d.opening)
    assert d.receive(p_proof) == Established(PREFILL)
    assert p.receive(d_proof) == Established(DECODE)
    assert d.state is p.state is State.ESTABLISHED


def test_a_wrong_secret_fails_on_both_sides() -> None:
    d, p = dialer(secret=bytes(32)), listener()
    d_proof, p_proof = answer(d, p.opening), answer(p, d.opening)
    refused(d, p_proof)
    refused(p, d_proof)


def test_reflection_fails() -> None:
    """Whoever sends everything back, opening and proof, is not taken for a peer."""
    for victim in (dialer(), listener()):
        refused(victim, answer(victim, victim.opening))


def test_two_listeners_cannot_be_played_against_each_other() -> None:
    """The proof of one listener does not pass for a dialer's at the other: the direction is in the MAC."""
    one, other = listener(nonce=1), listener(nonce=2)
    from_one, from_other = answer(one, other.opening), answer(other, one.opening)
    refused(one, from_other)
    refused(other, from_one)


def test_replay_fails() -> None:
    d, p = dialer(), listener(nonce=2)
    recorded = d.opening, answer(d, p.opening)
    later = listener(nonce=3)
    answer(later, recorded[0])
    refused(later, recorded[1])


def test_a_proof_before_an_opening_fails() -> None:
    d, p = dialer(), listener()
    refused(p, answer(d, p.opening))


def test_a_proof_of_another_channel_fails() -> None:
    """For network transports to rely on: a handshake relayed from one channel to another fails."""
    d, p = dialer(binding=b"channel to the man in the middle"), listener(binding=b"his channel to the peer")
    proof = answer(d, p.opening)
    answer(p, d.opening)
    refused(p, proof)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b + b"\0", lambda _: b"", lambda b: b[:20]],
    ids=["cut", "padded", "empty", "stump"],
)
def test_truncated_and_padded_bodies_fail(damage: Callable[[bytes], bytes]) -> None:
    d, p = dialer(), listener()
    refused(listener(), damage(d.opening))
    proof = answer(d, p.opening)
    answer(p, d.opening)
    refused(p, damage(proof))


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), which=st.sampled_from(["opening", "proof"]))
def test_one_bit_changed_on_the_way_fails(at: int, bit: int, which: str) -> None:
    """Every bit of both messages counts, version and hello included."""
    d, p = dialer(), listener()
    parts = {"opening": d.opening, "proof": answer(d, p.opening)}
    changed = bytearray(parts[which])
    changed[at % len(changed)] ^= 1 << bit
    parts[which] = bytes(changed)
    try:
        p.receive(parts["opening"])
        p.receive(parts["proof"])
    except (NotAuthenticated, VersionMismatch):
        assert p.state is State.FAILED
    else:
        raise AssertionError("a changed handshake was accepted")


def test_another_version_is_refused_by_name() -> None:
    p = listener()
    with pytest.raises(VersionMismatch, match="protocol version: 1 here, 7 there"):
        p.receive(dialer(hello=msgspec.structs.replace(DECODE, version=7)).opening)
    assert p.state is State.FAILED


def test_a_version_is_read_before_anything_that_it_may_have_changed() -> None:
    p = listener()
    with pytest.raises(VersionMismatch, match="1 here, 513 there"):
        p.receive(b"kvseal" + b"\x02\x01" + b"n" * 32 + b"a hello of the future")


def test_a_hello_that_contradicts_its_prefix_fails() -> None:
    opening = dialer(hello=msgspec.structs.replace(DECODE, version=7)).opening
    refused(listener(), opening.replace(b"kvseal\x00\x07", b"kvseal\x00\x01"))


def test_an_instance_id_has_sixteen_bytes() -> None:
    hello = msgspec.structs.replace(DECODE, instance=InstanceId(b"short"))
    refused(listener(), dialer(hello=hello).opening)


def test_a_handshake_that_is_over_takes_no_more() -> None:
    d, p = dialer(), listener()
    proof = answer(p, d.opening)
    answer(d, p.opening)
    d.receive(proof)
    with pytest.raises(InvariantViolation):
        d.receive(proof)


@pytest.mark.parametrize("size", [0, 31, 65])
def test_a_secret_of_another_size_is_refused_by_its_size_only(size: int) -> None:
    with pytest.raises(SecretRefused, match="bytes") as caught:
        dialer(secret=b"\xaa" * size)
    assert "aa" not in str(caught.value).replace("example", "")
    dialer(secret=b"\xaa" * 64)


def test_the_secret_is_not_on_the_wire() -> None:
    d, p = dialer(), listener()
    said = d.opening + p.opening + answer(d, p.opening) + answer(p, d.opening)
    assert not any(SECRET[i : i + 8] in said for i in range(len(SECRET) - 7))
