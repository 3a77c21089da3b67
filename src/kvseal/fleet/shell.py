"""Shell scripts, read but never run: continuations, comments, assignments, variables, `docker run`."""

import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvseal.fleet.environment import Variables
from kvseal.fleet.invocations import Invocation, Token, find_launch

_ASSIGN: Final = re.compile(r"^([A-Za-z_][A-Za-z0-9_]{0,120})=(.*)$", re.DOTALL)
_VARIABLE: Final = re.compile(
    r"\$(?:([A-Za-z_]\w{0,120})|\{([A-Za-z_]\w{0,120})(?::?[-=]([^{}$]{0,500}))?\})"
)
_SEPARATORS: Final = frozenset({"&&", "||", ";", "|", "&", "(", ")", ";;", "|&"})
_MAX_JOINED_LINES: Final = 100
_MAX_SCRIPT_CHARS: Final = 1 << 19
_DOCKER_WITH_VALUE: Final = frozenset(
    {
        "-e",
        "--env",
        "-p",
        "--publish",
        "-v",
        "--volume",
        "--name",
        "--gpus",
        "--shm-size",
        "--network",
        "--net",
        "--ipc",
        "-w",
        "--workdir",
        "--entrypoint",
        "--env-file",
        "-u",
        "--user",
        "--ulimit",
        "--device",
        "--cap-add",
        "--security-opt",
        "--mount",
        "-h",
        "--hostname",
        "--restart",
        "-m",
        "--memory",
        "--cpus",
        "--runtime",
        "-l",
        "--label",
        "--add-host",
        "--log-driver",
        "--log-opt",
        "--pull",
        "--platform",
        "--tmpfs",
        "--expose",
        "--group-add",
        "--pid",
    }
)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined over backslashes and open quotes, each with the number of its first line."""
    pending, first, joined = "", 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not pending:
            first, joined = number, 0
        joined += 1
        if line.rstrip().endswith("\\") and not line.lstrip().startswith("#"):
            # A newline mark instead of the backslash keeps the line numbers of the tokens.
            pending += line.rstrip()[:-1] + "\n"
            if joined < _MAX_JOINED_LINES:
                continue
        elif pending and line.lstrip().startswith("#"):
            continue  # a comment in the middle of a continued command
        else:
            pending += line
        if _quotes_open(pending) and joined < _MAX_JOINED_LINES:
            pending += "\n"
            continue
        yield first, pending
        pending = ""
    if pending:
        yield first, pending


def _quotes_open(text: str) -> bool:
    if text.count("'") % 2 == 0 and text.count('"') % 2 == 0:
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def tokens_of(text: str, first_line: int) -> list[Token]:
    """Words and separators of one logical line, each with its line number."""
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars="();|&")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[Token] = []
    try:
        for word in lexer:
            # The lexer has read one character past the word; a quoted word holds newlines of its own.
            passed = text.count("\n", 0, max(0, stream.tell() - 1)) - word.count("\n")
            found.append(Token(word, first_line + max(0, passed)))
    except ValueError:
        # Unbalanced quotes to the end: read what can be read without them.
        return [Token(word.strip("'\""), first_line) for word in text.split()]
    return found


def _expand(text: str, variables: Variables) -> str:
    """Known variables replaced, defaults taken, the rest left as it stands."""

    def value(match: re.Match[str]) -> str:
        known = variables.get(match[1] or match[2])
        if known is not None and known[0] is not None:
            return known[0]
        if match[3] is not None and known is None:
            return match[3]
        return match[0]

    return _VARIABLE.sub(value, text)


def read_shell(where: str, text: str, name: str | None = None, first_line: int = 1) -> list[Invocation]:
    """Every server launch in a script."""
    exported: dict[str, tuple[str | None, int | None]] = {}
    local: dict[str, tuple[str | None, int | None]] = {}
    found: list[Invocation] = []
    for line, logical in _logical_lines(text[:_MAX_SCRIPT_CHARS]):
        command: list[Token] = []
        for token in [*tokens_of(logical, first_line + line - 1), Token(";")]:
            if token.text not in _SEPARATORS:
                command.append(token)
                continue
            found += _simple_command(where, command, exported, local)
            command = []
    label = name or where
    return [
        replace(found_one, name=label if len(found) == 1 else f"{label}#{index}")
        for index, found_one in enumerate(found, start=1)
    ]


def _simple_command(
    where: str,
    command: list[Token],
    exported: dict[str, tuple[str | None, int | None]],
    local: dict[str, tuple[str | None, int | None]],
) -> list[Invocation]:
    words = [Token(_expand(token.text, {**local, **exported}), token.line) for token in command]
    if words and words[0].text in {"export", "declare", "typeset", "env"}:
        target = exported if words[0].text != "env" else dict(exported)
        rest = words[1:]
    else:
        target, rest = dict(exported), words
    while rest and (match := _ASSIGN.match(rest[0].text)):
        target[match[1]] = (None if "$" in match[2] else match[2], rest[0].line)
        rest = rest[1:]
    if not rest:
        if words and words[0].text not in {"export", "declare", "typeset"}:
            local.update({k: v for k, v in target.items() if k not in exported or exported[k] != v})
        return []
    if script := _inner_script(rest):
        inner = read_shell(where, script.text, first_line=script.line or 1)
        return [replace(one, variables={**target, **one.variables}) for one in inner]
    docker = _docker_run(where, rest)
    if docker is not None:
        return [docker]
    if find_launch(rest) is None:
        return []
    return [Invocation(where, where, tuple(rest), dict(target))]


def _inner_script(words: list[Token]) -> Token | None:
    """The script of `bash -c '…'`, wherever it stands in the command (srun, ssh, nohup)."""
    for index, word in enumerate(words[:-1]):
        if word.text.rsplit("/", 1)[-1] in {"bash", "sh"} and re.fullmatch(
            r"-[a-z]*c", words[index + 1].text
        ):
            return words[index + 2] if index + 2 < len(words) else None
    return None


def _docker_run(where: str, words: list[Token]) -> Invocation | None:
    texts = [word.text.rsplit("/", 1)[-1] for word in words]
    start = next(
        (
            i
            for i, t in enumerate(texts[:-1])
            if t in {"docker", "podman", "nerdctl"} and texts[i + 1] == "run"
        ),
        None,
    )
    if start is None:
        return None
    variables: dict[str, tuple[str | None, int | None]] = {}
    ports: list[Token] = []
    open_environment = False  # only what -e passes, and what the image sets
    index = start + 2
    while index < len(words) and words[index].text.startswith("-"):
        flag, equals, value = words[index].text.partition("=")
        line = words[index].line
        if not equals and flag in _DOCKER_WITH_VALUE and index + 1 < len(words):
            index += 1
            value = words[index].text
        if flag in {"-e", "--env"}:
            key, given, raw = value.partition("=")
            variables[key] = (raw if given and "$" not in raw else None, line)
        elif flag == "--env-file":
            open_environment = True
        elif flag in {"-p", "--publish"}:
            ports.append(Token(value, line))
        index += 1
    if index >= len(words):
        return None
    image, argv = words[index], tuple(words[index + 1 :])
    return Invocation(where, where, argv or (image,), variables, open_environment, image, tuple(ports))
