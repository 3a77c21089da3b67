"""The parts that are lists: one rule per file, every note has words, nothing unconfirmed became a rule."""

import re
from pathlib import Path

import pytest

import kvseal.audit
import kvseal.fleet
from kvseal.audit import advisories, rules
from kvseal.audit.texts import Language
from kvseal.audit.words import HOW_TO_GET, how_to_get, note_text
from kvseal.fleet.facts import Key, Note

AUDIT = Path(kvseal.audit.__path__[0])
FLEET = Path(kvseal.fleet.__path__[0])
CODES = sorted(
    {
        code
        for path in FLEET.glob("*.py")
        for code in re.findall(
            r'(?:Note|Unreadable)\(\s*"([a-z-]+)"|Answer\([^"]{1,60}"([a-z-]+)"',
            path.read_text(encoding="utf-8"),
        )
        for code in code
        if code
    }
)


@pytest.mark.parametrize(("folder", "listed"), [("rules", rules.MODULES), ("advisories", advisories.MODULES)])
def test_each_file_is_one_listed_rule(folder: str, listed: tuple[str, ...]) -> None:
    files = {path.stem for path in (AUDIT / folder).glob("*.py")} - {"__init__"}
    assert files == set(listed)
    assert len(listed) == len(set(listed))


def test_every_note_has_words() -> None:
    assert len(CODES) > 20
    for code in CODES:
        said = note_text(Note(code, "x"))
        assert said.en != f"x: {code}", code
        assert said.said(Language.DE) != said.en or code in said.en


def test_every_fact_says_how_to_get_it() -> None:
    for key in Key:
        assert how_to_get(key).en
    assert Key.POOL in HOW_TO_GET


def test_the_unconfirmed_is_no_rule() -> None:
    known = {rule.id for rule in (*rules.load_rules(), *advisories.load_advisories())}
    assert not known & {one.id for one in advisories.UNCONFIRMED}
