"""What uvicorn alone would let through: slow, endless, pipelined and broken HTTP, on real sockets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.gateway.fake import FakeBackend
from tests.gateway.serving import serving

from kvseal.core.errors import Code
from kvseal.gateway.app import create_app
from kvseal.gateway.settings import GatewaySettings
from kvseal.gateway.tokenizer import Tokenizer

BODY = json.dumps({"model": "tiny/model", "prompt": "What now?"}).encode()
STREAMED = json.dumps({"model": "tiny/model", "prompt": "What now?", "stream": True}).encode()


def post(body: bytes, length: int | None = None, extra: bytes = b"") -> bytes:
    """A request, with a content-length that may be a lie."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" + extra
    return head + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length) + body


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> Any:
        return json.loads(self.body)["error"]["code"]


class Peer:
    """A bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        """The next response, which says its length or is chunked."""
        async with asyncio.timeout(5):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:-2])
            body = b""
            if "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                while size := int(await self.reader.readline(), 16):
                    body += await self.reader.readexactly(size)
                    await self.reader.readexactly(2)
                await self.reader.readexactly(2)
            return Answer(int(head[0].split()[1]), headers, body)

    async def closed(self) -> bool:
        """Waits for the server to close the connection."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


@pytest.fixture
def settings() -> GatewaySettings:
    return GatewaySettings(
        header_timeout_s=0.3, body_timeout_s=0.3, linger_s=0.3, stalled_reader_timeout_s=0.3, connections=20
    )


@pytest.fixture
async def port(backend: FakeBackend, tokenizer: Tokenizer, settings: GatewaySettings) -> AsyncIterator[int]:
    async with serving(create_app(backend, tokenizer, settings), settings) as port:
        yield port


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_several_requests_on_one_connection(port: int) -> None:
    async with connected(port) as peer:
        for body in (BODY, STREAMED, BODY):
            peer.send(post(body))
            assert (await peer.answer()).status == 200


@pytest.mark.parametrize("start", [b"", b"P", b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-a: "])
async def test_headers_that_do_not_come_are_a_408(port: int, start: bytes) -> None:
    async with connected(port) as peer:
        peer.send(start)
        answer = await peer.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert await peer.closed()


async def test_headers_that_drip_are_a_408(port: int) -> None:
    """A byte now and then keeps no connection, on its first request or a later one."""
    async with connected(port) as peer:
        peer.send(post(BODY))
        assert (await peer.answer()).status == 200
        dripping = asyncio.create_task(_drip(peer))
        answer = await peer.answer()
        dripping.cancel()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert await peer.closed()


async def _drip(peer: Peer) -> None:
    peer.send(b"POST /v1/completions HTTP/1.1\r\nx-a: ")
    while True:
        peer.send(b"a")
        await asyncio.sleep(0.02)


async def test_a_body_that_does_not_come_is_a_408(port: int, backend: FakeBackend) -> None:
    async with connected(port) as peer:
        peer.send(post(b'{"mod', length=1000))
        answer = await peer.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert await peer.closed()
    assert backend.streams == []


@pytest.mark.parametrize("part", [b"x-a: " + b"a" * 20_000 + b"\r\n", b"x-a: b\r\n" * 3000])
async def test_endless_headers_are_a_431(port: int, part: bytes) -> None:
    async with connected(port) as peer:
        peer.send(b"POST /v1/completions HTTP/1.1\r\n" + part)
        answer = await peer.answer()
        assert (answer.status, answer.code) == (431, "request_too_large")
        assert await peer.closed()


async def test_a_body_over_the_bound_is_refused_before_it_is_sent(port: int) -> None:
    async with connected(port) as peer:
        peer.send(post(b"", length=50_000_000, extra=b"expect: 100-continue\r\n"))
        answer = await peer.answer()
        assert (answer.status, answer.code) == (413, "request_too_large")
        assert answer.headers["connection"] == "close"


async def test_a_client_that_sends_on_sees_its_refusal(port: int) -> None:
    """The connection is not reset under its hands."""
    async with connected(port) as peer:
        peer.send(post(b"x" * 3_000_000))
        await peer.writer.drain()
        answer = await peer.answer()
        assert (answer.status, answer.code) == (413, "request_too_large")


async def test_a_chunked_body_is_cut_off_at_the_bound(port: int) -> None:
    head = post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    async with connected(port) as peer:
        peer.send(head)
        for _ in range(300):
            peer.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        answer = await peer.answer()
        assert (answer.status, answer.code) == (413, "request_too_large")


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # a TLS hello
        b"HELLO\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_a_400(port: int, junk: bytes) -> None:
    async with connected(port) as peer:
        peer.send(junk)
        answer = await peer.answer()
        assert answer.status in {400, 404}
        assert answer.code in {"invalid_request", "not_found"}
    async with connected(port) as peer:
        peer.send(post(BODY))
        assert (await peer.answer()).status == 200


async def test_a_second_request_before_the_answer_is_not_taken(port: int, backend: FakeBackend) -> None:
    """Were it queued, the server would no longer see its client go."""
    backend.script = lambda _: [20.0]
    async with connected(port) as peer:
        peer.send(post(BODY) + post(BODY))
        await _until(lambda: len(backend.streams) == 1)
        peer.send(post(BODY))
        await asyncio.sleep(0.02)
    await _until(lambda: backend.last.aborted == [Code.ABORTED])
    assert len(backend.streams) == 1


async def test_a_pipelined_request_ends_the_connection_after_the_first_answer(
    port: int, backend: FakeBackend
) -> None:
    async with connected(port) as peer:
        peer.send(post(BODY) + post(BODY))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.closed()
    assert len(backend.streams) == 1


@pytest.mark.parametrize("body", [BODY, STREAMED])
async def test_a_client_that_vanishes_is_noticed(port: int, backend: FakeBackend, body: bytes) -> None:
    backend.script = lambda _: [backend.answer[:2], 20.0]
    async with connected(port) as peer:
        peer.send(post(body))
        await _until(lambda: backend.streams)
        await asyncio.sleep(0.02)
    await _until(lambda: backend.last.aborted == [Code.ABORTED])


async def test_a_client_that_stops_reading_is_gone(port: int, backend: FakeBackend) -> None:
    """Its request ends, long before the deadline."""
    backend.context = 1_000_000
    backend.script = lambda _: [backend.answer[:4]] * 200_000
    async with connected(port) as peer:
        peer.send(post(STREAMED))
        await _until(lambda: backend.streams and backend.last.aborted == [Code.ABORTED])


async def test_connections_beyond_the_bound_are_refused_with_a_word(port: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(connected(port))
        await asyncio.sleep(0.05)
        one_more = await stack.enter_async_context(connected(port))
        answer = await one_more.answer()
        assert (answer.status, answer.code) == (503, "no_capacity")
    await asyncio.sleep(0.05)
    async with connected(port) as peer:
        peer.send(post(BODY))
        assert (await peer.answer()).status == 200


async def _until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
