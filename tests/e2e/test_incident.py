"""The incident of 2026, on the engine fault as it was and on ours."""

from pathlib import Path

import httpx
import pytest
from tests.e2e.harness import LAB, Served, serving
from tests.e2e.prompts import natural_prompts

from kvseal.supervisor.server import Modules

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(300)]

PREFILL_TOKENS = 1024 + 16  # what prefill holds, and one page in reserve
CONTEXT = 4096  # what is advertised
CANARIES = ("Orangefield", "Tamsin Okoro", "7731-KESTREL")
# One chunk for a whole prompt: the faulty engine asks only whether *a* transfer has succeeded.
OPTIONS = {
    "dtype": "float32",
    "prefill_pool_tokens": PREFILL_TOKENS,
    "decode_pool_tokens": 4 * CONTEXT,
    "chunk_tokens": 8192,
}
SECRET = (
    "Internal note of the Orangefield clinic. The patient is Tamsin Okoro, delivery code 7731-KESTREL. "
    "Tamsin Okoro must get the parcel with the delivery code 7731-KESTREL at the Orangefield clinic. "
)


def plant(served: Served) -> None:
    """Tenant A writes about its own affairs, nearly as much as prefill holds."""
    note = SECRET * 17 + "Internal note of the Orangefield clinic. The patient is Tamsin Okoro,"
    answer = served.complete(prompt=note, max_tokens=16)
    assert answer.status_code == 200, answer.text
    assert 970 < answer.json()["usage"]["prompt_tokens"] <= 1024


def over_long(served: Served) -> httpx.Response:
    """Tenant B sends a story that fits the advertised context and not the prefill pool: 1,033 tokens."""
    return served.complete(prompt=natural_prompts()[-1][:4730] + "\nIn short: the", max_tokens=48)


def leaked(answer: httpx.Response) -> list[str]:
    return [canary for canary in CANARIES if canary.lower() in answer.text.lower()]


def test_the_engine_fault_of_2026_answers_with_the_other_tenants_words(model_folder: Path) -> None:
    """The positive control: with the five guards that stand in its way replaced, the leak is there to be
    seen.
    """
    modules = Modules(LAB.worker, LAB.gateway, ("placeholder",), ("placeholder",))
    with serving(model_folder, OPTIONS | {"max_context": CONTEXT}, modules) as served:
        plant(served)
        answer = over_long(served)
        assert answer.status_code == 200, "the fault is silent"
        assert len(leaked(answer)) >= 2, f"nothing of A in {answer.text}"


def test_an_over_long_prompt_gets_a_refusal_and_nothing_of_another_tenant(model_folder: Path) -> None:
    """F01, F02, F04: the same prompts on our build, which advertises what its smallest pool holds."""
    with serving(model_folder, OPTIONS | {"max_context": "auto"}) as served:
        status = served.status()
        assert status["context"] == 1024
        plant(served)
        before = served.all_counters()
        answer = over_long(served)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert "1024 tokens" in answer.json()["error"]["message"]
        assert not leaked(answer)
        after = served.all_counters()
        assert before == after, "no page leased, no byte transferred, no worker disturbed"
