"""Launch commands in any file: finds out what the file is and reads its servers."""

import re
from typing import Final

from kvseal.fleet.facts import Note, Server
from kvseal.fleet.invocations import Invocation, find_launch, server_of
from kvseal.fleet.manifests import (
    looks_like_dockerfile,
    looks_like_unit,
    read_dockerfile,
    read_unit,
    read_yaml,
)
from kvseal.fleet.shell import read_shell
from kvseal.fleet.streams import Unreadable, read_text


def read_commands(path: str) -> tuple[list[Server], list[Note]]:
    """Servers that a shell script, Compose file, manifest, unit or Dockerfile starts."""
    name = "stdin" if path == "-" else path
    try:
        text = read_text(path)
    except Unreadable as problem:
        return [], [Note(problem.code, name, problem.detail)]
    return commands_in(name, text)


def commands_in(name: str, text: str) -> tuple[list[Server], list[Note]]:
    """The same for text that is already at hand (`launch_command` of a live server)."""
    servers: list[Server] = []
    notes: list[Note] = []
    invocations = _invocations(name, text)
    if invocations is None:
        return [], [Note("broken-manifest", name)]
    for invocation in invocations:
        server, trouble = server_of(invocation)
        notes += trouble
        if server is not None:
            servers.append(server)
    if not servers:
        notes.append(Note("no-known-command", name))
    return servers, notes


# Templates and broken files of these kinds must not be read as scripts: flags on the next lines would be
# missed.
_MANIFEST: Final = re.compile(r"^\s{0,20}(?:services|apiVersion|kind|containers)\s*:", re.MULTILINE)


def _invocations(name: str, text: str) -> list[Invocation] | None:
    """None for a manifest that cannot be read."""
    if looks_like_unit(text):
        return read_unit(name, text)
    if looks_like_dockerfile(text):
        return read_dockerfile(name, text)
    manifest = read_yaml(name, text)
    if manifest is not None:
        return [one for one in manifest if find_launch(one.argv) is not None or one.image is not None]
    return None if _MANIFEST.search(text) else read_shell(name, text)
