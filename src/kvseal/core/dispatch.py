"""The gateway's part of a request: admit, choose a decode worker, pass tokens on in order, give one terminal
answer (G10).

Membership stands here too: a worker is taken in only if it means the same by a page as the others (F18) and
holds what is advertised (G1).
"""

from dataclasses import dataclass, field

from kvseal.core import guards
from kvseal.core.counters import Counters
from kvseal.core.effects import Conclude, Deliver, Effect, Record, Send
from kvseal.core.errors import CapacityMismatch, Code
from kvseal.core.ids import NOBODY, AttemptKey, InstanceId, RequestId, TenantId, short
from kvseal.core.messages import (
    Abort,
    Aborted,
    AnyMessage,
    Ended,
    Failed,
    Finished,
    Generate,
    Heartbeat,
    Hello,
    Peers,
    Rejected,
    Stop,
    Terminal,
    Tokens,
    Unwelcome,
    Welcome,
)
from kvseal.core.peers import mismatch
from kvseal.core.requests import GATEWAY, Event, State, moved
from kvseal.core.sampling import SamplingParams

EVENTS = (
    "requests",
    "refused",
    "tokens_delivered",
    "ended_finished",
    "ended_rejected",
    "ended_failed",
    "ended_aborted",
    "stale_messages",
    "guard_g1",
    "guard_g2",
    "guard_g10",
    "workers_joined",
    "workers_lost",
)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """``context`` None: advertise what the smallest pool holds. ``prefill`` and ``decode``: workers to wait
    for at start.
    """

    context: int | None = None
    prefill: int = 1
    decode: int = 1
    resend_s: float = 1.0
    max_open: int = 4096


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client asked for, tokenized; see :class:`kvseal.core.messages.Generate`."""

    request: RequestId
    tenant: TenantId
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop_ids: tuple[int, ...] = ()
    via: InstanceId = NOBODY
    worker: InstanceId | None = None


@dataclass(slots=True, eq=False)
class Open:
    """A request that has no terminal answer yet."""

    request: RequestId
    tenant: TenantId
    worker: InstanceId
    prompt_tokens: int
    state: State = State.OPEN
    attempt: int = 1
    delivered: int = 0


@dataclass(slots=True, eq=False)
class Worker:
    """A worker that was taken in, and its last sign of life."""

    hello: Hello
    seen_s: float
    beat: Heartbeat | None = None
    open: set[RequestId] = field(default_factory=set)


class GatewayCore:
    """See the module's text. Every ``on_…`` returns the effects to carry out, in order."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.context = 0  # advertised; 0 until the first workers are in
        self.counters = Counters(EVENTS)
        self.workers: dict[InstanceId, Worker] = {}
        self._open: dict[RequestId, Open] = {}
        self._unacknowledged: dict[RequestId, tuple[InstanceId, Abort, float]] = {}
        self._out: list[Effect] = []

    # --- membership
    # ---------------------------------------------------------------------------------------------

    def on_joined(self, now: float, hello: Hello) -> list[Effect]:
        """A worker said hello. Takes it in, or refuses it by name; the first ones settle the advertised
        context.
        """
        refusal = self._refusal(hello)
        if refusal is not None:
            self._out.append(Record("guard_g1", None, f"{hello.role} {short(hello.instance)}: {refusal}"))
            self._send(hello.instance, Unwelcome(reason=refusal))
            return self._flush()
        self.workers[hello.instance] = Worker(hello, now)
        self.counters.add("workers_joined")
        if self.context:
            self._send(hello.instance, Welcome(context=self.context))
        elif self._complete():
            self.context = self.largest_context()
            for instance in self.workers:
                self._send(instance, Welcome(context=self.context))
        self._tell_peers()
        return self._flush()

    def on_worker_lost(self, instance: InstanceId) -> list[Effect]:
        """The worker is gone: its requests end, each once (F21, F23)."""
        worker = self.workers.pop(instance, None)
        if worker is None:
            return self._flush()
        self.counters.add("workers_lost")
        for request in sorted(worker.open):
            end = Failed(code=Code.WORKER_LOST, message="the worker that served this request was lost")
            self._conclude(self._open[request], end)
        for request in [r for r, (owner, _, _) in self._unacknowledged.items() if owner == instance]:
            del self._unacknowledged[request]
        self._tell_peers()
        return self._flush()

    def largest_context(self) -> int:
        """What may be advertised: the configured context, or with 'auto' what every pool and the model can
        hold (G1).
        """
        hellos = [worker.hello for worker in self.workers.values()]
        if self.config.context is not None:
            return self.config.context
        return min(min(hello.usable_tokens, hello.model_context) for hello in hellos)

    def of_role(self, role: str) -> list[Hello]:
        """The workers of a role that are in."""
        return [worker.hello for worker in self.workers.values() if worker.hello.role == role]

    # --- requests
    # -----------------------------------------------------------------------------------------------

    def submit(self, asked: Submission) -> Rejected | list[Effect]:
        """Admit a request and send it on its way, or refuse it. A refused one leaves no trace but a counter
        (G2).
        """
        self.counters.add("requests")
        decode = {i: worker for i, worker in self.workers.items() if worker.hello.role == "decode"}
        chosen = asked.worker if asked.worker in decode else self._least_loaded(decode)
        refused: Rejected | None = None
        admitted = guards.g2_refusal(asked.prompt, max(1, asked.max_tokens), self.context)
        if not self.context:  # before any limit is known, no prompt is too long
            refused = Rejected(code=Code.NO_CAPACITY, message="not all workers are there yet")
        elif isinstance(admitted, Rejected):
            self.counters.add("guard_g2")
            refused = admitted
        elif chosen is None:
            refused = Rejected(code=Code.NO_CAPACITY, message="no decode worker is there")
        elif len(self._open) >= self.config.max_open:
            refused = Rejected(code=Code.NO_CAPACITY, message=f"{len(self._open)} requests are open already")
        if refused is not None or chosen is None or isinstance(admitted, Rejected):
            self.counters.add("refused")
            assert refused is not None
            return refused
        entry = Open(asked.request, asked.tenant, chosen, len(admitted.prompt))
        self._open[asked.request] = entry
        decode[chosen].open.add(asked.request)
        generate = Generate(
            request=asked.request,
            tenant=asked.tenant,
            prompt=admitted.prompt,
            max_tokens=max(1, asked.max_tokens),
            sampling=asked.sampling,
            stop_ids=asked.stop_ids,
            via=asked.via,
        )
        self._send(chosen, generate)
        return self._flush()

    def stop(self, request: RequestId, index: int) -> list[Effect]:
        """A stop string was found: token ``index`` is the last one. The terminal answer comes from decode,
        with its count.
        """
        entry = self._open.get(request)
        if entry is not None:
            self._send(entry.worker, Stop(request=request, attempt=entry.attempt, index=index))
        return self._flush()

    def abort(self, now: float, request: RequestId, code: Code) -> list[Effect]:
        """End a request from here: for the client at once, for the worker when it acknowledges (F03, F07)."""
        entry = self._open.get(request)
        if entry is not None:
            message = "the deadline passed" if code is Code.DEADLINE_EXCEEDED else "the request was aborted"
            self._abort_worker(now, entry, code)
            self._conclude(entry, Aborted(code=code, message=message))
        return self._flush()

    def on_message(self, now: float, peer: InstanceId, message: AnyMessage) -> list[Effect]:
        """A message from a worker that has authenticated itself."""
        worker = self.workers.get(peer)
        if worker is None:  # an old instance (F10)
            self.counters.add("stale_messages")
            return self._flush()
        worker.seen_s = now
        match message:
            case Tokens():
                self._on_tokens(now, peer, message)
            case Ended():
                self._on_ended(peer, message)
            case Heartbeat():
                worker.beat = message
            case _:
                self.counters.add("stale_messages")
        return self._flush()

    def on_tick(self, now: float) -> list[Effect]:
        """Say Abort again where it was not acknowledged."""
        for request, (owner, message, sent_s) in self._unacknowledged.items():
            if now - sent_s > self.config.resend_s:
                self._unacknowledged[request] = (owner, message, now)
                self._send(owner, message)
        return self._flush()

    @property
    def open_requests(self) -> int:
        """Requests without a terminal answer."""
        return len(self._open)

    # --- inner parts
    # --------------------------------------------------------------------------------------------

    def _refusal(self, hello: Hello) -> str | None:
        if hello.role == "gateway":
            return "a gateway cannot join as a worker"
        if hello.instance in self.workers:
            return "this instance has joined already"
        if hello.usable_tokens < 1:  # with 'auto' it would lower the context to nothing, for ever
            return f"of its pool of {hello.pool_tokens} tokens, {hello.reserve_tokens} are in reserve"
        for worker in self.workers.values():
            difference = mismatch(worker.hello, hello)
            if difference is not None:
                return difference
        context = self.context or self.config.context
        if context is None:
            return None
        if 0 < hello.model_context < context:
            return (
                f"the advertised context of {context} tokens is above the {hello.model_context} "
                f"that the model was made for: lower --max-context"
            )
        try:
            guards.g1_capacity(context, [hello])
        except CapacityMismatch as error:
            self.counters.add("guard_g1")
            return str(error)
        return None

    def _complete(self) -> bool:
        return (
            len(self.of_role("prefill")) >= self.config.prefill
            and len(self.of_role("decode")) >= self.config.decode
        )

    def _tell_peers(self) -> None:
        prefill = tuple(self.of_role("prefill"))
        for hello in self.of_role("decode"):
            self._send(hello.instance, Peers(prefill=prefill))

    def _least_loaded(self, decode: dict[InstanceId, Worker]) -> InstanceId | None:
        return min(decode, key=lambda instance: (len(decode[instance].open), instance), default=None)

    def _on_tokens(self, now: float, peer: InstanceId, message: Tokens) -> None:
        entry = self._open.get(message.request)
        if entry is None:
            if message.request not in self._unacknowledged:  # it runs for nobody: end it there too
                self._tell_abort(now, message.request, peer, Code.ABORTED)
            self.counters.add("stale_messages")
            return
        order = guards.g10_in_order(message.attempt, entry.attempt, message.index, entry.delivered)
        if entry.worker != peer or order is guards.Order.STALE:
            self.counters.add("stale_messages")
            return
        if order is guards.Order.GAP:
            key = AttemptKey(message.request, message.attempt)
            self._record_g10(key, f"token {message.index} came after {entry.delivered} were delivered")
            self._abort_worker(now, entry, Code.INTERNAL_ERROR)
            self._conclude(entry, Failed(code=Code.INTERNAL_ERROR, message="tokens were lost on their way"))
            return
        if entry.state is State.OPEN:
            entry.state = moved(GATEWAY, entry.state, Event.FIRST_TOKEN)
        entry.attempt = message.attempt
        entry.delivered += len(message.tokens)
        self.counters.add("tokens_delivered", len(message.tokens))
        self._out.append(Deliver(message.request, message.tokens))

    def _on_ended(self, peer: InstanceId, message: Ended) -> None:
        self._unacknowledged.pop(message.request, None)
        entry = self._open.get(message.request)
        if entry is None or entry.worker != peer or 0 < message.attempt < entry.attempt:
            self.counters.add("stale_messages")
            return
        end = message.end
        if isinstance(end, Finished) and end.usage.completion_tokens > entry.delivered:
            self._record_g10(
                AttemptKey(message.request, message.attempt), "the answer ended before all its tokens came"
            )
            end = Failed(code=Code.INTERNAL_ERROR, message="tokens were lost on their way")
        elif isinstance(end, Rejected) and entry.delivered:
            # A refusal of a repeated Generate: the worker does not know the request any more, and nothing
            # else will come. What has begun cannot be refused, only fail (G2).
            end = Failed(code=Code.WORKER_LOST, message="the worker gave the request up")
        self._conclude(entry, end)

    def _conclude(self, entry: Open, end: Terminal) -> None:
        """The one place where a request ends (G10)."""
        entry.state = moved(GATEWAY, entry.state, Event.END)
        del self._open[entry.request]
        worker = self.workers.get(entry.worker)
        if worker is not None:
            worker.open.discard(entry.request)
        self.counters.add(f"ended_{type(end).__name__.lower()}")
        self._out.append(Conclude(entry.request, end))

    def _abort_worker(self, now: float, entry: Open, code: Code) -> None:
        self._tell_abort(now, entry.request, entry.worker, code)

    def _tell_abort(self, now: float, request: RequestId, worker: InstanceId, code: Code) -> None:
        message = Abort(request=request, code=code)
        self._unacknowledged[request] = (worker, message, now)
        self._send(worker, message)

    def _record_g10(self, key: AttemptKey, detail: str) -> None:
        self.counters.add("guard_g10")
        self._out.append(Record("guard_g10", key, detail))

    def _send(self, to: InstanceId, message: AnyMessage) -> None:
        self._out.append(Send(to, message))

    def _flush(self) -> list[Effect]:
        out, self._out = self._out, []
        return out
