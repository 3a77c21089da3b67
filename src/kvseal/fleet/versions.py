"""Versions as engines write them: PyPI versions, image tags, git describes."""

import re
from dataclasses import dataclass, field
from typing import Final

_VERSION: Final = re.compile(
    r"""^\s*v?(?P<release>\d{1,6}(?:\.\d{1,6}){1,4})
    (?:[-_.]?(?P<pre>a|alpha|b|beta|rc|c)[-_.]?(?P<pre_n>\d{0,6}))?
    (?:[-_.]?(?P<post>post)[-_.]?(?P<post_n>\d{0,6}))?
    (?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_n>\d{0,6}))?
    (?:[-+_].{0,120})?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
_PRE_ORDER: Final = {"a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3}
_FINAL: Final = 4


@dataclass(frozen=True, order=True)
class Version:
    """Ordered as PEP 440 orders them. `text` is how the source wrote it and takes no part in the order."""

    release: tuple[int, ...]
    phase: tuple[int, int]
    post: int
    dev: tuple[int, int]
    text: str = field(compare=False, default="")

    def __str__(self) -> str:
        return self.text or ".".join(str(part) for part in self.release)


def parse_version(text: str) -> Version | None:
    """`0.5.20`, `v0.5.20.post1-cu126`, `0.5.21rc1`, `0.5.21.dev3+gabc`; None for `latest` and other names."""
    match = _VERSION.match(text[:200])
    if match is None:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    release += (0,) * (5 - len(release))
    pre, is_dev = match["pre"], match["dev"] is not None
    if pre is not None:
        phase = (_PRE_ORDER[pre.lower()], int(match["pre_n"] or 0))
    elif is_dev and match["post"] is None:
        phase = (0, 0)  # a development build comes before the pre-releases of its version
    else:
        phase = (_FINAL, 0)
    post = -1 if match["post"] is None else int(match["post_n"] or 0)
    dev = (0, int(match["dev_n"] or 0)) if is_dev else (1, 0)
    return Version(release, phase, post, dev, text.strip().removeprefix("v"))


def version(text: str) -> Version:
    """For versions written in our own rules. Raises ValueError on a typing error there."""
    parsed = parse_version(text)
    if parsed is None:
        raise ValueError(f"not a version: {text!r}")
    return parsed


@dataclass(frozen=True)
class Span:
    """Versions from `first` (inclusive; None: from the beginning) to before `fixed` (None: no fix is known).

    `last` instead of `fixed` where a source says "up to and including".
    """

    first: str | None = None
    fixed: str | None = None
    last: str | None = None

    def __contains__(self, text: object) -> bool:
        found = parse_version(str(text))
        if found is None:
            return False
        if self.first is not None and found < version(self.first):
            return False
        if self.fixed is not None and found >= version(self.fixed):
            return False
        return self.last is None or found <= version(self.last)

    def __str__(self) -> str:
        begin = self.first or "…"
        if self.fixed is not None:
            return f"{begin} ≤ v < {self.fixed}"
        return f"{begin} ≤ v ≤ {self.last}" if self.last is not None else f"{begin} ≤ v"
