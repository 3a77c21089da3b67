"""From facts to a report: runs every rule, weighs the answers, orders what to do.

The verdict, and why taking knowledge away never moves it towards "not affected":

    a rule with effect AFFECTED says yes      -> affected
    else one of them is unknown               -> cannot tell
    else a rule with effect AT_RISK says yes  -> at risk
    else one of them is unknown               -> cannot tell
    else                                      -> not affected

Rules are Kleene formulas over facts, so a missing fact turns a yes or a no into unknown, never one into the
other. Hence the verdict either stays or becomes "cannot tell". Where sources contradict each other every
combination is tried; the disagreement is one piece of knowledge, and the milder side alone never decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from kvseal.audit.advisories import DATA_DATE, DATA_VERSION, age_days, is_stale
from kvseal.audit.rule import Effect, Finding, Hit, Open, Rule, Severity
from kvseal.audit.texts import Text, Update
from kvseal.fleet.facts import Fact, Fleet, Key
from kvseal.fleet.versions import version


class Verdict(StrEnum):
    AFFECTED = "affected"
    AT_RISK = "at_risk"
    NOT_AFFECTED = "not_affected"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True)
class Change:
    """One effective number that moved since the baseline."""

    server: str
    key: Key
    before: str
    after: str
    worse: bool


@dataclass(frozen=True)
class Data:
    """The advisory data behind a report."""

    version: str
    day: date
    age_days: int
    stale: bool


@dataclass(frozen=True)
class Wanted:
    """A fact that is missing for these servers. `decides`: the verdict waits for it."""

    key: Key
    servers: tuple[str, ...]
    decides: bool


@dataclass(frozen=True)
class Report:
    verdict: Verdict
    at_least: Effect
    """What is proven."""
    at_most: Effect
    """What the missing facts could still show."""
    findings: tuple[Finding, ...]
    unknown: tuple[Open, ...]
    fleet: Fleet
    data: Data
    changes: tuple[Change, ...] = ()
    baseline: str = ""

    def worst(self) -> Severity | None:
        return max((finding.rule.severity for finding in self.findings), default=None)

    def count(self, severity: Severity) -> int:
        return sum(finding.rule.severity is severity for finding in self.findings)

    def actions(self) -> list[Text]:
        """What to do, most urgent first; updates of one product joined into one line."""
        ordered: list[Text] = []
        updates: dict[str, list[tuple[str, str]]] = {}
        for finding in self.findings:
            if finding.rule.severity < Severity.LOW:
                continue
            fix = finding.rule.fix
            if isinstance(fix, Update):
                product = _product(finding)
                if product not in updates:
                    updates[product] = []
                    ordered.append(Text(f"@{product}", f"@{product}"))
                updates[product].append((fix.version, finding.rule.id))
            elif fix not in ordered:
                ordered.append(fix)
        return [
            _joined(text.en[1:], updates[text.en[1:]]) if text.en[:1] == "@" else text for text in ordered
        ]

    def missing(self) -> list[Wanted]:
        """Facts that would decide something, those first for which the verdict waits."""
        servers: dict[Key, dict[str, None]] = {}
        deciding: set[Key] = set()
        for one in self.unknown:
            for missing in one.missing:
                servers.setdefault(missing.key, {})[missing.server] = None
                if one.rule.effect > self.at_least:
                    deciding.add(missing.key)
        wanted = [Wanted(key, tuple(names), key in deciding) for key, names in servers.items()]
        return sorted(wanted, key=lambda one: (not one.decides, one.key))


def _product(finding: Finding) -> str:
    engine = next((str(fact.value) for fact in finding.evidence if fact.key is Key.ENGINE), "")
    return engine or finding.rule.id.split("-", 1)[0]


def _joined(product: str, wanted: Sequence[tuple[str, str]]) -> Text:
    newest = max((found for found, _ in wanted), key=version)
    names = ", ".join(identifier for _, identifier in wanted)
    return Text(
        f"Update {product} to {newest} or newer ({names}).",
        f"{product} auf {newest} oder neuer aktualisieren ({names}).",
    )


# Unknowns that nobody would look for: products not in use, counters of what may never happen.
_QUIET_KEYS = frozenset(
    {
        Key.LITELLM_VERSION,
        Key.LMCACHE_VERSION,
        Key.MOONCAKE_METADATA,
        Key.PUBLISHED_PORTS,
        Key.CHECKSUM_MISMATCH,
        Key.CHECKSUM_SKIPPED,
        Key.OVERLONG_SEEN,
        Key.TRANSFER_FAILED,
        Key.LEASE_EXPIRED,
    }
)


def judge(fleet: Fleet, rules: Iterable[Rule], today: date) -> Report:
    """Every rule on every server of the fleet."""
    yes: dict[Rule, list[Hit]] = {}
    unknown: list[Open] = []
    for rule in rules:
        hits = list(rule.check(fleet))
        if certain := [hit for hit in hits if hit.judged.truth is True]:
            yes[rule] = certain
        if undecided := [hit for hit in hits if hit.judged.truth is None]:
            unknown.append(_open(rule, undecided))
    at_least = max((rule.effect for rule in yes), default=Effect.NONE)
    at_most = max([at_least, *(one.rule.effect for one in unknown)])
    if not fleet.servers:
        at_most = Effect.AFFECTED
    data = Data(DATA_VERSION, DATA_DATE, age_days(today), is_stale(today))
    shown = sorted(_findings(yes), key=lambda f: (-f.rule.severity, -f.rule.effect))
    return Report(
        _verdict(at_least, at_most),
        at_least,
        at_most,
        tuple(shown),
        tuple(_worth_asking(unknown)),
        fleet,
        data,
    )


def _verdict(at_least: Effect, at_most: Effect) -> Verdict:
    if at_most > at_least:
        return Verdict.CANNOT_TELL
    match at_least:
        case Effect.AFFECTED:
            return Verdict.AFFECTED
        case Effect.AT_RISK:
            return Verdict.AT_RISK
        case Effect.NONE:
            return Verdict.NOT_AFFECTED


def _finding(rule: Rule, hits: Sequence[Hit]) -> Finding:
    servers = tuple(dict.fromkeys(name for hit in hits for name in hit.servers))
    evidence = tuple(dict.fromkeys(fact for hit in hits for fact in hit.judged.because))
    details = list(dict.fromkeys(hit.detail for hit in hits if hit.detail is not None))
    detail = Text("\n".join(d.en for d in details), "\n".join(d.de for d in details)) if details else None
    return Finding(rule, servers, _most_telling(evidence), detail)


def _most_telling(evidence: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Numbers and flags before the lines that only say which engine and role it is."""
    plain = {Key.ENGINE: 2, Key.ROLE: 1}
    ordered = sorted(evidence, key=lambda fact: (plain.get(fact.key, 0), fact.assumed))
    by_source = {fact.source: fact for fact in reversed(ordered)}  # one line of a file is shown once
    return tuple(fact for fact in ordered if by_source[fact.source] is fact)


def _open(rule: Rule, hits: Sequence[Hit]) -> Open:
    servers = tuple(dict.fromkeys(name for hit in hits for name in hit.servers))
    missing = tuple(dict.fromkeys(miss for hit in hits for miss in hit.judged.missing))
    return Open(rule, servers, missing)


def _findings(yes: Mapping[Rule, Sequence[Hit]]) -> Iterable[Finding]:
    """One finding per rule, without servers for which a sharper rule has spoken."""
    hidden: dict[str, set[str]] = {}
    for rule, hits in yes.items():
        for name in rule.supersedes:
            hidden.setdefault(name, set()).update(server for hit in hits for server in hit.servers)
    for rule, hits in yes.items():
        rest = [hit for hit in hits if not set(hit.servers) <= hidden.get(rule.id, set())]
        if rest:
            yield _finding(rule, rest)


def _worth_asking(unknown: Sequence[Open]) -> Iterable[Open]:
    for one in unknown:
        quiet = one.rule.severity < Severity.HIGH or any(m.key in _QUIET_KEYS for m in one.missing)
        if one.rule.effect is not Effect.NONE or not quiet:
            yield one
