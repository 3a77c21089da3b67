"""What the gateway's HTTP side adds: processor time for each token and each request, and memory.

    python benchmarks/gateway_http.py [--tokens 20000] [--requests 300] [--rounds 15] [--json out.json]

A backend in memory gives all its tokens at once, so that all the time is the gateway's. Per token: a stream
of many tokens less one of a single token, divided by their number; in the process alone, and with uvicorn
and a loopback socket (the client's reading included). Per request: a chat of one token, and one that is
refused for a field, beside a bare FastAPI route that reads the same JSON body and answers with a constant;
all three take turns, without sockets. Memory: private bytes (USS) of a process that has loaded the
tokenizer and answered, and whether it imported torch.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI, Request
from starlette.types import Message

from kvseal.core.errors import Code
from kvseal.core.ids import RequestId, TenantId
from kvseal.core.messages import Finished, Rejected, Terminal, Usage
from kvseal.core.sampling import SamplingParams
from kvseal.gateway.app import create_app
from kvseal.gateway.model_files import load_tokenizer
from kvseal.gateway.server import server_config
from kvseal.gateway.settings import GatewaySettings
from kvseal.model import default_home, ensure

PATH = "/v1/chat/completions"


@dataclass
class AtOnce:
    """A stream that waits for nothing."""

    request: RequestId
    answer: tuple[int, ...]
    prompt_tokens: int

    async def __aiter__(self) -> AsyncIterator[tuple[int, ...] | Terminal]:
        for token in self.answer:
            yield (token,)
        usage = Usage(prompt_tokens=self.prompt_tokens, completion_tokens=len(self.answer))
        yield Finished(reason="length", usage=usage)

    def stop(self, index: int) -> None:
        """Not used here."""

    def abort(self, code: Code) -> None:
        """Not used here."""


class Backend:
    """Answers everything with as many tokens as were asked for."""

    model_id = "model"
    context = 1_000_000
    ready = (True, "ready")

    def __init__(self, answer: tuple[int, ...]) -> None:
        self._answer = answer

    def status(self) -> dict[str, object]:
        """Nothing to see."""
        return {}

    def submit(
        self,
        tenant: TenantId,  # noqa: ARG002 - the seam's signature
        prompt: tuple[int, ...],
        max_tokens: int,
        sampling: SamplingParams,  # noqa: ARG002
        stop_ids: tuple[int, ...],  # noqa: ARG002
    ) -> AtOnce | Rejected:
        """Never refuses."""
        return AtOnce(RequestId("0" * 32), self._answer[:max_tokens], len(prompt))


def body(**fields: Any) -> bytes:
    """A chat request."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    return json.dumps({"model": "model", "messages": messages, "temperature": 0} | fields).encode()


async def call(app: FastAPI, path: str, content: bytes) -> int:
    """One request without a socket; its status."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))],
    }
    asked = status = 0

    async def receive() -> Message:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return int(status)


async def seconds(work: Callable[[], Awaitable[object]], times: int = 1) -> float:
    """Processor time that it takes, each time: that of others, who use the machine too, is not in it."""
    began = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - began) / times


async def per_token_us(ask: Callable[[bytes], Awaitable[object]], tokens: int, rounds: int) -> float:
    """Microseconds for each further token of a stream; the best of some rounds, since others use the
    machine.
    """
    stream = {"stream": True, "stop": ["a stop string that never comes"]}
    many, one = body(max_tokens=tokens + 1, **stream), body(max_tokens=1, **stream)
    taken = [
        await seconds(lambda: ask(many)) - await seconds(lambda: ask(one)) for _ in range(max(3, rounds // 3))
    ]
    return min(taken) / tokens * 1e6


def bare_app() -> FastAPI:
    """What FastAPI itself costs."""
    app = FastAPI()

    @app.post(PATH)
    async def answer(request: Request) -> dict[str, object]:
        await request.json()
        return {"choices": [{"message": {"content": "x"}}]}

    return app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def over_a_socket(app: FastAPI) -> AsyncIterator[Callable[[bytes], Awaitable[object]]]:
    """Serves ``app``, and yields a function that asks and reads until the server closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = _Server(server_config(app, GatewaySettings()))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:  # noqa: ASYNC110 - the library has no event for it
            await asyncio.sleep(0.001)

        async def ask(content: bytes) -> None:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            head = f"POST {PATH} HTTP/1.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
            writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(content) + content)
            while await reader.read(1 << 16):
                pass
            writer.close()

        yield ask
        server.should_exit = True
        await task


async def measure(folder: Path, tokens: int, requests: int, rounds: int) -> dict[str, float]:
    """All figures but memory."""
    tokenizer = load_tokenizer(folder)
    text = "The river was high that spring, and nobody in the village could remember it otherwise. "
    answer = tokenizer.encode_prompt(text * (tokens // 10 + 1), 10 * tokens)
    assert isinstance(answer, tuple)
    app = create_app(Backend(answer), tokenizer, GatewaySettings())
    figures = {"token_us": await per_token_us(lambda content: call(app, PATH, content), tokens, rounds)}
    async with over_a_socket(create_app(Backend(answer), tokenizer, GatewaySettings())) as ask:
        figures["token_with_socket_us"] = await per_token_us(ask, tokens, rounds)
    bare = bare_app()
    minimal, refused = body(max_tokens=1), body(n=2)
    assert (await call(app, PATH, minimal), await call(app, PATH, refused)) == (200, 400)
    taken: dict[str, list[float]] = {"minimal": [], "refused": [], "bare": []}
    for _ in range(rounds):
        for name, target, content in (
            ("minimal", app, minimal),
            ("refused", app, refused),
            ("bare", bare, minimal),
        ):
            taken[name].append(
                await seconds(lambda t=target, c=content: call(t, PATH, c), requests)  # type: ignore[misc]
            )
    return figures | {f"request_{name}_us": statistics.median(t) * 1e6 for name, t in taken.items()}


def memory(folder: Path) -> dict[str, float]:
    """Of this process, after it has answered; meant for a fresh one."""
    asyncio.run(measure(folder, 200, 20, 1))
    return {
        "uss_mb": psutil.Process().memory_full_info().uss / 1e6,
        "torch": float("torch" in sys.modules),
        "transformers": float("transformers" in sys.modules),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=300, help="in each round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = ensure(default_home(os.environ))
    if options.memory_only:
        print(json.dumps(memory(folder)))
        return
    figures = asyncio.run(measure(folder, options.tokens, options.requests, options.rounds))
    fresh = subprocess.run(
        [sys.executable, __file__, "--memory-only"], capture_output=True, check=True, text=True
    )
    figures |= json.loads(fresh.stdout)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name, value in figures.items():
        print(f"{name:<24} {value:10.1f}")
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
