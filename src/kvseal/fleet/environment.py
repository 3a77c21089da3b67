"""Environments: `env` dumps, .env files, and the parts of manifests that set variables."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kvseal.fleet.facts import Fact, Key, Note, source
from kvseal.fleet.settings import ENVIRONMENT, UNSET_MEANS_NONE

_ASSIGNMENT: Final = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]{0,120})=(.*)$", re.DOTALL)

Variables = Mapping[str, tuple[str | None, int | None]]
"""Name to (value, line). A value of None is set but not readable here (a secret, an unexpanded variable)."""


def environment_facts(
    kind: str, where: str, variables: Variables, *, complete: bool
) -> tuple[list[Fact], list[Note]]:
    """Facts of an environment. With `complete`, a variable that is not there is known to be unset."""
    facts: list[Fact] = []
    notes: list[Note] = []
    for setting in ENVIRONMENT:
        if setting.name not in variables:
            if complete and setting.key in UNSET_MEANS_NONE:
                here = source(kind, where, None, f"{setting.name} is not set")
                facts.append(Fact(setting.key, None, here, assumed=True))
            continue
        raw, line = variables[setting.name]
        if raw is None:
            notes.append(Note("unreadable-variable", where, setting.name))
            continue
        shown = "***" if setting.key is Key.API_KEY else raw
        here = source(kind, where, line, f"{setting.name}={shown}")
        value = setting.convert(raw)
        if value is None:
            notes.append(Note("unreadable-variable", here.where, here.text))
            continue
        facts.append(Fact(setting.key, value, here))
    return facts, notes


def parse_environment(lines: Iterable[str]) -> dict[str, tuple[str | None, int | None]]:
    """`NAME=value` lines, with or without `export` and quotes; comments and everything else is passed
    over.
    """
    variables: dict[str, tuple[str | None, int | None]] = {}
    for number, line in enumerate(lines, start=1):
        match = _ASSIGNMENT.match(line[:4000])
        if match is None:
            continue
        value = match[2].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        elif " #" in value:
            value = value.split(" #", 1)[0].rstrip()
        variables[match[1]] = (None if "$" in value else value, number)
    return variables


def read_environment(where: str, lines: Iterable[str]) -> tuple[list[Fact], list[Note]]:
    """A whole `env` dump or .env file, taken as complete."""
    variables = parse_environment(lines)
    if not variables:
        return [], [Note("no-variables", where)]
    return environment_facts("env", where, variables, complete=True)
