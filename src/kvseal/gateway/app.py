"""The HTTP application: which path is answered by what."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from kvseal.core.errors import Code
from kvseal.gateway.backend import Backend
from kvseal.gateway.forms import ChatForm, CompletionForm
from kvseal.gateway.prepare import prepare_chat, prepare_completion
from kvseal.gateway.refusals import Refused
from kvseal.gateway.service import Endpoint, Service, Sources
from kvseal.gateway.settings import GatewaySettings
from kvseal.gateway.tokenizer import Tokenizer

_READ = ["GET", "HEAD"]


class _Served(Response):
    """Hands a request over to the service, which writes the response itself."""

    def __init__(self, service: Service, endpoint: Endpoint) -> None:
        self.background = None
        self._service = service
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._service.handle(self._endpoint, scope, receive, send)


def create_app(
    backend: Backend, tokenizer: Tokenizer, settings: GatewaySettings, sources: Sources | None = None
) -> FastAPI:
    """The public API in front of ``backend``. Raises StartRefused for settings that cannot work."""
    service = Service(backend, tokenizer, settings, sources or Sources())
    app = _bare_app(service)
    created = int(service.sources.clock())
    chat_endpoint = Endpoint(prepare_chat, ChatForm)
    completion_endpoint = Endpoint(prepare_completion, CompletionForm)

    def model() -> dict[str, object]:
        return {
            "id": backend.model_id,
            "object": "model",
            "created": created,
            "owned_by": "kvseal",
            "max_model_len": backend.context,
        }

    async def chat() -> Response:
        return _Served(service, chat_endpoint)

    async def complete() -> Response:
        return _Served(service, completion_endpoint)

    async def models(request: Request) -> Response:
        service.tenant(request.headers)
        return _json(service, {"object": "list", "data": [model()]})

    async def one_model(request: Request, name: str) -> Response:
        service.tenant(request.headers)
        if name != backend.model_id:
            what = f"The model {name[:100]!r} does not exist here."
            raise Refused(Code.MODEL_NOT_FOUND, what, param="model")
        return _json(service, model())

    async def health() -> Response:
        return _json(service, {"status": "ok"})

    async def ready() -> Response:
        is_ready, why = backend.ready
        state: dict[str, object] = {"status": "ready" if is_ready else "not ready", "reason": why}
        return _json(service, state, 200 if is_ready else 503)

    app.add_api_route("/v1/chat/completions", chat, methods=["POST"])
    app.add_api_route("/v1/completions", complete, methods=["POST"])
    app.add_api_route("/v1/models", models, methods=_READ)
    app.add_api_route("/v1/models/{name:path}", one_model, methods=_READ)
    app.add_api_route("/health", health, methods=_READ)
    app.add_api_route("/ready", ready, methods=_READ)
    return app


def create_admin_app(backend: Backend) -> FastAPI:
    """What an operator asks. It knows no keys: to be served where only the operator can connect."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    async def status() -> Response:
        return Response(msgspec.json.encode(backend.status()), media_type="application/json")

    app.add_api_route("/status", status, methods=_READ)
    return app


def _bare_app(service: Service) -> FastAPI:
    """Without routes; every error that does not come from the service gets OpenAI's shape here."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    def refusal(refused: Refused, headers: dict[str, str]) -> Response:
        headers = {"x-request-id": service.sources.new_id()} | refused.headers | headers
        return Response(refused.body(), refused.code.status, headers, media_type="application/json")

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return refusal(error, {})

    async def not_routed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405 and request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
        if error.status_code == 405:
            what = f"{request.method} is not a method of {request.url.path[:200]}."
            return refusal(Refused(Code.METHOD_NOT_ALLOWED, what), headers)
        return refusal(Refused(Code.NOT_FOUND, f"There is nothing at {request.url.path[:200]}."), headers)

    return FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={Refused: refused, HTTPException: not_routed},
    )


def _json(service: Service, value: dict[str, object], status: int = 200) -> Response:
    headers = {"x-request-id": service.sources.new_id()}
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")
