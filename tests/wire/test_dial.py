"""Workers find each other again, whoever was replaced (F09, F10)."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.wire.pairs import DECODE, GATEWAY, Server, tokens, until

from kvseal.core.errors import ProtocolError
from kvseal.core.ids import InstanceId
from kvseal.wire import (
    AddressRefused,
    Connection,
    ConnectionLost,
    NotAuthenticated,
    Unreachable,
    backoff,
    connect,
    dial_forever,
)

OLD, NEW = (msgspec.structs.replace(GATEWAY, instance=InstanceId(name * 16)) for name in (b"1", b"2"))


class Worker:
    """Dials for ever and remembers what it was told."""

    def __init__(self, dial: Callable[[], Awaitable[Connection]], delays: tuple[float, ...] = (0.01, 0.02)):
        self.met: list[tuple[InstanceId, InstanceId | None]] = []
        self.failures: list[ConnectionLost | ProtocolError] = []
        self.task = asyncio.create_task(
            dial_forever(dial, self._on_peer, delays=delays, on_failure=self.failures.append)
        )

    async def _on_peer(self, connection: Connection, previous: InstanceId | None) -> None:
        self.met.append((connection.peer.instance, previous))
        while True:
            await connection.receive()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def test_delays_double_up_to_the_longest() -> None:
    assert backoff(0.25, 1.5) == (0.25, 0.5, 1.0, 1.5)
    assert backoff(1, 1) == (1,)
    with pytest.raises(ValueError, match="does not hold"):
        backoff(0, 1)


async def test_a_worker_that_starts_first_waits_for_its_peer(address: str, secret: bytes) -> None:
    worker = Worker(lambda: connect(address, DECODE, secret))
    await until(lambda: len(worker.failures) > 3)
    assert all(isinstance(failure, Unreachable) for failure in worker.failures)
    server = Server(address, secret, hello=OLD)
    await server.start()
    await until(lambda: worker.met == [(OLD.instance, None)])
    await worker.stop()
    await server.close()


async def test_a_replaced_peer_is_reported_as_a_new_one_and_a_lost_connection_as_the_same(
    address: str, secret: bytes
) -> None:
    """F10: what was behind the address before, and what is there now."""
    server = Server(address, secret, hello=OLD)
    await server.start()
    worker = Worker(lambda: connect(address, DECODE, secret))
    await until(lambda: len(server.peers) == 1)
    server.peers[0].close()
    await until(lambda: len(server.peers) == 2)
    await server.close()
    await until(lambda: len(worker.failures) > 0)
    successor = Server(address, secret, hello=NEW)
    await successor.start()
    await until(lambda: len(worker.met) == 3)
    assert worker.met == [(OLD.instance, None), (OLD.instance, OLD.instance), (NEW.instance, OLD.instance)]
    await worker.stop()
    await successor.close()


async def test_no_failure_blacklists_a_peer(address: str, secret: bytes) -> None:
    """F09: refused for its secret many times, then put right: reached by the next attempt."""
    wrong = Server(address, bytes(32), hello=OLD)
    await wrong.start()
    worker = Worker(lambda: connect(address, DECODE, secret))
    await until(lambda: sum(isinstance(failure, NotAuthenticated) for failure in worker.failures) >= 5)
    await wrong.close()
    server = Server(address, secret, hello=OLD)
    await server.start()
    await until(lambda: worker.met == [(OLD.instance, None)])
    await worker.stop()
    await server.close()


async def test_delays_grow_are_bounded_and_start_over_after_a_connection_that_lasted(
    monkeypatch: pytest.MonkeyPatch, address: str, secret: bytes
) -> None:
    server, slept, outcomes = Server(address, secret), [], iter("ffffclf")
    await server.start()
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    async def dial() -> Connection:
        match next(outcomes, None):
            case "f":
                raise Unreachable("not yet")
            case None:
                raise asyncio.CancelledError
            case outcome:
                connection = await connect(address, DECODE, secret)
                asyncio.get_running_loop().call_later(0.1 if outcome == "l" else 0, connection.close)
                return connection

    monkeypatch.setattr("kvseal.wire.dial.asyncio.sleep", noted)
    worker = Worker(dial, delays=(0.01, 0.02, 0.04))
    await asyncio.wait([worker.task])
    #        f     f     f     f     c: short  l: lasted  f
    assert slept == [0.01, 0.02, 0.04, 0.04, 0.04, 0.01, 0.02]
    await server.close()


async def test_on_failure_may_give_up_and_on_peer_may_say_more(address: str, secret: bytes) -> None:
    class GivenUpError(Exception):
        pass

    def give_up(failure: Exception) -> None:
        raise GivenUpError from failure

    async def talk(connection: Connection, previous: InstanceId | None) -> None:
        connection.send(tokens(0))

    with pytest.raises(GivenUpError):
        await dial_forever(lambda: connect(address, DECODE, secret), talk, delays=(0.01,), on_failure=give_up)
    server = Server(address, secret)
    await server.start()
    task = asyncio.create_task(
        dial_forever(lambda: connect(address, DECODE, secret), talk, delays=(0.01,), on_failure=give_up)
    )
    await until(lambda: len(server.peers) == 3)  # a handler that returns ends its connection
    task.cancel()
    await asyncio.wait([task])
    assert await server.peers[0].receive() == tokens(0)
    await server.close()


async def test_an_address_that_can_never_work_is_not_tried_for_ever(secret: bytes) -> None:
    worker = Worker(lambda: connect("tcp:example:1", DECODE, secret))
    with pytest.raises(AddressRefused):
        await asyncio.wait_for(worker.task, 5)


async def test_a_bug_in_the_handler_is_not_taken_for_a_lost_peer(address: str, secret: bytes) -> None:
    server = Server(address, secret)
    await server.start()

    async def talk(connection: Connection, previous: InstanceId | None) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await dial_forever(
            lambda: connect(address, DECODE, secret), talk, delays=(0.01,), on_failure=lambda _: None
        )
    await server.close()
