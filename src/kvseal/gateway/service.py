"""What happens between a request's headers and the last byte of its answer.

::

    key ─> place ─> body ─> plan (in a thread) ─> submit ─> pieces … ─> end
     401    503      4xx        4xx                4xx/5xx   status before the first piece, event after it

One task does it all. A second one only waits for the client to go away; that and the deadline end the first
at whatever it waits for, and then, if the request runs, it is aborted: once, with the reason.
"""

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from kvseal.core.errors import Code
from kvseal.core.ids import TenantId
from kvseal.core.messages import Rejected
from kvseal.core.sampling import SamplingParams
from kvseal.gateway.backend import Backend
from kvseal.gateway.body import BodyLimits, ClientGone, Memory, read_body
from kvseal.gateway.detokenizer import Detokenizer
from kvseal.gateway.forms import Form, Heading
from kvseal.gateway.generation import Done, Generation, Reading
from kvseal.gateway.keys import KeyRing
from kvseal.gateway.prepare import Plan, Prepare, Serving
from kvseal.gateway.refusals import Refused
from kvseal.gateway.reply import Reply
from kvseal.gateway.settings import GatewaySettings
from kvseal.gateway.stop_strings import StopFinder
from kvseal.gateway.tokenizer import Tokenizer

_log = logging.getLogger(__name__)
# Bytes. Preparing so small a body takes less than a millisecond, and handing it to a thread and back as long.
_SMALL_BODY: Final = 2048


def _random_id() -> str:
    return secrets.token_hex(16)


def _random_seed() -> int:
    return secrets.randbits(63)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where time and chance come from."""

    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    new_id: Callable[[], str] = _random_id
    """For requests that end before the backend gave them one."""
    new_seed: Callable[[], int] = _random_seed
    """For requests without a seed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What tells one kind of request from another."""

    prepare: Prepare
    form: type[Form]


@dataclass(slots=True)
class _Call:
    """What is known of a request so far."""

    reply: Reply
    endpoint: Endpoint
    headers: Headers
    generation: Generation | None = None
    body_read: bool = False

    def abort(self, code: Code) -> None:
        """Never fails: the client must get its answer even so."""
        if self.generation is None:
            return
        try:
            self.generation.abort(code)
        except Exception as error:
            _record("an abort failed", self.reply.request, error)


def _record(what: str, request: str, error: Exception) -> None:
    """Where a mistake of ours happened. Not its message: that could hold what the client wrote."""
    fields = {"request": request, "error": type(error).__name__}
    where = "".join(traceback.format_tb(error.__traceback__)[-3:])
    _log.error("%s: %s", what, where, extra={"fields": fields})


@dataclass(slots=True)
class Service:
    """All that requests share. ``open_requests`` are being worked on right now."""

    backend: Backend
    tokenizer: Tokenizer
    settings: GatewaySettings
    sources: Sources
    open_requests: int = 0
    _keys: KeyRing = field(init=False)
    _memory: Memory = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._keys = KeyRing((key.tenant, key.key_hash) for key in self.settings.tenants)
        self._memory = Memory(self.settings.buffered_bytes)
        # Tokenizing runs outside the interpreter's lock, and no more of it at a time than here.
        self._threads = ThreadPoolExecutor(self.settings.tokenizer_threads, thread_name_prefix="tokenize")

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def tenant(self, headers: Headers) -> TenantId:
        """Whose request it is, by its key alone (G9). Raises Refused."""
        tenant = self._keys.tenant(headers.get("authorization"))
        if tenant is None:
            raise Refused(
                Code.INVALID_API_KEY, "No valid API key was given. Send it as `Authorization: Bearer KEY`."
            )
        return tenant

    async def handle(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; exactly one terminal answer, whatever happens (G10)."""
        call = _Call(Reply(send, self.sources.new_id()), endpoint, Headers(scope=scope))
        try:
            await self._answer(call, receive)
        except ClientGone:
            call.abort(Code.ABORTED)
        except Refused as refused:
            await self._refuse(call, refused, receive)
        except Exception as error:
            _record("a request failed in the gateway", call.reply.request, error)
            why = Refused(Code.INTERNAL_ERROR, "The server made a mistake. It has been recorded.")
            await self._refuse(call, why, receive)
        except BaseException:  # the server stops
            call.abort(Code.ABORTED)
            raise

    async def _refuse(self, call: _Call, refused: Refused, receive: Receive) -> None:
        call.abort(refused.code)
        try:
            async with asyncio.timeout(self.settings.farewell_s + self.settings.linger_s):
                if call.body_read:
                    await call.reply.refuse(refused)
                else:
                    await call.reply.refuse_unread(refused, receive, self.settings.linger_s)
        except TimeoutError:
            _log.warning("a client takes no answer", extra={"fields": {"request": call.reply.request}})

    async def _answer(self, call: _Call, receive: Receive) -> None:
        tenant = self.tenant(call.headers)
        serving = self._serving()
        if self.open_requests >= self.settings.requests:
            raise Refused(Code.NO_CAPACITY, "The server is busy: try again later.")
        self.open_requests += 1
        try:
            async with self._bounded(receive) as watch:
                with self._memory.share() as share:
                    limits = BodyLimits(
                        context=serving.context,
                        longest_token_bytes=self.tokenizer.longest_token_bytes,
                        fields_bytes=self.settings.fields_bytes,
                        timeout_s=self.settings.body_timeout_s,
                    )
                    body = await read_body(call.headers, receive, limits, share)
                    call.body_read = True
                    watch()
                    plan = await self._prepared(call.endpoint, body, serving)
                    del body
                await self._run(call, tenant, plan)
        finally:
            self.open_requests -= 1

    async def _prepared(self, endpoint: Endpoint, body: bytes, serving: Serving) -> Plan:
        if len(body) <= _SMALL_BODY:
            return endpoint.prepare(body, self.tokenizer, serving)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, endpoint.prepare, body, self.tokenizer, serving)

    def _serving(self) -> Serving:
        context = self.backend.context
        if context < 1:
            raise Refused(Code.NO_CAPACITY, f"The server is not ready: {self.backend.ready[1]}.")
        return Serving(self.backend.model_id, context, self.settings.default_max_tokens)

    @asynccontextmanager
    async def _bounded(self, receive: Receive) -> AsyncIterator[Callable[[], None]]:
        """Ends what is inside at the deadline (Refused) or when the client goes away (ClientGone).

        Yields a function that begins to watch the client, to be called when its body is read.
        """
        loop = asyncio.get_running_loop()
        gone = False
        watcher: asyncio.Task[None] | None = None

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True
            if not alarm.expired():
                alarm.reschedule(loop.time())

        def start() -> None:
            nonlocal watcher
            watcher = loop.create_task(watch())

        try:
            async with asyncio.timeout(self.settings.request_timeout_s) as alarm:
                try:
                    yield start
                finally:
                    if watcher is not None:
                        watcher.cancel()
        except TimeoutError as error:
            if gone:
                raise ClientGone from error
            limit = f"{self.settings.request_timeout_s:g} s"
            raise Refused(Code.DEADLINE_EXCEEDED, f"The request was not done within {limit}.") from error

    async def _run(self, call: _Call, tenant: TenantId, plan: Plan) -> None:
        options = plan.options
        seed = self.sources.new_seed() if options.seed is None else options.seed
        stop_ids = () if options.ignore_eos else self.tokenizer.stop_ids
        stream = self.backend.submit(
            tenant,
            plan.prompt,
            plan.max_tokens,
            SamplingParams(temperature=options.temperature, top_p=options.top_p, seed=seed),
            stop_ids,
        )
        if isinstance(stream, Rejected):
            raise Refused.by(stream)
        reading = Reading(
            detokenizer=Detokenizer(self.tokenizer.decode, plan.prompt_end),
            stops=StopFinder(options.stop),
            hidden=frozenset(stop_ids),
            prompt_tokens=len(plan.prompt),
        )
        call.generation = Generation(stream, reading)
        call.reply.request = stream.request
        heading = Heading(stream.request, self.backend.model_id, int(self.sources.clock()))
        form = call.endpoint.form(heading, include_usage=options.include_usage)
        if options.stream:
            await _stream(call.generation, form, call.reply)
        else:
            await _collect(call.generation, form, call.reply)


async def _stream(generation: Generation, form: Form, reply: Reply) -> None:
    """Nothing is sent before the first piece, so that a failure until then has its own status."""
    opening = form.opening()
    async with aclosing(generation.pieces()) as pieces:
        async for piece in pieces:
            if isinstance(piece, Done):
                await reply.events(opening + form.closing(piece.reason, piece.usage), last=True)
            else:
                await reply.events(opening + form.piece(piece))
            opening = b""


async def _collect(generation: Generation, form: Form, reply: Reply) -> None:
    text: list[str] = []
    async with aclosing(generation.pieces()) as pieces:
        async for piece in pieces:
            if isinstance(piece, Done):
                await reply.whole(form.whole("".join(text), piece.reason, piece.usage))
            else:
                text.append(piece)
