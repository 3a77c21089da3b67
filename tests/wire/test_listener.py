"""Who is let in, who is not, and what those cost who are not (G11, F24)."""

import asyncio
import gc
import logging
import time
from dataclasses import asdict
from typing import Any

import msgspec
import pytest
from tests.wire.pairs import DECODE, GATEWAY, MIB, RawPeer, Server, everything, serving, tokens, until

from kvseal.core.messages import encode
from kvseal.wire import (
    AddressRefused,
    Connection,
    ConnectionLost,
    HandshakeTimeout,
    Limits,
    NotAuthenticated,
    SecretRefused,
    Unreachable,
    VersionMismatch,
    WireCounters,
    connect,
    serve,
)
from kvseal.wire.address import parse_address
from kvseal.wire.handshake import Answer, Handshake, Side

ZERO = asdict(WireCounters())


def counted(counters: WireCounters) -> dict[str, int]:
    return {name: count for name, count in asdict(counters).items() if count}


def test_counters_exist_at_zero_from_the_start() -> None:
    """F26."""
    assert set(ZERO.values()) == {0}
    assert set(ZERO) >= {
        "malformed",
        "oversized",
        "unauthenticated",
        "version_mismatch",
        "overflow",
        "timeouts",
    }


async def test_a_wrong_secret_is_not_authenticated_on_either_side(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        counters = WireCounters()
        with pytest.raises(NotAuthenticated, match=r"^not authenticated$"):
            await connect(address, DECODE, bytes(32), counters=counters)
        await until(lambda: counted(server.counters) == {"unauthenticated": 1})
        assert counted(counters) == {"unauthenticated": 1}
        assert server.peers == []


async def test_another_version_is_refused_by_name_on_both_sides(
    address: str, secret: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """F18: by name, before traffic."""
    async with serving(address, secret) as server:
        counters = WireCounters()
        with pytest.raises(VersionMismatch, match="version: 2 here, 1 there"):
            await connect(address, msgspec.structs.replace(DECODE, version=2), secret, counters=counters)
        await until(lambda: counted(server.counters) == {"version_mismatch": 1})
        assert counted(counters) == {"version_mismatch": 1}
        assert f"{address}: a connection was refused: protocol version: 1 here, 2 there" in caplog.text


async def test_a_silent_connection_is_ended_in_time(address: str, secret: bytes) -> None:
    async with serving(address, secret, Limits(handshake_seconds=0.2)) as server:
        began = time.monotonic()
        peer = RawPeer(address)
        assert await asyncio.to_thread(peer.receive)  # the opening
        assert await asyncio.to_thread(peer.receive) == b""  # the end
        assert 0.1 < time.monotonic() - began < 2
        assert counted(server.counters) == {"timeouts": 1}
        peer.close()


async def test_one_byte_at_a_time_does_not_buy_more_time(address: str, secret: bytes) -> None:
    async with serving(address, secret, Limits(handshake_seconds=0.2)) as server:
        peer, began = RawPeer(address), time.monotonic()
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - which write fails is not known
            for byte in b"\0\0\0\x40" + bytes(1000):
                peer.socket.send(bytes([byte]))
                await asyncio.sleep(0.02)
        assert time.monotonic() - began < 2
        assert counted(server.counters) == {"timeouts": 1}
        peer.close()


async def test_a_listener_that_does_not_answer_is_given_up_in_time(address: str, secret: bytes) -> None:
    with parse_address(address).listen():
        counters = WireCounters()
        with pytest.raises(HandshakeTimeout, match=r"longer than 0\.1 s"):
            await connect(address, DECODE, secret, Limits(handshake_seconds=0.1), counters)
        assert counted(counters) == {"timeouts": 1}


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "oversized"),  # "GET " is a length of a gigabyte
        ((64 * 1024 + 1).to_bytes(4, "big"), "oversized"),  # the smaller limit holds before authentication
        (b"\0\0\0\x05hello", "unauthenticated"),
        (b"\0\0\0\0", "unauthenticated"),
        (b"\0\0\0\x40" + bytes(64), "unauthenticated"),
    ],
)
async def test_a_stranger_is_turned_away_by_the_first_frame(
    address: str, secret: bytes, said: bytes, cause: str
) -> None:
    async with serving(address, secret) as server:
        peer = RawPeer(address)
        peer.socket.sendall(said)
        assert await asyncio.to_thread(peer.receive)
        assert await asyncio.to_thread(peer.receive) == b""
        assert counted(server.counters) == {cause: 1}
        peer.close()


async def test_a_connection_that_goes_away_in_the_handshake_is_counted(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        RawPeer(address).close()
        await until(lambda: counted(server.counters) == {"unauthenticated": 1})


async def test_reflection_does_not_get_in(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        peer = RawPeer(address)
        while body := await asyncio.to_thread(peer.receive):
            peer.send(body)
        assert counted(server.counters) == {"unauthenticated": 1}
        assert server.peers == []
        peer.close()


async def test_replay_does_not_get_in(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        first, handshake = RawPeer(address), Handshake(Side.DIALER, secret, DECODE, b"n" * 32)
        first.send(handshake.opening)
        answer = handshake.receive(await asyncio.to_thread(first.receive))
        assert isinstance(answer, Answer)
        first.send(answer.body)
        await until(lambda: len(server.peers) == 1)
        second = RawPeer(address)
        second.send(handshake.opening, answer.body)
        await until(lambda: counted(server.counters) == {"unauthenticated": 1})
        assert len(server.peers) == 1
        first.close()
        second.close()


async def test_a_message_before_authentication_is_never_delivered(
    address: str, secret: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(address, secret) as server:
        peer, handshake = RawPeer(address), Handshake(Side.DIALER, secret, DECODE, b"n" * 32)
        peer.send(handshake.opening, encode(tokens(0)), encode(tokens(1)))
        await until(lambda: counted(server.counters) == {"unauthenticated": 1})
        assert server.peers == []
        peer.close()
    assert [record.name for record in caplog.records] == ["kvseal.wire.listener"]  # and none of asyncio's


@pytest.mark.parametrize("side", list(Side))
async def test_another_user_is_refused_before_a_byte_is_said(
    address: str, secret: bytes, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stranger(connected: Any) -> None:
        raise NotAuthenticated

    async with serving(address, secret) as server:
        if side is Side.LISTENER:
            monkeypatch.setattr("kvseal.wire.address.check_peer", stranger)
            peer = RawPeer(address)
            assert await asyncio.to_thread(peer.receive) == b""
            assert counted(server.counters) == {"unauthenticated": 1}
            peer.close()
    if side is Side.DIALER:
        with parse_address(address).listen() as listening:
            monkeypatch.setattr("kvseal.wire.address.check_peer", stranger)
            with pytest.raises(NotAuthenticated):
                await connect(address, DECODE, secret)
            connected, _ = listening.accept()
            with connected:
                assert connected.recv(100) == b""


async def test_a_crowd_that_does_not_authenticate_is_bounded_and_hurts_no_peer(
    address: str, secret: bytes
) -> None:
    async with serving(address, secret, Limits(max_unauthenticated=3, handshake_seconds=60)) as server:
        theirs, ours = await server.dialed()
        crowd = [RawPeer(address) for _ in range(3)]
        for peer in crowd:
            assert await asyncio.to_thread(peer.receive)
        with pytest.raises(ConnectionLost, match="before it had authenticated"):
            await connect(address, DECODE, secret)
        assert counted(server.counters) == {"crowded": 1}
        theirs.send(tokens(0))
        assert await ours.receive() == tokens(0)
        for peer in crowd:
            peer.close()
        await until(lambda: server.counters.unauthenticated == 3)
        await server.dialed()


async def test_the_handler_of_one_peer_fails_alone(address: str, secret: bytes) -> None:
    """G12: one connection ends, the listener serves on, and the failure is not silent."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def on_peer(connection: Connection) -> None:
        await connection.receive()
        raise ValueError("a bug")

    listener = await serve(address, lambda: GATEWAY, secret, on_peer)
    one, other = await connect(address, DECODE, secret), await connect(address, DECODE, secret)
    one.send(tokens(0))
    with pytest.raises(ConnectionLost):
        await one.receive()
    assert [str(failure["exception"]) for failure in failures] == ["a bug"]
    assert not other.closed
    await connect(address, DECODE, secret)
    await listener.close()


async def test_close_ends_every_peer_and_handler_and_removes_the_file(address: str, secret: bytes) -> None:
    cancelled = []

    async def on_peer(connection: Connection) -> None:
        connection.send(tokens(7))
        try:
            await connection.receive()
        except asyncio.CancelledError:
            cancelled.append(connection.peer.instance)
            raise

    listener = await serve(address, lambda: GATEWAY, secret, on_peer)
    peers = [await connect(address, DECODE, secret) for _ in range(3)]
    silent = RawPeer(address)
    assert await asyncio.to_thread(silent.receive)
    await listener.close()
    await listener.close()  # once more does no harm
    assert cancelled == [DECODE.instance] * 3
    for peer in peers:
        assert await everything(peer) == [tokens(7)]
    assert await asyncio.to_thread(silent.receive) == b""
    with pytest.raises(Unreachable, match="No such file"):
        await connect(address, DECODE, secret)
    silent.close()


async def test_close_returns_when_the_last_bytes_are_out_or_given_up(address: str, secret: bytes) -> None:
    server = Server(address, secret, Limits(linger_seconds=0.1))
    await server.start()
    peer, ours = await server.raw()
    ours.send(tokens(0, count=500_000))  # more than the socket takes, and nobody reads
    await server.close()
    assert ours._stream.gone.is_set()
    peer.close()


async def test_an_address_in_use_and_a_useless_secret_are_refused(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        with pytest.raises(AddressRefused, match="another process serves there"):
            await serve(address, lambda: GATEWAY, secret, server._keep)
    for use in (connect(address, DECODE, b"short"), serve(address, lambda: GATEWAY, b"short", server._keep)):
        with pytest.raises(SecretRefused):
            await use


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 20])
async def test_a_cancelled_connect_leaves_nothing_behind(
    address: str, secret: bytes, caplog: pytest.LogCaptureFixture, turns: int
) -> None:
    """At whatever turn of the event loop: while it connects, while it greets."""
    with parse_address(address).listen() as listening:
        dialing = asyncio.create_task(connect(address, DECODE, secret, Limits(handshake_seconds=60)))
        for _ in range(turns):
            await asyncio.sleep(0)
        dialing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialing
        connected, _ = listening.accept()
        with connected:
            connected.settimeout(5)
            while await asyncio.to_thread(connected.recv, MIB):
                pass
        del dialing
    gc.collect()
    assert caplog.records == []  # "exception was never retrieved" would be one


async def test_refusals_are_logged_without_content(
    address: str, secret: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(address, secret) as server:
        peer = RawPeer(address)
        peer.send(b"a prompt that must not be in any log")
        await until(lambda: counted(server.counters) == {"unauthenticated": 1})
        peer.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{address}: a connection was refused: not authenticated"
    ]
