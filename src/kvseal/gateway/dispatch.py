"""The gateway's shell: workers on one side, the HTTP application's requests on the other, the core between
them.

Readiness is earned here (F19): for each pair of a prefill and a decode worker a canary goes through a real
transfer, and its greedy answer must be what the prefill worker's own plain forward pass gave.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from kvseal.core.dispatch import GatewayCore, Submission
from kvseal.core.effects import Conclude, Deliver, Effect, Record, Send
from kvseal.core.errors import Code, InvariantViolation
from kvseal.core.ids import InstanceId, RequestId, TenantId, short
from kvseal.core.messages import Finished, Hello, Rejected, Terminal
from kvseal.core.sampling import SamplingParams
from kvseal.wire import Connection, Listener, serve

_log = logging.getLogger(__name__)
CANARY_TENANT = TenantId("kvseal/canary")  # no tenant of a configuration may have a slash in its name
_CANARY_RETRY_S = 0.5
_CANARY_TIMEOUT_S = 60.0
Pair = tuple[InstanceId, InstanceId]
T = TypeVar("T")


class RequestStream:
    """What comes of one request: tokens in order, and the terminal answer as the last item."""

    def __init__(
        self, request: RequestId, stop: Callable[[int], None], abort: Callable[[Code], None]
    ) -> None:
        self.request = request
        self.stop = stop
        self.abort = abort
        self._items: asyncio.Queue[tuple[int, ...] | Terminal] = asyncio.Queue()

    def put(self, item: tuple[int, ...] | Terminal) -> None:
        """Called by the dispatcher only."""
        self._items.put_nowait(item)

    async def __aiter__(self) -> AsyncIterator[tuple[int, ...] | Terminal]:
        while True:
            item = await self._items.get()
            yield item
            if not isinstance(item, tuple):
                return


class Dispatcher:
    """One gateway's. Lives in one event loop."""

    def __init__(self, core: GatewayCore, hello: Hello, secret: bytes, model_id: str) -> None:
        self.core = core
        self.model_id = model_id
        self.refused: str | None = None  # why a worker was not taken in, for the operator
        self.draining = False
        self._hello = hello
        self._secret = secret
        self._loop = asyncio.get_running_loop()
        self._started_s = time.time()
        self._connections: dict[InstanceId, Connection] = {}
        self._streams: dict[RequestId, RequestStream] = {}
        self._verified: set[Pair] = set()
        self._canaries: dict[Pair, asyncio.Task[None]] = {}
        self._why_not: dict[Pair, str] = {}

    # --- what the HTTP application needs
    # -------------------------------------------------------------------------

    @property
    def context(self) -> int:
        """The advertised context in tokens; 0 until the first workers are in."""
        return self.core.context

    @property
    def ready(self) -> tuple[bool, str]:
        """Is every pair of workers proven to work, and if not, why not."""
        if self.draining:
            return False, "draining"
        pairs = self._pairs()
        if not pairs or not self.context:
            there = f"{len(self.core.of_role('prefill'))} prefill, {len(self.core.of_role('decode'))} decode"
            return False, f"waiting for workers ({there})"
        for pair in pairs:
            if pair not in self._verified:
                names = f"prefill {short(pair[0])} and decode {short(pair[1])}"
                return False, f"{names}: {self._why_not.get(pair, 'the canary is on its way')}"
        return True, "ready"

    def submit(
        self,
        tenant: TenantId,
        prompt: tuple[int, ...],
        max_tokens: int,
        sampling: SamplingParams,
        stop_ids: tuple[int, ...],
    ) -> RequestStream | Rejected:
        """Admit a request, or refuse it. The request id is made here and never taken from a client (G11)."""
        if self.draining:
            return Rejected(code=Code.DRAINING, message="this server takes no new requests")
        request = RequestId(uuid.uuid4().hex)
        return self._submit(Submission(request, tenant, prompt, max_tokens, sampling, stop_ids))

    def status(self) -> dict[str, Any]:
        """For the operator: numbers and ids only."""
        ready, why = self.ready
        workers = []
        for worker in self.core.workers.values():
            hello = worker.hello
            workers.append(
                {
                    "role": hello.role,
                    "instance": hello.instance.hex(),
                    "layout": hello.layout.hex(),
                    "page_size": hello.page_size,
                    "dtype": hello.dtype,
                    "pool_tokens": hello.pool_tokens,
                    "reserve_tokens": hello.reserve_tokens,
                    "transport": hello.transport,
                    "attention": hello.attention,
                    "guards": hello.guards,
                    "seen_s_ago": round(self._loop.time() - worker.seen_s, 3),
                    "pool": msgspec.to_builtins(worker.beat) if worker.beat else None,
                }
            )
        return {
            "model": self.model_id,
            "context": self.context,
            "ready": ready,
            "reason": why,
            "refused": self.refused,
            "open_requests": self.core.open_requests,
            "uptime_s": round(time.time() - self._started_s, 3),
            "counters": self.core.counters.snapshot(),
            "workers": workers,
        }

    # --- workers
    # -------------------------------------------------------------------------------------------------

    async def listen(self, address: str) -> Listener:
        """Let workers join."""
        return await serve(address, lambda: self._hello, self._secret, self._on_worker)

    async def ticks(self, every_s: float = 0.25) -> None:
        """Tell the core the time, for ever."""
        while True:
            self._carry_out(self.core.on_tick(self._loop.time()))
            await asyncio.sleep(every_s)

    async def drain(self, timeout_s: float) -> None:
        """Take no new requests, and wait for those that are open."""
        self.draining = True
        deadline_s = self._loop.time() + timeout_s
        while self.core.open_requests and self._loop.time() < deadline_s:  # noqa: ASYNC110 (the core has no events)
            await asyncio.sleep(0.02)

    async def _on_worker(self, connection: Connection) -> None:
        hello = connection.peer
        if hello.instance in self._connections:
            _log.error(
                "%s %s is refused: this instance is connected already", hello.role, short(hello.instance)
            )
            return
        self._connections[hello.instance] = connection
        try:
            self._carry_out(self.core.on_joined(self._loop.time(), hello))
            self._plan_canaries()
            while True:
                message = await connection.receive()
                self._carry_out(self.core.on_message(self._loop.time(), hello.instance, message))
        finally:
            del self._connections[hello.instance]
            self._carry_out(self.core.on_worker_lost(hello.instance))
            self._plan_canaries()

    def _pairs(self) -> list[Pair]:
        return [
            (prefill.instance, decode.instance)
            for prefill in self.core.of_role("prefill")
            for decode in self.core.of_role("decode")
        ]

    # --- effects
    # -------------------------------------------------------------------------------------------------

    def _submit(self, asked: Submission) -> RequestStream | Rejected:
        effects = self._core(lambda: self.core.submit(asked))
        if isinstance(effects, Rejected):
            return effects
        request = asked.request
        stream = RequestStream(
            request,
            lambda index: self._carry_out(self._core(lambda: self.core.stop(request, index))),
            lambda code: self._carry_out(
                self._core(lambda: self.core.abort(self._loop.time(), request, code))
            ),
        )
        self._streams[request] = stream
        self._carry_out(effects)
        return stream

    def _core(self, call: Callable[[], T]) -> T:
        """A call that the HTTP side makes. It answers every exception with a 500; a bug must end the process
        too.
        """
        try:
            return call()
        except InvariantViolation as error:
            self._loop.call_exception_handler(
                {"message": "the gateway's core found a bug", "exception": error}
            )
            raise

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    connection = self._connections.get(to)
                    if connection is not None:
                        connection.send(message)
                case Deliver(request, tokens):
                    self._streams[request].put(tokens)
                case Conclude(request, end):
                    self._streams.pop(request).put(end)
                case Record(event, key, detail):
                    fields = {"event": event, "request": key.request if key else None}
                    _log.warning("%s", detail, extra={"fields": fields})
                    if event == "guard_g1":
                        self.refused = detail
                case _:
                    raise InvariantViolation(f"a gateway cannot carry out {type(effect).__name__}")

    # --- canaries
    # ------------------------------------------------------------------------------------------------

    def _plan_canaries(self) -> None:
        pairs = set(self._pairs()) if self.context else set()
        self._verified &= pairs
        for pair in [pair for pair in self._canaries if pair not in pairs]:
            self._canaries.pop(pair).cancel()
            self._why_not.pop(pair, None)
        for pair in pairs - self._canaries.keys():
            self._canaries[pair] = self._loop.create_task(self._verify(pair))

    async def _verify(self, pair: Pair) -> None:
        """Until it passes, for as long as both workers are here."""
        while True:
            failure = await self._try_canary(pair)
            if failure is None:
                self._verified.add(pair)
                _log.info("prefill %s and decode %s work together", short(pair[0]), short(pair[1]))
                return
            self._why_not[pair] = failure
            _log.warning("canary of prefill %s and decode %s: %s", short(pair[0]), short(pair[1]), failure)
            await asyncio.sleep(_CANARY_RETRY_S)

    async def _try_canary(self, pair: Pair) -> str | None:
        """Why the pair does not work; None if it does."""
        prefill, decode = pair
        hello = self.core.workers[prefill].hello
        asked = Submission(
            request=RequestId(f"canary-{uuid.uuid4().hex}"),
            tenant=CANARY_TENANT,
            prompt=hello.canary_prompt,
            max_tokens=max(1, len(hello.canary_output)),
            sampling=SamplingParams(),
            via=prefill,
            worker=decode,
        )
        stream = self._submit(asked)
        if isinstance(stream, Rejected):
            return f"the canary was refused: {stream.message}"
        got: list[int] = []
        end: Terminal | None = None
        try:
            async with asyncio.timeout(_CANARY_TIMEOUT_S):
                async for item in stream:
                    if isinstance(item, tuple):
                        got.extend(item)
                    else:
                        end = item
        except TimeoutError:
            stream.abort(Code.DEADLINE_EXCEEDED)
            return f"the canary did not come back within {_CANARY_TIMEOUT_S:g} s"
        if not isinstance(end, Finished):
            return f"the canary failed: {end.message if end else 'no answer'}"
        if tuple(got) != hello.canary_output:
            return f"its tokens are {got}, the prefill worker's own forward pass gives {hello.canary_output}"
        return None


def gateway_hello(instance: InstanceId, model_id: str) -> Hello:
    """What a gateway says of itself: it has no pool."""
    return Hello(role="gateway", instance=instance, model=model_id)
