"""The cores by hand: short calls for what shells do, and what a prefill worker would have said."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from kvseal.core.batch import SliceResult
from kvseal.core.decode import DecodeCore
from kvseal.core.effects import Digest, Effect, Pull, Send, StepPlan
from kvseal.core.ids import (
    InstanceId,
    LayoutDigest,
    PageId,
    RequestId,
    Seal,
    TenantId,
    derive_page_key,
    page_ids,
)
from kvseal.core.job import DecodeConfig
from kvseal.core.messages import AnyMessage, Generate, Hello, Manifest, Prefill, Role, SealedPage
from kvseal.core.prefill import PrefillConfig, PrefillCore
from kvseal.core.pulls import Outcome
from kvseal.core.sampling import SamplingParams

PAGE = 4
LAYOUT = LayoutDigest(b"a layout of 16 b")
SECRET = b"s" * 32
GATEWAY, PREFILL, OTHER = InstanceId(b"g" * 16), InstanceId(b"p" * 16), InstanceId(b"q" * 16)
DECODE = InstanceId(b"d" * 16)
E = TypeVar("E", bound=Effect)
ANN, BOB = TenantId("ann"), TenantId("bob")


def hello(role: Role, instance: InstanceId, tokens: int = 64, reserve: int = 0) -> Hello:
    """A worker that fits the others, with a pool of so many tokens."""
    return Hello(
        role=role,
        instance=instance,
        layout=LAYOUT,
        page_size=PAGE,
        model_context=1 << 20,
        pool_tokens=tokens,
        reserve_tokens=reserve,
    )


def decode_core(pages: int = 16, **config: object) -> DecodeCore:
    """A decode worker that knows one prefill worker."""
    core = DecodeCore(DecodeConfig(LAYOUT, PAGE, pages * PAGE, SECRET, **config), pages)  # type: ignore[arg-type]
    core.on_prefill_joined(0.0, hello("prefill", PREFILL))
    return core


def prefill_core(pages: int = 16, **config: object) -> PrefillCore:
    """A prefill worker."""
    return PrefillCore(PrefillConfig(LAYOUT, PAGE, pages * PAGE, SECRET, **config), pages)  # type: ignore[arg-type]


def generate(name: str, prompt: Sequence[int], wanted: int = 2, tenant: TenantId = ANN) -> Generate:
    """What a gateway says."""
    return Generate(
        request=RequestId(name),
        tenant=tenant,
        prompt=tuple(prompt),
        max_tokens=wanted,
        sampling=SamplingParams(),
    )


def prefill(name: str, tokens: Sequence[int], attempt: int = 1, tenant: TenantId = ANN) -> Prefill:
    """What a decode worker asks for."""
    return Prefill(request=RequestId(name), attempt=attempt, tenant=tenant, tokens=tuple(tokens))


def seal_for(page: PageId) -> Seal:
    """The seal of a page in a world in which its bytes are its id."""
    return Seal(page)


def manifest(name: str, tokens: Sequence[int], attempt: int = 1, tenant: TenantId = ANN) -> Manifest:
    """What an honest prefill worker says when all pages of ``tokens`` are there."""
    ids = page_ids(derive_page_key(SECRET, tenant, 0), LAYOUT, tokens, PAGE)
    rows = tuple(SealedPage(i, page, seal_for(page), i) for i, page in enumerate(ids))
    return Manifest(request=RequestId(name), attempt=attempt, pages=rows)


def sent(effects: Sequence[Effect], kind: type[AnyMessage]) -> list[AnyMessage]:
    """The messages of a kind among the effects."""
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def only(effects: Sequence[Effect], kind: type[E]) -> E:
    """The one effect of this kind."""
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def load(core: DecodeCore, message: Generate, now: float = 0.0) -> None:
    """Take a request through prefill to RUNNING: announced, pulled, proven."""
    core.on_message(now, GATEWAY, message)
    if len(message.prompt) == 1:
        return
    announced = manifest(message.request, message.prompt[:-1], tenant=message.tenant)
    prove(core, core.on_message(now, PREFILL, announced), now)


def prove(core: DecodeCore, effects: Sequence[Effect], now: float = 0.0) -> list[Effect]:
    """The pull among the effects ends DONE, and its digests fit."""
    digest = only(core.on_pull_ended(now, only(effects, Pull).transfer, Outcome.DONE), Digest)
    return core.on_digested(now, digest.job, [seal_for(page) for page in digest.ids])


def step(core: DecodeCore, token: int | None = 7, now: float = 0.0) -> list[Effect]:
    """Plan, begin and end one pass in which every sequence draws ``token`` (None: not finite)."""
    plan = core.plan_step()
    assert plan is not None
    begun = core.begin_step(plan)
    assert begun is not None
    return core.on_step_done(now, begun, results(begun, token))


def results(plan: StepPlan, token: int | None = 7) -> list[SliceResult]:
    """What an engine gives back that wrote what it was told to."""
    return [
        SliceResult(token, token is not None, np.array(entry.slice.tokens, np.int64))
        for entry in plan.entries
    ]
