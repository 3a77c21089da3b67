"""What a rule is: a name, a weight, words, sources, and a three-valued check."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, Missing
from kvseal.fleet.facts import Fact, Fleet, Server


class Severity(IntEnum):
    INFO = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class Effect(IntEnum):
    """What a yes means for the verdict, which is about answers built from other requests' memory.

    NONE: a weakness of another kind; it counts for the exit code only.
    """

    NONE = 0
    AT_RISK = 1
    AFFECTED = 2


class Standing(Enum):
    PRIMARY = "primary"
    """The project's own issue, advisory, documentation or published package, or the CVE record."""
    SECONDARY = "secondary"
    """Only somebody else's account of it was found."""


@dataclass(frozen=True)
class Cite:
    title: str
    url: str
    standing: Standing = Standing.PRIMARY


@dataclass(frozen=True)
class Hit:
    """One answer of a rule about one server or one pair. `detail` holds the numbers."""

    servers: tuple[str, ...]
    judged: Judged
    detail: Text | None = None


@dataclass(frozen=True)
class Rule:
    id: str
    severity: Severity
    effect: Effect
    title: Text
    meaning: Text
    fix: Text
    sources: tuple[Cite, ...]
    versions: str
    """First and last affected version, for the reader."""
    check: Callable[[Fleet], Iterable[Hit]]
    supersedes: tuple[str, ...] = ()
    """Rules that need not be shown for a server where this one says yes."""


@dataclass(frozen=True)
class Finding:
    """A yes: what was found, where, and what it rests on."""

    rule: Rule
    servers: tuple[str, ...]
    evidence: tuple[Fact, ...]
    detail: Text | None


@dataclass(frozen=True)
class Open:
    """An unknown: which facts would decide."""

    rule: Rule
    servers: tuple[str, ...]
    missing: tuple[Missing, ...]


def per_server(judge: Callable[[Server], Judged]) -> Callable[[Fleet], Iterable[Hit]]:
    """A check that asks every server the same."""

    def check(fleet: Fleet) -> Iterable[Hit]:
        for server in fleet.servers:
            yield Hit((server.name,), judge(server))

    return check


def sources_line(cites: Sequence[Cite]) -> str:
    return "; ".join(
        cite.url if cite.standing is Standing.PRIMARY else f"{cite.url} (secondary)" for cite in cites
    )
