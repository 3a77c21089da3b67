"""Questions that many rules share, each written for the bad case."""

from collections.abc import Iterable, Sequence
from typing import Final

from kvseal.audit.truth import Judged, ask, ask_all, every, some
from kvseal.fleet.facts import Fact, Fleet, Key, Server, Value
from kvseal.fleet.literals import integer_of
from kvseal.fleet.versions import Span, parse_version, version

ENGINE_ROLES: Final = frozenset({"prefill", "decode", "both"})
_DECODE_RESERVE: Final = 512
NEWEST_KNOWN: Final = {"sglang": "0.5.23", "vllm": "0.33.0"}
"""Newest versions whose published packages were read for the rules."""


def is_engine(server: Server, name: str) -> Judged:
    return ask(server, Key.ENGINE, lambda value: value == name)


def is_disaggregated(server: Server) -> Judged:
    """Prefill and decode on separate workers: the setting in which pages travel."""
    return ask(server, Key.ROLE, lambda value: value in ENGINE_ROLES)


def has_role(server: Server, *roles: str) -> Judged:
    return ask(server, Key.ROLE, lambda value: value in roles or value == "both")


def in_span(server: Server, *spans: Span, key: Key = Key.VERSION) -> Judged:
    return ask(server, key, lambda value: any(str(value) in span for span in spans))


def sglang_disaggregated(server: Server) -> Judged:
    return every((is_engine(server, "sglang"), is_disaggregated(server)))


def before_0521(server: Server, span: Span) -> Judged:
    """Older than the release with the repairs: by its version, or by the fields that its log does not
    print.
    """
    by_version = in_span(server, span)
    by_fields = switched_on(server, Key.PREDATES_FIX)
    if by_version.truth is True or by_fields.truth is None:
        return by_version
    return by_fields if by_version.truth is None else some((by_version, by_fields))


def uses_backend(server: Server, *names: str) -> Judged:
    return ask(server, Key.BACKEND, lambda value: str(value).lower() in names)


def connector_is(server: Server, *parts: str) -> Judged:
    """vLLM's connector, also inside a MultiConnector. Releases differ in names: parts of them are looked
    for.
    """
    return every(
        (
            is_engine(server, "vllm"),
            ask(server, Key.CONNECTOR, lambda value: any(part in str(value).lower() for part in parts)),
        )
    )


def listens_widely(server: Server, key: Key = Key.HOST) -> Judged:
    """Bound to more than this machine. An address that is not loopback counts."""
    return ask(server, key, is_wide)


def is_wide(value: Value) -> bool:
    host = str(value or "").strip().strip("[]").lower()
    return bool(host) and not (host in {"localhost", "::1", "none"} or host.startswith("127."))


def without_key(server: Server) -> Judged:
    return ask(server, Key.API_KEY, lambda value: not value)


def switched_on(server: Server, key: Key) -> Judged:
    return ask(server, key, lambda value: value is True)


def above_zero(server: Server, key: Key) -> Judged:
    return ask(server, key, lambda value: isinstance(value, (int, float)) and value > 0)


def reserve_of(role: Value, reserved: Value) -> int:
    """Tokens of a pool that a prompt cannot use: SGLang's decode side keeps room to generate."""
    return (integer_of(reserved) or 0) if role in {"decode", "both"} else 0


def pool_below_context(server: Server) -> Judged:
    """The pool, after reserve, holds less than the advertised context.

    With context parallelism the log's figure is one rank's share, so the answer is unknown there.
    """

    def below(pool: Value, context: Value) -> bool:
        tokens, longest = integer_of(pool), integer_of(context)
        return tokens is not None and longest is not None and 0 < tokens < longest

    plain = ask_all(server, (Key.POOL, Key.CONTEXT), below)
    decode = every(
        (
            has_role(server, "decode"),
            ask_all(
                server,
                (Key.POOL, Key.CONTEXT, Key.RESERVED_DECODE),
                lambda pool, context, kept: below((integer_of(pool) or 0) - (integer_of(kept) or 0), context),
            ),
        )
    )
    return some((plain, decode))


def pool_figures(server: Server) -> dict[str, object]:
    """Smallest pool and largest context, for the words of a finding. `safe` holds on either role."""
    pools = [p for p in map(integer_of, server.values(Key.POOL)) if p is not None]
    contexts = [c for c in map(integer_of, server.values(Key.CONTEXT)) if c is not None]
    return {
        "pool": f"{min(pools, default=0):,}",
        "context": f"{max(contexts, default=0):,}",
        "safe": f"{max(0, min(pools, default=0) - _DECODE_RESERVE):,}",
        "short": f"{max(contexts, default=0) - min(pools, default=0):,}",
        "role": server.one(Key.ROLE) or "?",
        "name": server.name,
    }


def pairs(fleet: Fleet) -> Iterable[tuple[Server, Server, Judged]]:
    """Each prefill with each decode server that may serve the same model, and whether they are such a pair.

    A server whose role is not known may be either, so it is paired too, with an unknown answer.
    """
    for prefill in fleet.servers:
        for decode in fleet.servers:
            if prefill is decode or not _same_model(prefill, decode):
                continue
            judged = every(
                (
                    sglang_disaggregated(prefill),
                    sglang_disaggregated(decode),
                    ask(prefill, Key.ROLE, lambda value: value == "prefill"),
                    ask(decode, Key.ROLE, lambda value: value == "decode"),
                )
            )
            if judged.truth is not False:
                yield prefill, decode, judged


def _same_model(one: Server, other: Server) -> bool:
    mine = {str(value).rstrip("/").rsplit("/", 1)[-1].lower() for value in one.values(Key.MODEL)}
    theirs = {str(value).rstrip("/").rsplit("/", 1)[-1].lower() for value in other.values(Key.MODEL)}
    return not mine or not theirs or bool(mine & theirs)


def newer_than_data(server: Server) -> Judged:
    def newer(engine: Value, found: Value) -> bool:
        known, parsed = NEWEST_KNOWN.get(str(engine)), parse_version(str(found))
        return known is not None and parsed is not None and parsed > version(known)

    return ask_all(server, (Key.ENGINE, Key.VERSION), newer)


def facts_of(server: Server, keys: Sequence[Key]) -> tuple[Fact, ...]:
    return tuple(fact for key in keys for fact in server.of(key))
