"""The dispatcher, with workers that are connections of the real wire and say what a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from kvseal.core.dispatch import GatewayConfig, GatewayCore
from kvseal.core.errors import Code
from kvseal.core.ids import InstanceId, LayoutDigest, TenantId
from kvseal.core.messages import (
    AnyMessage,
    Ended,
    Failed,
    Finished,
    Generate,
    Hello,
    Rejected,
    Terminal,
    Tokens,
    Unwelcome,
    Usage,
)
from kvseal.core.sampling import SamplingParams
from kvseal.gateway.dispatch import Dispatcher, gateway_hello
from kvseal.wire import Connection, ConnectionLost, connect, make_secret

TENANT = TenantId("acme")
CANARY = (5, 6, 7)
Answer = Callable[[Connection, Generate], None]


def hello(role: str, number: int, **fields: object) -> Hello:
    plain = Hello(
        role=role,  # type: ignore[arg-type]
        instance=InstanceId(bytes([number]) * 16),
        layout=LayoutDigest(b"l" * 16),
        page_size=16,
        dtype="float32",
        model_context=4096,
        pool_tokens=1024,
        reserve_tokens=16,
        canary_prompt=(1, 2, 3) if role == "prefill" else (),
        canary_output=CANARY if role == "prefill" else (),
    )
    return msgspec.structs.replace(plain, **fields)


def answer_with(tokens: tuple[int, ...]) -> Answer:
    """A decode worker that answers everything alike."""

    def answer(connection: Connection, asked: Generate) -> None:
        usage = Usage(prompt_tokens=len(asked.prompt), completion_tokens=len(tokens))
        connection.send(Tokens(request=asked.request, attempt=1, index=0, tokens=tokens))
        connection.send(Ended(request=asked.request, attempt=1, end=Finished(reason="stop", usage=usage)))

    return answer


class Cluster:
    """A dispatcher that listens, and a way to join it."""

    def __init__(self, folder: Path) -> None:
        self.secret = make_secret()
        self.address = f"unix:{folder}/gateway.sock"
        core = GatewayCore(GatewayConfig(context=512))
        self.dispatcher = Dispatcher(core, gateway_hello(InstanceId(b"g" * 16), ""), self.secret, "toy")
        self.heard: list[AnyMessage] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, said: Hello, answer: Answer | None = None) -> Connection:
        connection = await connect(self.address, said, self.secret)
        self._tasks.append(asyncio.get_running_loop().create_task(self._listen(connection, answer)))
        return connection

    async def _listen(self, connection: Connection, answer: Answer | None) -> None:
        with suppress(ConnectionLost):
            while True:
                message = await connection.receive()
                self.heard.append(message)
                if isinstance(message, Generate) and answer is not None:
                    answer(connection, message)

    def submit(self) -> "Awaitable[list[tuple[int, ...] | Terminal]]":
        stream = self.dispatcher.submit(TENANT, (1, 2), 4, SamplingParams(), ())
        assert not isinstance(stream, Rejected)

        async def read() -> list[tuple[int, ...] | Terminal]:
            return [item async for item in stream]

        return asyncio.get_running_loop().create_task(read())

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110 (polls what it tests)
                await asyncio.sleep(0.005)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    listener = await made.dispatcher.listen(made.address)
    yield made
    made.close()
    await listener.close()


async def test_without_workers_nothing_is_ready_and_requests_are_refused(cluster: Cluster) -> None:
    assert cluster.dispatcher.ready == (False, "waiting for workers (0 prefill, 0 decode)")
    refused = cluster.dispatcher.submit(TENANT, (1, 2), 4, SamplingParams(), ())
    assert isinstance(refused, Rejected)
    assert refused.code is Code.NO_CAPACITY


async def test_readiness_needs_the_prefill_workers_own_tokens(cluster: Cluster) -> None:
    """F19."""
    await cluster.join(hello("prefill", 1))
    await cluster.join(hello("decode", 2), answer_with(CANARY))
    await cluster.until(lambda: cluster.dispatcher.ready[0])
    canary = next(message for message in cluster.heard if isinstance(message, Generate))
    assert canary.via == hello("prefill", 1).instance


async def test_a_pair_whose_tokens_differ_is_never_ready_and_says_why(cluster: Cluster) -> None:
    await cluster.join(hello("prefill", 1))
    await cluster.join(hello("decode", 2), answer_with((5, 6, 8)))
    await cluster.until(lambda: "[5, 6, 8]" in cluster.dispatcher.ready[1])
    assert not cluster.dispatcher.ready[0]


async def test_a_worker_whose_pages_mean_something_else_is_refused_by_name(cluster: Cluster) -> None:
    """F18."""
    await cluster.join(hello("prefill", 1))
    await cluster.until(lambda: len(cluster.dispatcher.core.workers) == 1)
    await cluster.join(hello("decode", 2, page_size=32))
    await cluster.until(lambda: any(isinstance(message, Unwelcome) for message in cluster.heard))
    assert cluster.dispatcher.refused is not None
    assert "page size" in cluster.dispatcher.refused


async def test_a_worker_that_holds_less_than_is_advertised_is_refused_with_both_numbers(
    cluster: Cluster,
) -> None:
    """G1, F04."""
    await cluster.join(hello("decode", 2, pool_tokens=256))
    await cluster.until(lambda: cluster.dispatcher.refused is not None)
    assert "512" in str(cluster.dispatcher.refused)
    assert "240" in str(cluster.dispatcher.refused)


async def test_the_loss_of_a_worker_ends_its_requests_once(cluster: Cluster) -> None:
    """F23."""
    await cluster.join(hello("prefill", 1))
    decode = await cluster.join(hello("decode", 2))
    await cluster.until(lambda: cluster.dispatcher.context == 512)
    running = cluster.submit()
    await asyncio.sleep(0.02)
    decode.close()
    items = await running
    assert len(items) == 1
    assert isinstance(items[0], Failed)
    assert items[0].code is Code.WORKER_LOST
    assert cluster.dispatcher.core.open_requests == 0


async def test_the_status_holds_no_content(cluster: Cluster) -> None:
    await cluster.join(hello("prefill", 1))
    await cluster.join(hello("decode", 2), answer_with(CANARY))
    await cluster.until(lambda: cluster.dispatcher.ready[0])
    status = cluster.dispatcher.status()
    assert status["context"] == 512
    assert {worker["role"] for worker in status["workers"]} == {"prefill", "decode"}
    assert "canary" not in str(status)
