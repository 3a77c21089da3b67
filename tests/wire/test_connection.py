"""Messages between two ends over a real socket: order, bounds, and how it ends."""

import asyncio
import traceback
import tracemalloc
from typing import Any

import msgspec
import pytest
from tests.wire.pairs import DECODE, GATEWAY, MIB, everything, serving, tokens, until

from kvseal.core.errors import InvariantViolation
from kvseal.core.ids import RequestId, TenantId
from kvseal.core.messages import Generate, encode
from kvseal.core.sampling import SamplingParams
from kvseal.wire import ConnectionLost, FrameTooLong, Limits
from kvseal.wire.stream import READ_BYTES


async def test_each_end_knows_who_the_other_is(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        assert (theirs.peer, ours.peer) == (GATEWAY, DECODE)


async def test_messages_arrive_whole_and_in_order_both_ways(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        sent = [tokens(index, count=index % 300) for index in range(2000)]
        for message in sent:
            assert theirs.send(message)
            assert ours.send(message)
        assert [await ours.receive() for _ in sent] == sent
        assert [await theirs.receive() for _ in sent] == sent


async def test_sends_of_one_turn_are_one_write(
    address: str, secret: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        transport: Any = ours._stream._transport
        writes: list[int] = []
        write = type(transport).write

        def counting(self: Any, data: Any) -> None:
            writes.append(len(data))
            write(self, data)

        monkeypatch.setattr(type(transport), "write", counting)
        for index in range(1000):
            ours.send(tokens(index))
        assert writes == []
        assert [await theirs.receive() for _ in range(1000)] == [tokens(index) for index in range(1000)]
        assert len(writes) == 1


async def test_a_prompt_of_a_million_tokens_passes(address: str, secret: bytes) -> None:
    prompt = Generate(
        request=RequestId("r"),
        tenant=TenantId("t"),
        prompt=tuple(index % 150_000 for index in range(1_000_000)),
        max_tokens=1,
        sampling=SamplingParams(),
    )
    assert 3 * MIB < len(encode(prompt)) < 6 * MIB
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        theirs.send(tokens(0))
        theirs.send(prompt)
        theirs.send(tokens(1))
        assert [await ours.receive() for _ in range(3)] == [tokens(0), prompt, tokens(1)]


async def test_a_message_over_the_limit_is_refused_here_and_the_connection_lives(
    address: str, secret: bytes
) -> None:
    limits = Limits(max_frame_bytes=MIB, max_unsent_bytes=2 * MIB)
    async with serving(address, secret, limits) as server:
        theirs, ours = await server.dialed()
        with pytest.raises(FrameTooLong):
            theirs.send(tokens(0, count=MIB))
        theirs.send(tokens(1))
        assert await ours.receive() == tokens(1)
        assert server.counters.oversized == 0


async def test_everything_that_arrived_is_delivered_before_the_loss(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        for index in range(500):
            theirs.send(tokens(index))
        theirs.close()
        await until(lambda: ours.closed)
        assert await everything(ours) == [tokens(index) for index in range(500)]
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="the peer closed the connection"):
                await ours.receive()


async def test_close_still_delivers_here_and_there(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        theirs.send(tokens(1))
        await until(lambda: ours.unread_bytes > 0)
        ours.send(tokens(2))
        ours.close()
        assert ours.closed
        assert not ours.send(tokens(3))
        assert await everything(theirs) == [tokens(2)]
        assert await everything(ours) == [tokens(1)]
        with pytest.raises(ConnectionLost, match="closed on this side"):
            await ours.receive()


async def test_the_last_words_survive_a_write_that_finds_the_peer_gone(address: str, secret: bytes) -> None:
    """A worker answers and dies while we write to it: its answer must not be lost (G10, F23)."""
    async with serving(address, secret) as server:
        peer, ours = await server.raw()
        # Nothing is awaited in between: the failing write comes before the read.
        peer.send(*(encode(tokens(index)) for index in range(300)))
        peer.close()
        assert ours.send(tokens(0))
        assert await everything(ours) == [tokens(index) for index in range(300)]


async def test_half_a_frame_at_the_end_is_dropped(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        peer, ours = await server.raw()
        peer.send(encode(tokens(0)))
        peer.socket.sendall(b"\0\0\0\x09half")
        peer.close()
        assert await everything(ours) == [tokens(0)]
        assert server.counters.malformed == 0


async def test_a_waiting_reader_is_told_of_the_loss(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        reader = asyncio.create_task(ours.receive())
        await asyncio.sleep(0)
        theirs.close()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(reader, 5)


async def test_a_cancelled_receive_loses_nothing(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        reader = asyncio.create_task(ours.receive())
        await asyncio.sleep(0)
        theirs.send(tokens(0))
        await until(lambda: ours.unread_bytes > 0 or reader.done())
        if not reader.done():
            reader.cancel()
            await asyncio.wait([reader])
        received = [reader.result()] if not reader.cancelled() else [await ours.receive()]
        assert received == [tokens(0)]


async def test_two_readers_are_a_bug_of_ours(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server:
        _, ours = await server.dialed()
        reader = asyncio.create_task(ours.receive())
        await asyncio.sleep(0)
        with pytest.raises(InvariantViolation):
            await ours.receive()
        reader.cancel()


async def test_a_peer_that_does_not_read_is_cut_off_and_our_memory_stays(address: str, secret: bytes) -> None:
    limits = Limits(max_frame_bytes=MIB, max_unsent_bytes=4 * MIB)
    async with serving(address, secret, limits) as server:
        peer, ours = await server.raw()
        big = tokens(1000, count=50_000)  # about 150 kB
        tracemalloc.start()
        sent = 0
        while ours.send(big):
            sent += len(encode(big))
            assert ours.unsent_bytes <= limits.max_unsent_bytes
            assert sent < 10 * MIB
            await asyncio.sleep(0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sent >= limits.max_unsent_bytes - MIB
        assert peak < 3 * limits.max_unsent_bytes
        assert ours.closed
        assert server.counters.overflow == 1
        with pytest.raises(ConnectionLost, match="the peer does not read"):
            await ours.receive()
        peer.close()


async def test_what_we_do_not_read_stays_in_the_socket(address: str, secret: bytes) -> None:
    """A flood of small messages costs the flooder's memory, not ours; nothing of it is lost."""
    async with serving(address, secret) as server:
        theirs, ours = await server.dialed()
        count = 100_000
        for index in range(count):
            theirs.send(tokens(index))
        await until(lambda: ours.unread_bytes > server.limits.max_unread_bytes)
        await asyncio.sleep(0.05)
        # One read of small frames may come on top; each costs some bytes more than it has.
        assert ours.unread_bytes < server.limits.max_unread_bytes + 4 * READ_BYTES
        assert theirs.unsent_bytes > MIB
        theirs.close()
        for index in range(count):
            assert await ours.receive() == tokens(index)


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\xdd\xff\xff\xff\xff", b"\x81\xa4type\xa3Foo", b"\xc1" * 99]
)
async def test_a_malformed_message_ends_the_connection_and_is_counted(
    address: str, secret: bytes, body: bytes
) -> None:
    async with serving(address, secret) as server:
        peer, ours = await server.raw()
        peer.send(encode(tokens(0)), body, encode(tokens(1)))
        assert await ours.receive() == tokens(0)
        for _ in range(2):
            with pytest.raises(ConnectionLost, match=f"malformed message of {len(body)} bytes"):
                await ours.receive()
        assert ours.closed
        assert ours.unread_bytes == 0
        assert server.counters.malformed == 1
        assert await asyncio.to_thread(peer.receive) == b""
        peer.close()


async def test_what_a_peer_put_into_a_malformed_message_is_in_no_error(address: str, secret: bytes) -> None:
    """G12: records without content. The decoder's own error quotes the value that it did not like."""
    async with serving(address, secret) as server:
        peer, ours = await server.raw()
        peer.send(msgspec.msgpack.encode({"type": "Abort", "request": "r", "code": "words of a prompt"}))
        with pytest.raises(ConnectionLost) as caught:
            await ours.receive()
        assert "words of a prompt" not in "".join(traceback.format_exception(caught.value))
        assert caught.value.__context__ is None
        peer.close()


async def test_an_oversized_frame_ends_the_connection_before_it_is_read(address: str, secret: bytes) -> None:
    limits = Limits(max_frame_bytes=MIB, max_unsent_bytes=2 * MIB)
    async with serving(address, secret, limits) as server:
        peer, ours = await server.raw()
        peer.send(encode(tokens(0)))
        peer.socket.sendall((MIB + 1).to_bytes(4, "big"))
        assert await everything(ours) == [tokens(0)]
        with pytest.raises(ConnectionLost, match="1048577 bytes is over the limit of 1048576"):
            await ours.receive()
        assert server.counters.oversized == 1
        peer.close()


async def test_a_closed_connection_does_not_wait_for_ever_for_a_peer_that_does_not_read(
    address: str, secret: bytes
) -> None:
    async with serving(address, secret, Limits(linger_seconds=0.1)) as server:
        peer, ours = await server.raw()
        ours.send(tokens(0, count=500_000))  # more than the socket takes
        ours.close()
        await asyncio.wait_for(ours.wait_closed(), 5)
        peer.close()
