"""The API as a client sees it: answers, counts, errors in OpenAI's shape."""

import json
from typing import Any

import httpx
import pytest
from tests.gateway.fake import FakeBackend, FakeStream

from kvseal.core.errors import Code
from kvseal.core.ids import TenantId
from kvseal.core.messages import Failed, Rejected
from kvseal.core.sampling import SamplingParams
from kvseal.gateway.app import create_admin_app
from kvseal.gateway.keys import hash_key
from kvseal.gateway.settings import GatewaySettings, TenantKey
from kvseal.gateway.tokenizer import Tokenizer

SAID = "The lazy fox rests, and the dog jumps."
CHAT: dict[str, Any] = {"model": "tiny/model", "messages": [{"role": "user", "content": "What now?"}]}
TEXT: dict[str, Any] = {"model": "tiny/model", "prompt": "What now?"}
KEY_OF_ANNA, KEY_OF_BEN = "a" * 32, "b" * 32
CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"


def events(response: httpx.Response) -> list[Any]:
    """The objects of a stream; "[DONE]" as text."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    parts = response.text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    bodies = [part.removeprefix("data: ") for part in parts]
    return [body if body == "[DONE]" else json.loads(body) for body in bodies]


def error(response: httpx.Response, status: int, code: Code) -> dict[str, Any]:
    """The error object, checked for its shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    (found,) = response.json().values()
    assert set(found) == {"message", "type", "param", "code"}
    assert found["code"] == code.value
    assert found["type"] == code.type
    return dict(found)


async def test_a_chat_answer_in_one_piece(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.cached_tokens = 3
    response = await client.post(CHAT_PATH, json=CHAT)
    assert response.status_code == 200
    prompt_tokens = len(backend.last.asked.prompt)
    completion_tokens = len(backend.answer)
    assert response.json() == {
        "id": "chatcmpl-request0",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "tiny/model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": SAID, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 3},
        },
    }
    assert response.headers["x-request-id"] == "request0"


async def test_a_chat_answer_in_events(client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT_PATH, json=CHAT | {"stream": True})
    assert response.status_code == 200
    assert response.headers["x-request-id"] == "request0"
    *chunks, done = events(response)
    assert done == "[DONE]"
    assert {chunk["id"] for chunk in chunks} == {"chatcmpl-request0"}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1]["delta"] == {}
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == SAID


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
async def test_usage_comes_last_where_it_is_asked_for(
    client: httpx.AsyncClient, backend: FakeBackend, path: str
) -> None:
    body = (CHAT if path == CHAT_PATH else TEXT) | {
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    *chunks, last, done = events(await client.post(path, json=body))
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == len(backend.last.asked.prompt)
    assert last["usage"]["completion_tokens"] == len(backend.answer)


async def test_a_completion_in_one_piece_and_in_events(client: httpx.AsyncClient) -> None:
    whole = (await client.post(TEXT_PATH, json=TEXT)).json()
    assert whole["object"] == "text_completion"
    assert whole["choices"] == [{"index": 0, "text": SAID, "logprobs": None, "finish_reason": "stop"}]
    *chunks, done = events(await client.post(TEXT_PATH, json=TEXT | {"stream": True}))
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == SAID
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_what_the_backend_is_asked_for(
    client: httpx.AsyncClient, backend: FakeBackend, tokenizer: Tokenizer
) -> None:
    body = TEXT | {"temperature": 0.5, "top_p": 0.9, "seed": 5, "max_tokens": 9}
    await client.post(TEXT_PATH, json=body)
    asked = backend.last.asked
    assert asked.tenant == "default"
    assert asked.prompt == tokenizer.encode_prompt("What now?", 100)
    assert asked.max_tokens == 9
    assert asked.sampling == SamplingParams(temperature=0.5, top_p=0.9, seed=5)
    assert asked.stop_ids == tokenizer.stop_ids


async def test_without_a_seed_the_server_draws_one(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    await client.post(TEXT_PATH, json=TEXT)
    assert backend.last.asked.sampling == SamplingParams(temperature=1.0, top_p=1.0, seed=77)


async def test_token_ids_are_taken_as_they_are(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    await client.post(TEXT_PATH, json=TEXT | {"prompt": [5, 6, 7]})
    assert backend.last.asked.prompt == (5, 6, 7)


async def test_a_developer_speaks_as_the_system(
    client: httpx.AsyncClient, backend: FakeBackend, tokenizer: Tokenizer
) -> None:
    prompts = []
    for role in ("system", "developer"):
        messages = [{"role": role, "content": "Be brief."}, *CHAT["messages"]]
        await client.post(CHAT_PATH, json=CHAT | {"messages": messages})
        prompts.append(backend.last.asked.prompt)
    assert prompts[0] == prompts[1]
    assert tokenizer.decode(prompts[0]).startswith("system\nBe brief.")


async def test_ignore_eos_goes_on_to_the_length(
    client: httpx.AsyncClient, backend: FakeBackend, tokenizer: Tokenizer
) -> None:
    backend.answer = backend.answer * 3
    tokens = len(backend.answer) - 2
    response = await client.post(TEXT_PATH, json=TEXT | {"ignore_eos": True, "max_tokens": tokens})
    assert backend.last.asked.stop_ids == ()
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["text"] == tokenizer.decode(backend.answer[:tokens])


async def test_the_default_of_max_tokens_is_capped_by_what_is_left(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    backend.context = 100
    for prompt, expected in ((10, 90), (99, 1)):
        await client.post(TEXT_PATH, json=TEXT | {"prompt": [5] * prompt})
        assert backend.last.asked.max_tokens == expected
    backend.context = 5000
    await client.post(TEXT_PATH, json=TEXT)
    assert backend.last.asked.max_tokens == 1024


@pytest.mark.parametrize("mode", ["whole", "stream"])
async def test_a_stop_string_over_several_tokens(
    client: httpx.AsyncClient, backend: FakeBackend, tokenizer: Tokenizer, mode: str
) -> None:
    body = CHAT | {"stop": ["zebra", "s, and t"], "stream": mode == "stream"}
    response = await client.post(CHAT_PATH, json=body)
    needed = tokenizer.encode_prompt("The lazy fox rests, and t", 100)
    assert isinstance(needed, tuple)
    if mode == "stream":
        *chunks, done = events(response)
        assert done == "[DONE]"
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        reason = chunks[-1]["choices"][0]["finish_reason"]
    else:
        choice = response.json()["choices"][0]
        text, reason = choice["message"]["content"], choice["finish_reason"]
        assert response.json()["usage"]["completion_tokens"] == backend.last.stopped[0] + 1
    assert (text, reason) == ("The lazy fox rest", "stop")
    assert len(backend.last.stopped) == 1
    assert backend.last.stopped[0] + 1 <= len(needed)
    assert backend.last.aborted == []


async def test_a_stop_string_that_only_seemed_to_begin_is_delivered(client: httpx.AsyncClient) -> None:
    response = await client.post(TEXT_PATH, json=TEXT | {"stop": ["jumps. Then", "fox rested"]})
    assert response.json()["choices"][0]["text"] == SAID


async def test_characters_come_whole(
    client: httpx.AsyncClient, backend: FakeBackend, tokenizer: Tokenizer
) -> None:
    answer = tokenizer.encode_prompt("naïve 🐺🦊 世界", 100)
    assert isinstance(answer, tuple)
    backend.answer = (*answer, *tokenizer.stop_ids)
    *chunks, _ = events(await client.post(TEXT_PATH, json=TEXT | {"stream": True}))
    pieces = [chunk["choices"][0]["text"] for chunk in chunks]
    assert "".join(pieces) == "naïve 🐺🦊 世界"
    assert not any("\ufffd" in piece for piece in pieces)


# --- refused
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["whole", "stream"])
@pytest.mark.parametrize(
    ("tokens", "max_tokens", "code"),
    [
        (100, None, Code.CONTEXT_LENGTH_EXCEEDED),  # fits, and leaves no room for an answer
        (101, None, Code.CONTEXT_LENGTH_EXCEEDED),
        (99, 2, Code.MAX_TOKENS_EXCEEDED),
        (0, None, Code.EMPTY_PROMPT),
    ],
)
async def test_lengths_are_refused_before_any_work(
    client: httpx.AsyncClient,
    backend: FakeBackend,
    mode: str,
    tokens: int,
    max_tokens: int | None,
    code: Code,
) -> None:
    """F01: nothing is submitted, and the true count is named."""
    backend.context = 100
    body = TEXT | {"prompt": [[5] * tokens], "max_tokens": max_tokens, "stream": mode == "stream"}
    found = error(await client.post(TEXT_PATH, json=body), 400, code)
    if tokens:
        assert "maximum context length is 100 tokens" in found["message"]
        assert f"{tokens} tokens" in found["message"]
    assert found["param"] == ("max_tokens" if code is Code.MAX_TOKENS_EXCEEDED else "prompt")
    assert backend.streams == []


async def test_lengths_at_the_limit_are_answered_with_the_true_count(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    """F01."""
    backend.context = 100
    for tokens, max_tokens in ((98, 2), (99, 1), (1, 99)):
        body = TEXT | {"prompt": [5] * tokens, "max_tokens": max_tokens}
        response = await client.post(TEXT_PATH, json=body)
        assert response.json()["usage"]["prompt_tokens"] == tokens


async def test_a_prompt_far_over_the_limit_is_not_counted_to_the_end(client: httpx.AsyncClient) -> None:
    text = "The lazy dog rests. " * 1500
    found = error(
        await client.post(TEXT_PATH, json=TEXT | {"prompt": text}), 400, Code.CONTEXT_LENGTH_EXCEEDED
    )
    assert "maximum context length is 512 tokens" in found["message"]
    at_least = int(found["message"].partition("at least ")[2].split()[0])
    assert 512 < at_least < 1500


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
async def test_a_body_that_no_prompt_needs_is_refused_unread(client: httpx.AsyncClient, path: str) -> None:
    found = error(await client.post(path, json={"x": "y" * 200_000}), 413, Code.REQUEST_TOO_LARGE)
    assert "maximum context length is 512 tokens" in found["message"]


async def test_a_body_without_a_length_is_cut_off(client: httpx.AsyncClient) -> None:
    taken = 0

    async def endless() -> Any:
        nonlocal taken
        yield b'{"model": "'
        while taken < 10_000_000:
            taken += 1000
            yield b"x" * 1000

    response = await client.post(TEXT_PATH, content=endless(), headers={"content-type": "application/json"})
    error(response, 413, Code.REQUEST_TOO_LARGE)


async def test_the_longest_prompt_that_fits_is_never_too_large(
    client: httpx.AsyncClient, backend: FakeBackend, tokenizer: Tokenizer
) -> None:
    """However it is escaped: the bound on bytes may refuse nothing that fits."""
    longest = max(range(2, tokenizer.vocabulary), key=lambda token: len(tokenizer.decode([token])))
    text = tokenizer.decode([longest]) * 511
    escaped = "".join(f"\\u{ord(character):04x}" for character in text)
    body = json.dumps(TEXT | {"prompt": "PROMPT"}).replace("PROMPT", escaped)
    response = await client.post(TEXT_PATH, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 200
    assert len(backend.last.asked.prompt) == 511


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"{", {}, Code.INVALID_REQUEST),
        (b'{"model": "tiny/model", "model": "x"}', {}, Code.INVALID_REQUEST),
        (b"[" * 50_000, {}, Code.INVALID_REQUEST),
        (b'"\xff"', {}, Code.INVALID_REQUEST),
        (b"", {}, Code.INVALID_REQUEST),
        (b"{}", {"content-type": "text/plain"}, Code.INVALID_REQUEST),
        (b"{}", {"content-type": ""}, Code.INVALID_REQUEST),
        (b"{}", {"content-encoding": "gzip"}, Code.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
async def test_broken_bodies(
    client: httpx.AsyncClient, path: str, body: bytes, headers: dict[str, str], code: Code
) -> None:
    response = await client.post(path, content=body, headers={"content-type": "application/json"} | headers)
    error(response, 400, code)


async def test_another_model_is_404(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    found = error(await client.post(CHAT_PATH, json=CHAT | {"model": "x"}), 404, Code.MODEL_NOT_FOUND)
    assert found["param"] == "model"
    assert backend.streams == []


async def test_token_ids_beyond_the_vocabulary_are_refused(
    client: httpx.AsyncClient, tokenizer: Tokenizer
) -> None:
    body = TEXT | {"prompt": [5, tokenizer.vocabulary]}
    assert error(await client.post(TEXT_PATH, json=body), 400, Code.INVALID_REQUEST)["param"] == "prompt"


@pytest.mark.parametrize("mode", ["whole", "stream"])
@pytest.mark.parametrize("code", [Code.NO_CAPACITY, Code.DRAINING, Code.RATE_LIMIT_EXCEEDED])
async def test_a_refusal_of_the_backend_keeps_its_status(
    client: httpx.AsyncClient, backend: FakeBackend, code: Code, mode: str
) -> None:
    backend.rejection = Rejected(code=code, message="not now")
    response = await client.post(CHAT_PATH, json=CHAT | {"stream": mode == "stream"})
    assert error(response, code.status, code)["message"] == "not now"
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("mode", ["whole", "stream"])
@pytest.mark.parametrize(
    "end",
    [
        Failed(code=Code.INTEGRITY_CHECK_FAILED, message="a page was not what it must be"),
        Failed(code=Code.WORKER_LOST, message="gone"),
        Rejected(code=Code.CONTEXT_LENGTH_EXCEEDED, message="a worker can hold less"),
    ],
)
async def test_a_failure_before_the_first_token_is_a_status(
    client: httpx.AsyncClient, backend: FakeBackend, mode: str, end: Failed | Rejected
) -> None:
    """F21: a failure is never a 200."""
    backend.script = lambda _: [end]
    response = await client.post(CHAT_PATH, json=CHAT | {"stream": mode == "stream"})
    assert error(response, end.code.status, end.code)["message"] == end.message
    assert backend.last.aborted == []


async def test_a_failure_in_mid_answer(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    """F21: a stream ends in an error event without [DONE]; an answer in one piece has the status."""
    end = Failed(code=Code.WORKER_LOST, message="gone")
    backend.script = lambda _: [backend.answer[:1], backend.answer[1:4], end]
    error(await client.post(CHAT_PATH, json=CHAT), 503, Code.WORKER_LOST)
    *chunks, last = events(await client.post(CHAT_PATH, json=CHAT | {"stream": True}))
    assert last == {
        "error": {"message": "gone", "type": "server_error", "param": None, "code": "worker_lost"}
    }
    assert chunks
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


async def test_an_answer_to_another_prompt_is_no_answer(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    """F01: `prompt_tokens` 1 for a long prompt was how the incident could have been seen."""
    backend.script = lambda asked: [
        backend.answer[:2],
        backend.end("stop", asked._replace(prompt=asked.prompt[:1]), 2),
    ]
    error(await client.post(CHAT_PATH, json=CHAT), 500, Code.INTEGRITY_CHECK_FAILED)
    *_, last = events(await client.post(CHAT_PATH, json=CHAT | {"stream": True}))
    assert last["error"]["code"] == "integrity_check_failed"


@pytest.mark.parametrize("mode", ["whole", "stream"])
async def test_a_mistake_of_ours_is_a_500_and_an_abort(
    client: httpx.AsyncClient, backend: FakeBackend, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F23; and no content reaches a log."""
    backend.script = lambda _: [backend.answer[:1], RuntimeError("What now?")]
    response = await client.post(CHAT_PATH, json=CHAT | {"stream": mode == "stream"})
    if mode == "stream":
        assert events(response)[-1]["error"]["code"] == "internal_error"
    else:
        error(response, 500, Code.INTERNAL_ERROR)
    assert backend.last.aborted == [Code.INTERNAL_ERROR]
    assert "What now?" not in caplog.text
    assert "request0" in str([vars(record) for record in caplog.records])


async def test_an_abort_that_fails_takes_no_answer_away(
    client: httpx.AsyncClient, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(FakeStream, "abort", broken)
    backend.script = lambda _: [RuntimeError("broken too")]
    error(await client.post(CHAT_PATH, json=CHAT), 500, Code.INTERNAL_ERROR)


async def test_an_answer_without_an_end_is_a_500(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = lambda _: [backend.answer[:1]]
    error(await client.post(CHAT_PATH, json=CHAT), 500, Code.INTERNAL_ERROR)
    assert backend.last.aborted == [Code.INTERNAL_ERROR]


async def test_without_workers_nothing_is_too_long(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.context = 0
    backend.ready = (False, "waiting for workers")
    found = error(await client.post(CHAT_PATH, json=CHAT), 503, Code.NO_CAPACITY)
    assert "waiting for workers" in found["message"]


# --- tenants
# -------------------------------------------------------------------------------------------------------


class TestKeys:
    @pytest.fixture
    def settings(self) -> GatewaySettings:
        return GatewaySettings(
            tenants=(
                TenantKey(TenantId("anna"), hash_key(KEY_OF_ANNA)),
                TenantKey(TenantId("ben"), hash_key(KEY_OF_BEN)),
            )
        )

    async def test_the_tenant_comes_from_the_key_alone(
        self, client: httpx.AsyncClient, backend: FakeBackend
    ) -> None:
        """F25."""
        for key, tenant in ((KEY_OF_ANNA, "anna"), (KEY_OF_BEN, "ben")):
            headers = {"authorization": f"Bearer {key}", "x-tenant": "other", "openai-organization": "other"}
            response = await client.post(CHAT_PATH, json=CHAT | {"user": "other"}, headers=headers)
            assert response.status_code == 200
            assert backend.last.asked.tenant == tenant

    @pytest.mark.parametrize("key", [None, "Bearer nothing", f"Bearer {KEY_OF_ANNA}x", KEY_OF_ANNA])
    async def test_without_a_good_key_nothing_is_read(
        self, client: httpx.AsyncClient, backend: FakeBackend, key: str | None
    ) -> None:
        headers = {} if key is None else {"authorization": key}
        response = await client.post(CHAT_PATH, content=b"not even JSON", headers=headers)
        error(response, 401, Code.INVALID_API_KEY)
        assert response.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/models", "/v1/models/tiny/model"):
            error(await client.get(path, headers=headers), 401, Code.INVALID_API_KEY)
        assert backend.streams == []

    async def test_health_and_readiness_need_no_key(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).status_code == 200


# --- the other paths
# ---------------------------------------------------------------------------------------------------


async def test_models_say_how_long_a_context_may_be(client: httpx.AsyncClient) -> None:
    model = {
        "id": "tiny/model",
        "object": "model",
        "created": 1_790_000_000,
        "owned_by": "kvseal",
        "max_model_len": 512,
    }
    assert (await client.get("/v1/models")).json() == {"object": "list", "data": [model]}
    assert (await client.get("/v1/models/tiny/model")).json() == model
    error(await client.get("/v1/models/other"), 404, Code.MODEL_NOT_FOUND)


async def test_ready_says_why_not(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.ready = (False, "the canary is on its way")
    response = await client.get("/ready")
    assert response.status_code == 503
    assert response.json() == {"status": "not ready", "reason": "the canary is on its way"}
    assert (await client.get("/health")).json() == {"status": "ok"}


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/embeddings", "/docs", "/openapi.json", "/status"])
async def test_unknown_paths(client: httpx.AsyncClient, path: str) -> None:
    error(await client.get(path), 404, Code.NOT_FOUND)


async def test_other_methods(client: httpx.AsyncClient) -> None:
    response = await client.get(CHAT_PATH)
    error(response, 405, Code.METHOD_NOT_ALLOWED)
    assert response.headers["allow"] == "POST"
    options = await client.request("OPTIONS", CHAT_PATH)
    assert (options.status_code, options.headers["allow"], options.content) == (204, "POST", b"")
    assert (await client.head("/health")).status_code == 200


async def test_no_other_origin_is_let_in(client: httpx.AsyncClient) -> None:
    headers = {"origin": "https://elsewhere.example", "access-control-request-method": "POST"}
    for response in (
        await client.request("OPTIONS", CHAT_PATH, headers=headers),
        await client.post(CHAT_PATH, json=CHAT, headers=headers),
    ):
        assert not [name for name in response.headers if name.startswith("access-control")]


async def test_the_operator_sees_the_status(backend: FakeBackend) -> None:
    transport = httpx.ASGITransport(create_admin_app(backend))
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        assert (await client.get("/status")).json() == {"model": "tiny/model", "open_requests": 0}
