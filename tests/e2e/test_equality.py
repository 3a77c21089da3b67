"""What the disaggregated server answers is what one plain forward pass answers, and nothing else moved or was
computed.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.e2e.harness import Served
from tests.e2e.prompts import natural_prompts
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]
ANSWER_TOKENS = 16
CLIENTS = 12
TIE = (
    2e-3  # logits; two orders of summation in fp32 differ by up to 2e-4, and a tie needs both tokens to move
)


class Reference:
    """transformers' own model, attention and cache: one pass over the whole sequence."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def assert_greedy(self, prompt: list[int], text: str, count: int) -> int:
        """``text`` is the greedy continuation of ``prompt`` by ``count`` tokens. Gives the number of ties on
        the way.

        If each token of a candidate is the best one after those before it, the candidate is the greedy
        continuation, so one pass over prompt and candidate proves it. Where tokenizing the text again gives
        other tokens than were sampled, or where it is not, it is made anew token by token.
        """
        candidate = self.tokenizer.encode(text, add_special_tokens=False).ids
        if len(candidate) == count and self._logits(prompt, candidate).argmax(-1).tolist() == candidate:
            return 0
        tokens: list[int] = []
        for _ in range(count):
            best = self._logits([*prompt, *tokens], [])[-1].topk(2)
            tokens.append(int(best.indices[0]))
            if not text.startswith(self.tokenizer.decode(tokens)):
                gap = float(best.values[0] - best.values[1])
                assert gap < TIE, (
                    f"{text!r} parts from {self.tokenizer.decode(tokens)!r}, and {gap} is no tie"
                )
                return 1
        assert text == self.tokenizer.decode(tokens)
        return 0

    def _logits(self, prompt: list[int], candidate: list[int]) -> torch.Tensor:
        """Logits before each token of ``candidate``, and after its last one where it is empty."""
        ids = torch.tensor([[*prompt, *candidate]])
        with torch.inference_mode():
            # The mask is passed: without it transformers masks whatever equals the padding token.
            output = self.model(
                input_ids=ids, attention_mask=torch.ones_like(ids), logits_to_keep=len(candidate) + 1
            )
        logits: torch.Tensor = output.logits[0]
        return logits[:-1] if candidate else logits


def test_disaggregated_answers_equal_a_plain_forward_pass_token_for_token(
    smollm2: Served, model_folder: Path
) -> None:
    """F02, F14, F16, F20: 48 natural prompts at once, some streamed. Also: pulled bytes are pages × page
    size, and decode computed no token of a prompt but the last."""
    prompts = natural_prompts()
    assert len(prompts) >= 48
    before = smollm2.all_counters()

    def ask(text: str) -> dict[str, Any]:
        answer = smollm2.complete(prompt=text, max_tokens=ANSWER_TOKENS, ignore_eos=True)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(ask, prompts))

    reference = Reference(model_folder)
    ties = pages = computed = answered = 0
    page_size = smollm2.server.plan.layout.page_size
    lengths = []
    for text, answer in zip(prompts, answers, strict=True):
        ids = reference.tokenizer.encode(text).ids
        usage = answer["usage"]
        assert usage["prompt_tokens"] == len(ids)
        assert usage["completion_tokens"] == ANSWER_TOKENS
        ties += reference.assert_greedy(ids, answer["choices"][0]["text"], ANSWER_TOKENS)
        pages += -(-(len(ids) - 1) // page_size)
        computed += len(ids) - 1
        answered += usage["completion_tokens"]
        lengths.append(len(ids))
    assert min(lengths) == 1
    assert max(lengths) >= 1900
    assert ties <= 2, "so many ties are no accident"

    after = smollm2.all_counters()
    prefill, decode = (
        {name: count - before[role][name] for name, count in after[role].items()}
        for role in ("prefill", "decode")
    )
    assert decode["pages_pulled"] == decode["transport_pages"] == pages
    assert decode["transport_bytes"] == pages * smollm2.server.plan.layout.page_bytes
    assert prefill["forward_tokens"] == computed
    assert decode["forward_tokens"] == answered, "decode computes the last prompt token and its own, no other"
    assert not any(count for name, count in (prefill | decode).items() if name.startswith("guard_"))
