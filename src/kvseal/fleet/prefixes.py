"""What containers and collectors put in front of a log line, and what it tells: which process wrote the
line.
"""

import re
from typing import Any, Final, NamedTuple

import msgspec


class Prefixed(NamedTuple):
    stream: str
    """Names the process among those mixed in one file; empty where the line does not say."""
    text: str


_ANSI: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
# Each takes one layer off. `stream` is optional. Order matters: the outermost comes first.
_LAYERS: Final = (
    # kubectl logs --prefix: [pod/prefill-0/sglang] message
    re.compile(r"^\[(?:pod/)?(?P<stream>[a-z0-9][\w.-]{0,250}/[\w.-]{1,250})\]\s"),
    # docker compose: prefill-1  | message
    re.compile(r"^(?P<stream>[A-Za-z0-9][\w.-]{0,120})\s*\|\s"),
    # CRI: 2026-08-27T10:00:00.123456789Z stderr F message
    re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:?\d\d) (?:stdout|stderr) [FP] "),
    # kubectl logs --timestamps, docker logs -t
    re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:?\d\d)\s"),
    # journald and syslog: Aug 27 10:00:00 host unit[123]: message
    re.compile(
        r"^[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d (?P<stream>[\w.-]{1,120} [\w.@-]{1,120})(?:\[\d+\])?: "
    ),
    # stern: prefill-0 sglang [2026-08-27 10:00:00] message
    re.compile(
        r"^(?P<stream>[a-z0-9][a-z0-9.-]{0,120} [a-z0-9][a-z0-9-]{0,62}) (?=\[\d{4}-|\(\w+ pid=|INFO )"
    ),
)
_MESSAGE_FIELDS: Final = ("log", "message", "msg", "text", "MESSAGE", "body", "line")
_STREAM_FIELDS: Final = (
    "pod_name",
    "pod",
    "kubernetes_pod_name",
    "container_name",
    "container",
    "container_id",
    "_SYSTEMD_UNIT",
    "host",
    "hostname",
    "source",
    "service",
)
_MAX_LAYERS: Final = 6
_JSON: Final = msgspec.json.Decoder()


def unprefix(line: str) -> Prefixed:
    """The engine's own text, and the process that wrote it, from a line with any number of known prefixes."""
    streams: list[str] = []
    text = line.strip()
    for _ in range(_MAX_LAYERS):
        if text.startswith("{") and (unpacked := _from_json(text)) is not None:
            if unpacked.stream:
                streams.append(unpacked.stream)
            text = unpacked.text.strip()
            continue
        for layer in _LAYERS:
            match = layer.match(text)
            if match is None:
                continue
            if match.groupdict().get("stream"):
                streams.append(match["stream"])
            text = text[match.end() :]
            break
        else:
            break
    return Prefixed("/".join(streams), _ANSI.sub("", text) if "\x1b" in text else text)


def _from_json(text: str) -> Prefixed | None:
    try:
        record = _JSON.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if not isinstance(record, dict):
        return None
    message = next((record[name] for name in _MESSAGE_FIELDS if isinstance(record.get(name), str)), None)
    if message is None:
        return None
    names = [*_stream_names(record.get("kubernetes")), *_stream_names(record)]
    return Prefixed(names[0] if names else "", message)


def _stream_names(record: Any) -> list[str]:
    if not isinstance(record, dict):
        return []
    found = [record[name] for name in _STREAM_FIELDS if isinstance(record.get(name), str) and record[name]]
    pod, container = record.get("pod_name"), record.get("container_name")
    if isinstance(pod, str) and isinstance(container, str):
        return [f"{pod}/{container}", *found]
    return found
