"""A gateway in front of a backend in memory."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.gateway.fake import FakeBackend, tiny_model_text

from kvseal.gateway.app import create_app
from kvseal.gateway.service import Sources
from kvseal.gateway.settings import GatewaySettings
from kvseal.gateway.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return tiny_model_text()


@pytest.fixture
def backend(tokenizer: Tokenizer) -> FakeBackend:
    answer = tokenizer.encode_prompt("The lazy fox rests, and the dog jumps.", 512)
    assert isinstance(answer, tuple)
    return FakeBackend((*answer, *tokenizer.stop_ids))


@pytest.fixture
def settings() -> GatewaySettings:
    return GatewaySettings()


@pytest.fixture
async def client(
    backend: FakeBackend, tokenizer: Tokenizer, settings: GatewaySettings
) -> AsyncIterator[httpx.AsyncClient]:
    """Talks to the application without a socket."""
    sources = Sources(clock=lambda: 1_790_000_000.0, new_id=lambda: "made-by-us", new_seed=lambda: 77)
    app = create_app(backend, tokenizer, settings, sources)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client
