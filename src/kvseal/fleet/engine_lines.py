"""Single log lines of SGLang and vLLM, read into facts.

Formats read in the published wheels. SGLang prints `server_args=ServerArgs(model_path='…', …)` up to 0.5.18
and a dictionary from 0.5.19 on; the scheduler of rank 0 prints pool and context in one line. It never prints
its version, but its fields tell whether it is older than 0.5.21. vLLM names its version.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kvseal.fleet.facts import Fact, Key, Value, source
from kvseal.fleet.literals import integer_of, literal
from kvseal.fleet.settings import SGLANG, VLLM, VLLM_ROLES, VLLM_TRANSFER, Setting

NEEDLES: Final = (
    b"server_args=",
    b"max_total_num_tokens=",
    b"KV pool holds ",
    b"exceeds the maximum allowed length",
    b"releasing anyway",
    b"transfer failed for request rank=",
    b"KV checksum ",
    b"metadata buffers but this prefill",
    b"LLM engine (v",
    b"API server version ",
    b"KV cache size: ",
    b"non-default args",
    b"Releasing expired KV blocks",
)


class Kind(Enum):
    START = auto()
    """A process says who it is."""
    CAPACITY = auto()
    """A process says what it allocated."""
    EVENT = auto()


@dataclass(frozen=True)
class Reading:
    kind: Kind
    engine: str
    facts: tuple[Fact, ...]
    role_hint: str | None = None
    """Only this role writes such a line."""


@dataclass(frozen=True)
class Place:
    """File, line number, and the engine's text of that line."""

    name: str
    line: int
    text: str

    def fact(self, key: Key, value: Value, evidence: str, *, assumed: bool = False) -> Fact:
        return Fact(key, value, source("log", self.name, self.line, evidence), assumed)


_VALUE: Final = r"""('(?:[^'\\]|\\.){0,2000}'|"(?:[^"\\]|\\.){0,2000}"|[^\s,(){}\[\]]{1,300})"""


def _field_pattern(settings: Iterable[Setting]) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for setting in settings for name in setting.names[:2] if name[0] != "-")
    return re.compile(rf"""(?<![\w.])['"]?({names})['"]?\s*[=:]\s*{_VALUE}""")


_SGLANG_FIELDS: Final = _field_pattern(SGLANG)
_VLLM_CONFIG_FIELDS: Final = _field_pattern((*VLLM, Setting(Key.CONTEXT, ("max_seq_len",), integer_of)))
_VLLM_TRANSFER_FIELDS: Final = _field_pattern(VLLM_TRANSFER)
_CAPACITY: Final = re.compile(r"max_total_num_tokens=(\d{1,18})\b")
_CONTEXT: Final = re.compile(r"\bcontext_len=(\d{1,18})\b")
_POOL_WARNING: Final = re.compile(r"KV pool holds (\d{1,18}) tokens, fewer than --context-length (\d{1,18})")
_OVERLONG: Final = re.compile(
    r"Input length \((\d{1,12}) tokens\) exceeds the maximum allowed length \((\d{1,12})"
)
_VLLM_ENGINE: Final = re.compile(r"LLM engine \(v([^)\s]{1,60})\) with config: ")
_VLLM_SERVER: Final = re.compile(r"vLLM API server version (\S{1,60})")
_VLLM_POOL: Final = re.compile(r"KV cache size: ([\d,]{1,24}) tokens")
_VLLM_MAX_LEN: Final = re.compile(r"Maximum concurrency for ([\d,]{1,24}) tokens per request")

_COMPLETE_FIELDS: Final = "tokenizer_mode"
"""A field of every release: the line is the engine's own, not somebody's summary."""
_FIELD_OF_0521: Final = "disaggregation_enable_kv_checksum"

# A line that holds the first string is an event of this kind, and only this role writes it.
_EVENTS: Final = (
    ("releasing anyway", Key.DEFERRED_TIMEOUTS, "sglang", "decode"),
    ("Prefill transfer failed for request rank=", Key.TRANSFER_FAILED, "sglang", "prefill"),
    ("Decode transfer failed for request rank=", Key.TRANSFER_FAILED, "sglang", "decode"),
    ("KV checksum mismatch", Key.CHECKSUM_MISMATCH, "sglang", "decode"),
    ("KV checksum skipped", Key.CHECKSUM_SKIPPED, "sglang", "decode"),
    ("metadata buffers but this prefill", Key.CHECKSUM_SKIPPED, "sglang", "prefill"),
    ("Releasing expired KV blocks", Key.LEASE_EXPIRED, "vllm", "prefill"),
)


def read_line(place: Place) -> Reading | None:
    """What one line says, or None."""
    text = place.text
    if "server_args=" in text:
        return _server_args(place)
    if "max_total_num_tokens=" in text or "KV pool holds " in text:
        return _sglang_capacity(place)
    if (overlong := _OVERLONG.search(text)) is not None:
        return Reading(Kind.EVENT, "sglang", (place.fact(Key.OVERLONG_SEEN, True, overlong[0] + " tokens)"),))
    for needle, key, engine, role in _EVENTS:
        if needle in text:
            return Reading(Kind.EVENT, engine, (place.fact(key, True, text),), role)
    return _vllm_line(place)


def _vllm_line(place: Place) -> Reading | None:
    text = place.text
    if (engine_line := _VLLM_ENGINE.search(text)) is not None:
        version = place.fact(Key.VERSION, engine_line[1], engine_line[0])
        config = _fields(place, _VLLM_CONFIG_FIELDS, (*VLLM, _MAX_SEQ_LEN), engine_line.end())
        return _vllm_start(place, [version, *config])
    if (server_line := _VLLM_SERVER.search(text)) is not None:
        return _vllm_start(place, [place.fact(Key.VERSION, server_line[1].rstrip(","), server_line[0])])
    if "non-default args" in text:
        return _vllm_arguments(place)
    if (pool := _VLLM_POOL.search(text)) is not None:
        return _vllm_capacity(place, pool)
    return None


_MAX_SEQ_LEN: Final = Setting(Key.CONTEXT, ("max_seq_len",), integer_of)


def _fields(
    place: Place, pattern: re.Pattern[str], settings: Iterable[Setting], start: int = 0
) -> list[Fact]:
    by_name = {name: setting for setting in settings for name in setting.names}
    facts: list[Fact] = []
    for match in pattern.finditer(place.text, start):
        setting = by_name[match[1]]
        raw = literal(match[2])
        if raw is None and setting.key not in {
            Key.ROLE,
            Key.QUANTIZATION,
            Key.API_KEY,
            Key.ADMIN_KEY,
            Key.DIST_INIT,
        }:
            continue  # None in a start-up log: the engine decides later
        value = setting.convert(raw)
        if value is None and raw is not None:
            continue
        secret = setting.key in {Key.API_KEY, Key.ADMIN_KEY}
        evidence = f"{match[1]}={'***' if secret and value else match[2]}"
        facts.append(place.fact(setting.key, value, evidence))
    return facts


def _server_args(place: Place) -> Reading | None:
    start = place.text.index("server_args=")
    facts = _fields(place, _SGLANG_FIELDS, SGLANG, start)
    if not any(fact.key in {Key.MODEL, Key.ROLE, Key.HOST} for fact in facts):
        return None
    engine = place.fact(Key.ENGINE, "sglang", "server_args=ServerArgs(…)")
    if _COMPLETE_FIELDS in place.text and place.text.rstrip()[-1:] in {")", "}"}:
        facts += _by_field_names(place)
    return Reading(Kind.START, "sglang", (engine, *facts))


def _by_field_names(place: Place) -> Iterable[Fact]:
    """What a whole line tells by the fields that it lacks."""
    if "disaggregation_mode" not in place.text:
        # Releases before disaggregation existed print every field but this one.
        yield place.fact(Key.ROLE, "combined", "server_args without disaggregation_mode", assumed=True)
        return
    older = _FIELD_OF_0521 not in place.text
    yield place.fact(
        Key.PREDATES_FIX, older, f"server_args {'without' if older else 'with'} {_FIELD_OF_0521}"
    )


def _sglang_capacity(place: Place) -> Reading | None:
    facts: list[Fact] = []
    if (warning := _POOL_WARNING.search(place.text)) is not None:
        facts = [
            place.fact(Key.POOL, int(warning[1]), warning[0]),
            place.fact(Key.CONTEXT, int(warning[2]), warning[0]),
        ]
    else:
        pool, context = _CAPACITY.search(place.text), _CONTEXT.search(place.text)
        evidence = f"{pool[0] if pool else ''} … {context[0] if context else ''}".strip(" …")
        if pool is not None:
            facts.append(place.fact(Key.POOL, int(pool[1]), evidence))
        if context is not None:
            facts.append(place.fact(Key.CONTEXT, int(context[1]), evidence))
    return Reading(Kind.CAPACITY, "sglang", tuple(facts)) if facts else None


def _vllm_start(place: Place, facts: list[Fact]) -> Reading:
    return Reading(Kind.START, "vllm", (place.fact(Key.ENGINE, "vllm", facts[0].source.text), *facts))


def _vllm_arguments(place: Place) -> Reading:
    """vLLM prints every argument that is not the default, so what is missing has its default."""
    facts = _fields(place, _VLLM_CONFIG_FIELDS, (*VLLM, _MAX_SEQ_LEN))
    transfer = _fields(place, _VLLM_TRANSFER_FIELDS, VLLM_TRANSFER)
    if not any(fact.key is Key.CONNECTOR for fact in transfer):
        complete = "kv_transfer_config" not in place.text and place.text.rstrip().endswith("}")
        if complete:
            nothing = "non-default args without kv_transfer_config"
            transfer = [
                place.fact(Key.CONNECTOR, None, nothing, assumed=True),
                place.fact(Key.ROLE, "combined", nothing, assumed=True),
            ]
    role = next((VLLM_ROLES.get(str(f.value), "both") for f in transfer if f.key is Key.KV_ROLE), None)
    if role is not None:
        transfer.append(
            place.fact(Key.ROLE, role, next(f.source.text for f in transfer if f.key is Key.KV_ROLE))
        )
    return Reading(
        Kind.START, "vllm", (place.fact(Key.ENGINE, "vllm", "non-default args: {…}"), *facts, *transfer)
    )


def _vllm_capacity(place: Place, pool: re.Match[str]) -> Reading | None:
    size = integer_of(pool[1])
    if size is None:
        return None
    facts = [place.fact(Key.POOL, size, pool[0])]
    longest = _VLLM_MAX_LEN.search(place.text)
    if longest is not None and (context := integer_of(longest[1])) is not None:
        facts.append(place.fact(Key.CONTEXT, context, longest[0]))
    return Reading(Kind.CAPACITY, "vllm", tuple(facts))
