"""The official client works against the gateway, unmodified, over a real socket."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from tests.gateway.fake import FakeBackend
from tests.gateway.serving import serving

from kvseal.core.errors import Code
from kvseal.core.ids import TenantId
from kvseal.core.messages import Failed, Rejected
from kvseal.gateway.app import create_app
from kvseal.gateway.keys import hash_key
from kvseal.gateway.settings import GatewaySettings, TenantKey
from kvseal.gateway.tokenizer import Tokenizer

SAID = "The lazy fox rests, and the dog jumps."
KEY = "k" * 40
MODEL = "tiny/model"
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What now?"}]


@pytest.fixture
async def url(backend: FakeBackend, tokenizer: Tokenizer) -> AsyncIterator[str]:
    settings = GatewaySettings(tenants=(TenantKey(TenantId("anna"), hash_key(KEY)),), linger_s=0.2)
    async with serving(create_app(backend, tokenizer, settings), settings) as port:
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


async def test_chat(client: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, max_completion_tokens=50
    )
    assert answer.choices[0].message.content == SAID
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(backend.last.asked.prompt)
    assert answer.id == f"chatcmpl-{answer._request_id}"


async def test_chat_in_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == SAID
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


async def test_completions(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="What now?", seed=3, stop=[", and"])
    assert answer.choices[0].text == "The lazy fox rests"
    stream = await client.completions.create(model=MODEL, prompt=[5, 6], stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == SAID


async def test_the_helpers_that_gather_a_stream(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == SAID


async def test_an_answer_goes_back_into_the_conversation(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    more = [*MESSAGES, answer.choices[0].message.to_dict(), *MESSAGES]
    again = await client.chat.completions.create(model=MODEL, messages=more)  # type: ignore[arg-type]
    assert again.choices[0].message.content == SAID


async def test_models(client: openai.AsyncOpenAI) -> None:
    (model,) = [model async for model in client.models.list()]
    assert model.id == MODEL
    assert (await client.models.retrieve(MODEL)).to_dict()["max_model_len"] == 512


async def test_the_client_without_async(url: str) -> None:
    def talk() -> tuple[str | None, str]:
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            whole = client.chat.completions.create(model=MODEL, messages=MESSAGES)
            stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
            return whole.choices[0].message.content, "".join(pieces)

    assert await asyncio.to_thread(talk) == (SAID, SAID)


async def test_a_bad_key(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert caught.value.code == "invalid_api_key"


async def test_an_unknown_model(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="other", messages=MESSAGES)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_a_prompt_that_is_too_long(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model=MODEL, prompt=[5] * 513, stream=True)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    assert caught.value.request_id


async def test_a_body_that_is_too_large(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.completions.create(model=MODEL, prompt="x" * 3_000_000)
    assert caught.value.status_code == 413


async def test_a_field_that_we_lack(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2)
    assert caught.value.param == "n"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.RATE_LIMIT_EXCEEDED, openai.RateLimitError),
        (Code.NO_CAPACITY, openai.InternalServerError),
        (Code.DRAINING, openai.InternalServerError),
    ],
)
async def test_a_busy_server(
    client: openai.AsyncOpenAI, backend: FakeBackend, code: Code, kind: type[openai.APIStatusError]
) -> None:
    backend.rejection = Rejected(code=code, message="not now")
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert caught.value.code == code.value


async def test_a_client_that_tries_again_gets_through(url: str, backend: FakeBackend) -> None:
    backend.rejection = Rejected(code=Code.NO_CAPACITY, message="not now")
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=2) as client:
        asking = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=MESSAGES))
        await asyncio.sleep(0.1)
        backend.rejection = None
        assert (await asking).choices[0].message.content == SAID


async def test_a_failure_in_mid_stream_is_an_exception(
    client: openai.AsyncOpenAI, backend: FakeBackend
) -> None:
    """F21: no answer that looks complete."""
    end = Failed(code=Code.INTEGRITY_CHECK_FAILED, message="a page was not what it must be")
    backend.script = lambda _: [backend.answer[:5], end]
    stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    with pytest.raises(openai.APIError) as caught:
        async for _ in stream:
            pass
    assert caught.value.code == "integrity_check_failed"
    assert "a page was not what it must be" in caught.value.message


async def test_a_client_that_closes_its_stream(client: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    backend.script = lambda _: [backend.answer[:5], 20.0]
    stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    await anext(stream)
    await stream.close()
    async with asyncio.timeout(5):
        while backend.last.aborted != [Code.ABORTED]:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0.005)
