"""What a world is made of, besides the cores."""

from dataclasses import dataclass, field
from typing import Final

from tests.exhaustive.memory import Page
from tests.exhaustive.scopes import Scope

from kvseal.core.decode import DecodeCore
from kvseal.core.effects import Digest, Pull, StepPlan
from kvseal.core.ids import InstanceId, LayoutDigest, PageId, RequestId, TenantId, derive_page_key, page_ids
from kvseal.core.messages import AnyMessage, Manifest, Prefill, PrefillEnded, Release
from kvseal.core.prefill import PrefillCore
from kvseal.core.requests import State

GATEWAY: Final = InstanceId(b"gateway.gateway.")
DECODE: Final = InstanceId(b"decode..decode..")
LAYOUT: Final = LayoutDigest(b"layout..layout..")
SECRET: Final = b"s" * 32
NOW: Final = 0.0  # time stands still: what waits for time is an action of its own
FOREVER: Final = 1e9
TAINTED: Final = -1  # the token that a pass samples when it read anything else than its own sequence


class Violation(Exception):
    """What must never be. ``kind`` is "leak", "answer", "unproven", "book", "stuck" or "assertion"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Packet:
    """A message on its way between decode and prefill."""

    name: str
    sender: InstanceId
    to: InstanceId
    message: AnyMessage


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A read on its way. ``bytes`` are what still lands although ERROR was reported; None: no end yet."""

    name: str
    pull: Pull
    bytes: tuple[Page, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A digest that was asked for and not taken yet."""

    name: str
    by: InstanceId
    digest: Digest


@dataclass(slots=True, eq=False)
class Passes:
    """The forward passes of one worker: one may run while the next one is planned."""

    planned: StepPlan | None = None
    running: StepPlan | None = None


@dataclass(slots=True, eq=False)
class Source:
    """One life of the prefill worker. Its memory can be read after its death: peers have mapped it."""

    core: PrefillCore
    pages: list[Page]
    alive: bool = True
    passes: Passes = field(default_factory=Passes)


@dataclass(slots=True, eq=False)
class Answer:
    """What the client of one request was told so far."""

    tokens: list[int] = field(default_factory=list)
    ends: int = 0


def request_id(index: int) -> RequestId:
    """The id of the scope's request ``index``."""
    return RequestId(f"r{index}")


def name_of(message: AnyMessage) -> str:
    """A message between workers is known by its kind, its attempt and, for manifests, its pages."""
    match message:
        case Manifest():
            pages = ",".join(str(row.ordinal) for row in message.pages)
            return f"Manifest {message.request}.{message.attempt}#{pages}"
        case Prefill() | PrefillEnded() | Release():
            return f"{type(message).__name__} {message.request}.{message.attempt}"
        case _:
            raise AssertionError(f"no message between workers: {message}")


def names_of(scope: Scope) -> dict[PageId, tuple[TenantId, int]]:
    """The ids of all pages that ever ought to be, with the tenant and the tokens up to the page's end."""
    names: dict[PageId, tuple[TenantId, int]] = {}
    for ask in scope.asks:
        key = derive_page_key(SECRET, ask.tenant, 0)
        tokens = list(ask.prompt)
        for _ in range(ask.max_tokens):
            for length in (len(tokens) - 1, len(tokens)):
                ids = page_ids(key, LAYOUT, tokens[:length], scope.page_size)
                ends = range(scope.page_size, length + scope.page_size, scope.page_size)
                names |= {i: (ask.tenant, min(end, length)) for i, end in zip(ids, ends, strict=False)}
            tokens.append(len(tokens))
    return names


def core_has_work(core: DecodeCore | PrefillCore) -> bool:
    """Would ``plan_step`` plan anything?"""
    match core:
        case DecodeCore():
            return any(j.state is State.RUNNING and not j.planned and j.lease for j in core._jobs.values())
        case PrefillCore():
            return any(
                job.state is State.COMPUTING
                and not job.planned
                and job.lease is not None
                and job.lease.readable(len(job.written)) is not None
                for job in core._jobs.values()
            )
