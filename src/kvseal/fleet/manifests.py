"""Docker Compose files, Kubernetes manifests, systemd units and Dockerfiles, read into invocations."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kvseal.fleet.environment import parse_environment
from kvseal.fleet.invocations import Invocation, Token
from kvseal.fleet.marked_yaml import line_of, load_documents
from kvseal.fleet.shell import read_shell, tokens_of

_MAX_NODES: Final = 100_000
_Variables = dict[str, tuple[str | None, int | None]]


def read_yaml(where: str, text: str) -> list[Invocation] | None:
    """Containers of every document; None where the text is no manifest."""
    documents = load_documents(text)
    if documents is None:
        return None
    found: list[Invocation] = []
    known = False
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        services = document.get("services")
        if isinstance(services, Mapping):
            known = True
            for name, service in services.items():
                if isinstance(service, Mapping):
                    found += _container(where, str(name), service, service.get("environment"), "entrypoint")
        for owner, container in _containers(document):
            known = True
            label = f"{owner}/{container.get('name', 'container')}".strip("/")
            found += _container(where, label, container, container.get("env"), "command")
    return found if known else None


def _containers(document: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every container of any workload kind, with the name of the object it belongs to."""
    stack: list[tuple[Any, str]] = [(document, "")]
    visited = 0
    while stack and visited < _MAX_NODES:
        node, owner = stack.pop()
        visited += 1
        if isinstance(node, Mapping):
            metadata = node.get("metadata")
            if isinstance(metadata, Mapping) and isinstance(metadata.get("name"), str):
                owner = metadata["name"]
            containers = node.get("containers")
            if isinstance(containers, list):
                yield from ((owner, c) for c in containers if isinstance(c, Mapping))
            stack += [(child, owner) for key, child in reversed(list(node.items())) if key != "containers"]
        elif isinstance(node, list):
            stack += [(child, owner) for child in reversed(node)]


def _container(
    where: str, name: str, spec: Mapping[str, Any], environment: Any, entry: str
) -> list[Invocation]:
    variables, is_open = _variables(environment)
    is_open |= bool(spec.get("envFrom") or spec.get("env_file"))
    words = [*_words(spec.get(entry)), *_words(spec.get("args" if entry == "command" else "command"))]
    image = spec.get("image")
    base = Invocation(
        where,
        name,
        tuple(words),
        variables,
        is_open,
        Token(image, line_of(image)) if isinstance(image, str) else None,
        tuple(_ports(spec.get("ports"))),
    )
    script = next(
        (words[i + 1] for i in range(len(words) - 1) if re.fullmatch(r"-[a-z]*c", words[i].text)), None
    )
    shell = bool(words) and words[0].text.rsplit("/", 1)[-1] in {"bash", "sh"}
    if script is None or not shell:
        return [base]
    inner = read_shell(where, script.text, name, script.line or 1)
    return [
        replace(
            base,
            name=one.name,
            argv=one.argv,
            variables={**variables, **one.variables},
            image=base.image or one.image,
        )
        for one in inner
    ]


def _words(value: Any) -> list[Token]:
    if isinstance(value, str):
        return tokens_of(value, line_of(value) or 1)
    if isinstance(value, list):
        return [Token(str(item), line_of(item)) for item in value if isinstance(item, (str, int, float))]
    return []


def _variables(environment: Any) -> tuple[_Variables, bool]:
    """Variables, and whether some of them cannot be seen here."""
    found: _Variables = {}
    if isinstance(environment, Mapping):
        for name, value in environment.items():
            raw = None if value is None or "$" in str(value) else str(value)
            found[str(name)] = (raw, line_of(value) or line_of(name))
    elif isinstance(environment, list):
        for item in environment:
            if isinstance(item, str):
                name, equals, value = item.partition("=")
                found[name] = (value if equals and "$" not in value else None, line_of(item))
            elif isinstance(item, Mapping) and "name" in item:
                value = item.get("value")
                raw = str(value) if isinstance(value, (str, int, float)) and "$(" not in str(value) else None
                found[str(item["name"])] = (raw, line_of(value) or line_of(item["name"]))
    return found, False


def _ports(ports: Any) -> Iterator[Token]:
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, (str, int)):
            yield Token(str(port), line_of(port))
        elif isinstance(port, Mapping) and "hostPort" in port:
            yield Token(f"{port['hostPort']}:{port.get('containerPort', '')}", None)


_UNIT_LINE: Final = re.compile(
    r"^\s*(Environment|EnvironmentFile|ExecStart|Description)\s*=\s*(.*)$", re.DOTALL
)


def looks_like_unit(text: str) -> bool:
    return re.search(r"^\s*\[Service\]\s*$", text, re.MULTILINE) is not None


def read_unit(where: str, text: str) -> list[Invocation]:
    """A systemd unit: `ExecStart=`, `Environment=`; an `EnvironmentFile=` leaves the environment open."""
    variables: _Variables = {}
    is_open = False
    commands: list[tuple[int, str]] = []
    for number, line in _joined(text):
        match = _UNIT_LINE.match(line)
        if match is None:
            continue
        if match[1] == "Environment":
            try:
                assignments = shlex.split(match[2])
            except ValueError:
                assignments = match[2].split()
            variables.update({k: (v[0], number) for k, v in parse_environment(assignments).items()})
        elif match[1] == "EnvironmentFile":
            is_open = True
        elif match[1] == "ExecStart":
            commands.append((number, match[2].lstrip("-+!@:|")))
    found = [one for number, command in commands for one in read_shell(where, command, where, number)]
    return [replace(one, variables={**variables, **one.variables}, open_environment=is_open) for one in found]


def _joined(text: str) -> Iterator[tuple[int, str]]:
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if pending else number
        if line.rstrip().endswith("\\"):
            pending += line.rstrip() + "\n"  # the backslash stays: the shell reader counts lines by it
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def looks_like_dockerfile(text: str) -> bool:
    return re.search(r"^\s*FROM\s+\S+", text, re.MULTILINE) is not None and (
        re.search(r"^\s*(CMD|ENTRYPOINT|ENV)\b", text, re.MULTILINE) is not None
    )


def read_dockerfile(where: str, text: str) -> list[Invocation]:
    """`FROM`, `ENV`, `ENTRYPOINT`, `CMD`. More variables may be set when the container is started."""
    image: Token | None = None
    variables: _Variables = {}
    entry: list[Token] = []
    command: list[Token] = []
    for number, line in _joined(text):
        word, _, rest = line.strip().partition(" ")
        match word.upper():
            case "FROM":
                image = Token(rest.split()[0] if rest.split() else "", number)
            case "ENV":
                pairs = rest.split() if "=" in rest.split(" ")[0] else ["=".join(rest.split(None, 1))]
                variables.update({k: (v[0], number) for k, v in parse_environment(pairs).items()})
            case "ENTRYPOINT":
                entry = _docker_words(rest, number)
            case "CMD":
                command = _docker_words(rest, number)
            case _:
                pass
    if not entry and not command:
        return []
    return [Invocation(where, where, (*entry, *command), variables, open_environment=True, image=image)]


def _docker_words(rest: str, number: int) -> list[Token]:
    if rest.lstrip().startswith("["):
        documents = load_documents(rest.replace("\\\n", " "))
        if documents and isinstance(documents[0], list):
            return [Token(str(item), number) for item in documents[0]]
    return tokens_of(rest, number)
