"""From the operator's options to one `Fleet`: reads every source and puts what belongs together together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvseal.fleet.commands import read_commands
from kvseal.fleet.endpoints import read_endpoint
from kvseal.fleet.environment import read_environment
from kvseal.fleet.facts import Fact, Fleet, Key, Note, Server
from kvseal.fleet.http import Limits
from kvseal.fleet.logs import read_log
from kvseal.fleet.packages import read_engine_version, read_packages
from kvseal.fleet.streams import Progress, Unreadable, read_text

ROLES: Final = ("prefill", "decode", "router", "combined")


@dataclass(frozen=True)
class Inputs:
    """Each entry may begin with a role: `decode=FILE` says whom the source is about."""

    logs: Sequence[str] = ()
    commands: Sequence[str] = ()
    urls: Sequence[str] = ()
    engine_versions: Sequence[str] = ()
    packages: Sequence[str] = ()
    environments: Sequence[str] = ()
    files: Sequence[str] = ()
    """Commands or logs: found out by reading them."""

    @property
    def empty(self) -> bool:
        return not any(self.files) and not any(
            (self.logs, self.commands, self.urls, self.engine_versions, self.packages, self.environments)
        )


@dataclass(frozen=True)
class Options:
    headers: dict[str, str] | None = None
    limits: Limits | None = None
    progress: Callable[[str], Progress | None] = lambda _name: None


@dataclass(frozen=True)
class _Loose:
    """Facts about every server of a role, or about all of them."""

    role: str | None
    facts: tuple[Fact, ...]


def split_role(text: str) -> tuple[str | None, str]:
    """`decode=FILE` → ("decode", "FILE"); anything else has no role."""
    role, equals, rest = text.partition("=")
    return (role, rest) if equals and role in ROLES and rest else (None, text)


def gather(inputs: Inputs, options: Options | None = None) -> Fleet:
    """Reads everything. Never raises on bad input."""
    options = options or Options()
    notes: list[Note] = []
    sources: list[list[Server]] = []

    def keep(entry: str, found: tuple[list[Server], list[Note]]) -> None:
        role, _ = split_role(entry)
        sources.append([_with_role(server, role) for server in found[0]])
        notes.extend(found[1])

    for entry in inputs.files:
        keep(entry, _read_either(split_role(entry)[1], options))
    for entry in inputs.commands:
        keep(entry, read_commands(split_role(entry)[1]))
    for entry in inputs.logs:
        path = split_role(entry)[1]
        keep(entry, read_log(path, options.progress(path)))
    for entry in inputs.urls:
        keep(entry, read_endpoint(split_role(entry)[1], options.headers, options.limits))
    loose, more = _loose_facts(inputs)
    servers = _spread(_merge(sources), loose)
    return Fleet(tuple(servers), tuple(dict.fromkeys([*notes, *more])))


def _read_either(path: str, options: Options) -> tuple[list[Server], list[Note]]:
    commands = read_commands(path)
    if commands[0] or path == "-":
        return commands
    log = read_log(path, options.progress(path))
    return log if log[0] else commands


def _with_role(server: Server, role: str | None) -> Server:
    if role is None or not server.facts:
        return server
    here = replace(server.facts[0].source, text=f"given as {role}")
    return server.plus([Fact(Key.ROLE, role, here)]) if not server.of(Key.ROLE) else server


def _loose_facts(inputs: Inputs) -> tuple[list[_Loose], list[Note]]:
    loose: list[_Loose] = []
    notes: list[Note] = []

    def keep(role: str | None, found: tuple[list[Fact], list[Note]]) -> None:
        if found[0]:
            loose.append(_Loose(role, tuple(found[0])))
        notes.extend(found[1])

    for entry in inputs.engine_versions:
        role, text = split_role(entry)
        keep(role, read_engine_version(text))
    for entries, read in ((inputs.packages, read_packages), (inputs.environments, read_environment)):
        for entry in entries:
            role, path = split_role(entry)
            try:
                lines = read_text(path).splitlines()
            except Unreadable as problem:
                notes.append(Note(problem.code, path, problem.detail))
                continue
            keep(role, read("stdin" if path == "-" else path, lines))
    return loose, notes


def _merge(sources: list[list[Server]]) -> list[Server]:
    """Servers of different sources that must be the same one become one; in doubt they stay apart."""
    merged: list[Server] = []
    for servers in sources:
        before = list(merged)
        for server in servers:
            twins = [index for index, known in enumerate(before) if _same(known, server)]
            alone = sum(_same(server, other) for other in servers) == 1
            if len(twins) == 1 and alone:
                merged[twins[0]] = merged[twins[0]].plus(server.facts)
            else:
                merged.append(server)
    return merged


def _same(one: Server, other: Server) -> bool:
    """Whether nothing tells them apart: engine, role, model."""
    for key in (Key.ENGINE, Key.ROLE):
        mine, theirs = set(one.values(key)), set(other.values(key))
        if mine and theirs and not mine & theirs:
            return False
    models, other_models = _models(one), _models(other)
    return not (models and other_models and not models & other_models)


def _models(server: Server) -> set[str]:
    """Last parts of model names: one source says the path, the other the repository."""
    return {str(value).rstrip("/").rsplit("/", 1)[-1].lower() for value in server.values(Key.MODEL) if value}


def _spread(servers: list[Server], loose: list[_Loose]) -> list[Server]:
    """Gives loose facts to the servers they can be about; makes a server where there is none."""
    if not servers and loose:
        roles = list(dict.fromkeys(one.role for one in loose if one.role is not None))
        servers = [Server(role) for role in roles or ["deployment"]]
        servers = [
            server.plus(
                [Fact(Key.ROLE, server.name, loose[0].facts[0].source)] if server.name in ROLES else ()
            )
            for server in servers
        ]
    spread = []
    for server in servers:
        known = server
        for one in loose:
            if one.role is not None and server.values(Key.ROLE) and one.role not in server.values(Key.ROLE):
                continue
            known = known.plus(_relevant(known, one.facts))
        spread.append(known)
    return spread


def _relevant(server: Server, facts: tuple[Fact, ...]) -> list[Fact]:
    """A package list may name both engines; a server takes the version of its own."""
    engines = set(server.values(Key.ENGINE))
    named = {fact.source: fact.value for fact in facts if fact.key is Key.ENGINE}
    chosen = []
    for fact in facts:
        engine = named.get(fact.source)
        if fact.key in {Key.ENGINE, Key.VERSION} and engine is not None:
            if engines and engine not in engines:
                continue
            if not engines and len(set(named.values())) > 1:
                continue  # two engines are installed and nothing says which one serves
        if server.one(Key.ROLE) == "router" and fact.key is Key.VERSION:
            continue
        chosen.append(fact)
    return chosen
