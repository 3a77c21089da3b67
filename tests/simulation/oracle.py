"""What must never happen, and what must happen in the end.

A violation is a *delivered* token that depends on a byte of other provenance than the request's own prompt
and output, however good the text looks. The other kinds are promises too (G10, G12, F06, F07), each by its
name.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tests.simulation.ledger import TAINTED, Ledger
from tests.simulation.setup import Ask

from kvseal.core.effects import Effect, Record
from kvseal.core.errors import Code
from kvseal.core.messages import Aborted, Finished, Rejected, Terminal


class Kind(Enum):
    """Which promise was broken."""

    PROVENANCE = "provenance"  # a delivered token depends on bytes of other provenance
    ORDER = "order"  # a token was skipped, repeated or delivered after the end (G10)
    TERMINAL = "terminal"  # not exactly one terminal answer, or one that is not true (G10)
    CONTAINMENT = "containment"  # one failed check ended more than one request (G12)
    ADMISSION = "admission"  # refused what fits, or served what does not (G2)
    ABORT = "abort"  # an abort left something behind (F07)
    PAGES = "pages"  # a page was lost (F17)
    STUCK = "stuck"  # something did not end in bounded time
    CRASH = "crash"  # the core found itself in a state that must not be


EVERY_KIND: Final = frozenset(Kind)


class Violation(Exception):
    """The world has seen a broken promise; the run ends here."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(f"{kind.value}: {text}")
        self.kind = kind
        self.text = text


@dataclass(slots=True)
class Request:
    """What the world knows about a request that the cores do not: its one right answer, and where it came
    from.

    ``path`` are the ledger's nodes of prompt and answer: the only bytes on which its tokens may depend.
    """

    ask: Ask
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    path: list[int]
    context: int
    delivered: list[int] = field(default_factory=list)
    end: Terminal | None = None
    ended_s: float = -1.0
    aborted: Code | None = None
    stopped_at: int | None = None
    lost: bool = False  # its gateway crashed: nobody can answer any more
    touches: int = 0
    passes: int = 0
    first_s: float = -1.0

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The answer's own token at ``stop_after``."""
        at = self.ask.stop_after
        return self.answer[at : at + 1] if at is not None else ()

    @property
    def fits(self) -> bool:
        """May it be served at all, by what was advertised when it was submitted?"""
        return len(self.prompt) > 0 and len(self.prompt) + max(1, self.ask.max_tokens) <= self.context


def request_of(ledger: Ledger, ask: Ask, prompt: tuple[int, ...], layout: bytes, context: int) -> Request:
    """Compute the right answer and the right provenance of everything it may depend on."""
    path = ledger.path(ledger.root(ask.tenant, layout), prompt)
    answer = []
    for _ in range(max(1, ask.max_tokens) if path else 0):
        answer.append(ledger.answer(path[-1]))
        path.append(ledger.child(path[-1], answer[-1]))
    return Request(ask, prompt, tuple(answer), path, context)


def on_delivered(ledger: Ledger, request: Request, tokens: tuple[int, ...]) -> None:
    """Judge what the client was given."""
    name = request.ask.name
    for token in tokens:
        index = len(request.delivered)
        if request.end is not None:
            raise Violation(Kind.ORDER, f"{name}: token {index} was delivered after the terminal answer")
        if token >= TAINTED:
            raise Violation(Kind.PROVENANCE, f"{name}: token {index} depends on {ledger.cause(token)}")
        if index >= len(request.answer) or token != request.answer[index]:
            raise Violation(Kind.ORDER, f"{name}: token {index} is not the {index}-th token of the answer")
        request.delivered.append(token)


def on_concluded(request: Request, end: Terminal, now_s: float) -> None:
    """Judge the one terminal answer (G10)."""
    name, count = request.ask.name, len(request.delivered)
    if request.end is not None:
        raise Violation(Kind.TERMINAL, f"{name} ended twice: {request.end}, then {end}")
    request.end, request.ended_s = end, now_s
    if request.aborted is not None and not isinstance(end, Aborted):
        raise Violation(Kind.TERMINAL, f"{name} was aborted and ended as {end} (F03)")
    if isinstance(end, Rejected):
        _on_rejected(request, end)
    if not isinstance(end, Finished):
        return
    usage = end.usage
    if not request.fits:
        raise Violation(
            Kind.ADMISSION, f"{name} does not fit {request.context} tokens and was answered (F01)"
        )
    if usage.prompt_tokens != len(request.prompt):
        raise Violation(
            Kind.TERMINAL, f"{name}: {usage.prompt_tokens} prompt tokens are not {len(request.prompt)}"
        )
    if usage.cached_tokens >= len(request.prompt):
        raise Violation(
            Kind.TERMINAL, f"{name}: {usage.cached_tokens} cached tokens of {len(request.prompt)}"
        )
    given = request.delivered if request.stopped_at is None else request.delivered[: usage.completion_tokens]
    complete = usage.completion_tokens == len(given) and _is_complete(request, end)
    if not complete:
        raise Violation(Kind.TERMINAL, f"{name} ended as {end} after {count} tokens")


def _is_complete(request: Request, end: Finished) -> bool:
    count = end.usage.completion_tokens
    if end.reason == "length":
        return count == max(1, request.ask.max_tokens)
    by_id = bool(count) and request.answer[count - 1] in request.stop_ids
    return by_id or request.stopped_at == count - 1


def _on_rejected(request: Request, end: Rejected) -> None:
    name = request.ask.name
    if request.delivered:
        raise Violation(Kind.TERMINAL, f"{name} was rejected after {len(request.delivered)} tokens (G2)")
    too_long = end.code in (Code.CONTEXT_LENGTH_EXCEEDED, Code.MAX_TOKENS_EXCEEDED, Code.EMPTY_PROMPT)
    if too_long and request.fits:
        raise Violation(Kind.ADMISSION, f"{name} fits {request.context} tokens and was refused: {end} (F01)")


def on_checked(effects: list[Effect]) -> None:
    """One event about one attempt: at most one attempt may fail by it (G12)."""
    failed = {effect.key for effect in effects if isinstance(effect, Record) and effect.key is not None}
    if len(failed) > 1:
        raise Violation(Kind.CONTAINMENT, f"one failed check ended {len(failed)} attempts: {sorted(failed)}")
