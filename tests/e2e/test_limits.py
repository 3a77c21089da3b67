"""Every length around every limit: a right answer with the true count, or a refusal that says why (F01,
F04).
"""

from pathlib import Path

import httpx
import pytest
from tests.e2e.harness import Served, serving

from kvseal.core.errors import StartRefused

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(300)]
PAGE = 16
ANSWER = 4


def ask(served: Served, tokens: int, *, stream: bool = False, answer: int = ANSWER) -> httpx.Response:
    """A prompt of exactly ``tokens`` token ids, ordinary words."""
    ids = [(100 + 7 * i) % 40_000 + 100 for i in range(tokens)]
    return served.complete(prompt=ids, max_tokens=answer, ignore_eos=True, stream=stream)


def assert_right(served: Served, tokens: int) -> None:
    answer = ask(served, tokens)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"] == {
        "prompt_tokens": tokens,
        "completion_tokens": ANSWER,
        "total_tokens": tokens + ANSWER,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def assert_refused(served: Served, tokens: int, context: int) -> None:
    for stream in (False, True):
        refused = ask(served, tokens, stream=stream)
        assert refused.status_code == 400, refused.text
        error = refused.json()["error"]
        assert str(context) in error["message"]
        assert str(tokens) in error["message"]
        too_long = tokens + 1 > context
        assert error["code"] == ("context_length_exceeded" if too_long else "max_tokens_exceeded")


@pytest.mark.parametrize(
    ("prefill", "decode"), [(512, 1024), (512, 512), (1024, 512)], ids=["smaller", "equal", "larger"]
)
def test_lengths_around_pool_and_context(tiny_folder: Path, prefill: int, decode: int) -> None:
    """F01 in full: the prefill pool smaller than, equal to and larger than the decode pool."""
    options = {
        "dtype": "float32",
        "page_size": PAGE,
        "max_context": "auto",
        "prefill_pool_tokens": prefill,
        "decode_pool_tokens": decode,
    }
    with serving(tiny_folder, options) as served:
        context = min(prefill, decode) - PAGE  # a page of each pool is in reserve
        assert served.status()["context"] == context
        assert served.http.get("/v1/models").json()["data"][0]["max_model_len"] == context
        full = served.pools()
        lengths = {pool + d for pool in (prefill, decode) for d in range(-7, 2)}
        lengths |= {context + d for d in (-ANSWER - 1, -ANSWER, -1, 0, 1)}
        for tokens in sorted(lengths):
            if tokens + ANSWER <= context:
                assert_right(served, tokens)
        assert served.pools() == full
        before = served.all_counters()
        for tokens in sorted(lengths):
            if tokens + ANSWER > context:
                assert_refused(served, tokens, context)
        assert served.all_counters() == before, "a refused request computes, leases and transfers nothing"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_context_above_a_pool_keeps_the_server_from_starting(tiny_folder: Path, role: str) -> None:
    """F04: both numbers are named, and the option to change."""
    options = {"dtype": "float32", "max_context": 2048, f"{role}_pool_tokens": 1024}
    with pytest.raises(StartRefused) as refusal, serving(tiny_folder, options):
        pass
    for part in ("2048", "1008", "1024 allocated", f"--{role}-pool-tokens", "--max-context"):
        assert part in str(refusal.value)


def test_a_context_above_the_models_own_keeps_the_server_from_starting(tiny_folder: Path) -> None:
    """What the model was not made for is not advertised, whatever the pools hold."""
    options = {"dtype": "float32", "max_context": 9000, "prefill_pool_tokens": 20_000}
    with pytest.raises(StartRefused, match=r"9000 tokens is above the 8192"), serving(tiny_folder, options):
        pass
