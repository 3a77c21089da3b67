"""Pages are found again by the tenant that left them, and by nobody else (G9, F25)."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.harness import Served, serving

from kvseal.gateway.keys import hash_key, new_key

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(200)]
PROMPT = " ".join(["The harbour was quiet before sunrise."] * 30)


def ask(served: Served, key: str, prompt: str) -> dict[str, Any]:
    body = {"model": served.model, "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(
        f"{served.url}/v1/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=90
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def cached(answer: dict[str, Any]) -> int:
    count: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def test_a_prefix_is_reused_inside_a_tenant_only_and_changes_no_token(tiny_folder: Path) -> None:
    """F16 too: prefix + received = prompt, so the answers are the same to the last token."""
    acme, other = new_key(), new_key()
    tenants = [
        {"name": "acme", "key_hash": hash_key(acme)},
        {"name": "other", "key_hash": hash_key(other)},
    ]
    options = {
        "dtype": "float32",
        "prefill_pool_tokens": 9000,
        "decode_pool_tokens": 9000,
        "prefix_reuse": True,
        "tenants": tenants,
    }
    with serving(tiny_folder, options) as served:
        first = ask(served, acme, PROMPT)
        foreign = ask(served, other, PROMPT)
        again = ask(served, acme, PROMPT)
        longer = ask(served, acme, PROMPT + first["choices"][0]["text"] + " And then")
        assert cached(first) == 0
        assert cached(foreign) == 0, "another tenant's pages are unknown, however equal the prompt"
        assert cached(again) >= 200
        assert cached(again) % 16 == 0
        assert cached(longer) >= cached(again)
        assert first["choices"] == foreign["choices"] == again["choices"]
        counters = served.all_counters()
        assert counters["decode"]["pages_reused"] > 0
        assert counters["prefill"]["prefill_tokens_reused"] > 0
        assert not any(count for name, count in counters["decode"].items() if name.startswith("guard_"))
