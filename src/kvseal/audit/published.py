"""Rules made from a published advisory: a product, a span of versions, and what else has to be true."""

from collections.abc import Callable
from dataclasses import dataclass

from kvseal.audit.ask import in_span, is_engine
from kvseal.audit.rule import Cite, Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import YES, Judged, every
from kvseal.fleet.facts import Key, Server
from kvseal.fleet.versions import Span


def always(_server: Server) -> Judged:
    return YES


@dataclass(frozen=True)
class Words:
    title: Text
    meaning: Text
    fix: Text


@dataclass(frozen=True)
class Scope:
    """`key` is the fact that holds the product's version; `engine` None: any server that has it."""

    engine: str | None
    span: Span
    gate: Callable[[Server], Judged] = always
    key: Key = Key.VERSION


def advisory(
    identifier: str, severity: Severity, scope: Scope, words: Words, sources: tuple[Cite, ...]
) -> Rule:
    """A rule without effect on the verdict; `isolation` makes one with."""
    return _rule(identifier, severity, Effect.NONE, scope, words, sources)


def isolation(
    identifier: str, severity: Severity, scope: Scope, words: Words, sources: tuple[Cite, ...]
) -> Rule:
    """The advisory is about one request seeing another's memory."""
    return _rule(identifier, severity, Effect.AT_RISK, scope, words, sources)


def _rule(
    identifier: str, severity: Severity, effect: Effect, scope: Scope, words: Words, sources: tuple[Cite, ...]
) -> Rule:
    def judge(server: Server) -> Judged:
        engine = YES if scope.engine is None else is_engine(server, scope.engine)
        return every((engine, in_span(server, scope.span, key=scope.key), scope.gate(server)))

    return Rule(
        id=identifier,
        severity=severity,
        effect=effect,
        title=words.title,
        meaning=words.meaning,
        fix=words.fix,
        sources=sources,
        versions=str(scope.span),
        check=per_server(judge),
    )
