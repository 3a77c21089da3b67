"""Facts keep their sources, and no secrets."""

import pytest

from kvseal.fleet.facts import Fact, Fleet, Key, Server, Source, redact, source


@pytest.mark.parametrize(
    "text",
    [
        "api_key='sk-secret', host='x'",
        "--api-key sk-secret --port 1",
        "--admin-api-key=sk-secret",
        "Authorization: Bearer sk-secret",
        '"admin_api_key": "sk-secret"',
        "HF_TOKEN=sk-secret",
        "password: sk-secret",
    ],
)
def test_secrets_are_not_evidence(text: str) -> None:
    assert "sk-secret" not in redact(text)


@pytest.mark.parametrize(
    "text",
    ["max_total_num_tokens=681280", "num_reserved_decode_tokens=512", "api_key=None", "--api-key is not set"],
)
def test_numbers_of_tokens_are_no_secrets(text: str) -> None:
    assert redact(text) == text


def test_evidence_is_short_and_printable() -> None:
    here = source("log", "x", 1, "a\x1b[31m\tb" + "c" * 1000)
    assert len(here.text) == 200
    assert here.text.isprintable()
    assert here.where == "x:1"


def _fact(key: Key, value: int, *, assumed: bool = False) -> Fact:
    return Fact(key, value, Source("log", "x", value), assumed)


def test_an_assumed_default_yields_to_an_explicit_word() -> None:
    server = Server("s").plus([_fact(Key.TP, 1, assumed=True)]).plus([_fact(Key.TP, 8)])
    assert server.values(Key.TP) == (8,)
    assert server.plus([_fact(Key.TP, 2, assumed=True)]).values(Key.TP) == (8,)


def test_contradictions_are_kept_and_named() -> None:
    server = Server("s").plus([_fact(Key.POOL, 1), _fact(Key.POOL, 2), _fact(Key.TP, 8)])
    assert server.conflicts() == (Key.POOL,)
    assert server.values(Key.POOL) == (1, 2)


def test_one_fact_can_be_taken_away() -> None:
    fleet = Fleet((Server("s", (_fact(Key.TP, 1), _fact(Key.DP, 2))),))
    assert fleet.without(0, 0).servers[0].facts == (_fact(Key.DP, 2),)
