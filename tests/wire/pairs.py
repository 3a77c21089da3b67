"""Two ends of one connection in one process, and a peer that we can make misbehave."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kvseal.core.ids import InstanceId, RequestId
from kvseal.core.messages import AnyMessage, Hello, Tokens
from kvseal.wire import Connection, ConnectionLost, Limits, Listener, WireCounters, connect, serve
from kvseal.wire.framing import FrameDecoder, encode_frame
from kvseal.wire.handshake import Answer, Handshake, Side

GATEWAY = Hello(role="gateway", instance=InstanceId(b"g" * 16), model="m")
DECODE = Hello(role="decode", instance=InstanceId(b"d" * 16), model="m", page_size=16)
MIB = 2**20


def tokens(index: int, count: int = 1) -> Tokens:
    return Tokens(request=RequestId("r"), attempt=0, index=index, tokens=tuple(range(index, index + count)))


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Waits for a condition that the event loop brings about; fails after ``seconds``."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - of any kind, not only those with an event
            await asyncio.sleep(0.002)


async def everything(connection: Connection) -> list[AnyMessage]:
    """All messages up to the end of the connection."""
    received: list[AnyMessage] = []
    try:
        while True:
            received.append(await connection.receive())
    except ConnectionLost:
        return received


@dataclass
class Server:
    """A listener whose peers are kept in a list, until ``close``."""

    address: str
    secret: bytes
    limits: Limits = field(default_factory=Limits)
    counters: WireCounters = field(default_factory=WireCounters)
    peers: list[Connection] = field(default_factory=list)
    hello: Hello = GATEWAY
    listener: Listener | None = None

    async def start(self) -> None:
        self.listener = await serve(
            self.address, lambda: self.hello, self.secret, self._keep, self.limits, self.counters
        )

    async def close(self) -> None:
        assert self.listener is not None
        await self.listener.close()

    async def dialed(self, hello: Hello = DECODE) -> tuple[Connection, Connection]:
        """(the dialer's end, ours) of a new connection."""
        count = len(self.peers)
        theirs = await connect(self.address, hello, self.secret, self.limits)
        await until(lambda: len(self.peers) > count)
        return theirs, self.peers[-1]

    async def raw(self) -> tuple["RawPeer", Connection]:
        """(a peer that we drive byte by byte, our end) of a new connection."""
        count = len(self.peers)
        peer = await asyncio.to_thread(RawPeer.dialed, self.address, self.secret)
        await until(lambda: len(self.peers) > count)
        return peer, self.peers[-1]

    async def _keep(self, connection: Connection) -> None:
        self.peers.append(connection)
        await connection.wait_closed()


@asynccontextmanager
async def serving(address: str, secret: bytes, limits: Limits | None = None) -> AsyncIterator[Server]:
    server = Server(address, secret, limits or Limits())
    await server.start()
    try:
        yield server
    finally:
        await server.close()


class RawPeer:
    """A blocking socket that has come as far as it was told, and then does what no peer of ours would do."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(address.removeprefix("unix:"))
        self._decoder = FrameDecoder(64 * MIB)

    @classmethod
    def dialed(cls, address: str, secret: bytes) -> "RawPeer":
        """Authenticated."""
        peer = cls(address)
        handshake = Handshake(Side.DIALER, secret, DECODE, b"n" * 32)
        peer.send(handshake.opening)
        answer = handshake.receive(peer.receive())
        assert isinstance(answer, Answer)
        peer.send(answer.body)
        handshake.receive(peer.receive())
        return peer

    def send(self, *bodies: bytes) -> None:
        self.socket.sendall(b"".join(encode_frame(body, 2**32 - 1) for body in bodies))

    def receive(self) -> bytes:
        """The next frame's body; empty at the end."""
        while (body := self._decoder.take()) is None:
            data = self.socket.recv(65536)
            if not data:
                return b""
            self._decoder.feed(data)
        return body

    def close(self) -> None:
        self.socket.close()
