"""Clients that vanish, stall or are slow, and deadlines: one end for each request, one abort at most
(G10).
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message
from tests.gateway.fake import FakeBackend, Item, Submitted

from kvseal.core.errors import Code
from kvseal.gateway import app as app_module
from kvseal.gateway.app import create_app
from kvseal.gateway.prepare import Plan
from kvseal.gateway.settings import GatewaySettings
from kvseal.gateway.tokenizer import Tokenizer

MODES = pytest.mark.parametrize("mode", ["whole", "stream"])
LONG = 20.0  # seconds that no test waits


@dataclass
class Client:
    """Speaks to the application directly, and vanishes or stalls on command."""

    app: FastAPI
    mode: str
    prompt: str = "What now?"
    body_pause: float = 0.0
    """Seconds before the body comes."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[Message] = field(default_factory=list)
    reads: Callable[[Message], bool] = lambda _: True
    """Whether the client takes a message; if not, the sender waits."""
    _asked: int = 0

    async def run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": "POST",
            "path": "/v1/completions",
            "raw_path": b"/v1/completions",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "headers": [(b"content-type", b"application/json")],
        }
        await self.app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        self._asked += 1
        if self._asked == 1 and not self.gone.is_set():
            await asyncio.sleep(self.body_pause)
            body = {"model": "tiny/model", "prompt": self.prompt, "stream": self.mode == "stream"}
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.gone.is_set():
            return
        if not self.reads(message):
            await self.gone.wait()
            return
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def complete(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", True)


@pytest.fixture
def app(backend: FakeBackend, tokenizer: Tokenizer, settings: GatewaySettings) -> FastAPI:
    return create_app(backend, tokenizer, settings)


def slow(backend: FakeBackend, before: float, between: float) -> Callable[[Submitted], Iterable[Item]]:
    """A script that waits before and between the tokens."""

    def script(asked: Submitted) -> Iterable[Item]:
        yield before
        for token in backend.answer:
            yield (token,)
            yield between
        yield backend.end("stop", asked, len(backend.answer))

    return script


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


@MODES
async def test_a_client_that_leaves_while_it_waits(app: FastAPI, backend: FakeBackend, mode: str) -> None:
    """F03, F07: the backend hears of it at once."""
    backend.script = slow(backend, LONG, 0.0)
    client = Client(app, mode)
    task = asyncio.create_task(client.run())
    await until(lambda: backend.streams)
    client.gone.set()
    await asyncio.wait_for(task, 1)
    assert backend.last.aborted == [Code.ABORTED]
    assert client.sent == []


@MODES
async def test_a_client_that_leaves_in_mid_answer(app: FastAPI, backend: FakeBackend, mode: str) -> None:
    backend.script = slow(backend, 0.0, 0.01)
    client = Client(app, mode)
    task = asyncio.create_task(client.run())
    await until(lambda: backend.streams and (mode == "whole" or len(client.sent) > 2))
    client.gone.set()
    await asyncio.wait_for(task, 1)
    assert backend.last.aborted == [Code.ABORTED]
    assert not client.complete


async def test_a_client_that_leaves_before_its_body_is_there(app: FastAPI, backend: FakeBackend) -> None:
    client = Client(app, "whole")
    client.gone.set()
    await asyncio.wait_for(client.run(), 1)
    assert backend.streams == []
    assert client.sent == []


async def test_a_client_that_leaves_while_its_prompt_is_tokenized(
    backend: FakeBackend,
    tokenizer: Tokenizer,
    settings: GatewaySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []

    def slowly(*_: Any) -> Plan:
        started.append(True)
        time.sleep(0.2)
        raise AssertionError("nobody waits for this")

    monkeypatch.setattr(app_module, "prepare_completion", slowly)
    client = Client(create_app(backend, tokenizer, settings), "whole", prompt="long " * 1000)
    task = asyncio.create_task(client.run())
    await until(lambda: started)
    client.gone.set()
    await asyncio.wait_for(task, 0.15)
    assert backend.streams == []


@MODES
async def test_a_client_that_leaves_after_the_end_aborts_nothing(
    app: FastAPI, backend: FakeBackend, mode: str
) -> None:
    client = Client(app, mode)
    await client.run()
    client.gone.set()
    await asyncio.sleep(0)
    assert client.complete
    assert backend.last.ended
    assert backend.last.aborted == []


@MODES
async def test_leaving_at_every_step(app: FastAPI, backend: FakeBackend, mode: str) -> None:
    """Whatever the moment: the stream ends by itself or is aborted, and exactly one of them."""
    outcomes = set()
    for steps in range(60):
        backend.streams.clear()
        client = Client(app, mode)
        task = asyncio.create_task(client.run())
        for _ in range(steps):
            await asyncio.sleep(0.0003 if steps % 2 else 0)
        client.gone.set()
        await asyncio.wait_for(task, 1)
        for stream in backend.streams:
            assert stream.ended + len(stream.aborted) == 1
            outcomes.add("ended" if stream.ended else "aborted")
        outcomes |= set() if backend.streams else {"never begun"}
    assert outcomes >= {"ended", "aborted", "never begun"}


class TestDeadline:
    @pytest.fixture
    def settings(self) -> GatewaySettings:
        return GatewaySettings(request_timeout_s=0.1, farewell_s=0.1, linger_s=0.05)

    @MODES
    async def test_before_the_first_token_it_is_a_504(
        self, app: FastAPI, backend: FakeBackend, mode: str
    ) -> None:
        """F11, F23."""
        backend.script = slow(backend, LONG, 0.0)
        client = Client(app, mode)
        await asyncio.wait_for(client.run(), 1)
        assert client.status == 504
        assert client.complete
        assert '"deadline_exceeded"' in client.text
        assert backend.last.aborted == [Code.DEADLINE_EXCEEDED]

    async def test_in_a_stream_it_is_an_event_without_done(self, app: FastAPI, backend: FakeBackend) -> None:
        backend.script = slow(backend, 0.0, 0.03)
        client = Client(app, "stream")
        await asyncio.wait_for(client.run(), 1)
        assert client.status == 200
        assert client.complete
        assert '"deadline_exceeded"' in client.text.strip().rpartition("\n\n")[2]
        assert "[DONE]" not in client.text
        assert backend.last.aborted == [Code.DEADLINE_EXCEEDED]

    async def test_an_answer_in_one_piece_is_all_or_nothing(self, app: FastAPI, backend: FakeBackend) -> None:
        backend.script = slow(backend, 0.0, 0.03)
        client = Client(app, "whole")
        await asyncio.wait_for(client.run(), 1)
        assert client.status == 504
        assert "lazy" not in client.text

    async def test_a_client_that_stops_reading_holds_nothing(
        self, app: FastAPI, backend: FakeBackend
    ) -> None:
        client = Client(app, "stream")
        client.reads = lambda _: len(client.sent) < 3
        await asyncio.wait_for(client.run(), 1)
        assert backend.last.aborted == [Code.DEADLINE_EXCEEDED]
        assert not client.complete


class TestSlowBody:
    @pytest.fixture
    def settings(self) -> GatewaySettings:
        return GatewaySettings(body_timeout_s=0.05, linger_s=0.05)

    async def test_a_body_that_does_not_come_is_a_408(self, app: FastAPI, backend: FakeBackend) -> None:
        client = Client(app, "whole", body_pause=LONG)
        await asyncio.wait_for(client.run(), 1)
        assert client.status == 408
        assert client.complete
        assert '"request_timeout"' in client.text
        assert (b"connection", b"close") in client.sent[0]["headers"]
        assert backend.streams == []


@MODES
async def test_the_end_of_the_server_aborts_what_runs(app: FastAPI, backend: FakeBackend, mode: str) -> None:
    backend.script = slow(backend, LONG, 0.0)
    task = asyncio.create_task(Client(app, mode).run())
    await until(lambda: backend.streams)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.last.aborted == [Code.ABORTED]


class TestPlaces:
    @pytest.fixture
    def settings(self) -> GatewaySettings:
        return GatewaySettings(requests=2, linger_s=0.05)

    async def test_no_more_requests_than_places_and_none_is_lost(
        self, app: FastAPI, backend: FakeBackend
    ) -> None:
        backend.script = slow(backend, LONG, 0.0)
        first = [Client(app, "whole"), Client(app, "stream")]
        tasks = [asyncio.create_task(client.run()) for client in first]
        await until(lambda: len(backend.streams) == 2)
        refused = Client(app, "whole")
        await asyncio.wait_for(refused.run(), 1)
        assert refused.status == 503
        assert '"no_capacity"' in refused.text
        for client in first:
            client.gone.set()
        await asyncio.gather(*tasks)
        backend.script = backend.speak
        for _ in range(5):
            client = Client(app, "whole")
            await client.run()
            assert client.status == 200


async def test_the_server_goes_on_while_a_long_prompt_is_tokenized(
    backend: FakeBackend, tokenizer: Tokenizer, settings: GatewaySettings
) -> None:
    backend.context = 100_000
    app = create_app(backend, tokenizer, settings)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await Client(app, "whole", prompt="The lazy dog. " * 30_000).run()
    ticking.cancel()
    assert ticks > 10
