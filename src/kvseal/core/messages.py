"""What the three roles say to each other: frozen, typed, bounded (G11).

::

    gateway ──Generate, Stop, Abort──> decode ──Prefill, Release──> prefill
            <──Tokens, Ended──────────        <──Manifest, PrefillEnded, Released──
    workers ──Joining──> gateway ──Welcome, Peers──> workers        every worker ──Heartbeat──> gateway

Every message about a request names the request, and where it matters the attempt, so that a stale one is
never taken for a live one (F08). A refusal is a value of its own type that travels as such (G2).
"""

from typing import Literal

import msgspec

from kvseal.core.errors import Code, ProtocolError
from kvseal.core.ids import NOBODY, InstanceId, LayoutDigest, PageId, RequestId, Seal, TenantId
from kvseal.core.sampling import SamplingParams

VERSION = 1  # of this protocol: peers of another version are refused by name
Role = Literal["gateway", "decode", "prefill"]


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all messages."""


# --- how a request ends: exactly one of these (G10)
# ---------------------------------------------------------------


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """True counts, in tokens, as the decode worker made them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Finished(Message, frozen=True):
    """The answer is complete."""

    reason: Literal["stop", "length"]
    usage: Usage


class Rejected(Message, frozen=True):
    """Refused before any work. It has no tokens and can own no lease: there is no placeholder (G2)."""

    code: Code
    message: str


class Failed(Message, frozen=True):
    """Given up after work had begun; the answer, if any of it was delivered, is not complete."""

    code: Code
    message: str


class Aborted(Message, frozen=True):
    """Somebody who was entitled to it ended the request: the client went away, or its deadline passed."""

    code: Code = Code.ABORTED
    message: str = "the request was aborted"


Terminal = Finished | Rejected | Failed | Aborted


# --- gateway <-> decode
# -------------------------------------------------------------------------------------------


class Generate(Message, frozen=True):
    """One request. ``prompt`` are token ids; ``stop_ids`` end the answer where one is sampled.

    ``via`` names the prefill worker to ask: set by the gateway for its canaries only, so that each pair is
    tried.
    """

    request: RequestId
    tenant: TenantId
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop_ids: tuple[int, ...] = ()
    via: InstanceId = NOBODY


class Stop(Message, frozen=True):
    """The gateway found a stop string: token ``index`` of the answer is its last one."""

    request: RequestId
    attempt: int
    index: int


class Abort(Message, frozen=True):
    """End the request, wherever it is. Always answered by ``Ended``, even for a request that is not known
    (any more).
    """

    request: RequestId
    code: Code = Code.ABORTED


class Tokens(Message, frozen=True):
    """New tokens of the answer; ``index`` is the position of the first of them in the whole answer."""

    request: RequestId
    attempt: int
    index: int
    tokens: tuple[int, ...]


class Ended(Message, frozen=True):
    """The one terminal answer (G10)."""

    request: RequestId
    attempt: int
    end: Terminal


# --- decode <-> prefill
# -------------------------------------------------------------------------------------------


class Prefill(Message, frozen=True):
    """Compute the pages of ``tokens``: the prompt without its last token. The first ``skip_pages`` need no
    announcing.
    """

    request: RequestId
    attempt: int
    tenant: TenantId
    tokens: tuple[int, ...]
    skip_pages: int = 0


class SealedPage(msgspec.Struct, frozen=True, array_like=True):
    """One row of a manifest: the ``ordinal``-th page of the prompt lies at page ``place`` of the source
    pool.
    """

    ordinal: int
    page_id: PageId
    seal: Seal
    place: int


class Manifest(Message, frozen=True):
    """A chunk's pages are complete and sealed. ``cached_tokens`` of the prompt were found again and not
    computed.
    """

    request: RequestId
    attempt: int
    pages: tuple[SealedPage, ...]
    cached_tokens: int = 0


class PrefillEnded(Message, frozen=True):
    """No (more) pages will come for this attempt: it was refused, or it failed."""

    request: RequestId
    attempt: int
    end: Rejected | Failed


class Release(Message, frozen=True):
    """Decode needs the source pages of this attempt no longer (done, aborted, failed: there is one path)."""

    request: RequestId
    attempt: int


class Released(Message, frozen=True):
    """Acknowledges a Release. Sent for an unknown attempt too: what is not held is released."""

    request: RequestId
    attempt: int


# --- membership
# ---------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who a process is and what its pages mean; exchanged before any other message (F10, F18).

    ``pool_tokens`` is what was allocated, not what was configured, and ``reserve_tokens`` the part of it that
    requests may not count on (G1). ``address`` is where a prefill worker listens for decode workers,
    ``endpoint`` what its transport's readers need in order to connect. ``attention`` names the kernel,
    ``guards`` are those in force, for the start table. A gateway has no pool: its numbers are
    0. ``canary_output`` is what a prefill worker's own forward pass answers, greedily, to ``canary_prompt``:
    the gateway's readiness compares with it (F19).
    """

    role: Role
    instance: InstanceId
    version: int = VERSION
    model: str = ""
    layout: LayoutDigest = LayoutDigest(b"")
    page_size: int = 0
    dtype: str = ""
    model_context: int = 0
    pool_tokens: int = 0
    reserve_tokens: int = 0
    transport: str = ""
    address: str = ""
    endpoint: bytes = b""
    attention: str = ""
    guards: tuple[str, ...] = ()
    canary_prompt: tuple[int, ...] = ()
    canary_output: tuple[int, ...] = ()

    @property
    def usable_tokens(self) -> int:
        """What one request may occupy here at most."""
        return self.pool_tokens - self.reserve_tokens


class Welcome(Message, frozen=True):
    """The gateway took the worker in: ``context`` is the number advertised everywhere (G1)."""

    context: int


class Unwelcome(Message, frozen=True):
    """The gateway did not take the worker in; ``reason`` is for the operator."""

    reason: str


class Peers(Message, frozen=True):
    """The prefill workers that decode workers may ask, as of now."""

    prefill: tuple[Hello, ...]


class Heartbeat(Message, frozen=True):
    """A worker is alive, and this is how full it is. ``counters`` exist at zero from the start (F26)."""

    free_pages: int
    leased_pages: int
    quarantined_pages: int
    running: int
    waiting: int
    counters: dict[str, int] = {}


AnyMessage = (
    Generate
    | Stop
    | Abort
    | Tokens
    | Ended
    | Prefill
    | Manifest
    | PrefillEnded
    | Release
    | Released
    | Welcome
    | Unwelcome
    | Peers
    | Heartbeat
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_hello_decoder: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)


def encode(message: AnyMessage | Hello) -> bytes:
    """The body of one frame, msgpack."""
    return _encoder.encode(message)


def decode(body: bytes) -> AnyMessage:
    """The message in one frame's body. Raises :class:`ProtocolError` for anything else, and never executes
    anything.
    """
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed message of {len(body)} bytes") from error


def decode_hello(body: bytes) -> Hello:
    """The hello in a handshake frame's body. Raises :class:`ProtocolError` for anything else."""
    try:
        return _hello_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed hello of {len(body)} bytes") from error
