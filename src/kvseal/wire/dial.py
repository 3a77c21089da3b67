"""Reaches a peer: once, or again and again for as long as it takes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NoReturn

from kvseal.core.errors import ProtocolError
from kvseal.core.ids import InstanceId
from kvseal.core.messages import Hello
from kvseal.wire.address import parse_address
from kvseal.wire.connection import Connection
from kvseal.wire.errors import ConnectionLost
from kvseal.wire.greeting import Greeting
from kvseal.wire.handshake import Side
from kvseal.wire.limits import Limits, WireCounters
from kvseal.wire.secret import check_secret
from kvseal.wire.stream import FrameStream


async def connect(
    address: str,
    hello: Hello,
    secret: bytes,
    limits: Limits | None = None,
    counters: WireCounters | None = None,
) -> Connection:
    """A connection to the process that listens at ``address``, both sides authenticated.

    Raises :class:`~kvseal.core.errors.StartRefused` for an address or secret that cannot be used,
    :class:`~kvseal.core.errors.ProtocolError` for a peer that was refused (by name where its version is
    another), and :class:`~kvseal.wire.errors.ConnectionLost` for one that is not there or went away.
    """
    there = parse_address(address)
    stream = FrameStream(limits or Limits(), counters or WireCounters())
    greeting = Greeting(stream, Side.DIALER, check_secret(secret), hello, there.admit)
    stream.sink = greeting
    try:
        await there.open(lambda: stream)
        return await greeting.result
    except asyncio.CancelledError:
        greeting.result.cancel()
        stream.fail(ConnectionLost("nobody waits for the connection any more"))
        raise


def backoff(first_seconds: float, longest_seconds: float) -> tuple[float, ...]:
    """Delays that double from the first to the longest."""
    if not 0 < first_seconds <= longest_seconds:
        raise ValueError("0 < first_seconds <= longest_seconds does not hold")

    def doubled() -> Iterator[float]:
        delay = first_seconds
        while delay < longest_seconds:
            yield delay
            delay *= 2
        yield longest_seconds

    return tuple(doubled())


async def dial_forever(
    dial: Callable[[], Awaitable[Connection]],
    on_peer: Callable[[Connection, InstanceId | None], Awaitable[None]],
    delays: Sequence[float],
    on_failure: Callable[[ConnectionLost | ProtocolError], None],
) -> NoReturn:
    """Keeps a connection to whoever lives at an address, until it is cancelled.

    ``dial`` makes one attempt (``lambda: connect(address, hello(), secret)``). ``on_peer`` is given each
    connection that comes about, with the instance that was there the time before (None the first time): where
    it is not ``connection.peer.instance``, that process is gone for good, and so is everything that it held
    or owed (F10). The connection ends when ``on_peer`` returns; it may let ConnectionLost pass.

    Every failed attempt goes to ``on_failure`` and is followed by another one after the next of ``delays``,
    in seconds, the last of which repeats: no failure blacklists a peer (F09). Raise from ``on_failure`` to
    give up. The delays start over once a connection has lasted longer than the last of them, so that a peer
    that lets us in and then dies does not make us spin.
    """
    if not delays:
        raise ValueError("at least one delay is needed")
    loop = asyncio.get_running_loop()
    previous: InstanceId | None = None
    failures = 0
    while True:
        try:
            connection = await dial()
        except (ConnectionLost, ProtocolError) as error:
            on_failure(error)
        else:
            began = loop.time()
            await _attend(connection, previous, on_peer)
            previous = connection.peer.instance
            if loop.time() - began > delays[-1]:
                failures = 0
        await asyncio.sleep(delays[min(failures, len(delays) - 1)])
        failures += 1


async def _attend(
    connection: Connection,
    previous: InstanceId | None,
    on_peer: Callable[[Connection, InstanceId | None], Awaitable[None]],
) -> None:
    try:
        await on_peer(connection, previous)
    except ConnectionLost:
        pass
    finally:
        connection.close()
        await connection.wait_closed()
