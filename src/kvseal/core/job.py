"""One request on a decode worker, and what the worker was configured with."""

from dataclasses import dataclass, field

from kvseal.core import guards
from kvseal.core.errors import Code
from kvseal.core.ids import (
    AttemptKey,
    InstanceId,
    LayoutDigest,
    PageId,
    PageKey,
    RequestId,
    Seal,
    TenantId,
    derive_page_key,
)
from kvseal.core.leases import Lease
from kvseal.core.messages import Generate
from kvseal.core.requests import State
from kvseal.core.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """``usable_tokens``: what one request may occupy here. ``retries``: further attempts after a failed one.

    At ``quarantine_bound_pages`` the worker takes no more work and is restarted (G4). The timeouts end
    attempts and free room sooner; none of them permits a read.
    """

    layout: LayoutDigest
    page_size: int
    usable_tokens: int
    secret: bytes = field(repr=False)
    cache_version: int = 0
    retries: int = 1
    max_batch: int = 64
    max_requests: int = 1024
    quarantine_bound_pages: int = 1 << 40
    prefill_timeout_s: float = 120.0
    queue_timeout_s: float = 120.0
    resend_s: float = 1.0
    prefix_reuse: bool = False


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """Why an attempt cannot go on: the counter to raise, and what the client is told if no other attempt is
    made.
    """

    event: str
    code: Code
    message: str


@dataclass(slots=True, eq=False)
class Job:
    """One request and its live attempt.

    ``expected`` are the page ids of the attempt's prefilled tokens, computed here from the prompt that was
    given here (G5). ``seals`` are those of proven pages, by ordinal. ``posted`` are the ordinals that were
    announced and pulled. ``names`` are the ids of the full pages so far, those that decode filled included.
    """

    request: RequestId
    gateway: InstanceId
    tenant: TenantId
    page_key: PageKey
    prompt: tuple[int, ...]
    room_tokens: int
    max_tokens: int
    sampling: SamplingParams
    stop_ids: frozenset[int]
    via: InstanceId
    progress_s: float
    state: State = State.WAITING
    attempt: int = 1
    output: list[int] = field(default_factory=list)
    lease: Lease | None = None
    expected: tuple[PageId, ...] = ()
    names: list[PageId] = field(default_factory=list)
    seals: dict[int, Seal] = field(default_factory=dict)
    posted: set[int] = field(default_factory=set)
    source: InstanceId | None = None
    avoid: InstanceId | None = None
    planned: bool = False
    cached_tokens: int = 0

    @classmethod
    def admitted(
        cls,
        config: DecodeConfig,
        now: float,
        gateway: InstanceId,
        message: Generate,
        admitted: guards.Admitted,
    ) -> "Job":
        """A job for what was admitted, which is not for us to take from the message again (G2)."""
        return cls(
            request=message.request,
            gateway=gateway,
            tenant=message.tenant,
            page_key=derive_page_key(config.secret, guards.g9_scope(message.tenant), config.cache_version),
            prompt=admitted.prompt,
            room_tokens=admitted.room_tokens,
            max_tokens=max(1, message.max_tokens),
            sampling=message.sampling,
            stop_ids=frozenset(message.stop_ids),
            via=message.via,
            progress_s=now,
        )

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.request, self.attempt)

    @property
    def known_tokens(self) -> int:
        """Prompt and answer so far."""
        return len(self.prompt) + len(self.output)

    @property
    def last_token(self) -> int:
        """The token whose successor is sampled next; decode computes it itself."""
        return self.output[-1] if self.output else self.prompt[-1]

    @property
    def to_load(self) -> tuple[int, ...]:
        """The tokens whose pages prefill computes: all known ones but the last."""
        return (*self.prompt, *self.output)[:-1] if self.output else self.prompt[:-1]

    def begin_attempt(self, now: float) -> None:
        """Forget everything about the attempt that failed."""
        self.attempt += 1
        self.progress_s = now
        self.expected = ()
        self.names = []
        self.seals = {}
        self.posted = set()
        self.avoid = self.source
        self.source = None
        self.planned = False
        self.cached_tokens = 0
