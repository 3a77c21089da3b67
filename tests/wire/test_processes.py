"""Real processes that die, stop and come back. They inherit the secret by a descriptor, as workers do."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.wire.pairs import DECODE, MIB, everything, serving, tokens, until
from tests.wire.peer import READY, message

from kvseal.core.ids import InstanceId
from kvseal.wire import Connection, ConnectionLost, Limits, connect, dial_forever, secret_descriptor

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).with_name("peer.py")


@asynccontextmanager
async def process(
    role: str, address: str, secret: bytes, instance: bytes = b"i" * 16
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A peer process that is ready; killed at the end."""
    descriptor = secret_descriptor(secret)
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(SCRIPT),
            role,
            address,
            str(descriptor),
            instance.hex(),
            pass_fds=[descriptor],
            stdout=asyncio.subprocess.PIPE,
        )
    finally:
        os.close(descriptor)
    assert child.stdout is not None
    try:
        assert (await child.stdout.readline()).decode().strip() == READY
        yield child
    finally:
        await killed(child)


async def killed(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.send_signal(signal.SIGKILL)
    await child.wait()


async def test_a_killed_peer_is_noticed_at_once(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server, process("patient", address, secret) as child:
        await until(lambda: len(server.peers) == 1)
        ours = server.peers[0]
        assert await ours.receive() == message(0, count=1)
        reader = asyncio.create_task(ours.receive())
        await asyncio.sleep(0.05)
        began = time.monotonic()
        child.send_signal(signal.SIGKILL)
        with pytest.raises(ConnectionLost, match="the peer closed the connection"):
            await asyncio.wait_for(reader, 5)
        assert time.monotonic() - began < 0.5
        assert ours.closed


async def test_a_peer_killed_in_mid_sentence_has_said_what_arrived_whole(address: str, secret: bytes) -> None:
    async with serving(address, secret) as server, process("chatty", address, secret) as child:
        await until(lambda: len(server.peers) == 1)
        received = [await server.peers[0].receive() for _ in range(20)]
        child.send_signal(signal.SIGKILL)
        received += await everything(server.peers[0])
        assert len(received) >= 20
        assert received == [message(index, count=20_000) for index in range(len(received))]
        assert server.counters.malformed == 0


async def test_a_stopped_peer_is_cut_off_when_its_share_is_used(address: str, secret: bytes) -> None:
    limits = Limits(max_frame_bytes=MIB, max_unsent_bytes=8 * MIB)
    async with serving(address, secret, limits) as server, process("patient", address, secret) as child:
        await until(lambda: len(server.peers) == 1)
        child.send_signal(signal.SIGSTOP)
        ours, most = server.peers[0], 0
        while ours.send(tokens(0, count=1000)):
            most = max(most, ours.unsent_bytes)
            await asyncio.sleep(0)
        assert 7 * MIB < most <= 8 * MIB
        assert server.counters.overflow == 1
        assert len(await everything(ours)) <= 1


async def test_a_process_that_takes_over_from_a_killed_one_is_a_new_peer(address: str, secret: bytes) -> None:
    """F10: the address stays, the instance does not; the socket file that SIGKILL left is no obstacle."""
    met: list[tuple[InstanceId, InstanceId | None]] = []

    async def on_peer(connection: Connection, previous: InstanceId | None) -> None:
        met.append((connection.peer.instance, previous))
        while True:
            await connection.receive()

    dialing = asyncio.create_task(
        dial_forever(
            lambda: connect(address, DECODE, secret), on_peer, delays=(0.02,), on_failure=lambda _: None
        )
    )
    old, new = InstanceId(b"1" * 16), InstanceId(b"2" * 16)
    async with process("server", address, secret, old) as child:
        await until(lambda: met == [(old, None)])
        await killed(child)
        async with process("server", address, secret, new):
            await until(lambda: met == [(old, None), (new, old)])
            dialing.cancel()
            await asyncio.wait([dialing])
