"""Versions from `pip freeze`, `pip list`, requirements, `--engine-version` and image tags."""

import re
from collections.abc import Iterable
from typing import Final

from kvseal.fleet.facts import Fact, Key, Note, source
from kvseal.fleet.settings import ENGINE_OF_PACKAGE, PACKAGES
from kvseal.fleet.versions import parse_version

_FROZEN: Final = re.compile(r"^\s*([A-Za-z0-9][\w.-]{0,100})(?:\[[^\]]{0,200}\])?\s*={2,3}\s*([^\s;#]{1,80})")
_LISTED: Final = re.compile(r"^\s*([A-Za-z0-9][\w.-]{0,100})\s{1,60}(v?\d[^\s]{0,80})(?:\s.{0,200})?$")
_DIRECT: Final = re.compile(r"^\s*([A-Za-z0-9][\w.-]{0,100})\s*@\s*(\S{1,400})")
_WHEEL: Final = re.compile(r"/([A-Za-z0-9_.]+)-(\d[^-/]{0,60})-[^/]{1,200}\.whl")
_GIT_TAG: Final = re.compile(r"@v?(\d+(?:\.\d+){1,4}[^#@\s]{0,40})")
# Repositories whose tags are versions of an engine.
_IMAGES: Final = (
    (re.compile(r"(?:^|/)lmsysorg/sglang(?::|$)"), "sglang"),
    (re.compile(r"(?:^|/)sgl-?project/sglang(?::|$)"), "sglang"),
    (re.compile(r"(?:^|/)sglang(?:-[\w-]{0,40})?(?::|$)"), "sglang"),
    (re.compile(r"(?:^|/)vllm-openai(?:-[\w-]{0,40})?(?::|$)"), "vllm"),
    (re.compile(r"(?:^|/)vllm(?:-[\w-]{0,40})?(?::|$)"), "vllm"),
    (re.compile(r"(?:^|/)kvseal(?::|$)"), "kvseal"),
)


def normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def package_facts(kind: str, where: str, line: int | None, text: str) -> tuple[list[Fact], list[Note]]:
    """Facts of one line of a package list. A version that cannot be read becomes a note."""
    name, found = _name_and_version(text)
    key = PACKAGES.get(normal_name(name))
    if key is None:
        return [], []
    here = source(kind, where, line, text)
    if parse_version(found) is None:
        return [], [Note("unreadable-version", here.where, here.text)]
    facts = [Fact(key, found.removeprefix("v"), here)]
    engine = ENGINE_OF_PACKAGE.get(normal_name(name))
    return ([Fact(Key.ENGINE, engine, here), *facts] if engine else facts), []


def _name_and_version(text: str) -> tuple[str, str]:
    if frozen := _FROZEN.match(text):
        return frozen[1], frozen[2]
    if direct := _DIRECT.match(text):
        wheel, tag = _WHEEL.search(direct[2]), _GIT_TAG.search(direct[2])
        found = wheel[2] if wheel else tag[1] if tag else "?"
        return direct[1], found.replace("%2B", "+")
    if listed := _LISTED.match(text):
        return listed[1], listed[2]
    return "", ""


def read_packages(where: str, lines: Iterable[str]) -> tuple[list[Fact], list[Note]]:
    facts: list[Fact] = []
    notes: list[Note] = []
    for number, line in enumerate(lines, start=1):
        found, trouble = package_facts("packages", where, number, line[:1000])
        facts += found
        notes += trouble
    if not facts and not notes:
        notes.append(Note("no-known-package", where))
    return facts, notes


def image_facts(kind: str, where: str, line: int | None, image: str) -> tuple[list[Fact], list[Note]]:
    """Engine and version of a container image. `latest`, digests and nightly tags name no version: a note."""
    reference = image.strip().strip("'\"")[:300]
    engine = next((name for pattern, name in _IMAGES if pattern.search(reference.split("@")[0])), None)
    if engine is None:
        return [], []
    here = source(kind, where, line, reference)
    facts = [Fact(Key.ENGINE, engine, here)]
    tag = reference.split("@")[0].rsplit("/", 1)[-1].partition(":")[2]
    found = re.match(r"v?\d+(?:\.\d+){1,4}(?:[-_.]?(?:a|b|rc|post|dev)\d*)*", tag)
    if found is None or parse_version(found[0]) is None:
        return facts, [Note("image-without-version", here.where, reference)]
    return [*facts, Fact(Key.VERSION, found[0].removeprefix("v"), here)], []


def read_engine_version(text: str) -> tuple[list[Fact], list[Note]]:
    """`--engine-version`: `sglang==0.5.20`, `sglang 0.5.20` or an image reference."""
    facts, notes = package_facts("option", "--engine-version", None, text)
    if not facts and not notes:
        facts, notes = image_facts("option", "--engine-version", None, text)
    if not facts and not notes:
        spaced = re.match(r"\s*([\w-]{1,60})[\s:@=]+(v?\d\S{0,60})\s*$", text)
        if spaced is not None:
            facts, notes = package_facts("option", "--engine-version", None, f"{spaced[1]}=={spaced[2]}")
    if not facts and not notes:
        notes.append(Note("unreadable-version", "--engine-version", text[:80]))
    return facts, notes
