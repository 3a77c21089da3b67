"""The Prometheus text format, of any server and however broken: only whole, finite samples are kept."""

import re
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Final, NamedTuple

_SAMPLE: Final = re.compile(
    r"^([a-zA-Z_:][a-zA-Z0-9_:]{0,200})(?:\{(.{0,8000})\})?\s+([-+]?(?:\d[\d.eE+-]{0,40}|Inf|NaN))(?:\s+-?\d{1,20})?\s*(?:#.*)?$"
)
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]{0,100})\s*=\s*"((?:[^"\\]|\\.){0,2000})"')


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float
    line: int
    text: str


def parse_metrics(lines: Iterable[str]) -> Iterator[Sample]:
    for number, line in enumerate(lines, start=1):
        if not line or line[0] == "#" or len(line) > 10_000:
            continue
        match = _SAMPLE.match(line.rstrip("\r\n"))
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if isfinite(value):
            yield Sample(match[1], dict(_LABEL.findall(match[2] or "")), value, number, match[0][:300])
