"""A launch of a server, wherever it was written down, read into a `Server`."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from kvseal.fleet.environment import Variables, environment_facts
from kvseal.fleet.facts import Fact, Key, Note, Server, Source, Value, source
from kvseal.fleet.literals import flag_of
from kvseal.fleet.packages import image_facts
from kvseal.fleet.settings import ENVIRONMENT, FLAG_TABLES, UNKNOWN, VLLM_ROLES, VLLM_TRANSFER, Setting


@dataclass(frozen=True)
class Token:
    text: str
    line: int | None = None


@dataclass(frozen=True)
class Invocation:
    """A command and its surroundings. `open_environment`: variables may come from elsewhere too."""

    where: str
    name: str
    argv: tuple[Token, ...]
    variables: Variables = field(default_factory=dict)
    open_environment: bool = True
    image: Token | None = None
    ports: tuple[Token, ...] = ()


# (tokens that follow each other, engine); the last token may be a module after -m.
_LAUNCHERS: Final = (
    (("sglang.launch_server",), "sglang"),
    (("dynamo.sglang",), "sglang"),
    (("sglang", "serve"), "sglang"),
    (("sglang_router.launch_router",), "router"),
    (("sglang_router.launch_server",), "router"),
    (("sglang-router", "launch"), "router"),
    (("smg", "launch"), "router"),
    (("vllm", "serve"), "vllm"),
    (("vllm.entrypoints.openai.api_server",), "vllm"),
    (("dynamo.vllm",), "vllm"),
    (("kvseal", "serve"), "kvseal"),
)
_OPEN_ENDED: Final = re.compile(r"\$(?:@|\*|\{@|\{\*|[A-Za-z_{(]|$)|`|\{\{")
_NEAR_PREFIXES: Final = ("--disagg", "--kv-", "--max-total", "--context", "--page", "--enable-kv")
# Flags of the same families that carry no fact of ours: not to be called unknown.
_OTHER_KNOWN: Final = frozenset(
    {
        "--disaggregation-bootstrap-port",
        "--disaggregation-ib-device",
        "--disaggregation-decode-enable-offload-kvcache",
        "--disaggregation-decode-tp",
        "--disaggregation-decode-dp",
        "--disaggregation-prefill-pp",
        "--disaggregation-decode-polling-interval",
        "--disaggregation-decode-extra-slots",
        "--disaggregation-decode-retraction-backup",
        "--disaggregation-decode-allocation-policy",
        "--max-total-tokens",
        "--kv-events-config",
        "--kv-transfer-config",
        "--kv-cache-metrics",
        "--kv-offloading-size",
        "--kv-offloading-backend",
        "--kv-sharing-fast-prefill",
        "--kv-cache-memory-bytes",
    }
)


def find_launch(argv: Sequence[Token]) -> tuple[str, int] | None:
    """Engine and index of the first argument after the launcher; None where the command starts none."""
    words = [
        token.text.rsplit("/", 1)[-1] if index == 0 or "/" in token.text else token.text
        for index, token in enumerate(argv)
    ]
    for index in range(len(words)):
        for pattern, engine in _LAUNCHERS:
            if tuple(words[index : index + len(pattern)]) == pattern:
                return engine, index + len(pattern)
        if (
            words[index].endswith(("sglang/launch_server.py", "launch_server.py"))
            and "sglang" in argv[index].text
        ):
            return "sglang", index + 1
    return None


def server_of(invocation: Invocation) -> tuple[Server | None, list[Note]]:
    """The server that an invocation starts; None where it starts none that we know."""
    launch = find_launch(invocation.argv)
    notes: list[Note] = []
    facts: list[Fact] = []
    engine_by_image: Value = None
    if invocation.image is not None:
        facts, notes = image_facts("command", invocation.where, invocation.image.line, invocation.image.text)
        engine_by_image = next((fact.value for fact in facts if fact.key is Key.ENGINE), None)
    if launch is None and engine_by_image == "vllm" and any(t.text.startswith("--") for t in invocation.argv):
        launch = ("vllm", 0)  # the image's entry point is the server
    if launch is None:
        return None, []
    engine, start = launch
    arguments = invocation.argv[start:]
    reader = _Arguments(invocation, engine, arguments)
    if start and invocation.argv[start - 1].text.startswith("dynamo."):
        reader.defaults_unknown()  # Dynamo fills in defaults of its own, a KV connector among them
    facts = [fact for fact in facts if fact.key is not Key.ENGINE] + reader.facts()
    notes += reader.notes
    complete = not invocation.open_environment
    found, trouble = environment_facts("command", invocation.where, invocation.variables, complete=complete)
    facts += [fact for fact in found if fact.key in _allowed(engine)]
    notes += trouble
    facts += [
        Fact(Key.PUBLISHED_PORTS, port.text, source("command", invocation.where, port.line, port.text))
        for port in invocation.ports
    ]
    return Server(invocation.name).plus(facts), notes


_SGLANG_VARIABLES: Final = frozenset(one.key for one in ENVIRONMENT if one.engine == "sglang")
_VLLM_VARIABLES: Final = frozenset(one.key for one in ENVIRONMENT if one.engine == "vllm")


def _allowed(engine: str) -> frozenset[Key]:
    """A variable of the other engine in a shared environment says nothing about this one."""
    match engine:
        case "sglang":
            return frozenset(Key) - _VLLM_VARIABLES
        case "vllm":
            return frozenset(Key) - _SGLANG_VARIABLES
        case _:
            return frozenset()


class _Arguments:
    """Flags of one launch, with the defaults of those that are not there."""

    def __init__(self, invocation: Invocation, engine: str, arguments: Sequence[Token]) -> None:
        self._where = invocation.where
        self._engine = engine
        self._arguments = list(arguments)
        self._table = FLAG_TABLES[engine]
        self._by_flag = {flag: setting for setting in self._table for flag in setting.flags()}
        self._line = invocation.argv[0].line if invocation.argv else None
        self._complete = True
        self._raw: set[Key] = set()
        self.notes: list[Note] = []

    def defaults_unknown(self) -> None:
        self._complete = False

    def facts(self) -> list[Fact]:
        engine_here = source("command", self._where, self._line, self._shown())
        engine = "sglang" if self._engine == "router" else self._engine
        facts = [Fact(Key.ENGINE, engine, engine_here)]
        facts += self._explicit()
        if self._complete:
            facts += self._defaults(engine_here)
        if self._engine == "router":
            facts = [f for f in facts if f.key is not Key.ROLE] + [Fact(Key.ROLE, "router", engine_here)]
        elif self._engine == "kvseal":
            facts.append(Fact(Key.ROLE, "combined", engine_here))
        return facts

    def _shown(self) -> str:
        return " ".join(token.text for token in self._arguments[:8]) or self._engine

    def _explicit(self) -> list[Fact]:
        facts: list[Fact] = []
        index = 0
        if self._engine == "vllm" and self._arguments and not self._arguments[0].text.startswith("-"):
            facts.append(
                self._fact(Key.MODEL, self._arguments[0].text, self._arguments[0], self._arguments[0].text)
            )
            index = 1
        while index < len(self._arguments):
            token = self._arguments[index]
            index += 1
            if not token.text.startswith("-"):
                if _OPEN_ENDED.search(token.text):
                    self._complete = False  # "$@" and the like: more flags than can be seen here
                continue
            name, equals, value = token.text.partition("=")
            taken = False
            if (
                not equals
                and index < len(self._arguments)
                and not self._arguments[index].text.startswith("--")
            ):
                value, taken = self._arguments[index].text, True
            found, used = self._flag(name, value if equals or taken else None, token)
            facts += found
            index += taken and used
        return facts

    def _flag(self, name: str, value: str | None, token: Token) -> tuple[list[Fact], bool]:
        """Facts of one flag, and whether it takes the next token as its value."""
        spelled = name.replace("_", "-") if self._engine == "vllm" else name
        if spelled in {"--config", "-c"}:
            self._complete = False
            self.notes.append(Note("config-file-not-read", self._where, value or ""))
            return [], True
        if self._engine == "vllm":
            if spelled == "--kv-transfer-config":
                return self._transfer(value, token), True
            if spelled.startswith("--kv-transfer-config."):
                part = spelled.rsplit(".", 1)[1].replace("-", "_")
                return self._transfer(json.dumps({part: value}), token), True
            if spelled == "--no-enable-prefix-caching":
                self._raw.add(Key.PREFIX_CACHE)
                return [self._fact(Key.PREFIX_CACHE, False, token, spelled)], False
        setting = self._by_flag.get(spelled) or self._abbreviated(spelled)
        if setting is None:
            self._look_closer(spelled, token)
            return [], True
        self._raw.add(setting.key)
        return self._value(setting, spelled, value, token)

    def _value(self, setting: Setting, flag: str, value: str | None, token: Token) -> tuple[list[Fact], bool]:
        if setting.switch and (value is None or flag_of(value) is None):
            return [self._fact(setting.key, setting.convert("true"), token, flag)], False
        if value is None or _OPEN_ENDED.search(value):
            self.notes.append(Note("unexpanded-value", self._at(token), f"{flag} {value or ''}".strip()))
            return [], True
        secret = setting.key in {Key.API_KEY, Key.ADMIN_KEY}
        parsed = setting.convert(value)
        if parsed is None and setting.key not in {Key.QUANTIZATION, Key.DIST_INIT}:
            self.notes.append(Note("unreadable-value", self._at(token), f"{flag} {value}"))
            return [], True
        return [self._fact(setting.key, parsed, token, f"{flag} {'***' if secret else value}")], True

    def _abbreviated(self, name: str) -> Setting | None:
        """argparse accepts any unique beginning of a flag."""
        if len(name) < 6 or name in _OTHER_KNOWN:
            return None
        every = [*self._by_flag, *_OTHER_KNOWN]
        matches = [flag for flag in every if flag.startswith(name)]
        return self._by_flag.get(matches[0]) if len(matches) == 1 else None

    def _look_closer(self, name: str, token: Token) -> None:
        """An unknown flag of a family that matters is said; a typing error there is a guard that is not
        on.
        """
        if name.startswith(_NEAR_PREFIXES) and name not in _OTHER_KNOWN:
            close = get_close_matches(name, [*self._by_flag, *_OTHER_KNOWN], n=1, cutoff=0.8)
            self.notes.append(
                Note("unknown-flag", self._at(token), f"{name} → {close[0]}?" if close else name)
            )

    def _transfer(self, value: str | None, token: Token) -> list[Fact]:
        self._raw |= {setting.key for setting in VLLM_TRANSFER} | {Key.ROLE}
        try:
            config = json.loads(value or "")
        except (ValueError, RecursionError):
            config = None
        if not isinstance(config, dict):
            self.notes.append(
                Note("unreadable-value", self._at(token), f"--kv-transfer-config {value or ''}")
            )
            return []
        extra = config.get("kv_connector_extra_config")
        flat = {**(extra if isinstance(extra, dict) else {}), **config}
        nested = flat.get("connectors")
        names = [str(flat.get("kv_connector"))]
        names += [
            str(c.get("kv_connector"))
            for c in (nested if isinstance(nested, list) else ())
            if isinstance(c, dict)
        ]
        facts = []
        for setting in VLLM_TRANSFER:
            raw = "+".join(names) if setting.key is Key.CONNECTOR else flat.get(setting.names[0])
            if isinstance(raw, (str, int, float)):
                facts.append(
                    self._fact(setting.key, setting.convert(raw), token, f'"{setting.names[0]}": {raw!r}')
                )
        role = VLLM_ROLES.get(str(flat.get("kv_role")), "both")
        facts.append(self._fact(Key.ROLE, role, token, f'"kv_role": {flat.get("kv_role")!r}'))
        if Key.LOAD_FAILURE_POLICY not in {fact.key for fact in facts}:
            here = self._source(token, '"kv_load_failure_policy" is not set (default "fail")')
            facts.append(Fact(Key.LOAD_FAILURE_POLICY, "fail", here, assumed=True))
        return facts

    def _defaults(self, here: Source) -> list[Fact]:
        facts = []
        for setting in self._table:
            if setting.key in self._raw or setting.default is UNKNOWN:
                continue
            assert setting.default is None or isinstance(setting.default, (str, int, float, bool))
            text = f"{setting.flags()[0]} is not set (default {setting.default})"
            facts.append(
                Fact(
                    setting.key, setting.default, source("command", here.name, here.line, text), assumed=True
                )
            )
        if self._engine == "vllm" and Key.CONNECTOR not in self._raw:
            absent = source("command", here.name, here.line, "--kv-transfer-config is not set")
            facts += [
                Fact(Key.CONNECTOR, None, absent, assumed=True),
                Fact(Key.ROLE, "combined", absent, assumed=True),
            ]
        return facts

    def _fact(self, key: Key, value: Value, token: Token, evidence: str) -> Fact:
        return Fact(key, value, self._source(token, evidence))

    def _source(self, token: Token, evidence: str) -> Source:
        return source("command", self._where, token.line, evidence)

    def _at(self, token: Token) -> str:
        return self._where if token.line is None else f"{self._where}:{token.line}"
