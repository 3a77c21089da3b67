"""One gateway, one decode worker, one prefill worker at a time, and everything between them, as one value.

The cores are the real ones. Around them stand a memory of provenance, a network without order, and a
transport whose reads end when the explorer says so. What may happen next is a list of named actions; a run is
a list of such names, and so is a counter-example.

::

    submit              the next Generate arrives          abort 0      the Abort of the first request arrives
    deliver NAME        a message between workers          digest NAME  seals are taken and brought back
    done NAME           a pull lands, reported DONE        error NAME   it is reported ERROR first …
    land NAME           … and its bytes arrive afterwards
    plan, begin, finish a forward pass of decode; with `prefill` behind it, one of prefill
    wait                nothing else can happen: all time limits strike
    timeout, cut, lose, join, crash, duplicate NAME                see scopes.FAULTS
"""

import numpy as np
from tests.exhaustive.memory import CLEARED, POISON, Page, Sealer, Slot, read, write
from tests.exhaustive.parts import (
    DECODE,
    FOREVER,
    GATEWAY,
    LAYOUT,
    NOW,
    SECRET,
    TAINTED,
    Answer,
    Asked,
    Flight,
    Packet,
    Passes,
    Source,
    Violation,
    core_has_work,
    name_of,
    names_of,
    request_id,
)
from tests.exhaustive.scopes import Scope

from kvseal.core.batch import Slice, SliceResult
from kvseal.core.decode import DecodeCore
from kvseal.core.effects import CutPeer, Digest, Effect, Poison, Pull, Send
from kvseal.core.ids import InstanceId, RequestId, TenantId
from kvseal.core.job import DecodeConfig
from kvseal.core.messages import Abort, AnyMessage, Ended, Finished, Generate, Hello, Released, Tokens
from kvseal.core.prefill import PrefillConfig, PrefillCore
from kvseal.core.pulls import Outcome
from kvseal.core.sampling import SamplingParams


class World:
    """See the module's text."""

    def __init__(self, scope: Scope) -> None:
        tokens = scope.pages * scope.page_size
        empty: Page = (CLEARED,) * scope.page_size
        self.scope = scope
        self.symmetric = scope.symmetric
        self.sealer = Sealer(names_of(scope))
        self.faults = scope.faults
        self.submitted = 0
        self.life = 0
        self.decode = DecodeCore(
            DecodeConfig(
                LAYOUT,
                scope.page_size,
                tokens,
                SECRET,
                retries=scope.retries,
                prefill_timeout_s=-1.0,
                queue_timeout_s=1.0,
                prefix_reuse=scope.prefix_reuse,
            ),
            scope.pages,
        )
        self.pages: list[Page] = [empty] * scope.pages
        self.passes = Passes()
        self.sources: dict[InstanceId, Source] = {}
        self.known = False
        self.network: list[Packet] = []
        self.flights: dict[int, Flight] = {}
        self.asked: list[Asked] = []
        self.answers = [Answer() for _ in scope.asks]
        self._restart()
        self.act("join")

    # --- what may happen
    # ---------------------------------------------------------------------------------------------------

    def progress(self) -> list[str]:
        """The actions that a healthy system takes by itself."""
        actions = ["submit"] if self.submitted < len(self.scope.asks) else []
        actions += [f"deliver {packet.name}" for packet in self.network]
        actions += [f"digest {asked.name}" for asked in self.asked]
        for flight in self.flights.values():
            actions.append(f"{'done' if flight.bytes is None else 'land'} {flight.name}")
        actions += self._steps(self.passes, "")
        if self.source.alive:
            actions += self._steps(self.source.passes, " prefill")
        if not self.known and self.source.alive:
            actions.append("join")
        return list(dict.fromkeys(actions)) or (["wait"] if self.unfinished() else [])

    def unfinished(self) -> bool:
        """Is there a request without an answer, or a source page that nobody fetches?"""
        pool, tree = self.source.core.pool, self.source.core._tree
        return any(not answer.ends for answer in self.answers) or pool.count().held > len(tree)

    def mishaps(self) -> list[str]:
        """The faults that may strike now."""
        if self.faults < 1:
            return []
        actions: list[str] = []
        for kind in self.scope.kinds:
            match kind:
                case "abort":
                    live = range(self.submitted)
                    actions += [f"abort {i}" for i in live if not self.answers[i].ends]
                case "error":
                    actions += [f"error {f.name}" for f in self.flights.values() if f.bytes is None]
                case "duplicate":
                    actions += [f"duplicate {packet.name}" for packet in self.network]
                case "lose":
                    actions += ["lose"] if self.known else []
                case _:
                    actions += [kind] if self.source.alive else []
        return list(dict.fromkeys(actions))

    def act(self, action: str) -> None:
        """Let it happen."""
        verb, _, name = action.partition(" ")
        if action in self.mishaps():
            self.faults -= 1
        match verb:
            case "submit":
                self._submit()
            case "abort":
                abort = Abort(request=request_id(int(name)))
                self._do(DECODE, self.decode.on_message(NOW, GATEWAY, abort))
            case "deliver" | "duplicate":
                packet = next(packet for packet in self.network if packet.name == name)
                if verb == "deliver":
                    self.network.remove(packet)
                self._deliver(packet)
            case "digest":
                self._digest(name)
            case "done" | "error" | "land":
                self._end_flight(verb, name)
            case "timeout" | "wait":
                self._do(DECODE, self.decode.on_tick(NOW))
                if verb == "wait":
                    self._do(self.instance, self.source.core.on_tick(FOREVER))
            case "cut" | "lose" | "crash" | "join":
                self._meet_or_part(verb)
            case _:
                self._step(verb, name)

    def _meet_or_part(self, verb: str) -> None:
        """Here the decode worker learns of a death at once; `lose` without `crash` is the mistake."""
        instance = self.instance
        self.known = verb == "join" or (verb == "cut" and self.known)
        match verb:
            case "cut":
                self._do(instance, self.source.core.on_peer_lost(DECODE))
            case "join":
                hello = Hello(role="prefill", instance=instance)
                self._do(DECODE, self.decode.on_prefill_joined(NOW, hello))
            case _:
                if verb == "crash":
                    self._crash()
                self._do(DECODE, self.decode.on_peer_lost(NOW, instance))

    # --- parts of the outside world
    # ---------------------------------------------------------------------------------------------------

    @property
    def instance(self) -> InstanceId:
        """The prefill worker of today."""
        return InstanceId(b"prefill.life.%03d" % self.life)

    @property
    def source(self) -> Source:
        """Its core and memory."""
        return self.sources[self.instance]

    def _restart(self) -> None:
        scope = self.scope
        config = PrefillConfig(
            LAYOUT,
            scope.page_size,
            scope.pages * scope.page_size,
            SECRET,
            prefix_reuse=scope.prefix_reuse,
            chunk_tokens=scope.page_size,
        )
        empty: Page = (CLEARED,) * scope.page_size
        self.sources[self.instance] = Source(PrefillCore(config, scope.pages), [empty] * scope.pages)

    def _crash(self) -> None:
        """A new instance takes the place, and has nothing of the old one."""
        dead = self.instance
        self.source.alive = False
        self.asked = [asked for asked in self.asked if asked.by != dead]
        self.network = [packet for packet in self.network if packet.to != dead]
        self.life += 1
        self._restart()

    def _submit(self) -> None:
        ask = self.scope.asks[self.submitted]
        generate = Generate(
            request=request_id(self.submitted),
            tenant=ask.tenant,
            prompt=ask.prompt,
            max_tokens=ask.max_tokens,
            sampling=SamplingParams(),
        )
        self.submitted += 1
        self._do(DECODE, self.decode.on_message(NOW, GATEWAY, generate))

    def _deliver(self, packet: Packet) -> None:
        if packet.to == DECODE:
            self._do(DECODE, self.decode.on_message(NOW, packet.sender, packet.message))
        elif self.sources[packet.to].alive:
            self._do(packet.to, self.sources[packet.to].core.on_message(packet.sender, packet.message))

    def _digest(self, name: str) -> None:
        asked = next(asked for asked in self.asked if asked.name == name)
        self.asked.remove(asked)
        pages = self._memory(asked.by)
        places = asked.digest.pages.tolist()
        seals = [self.sealer.seal(pages[p], i) for p, i in zip(places, asked.digest.ids, strict=True)]
        core = self.decode if asked.by == DECODE else self.sources[asked.by].core
        self._do(asked.by, core.on_digested(NOW, asked.digest.job, seals))

    def _end_flight(self, verb: str, name: str) -> None:
        number, flight = next((n, f) for n, f in self.flights.items() if f.name == name)
        pull = flight.pull
        source = self.sources[pull.source].pages
        payload = flight.bytes or tuple(source[place] for place in pull.src.tolist())
        if verb == "error":
            self.flights[number] = Flight(f"{name}!", pull, payload)
            self._do(DECODE, self.decode.on_pull_ended(NOW, pull.transfer, Outcome.ERROR, "injected"))
            return
        del self.flights[number]
        for place, page in zip(pull.dst.tolist(), payload, strict=True):
            self.pages[place] = page
        if verb == "done":
            self._do(DECODE, self.decode.on_pull_ended(NOW, pull.transfer, Outcome.DONE))

    # --- forward passes
    # ---------------------------------------------------------------------------------------------------

    def _steps(self, passes: Passes, suffix: str) -> list[str]:
        core = self.source.core if suffix else self.decode
        actions = []
        if passes.planned is None and core_has_work(core):
            actions.append(f"plan{suffix}")
        if passes.planned is not None and passes.running is None:
            actions.append(f"begin{suffix}")
        if passes.running is not None:
            actions.append(f"finish{suffix}")
        return actions

    def _step(self, verb: str, role: str) -> None:
        verbs = ("plan", "begin", "finish") if (role or "decode") in self.scope.together else (verb,)
        passes = self.source.passes if role else self.passes
        core = self.source.core if role else self.decode
        for part in verbs:
            match part:
                case "plan":
                    passes.planned = core.plan_step()
                case "begin" if passes.planned is not None:
                    plan, passes.planned = passes.planned, None
                    passes.running = core.begin_step(plan)
                case "finish" if passes.running is not None:
                    plan, passes.running = passes.running, None
                    results = [self._run(entry.key.request, entry.slice, role) for entry in plan.entries]
                    self._do(self.instance if role else DECODE, core.on_step_done(NOW, plan, results))

    def _run(self, request: RequestId, work: Slice, role: str) -> SliceResult:
        tenant, tokens = self.sequence(request)
        pages = self.source.pages if role else self.pages
        for page in work.clear:
            pages[page] = (CLEARED,) * self.scope.page_size
        before = read(pages, work.table.pages, tenant, tokens[: work.start])
        for position in range(work.start, work.start + len(work.tokens)):
            page, offset = divmod(position, self.scope.page_size)
            write(pages, work.table.pages[page], offset, Slot(tenant, tokens[: position + 1], before.clean))
        token = len(tokens) if before.clean else TAINTED
        sampled = token if work.sampling is not None and before.finite else None
        return SliceResult(sampled, before.finite, np.array(work.tokens, np.int64))

    def sequence(self, request: RequestId) -> tuple[TenantId, tuple[int, ...]]:
        """The request's tenant, and its prompt with what was answered so far."""
        index = int(request[1:])
        ask = self.scope.asks[index]
        return ask.tenant, (*ask.prompt, *self.answers[index].tokens)

    # --- effects
    # ---------------------------------------------------------------------------------------------------

    def _memory(self, owner: InstanceId) -> list[Page]:
        return self.pages if owner == DECODE else self.sources[owner].pages

    def _do(self, who: InstanceId, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message) if to == GATEWAY:
                    self._answer(message)
                case Send(to, Released() as message):  # nothing depends on when it arrives
                    self._do(to, self.decode.on_message(NOW, who, message))
                case Send(to, message):
                    if to == DECODE or self.sources[to].alive:
                        self.network.append(Packet(name_of(message), who, to, message))
                case Poison(pages):
                    for page in pages.tolist():
                        self._memory(who)[page] = (POISON,) * self.scope.page_size
                case Pull():
                    rows = self.decode._loader._pulls[effect.transfer]
                    ordinals = ",".join(str(row.ordinal) for row in rows.rows)
                    name = f"{rows.key.request}.{rows.key.attempt}#{ordinals}"
                    self.flights[effect.transfer] = Flight(name, effect)
                case Digest():
                    self.asked.append(Asked(self._digest_name(who, effect), who, effect))
                case CutPeer():
                    self._meet_or_part("lose")
                case _:
                    pass  # records and cut connections change nothing here

    def _digest_name(self, who: InstanceId, digest: Digest) -> str:
        if who == DECODE:
            check = self.decode._loader._checks[digest.job]
            rows = ",".join(str(row.ordinal) for row in check.rows)
            return f"{check.purpose.value} {check.key.request}.{check.key.attempt}#{rows}"
        seal = self.sources[who].core._seals[digest.job]
        return f"source {seal.job.key.request}.{seal.job.key.attempt}#{seal.first}"

    def _answer(self, message: AnyMessage) -> None:
        match message:
            case Tokens():
                answer = self.answers[int(message.request[1:])]
                if TAINTED in message.tokens:
                    raise Violation("leak", f"{message.request} was answered from another request's memory")
                if answer.ends or message.index != len(answer.tokens):
                    raise Violation("answer", f"{message.request}: token {message.index} out of turn")
                answer.tokens.extend(message.tokens)
            case Ended() if message.attempt:  # 0: an abort of what is not known
                index = int(message.request[1:])
                answer = self.answers[index]
                answer.ends += 1
                if answer.ends > 1:
                    raise Violation("answer", f"{message.request} ended twice")
                wanted = self.scope.asks[index].max_tokens
                if isinstance(message.end, Finished) and len(answer.tokens) != wanted:
                    raise Violation("answer", f"{message.request} finished with {len(answer.tokens)} tokens")
            case _:
                pass
