"""Greedy output equals transformers' own, token for token, however the work is cut into passes (float32)."""

import random
from collections.abc import Callable

import pytest
from tests.engine.conftest import Pair
from tests.engine.families import CONFIGS, VOCABULARY
from tests.engine.reference import assert_equal_up_to_ties, greedy
from tests.engine.rig import Rig, layout_of, serve, step

from kvseal.engine import Engine

NOISE = 1e-5  # logits of two float32 passes of other shapes, of these models, differ by less
ANSWER = 8


def prompts(seed: int, lengths: tuple[int, ...]) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(VOCABULARY) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("page_size", [16, 5])
@pytest.mark.parametrize("name", CONFIGS)
def test_chunked_batched_and_staggered_output_equals_plain_transformers(
    pair: Callable[[str], Pair], name: str, page_size: int
) -> None:
    both = pair(name)
    rig = Rig(both.model, layout_of(both.folder, page_size))
    asked = prompts(page_size, (1, 2, 15, 16, 17, 31, 33, 50, 64))

    answers = serve(rig, asked, ANSWER, chunk=16, arrives=lambda i: (i * 7) % 5)

    for prompt, answer in zip(asked, answers, strict=True):
        assert_equal_up_to_ties(answer, greedy(both.plain, prompt, ANSWER), NOISE)


@pytest.mark.parametrize("chunk", [1, 7, 16, 200])
def test_size_of_a_chunk_does_not_change_the_output(pair: Callable[[str], Pair], chunk: int) -> None:
    both = pair("llama")
    prompt = prompts(3, (61,))[0]
    rig = Rig(both.model, layout_of(both.folder, 16))

    (answer,) = serve(rig, [prompt], ANSWER, chunk, arrives=lambda _: 0)

    assert_equal_up_to_ties(answer, greedy(both.plain, prompt, ANSWER), NOISE)


def test_decode_of_very_different_lengths_in_one_pass(pair: Callable[[str], Pair]) -> None:
    both = pair("qwen3")
    asked = prompts(4, (1, 3, 200, 4, 90, 250))
    rig = Rig(both.model, layout_of(both.folder, 4), pages=200)

    answers = serve(rig, asked, ANSWER, chunk=300, arrives=lambda _: 0)

    for prompt, answer in zip(asked, answers, strict=True):
        assert_equal_up_to_ties(answer, greedy(both.plain, prompt, ANSWER), NOISE)


def test_models_of_these_tests_answer_variously(pair: Callable[[str], Pair]) -> None:
    # A model that always says the same would agree with anything.
    both = pair("llama")
    answers = [tuple(greedy(both.plain, prompt, ANSWER).tokens) for prompt in prompts(5, (9, 20, 40))]
    assert len(set(answers)) == len(answers)
    assert all(len(set(answer)) > ANSWER // 3 for answer in answers)


def test_a_page_of_another_prompt_changes_the_output(pair: Callable[[str], Pair]) -> None:
    # The comparison can fail: 16 foreign tokens of 48 are noticed. (The same pages in another order would not
    # be, and rightly: a key carries its position in itself, and attention is a sum.)
    both = pair("llama")
    mine, other = prompts(6, (48, 48))
    rig = Rig(both.model, layout_of(both.folder, 16))
    sequence, neighbour = rig.sequence(mine, room=ANSWER), rig.sequence(other)
    step(rig, [sequence, neighbour])
    rig.pool[sequence.pages[1]] = rig.pool[neighbour.pages[1]]
    for _ in range(ANSWER - 1):
        step(rig, [sequence])
    assert sequence.answer != greedy(both.plain, mine, ANSWER).tokens


@pytest.mark.parametrize("name", CONFIGS)
def test_reference_of_the_engine_equals_plain_transformers(pair: Callable[[str], Pair], name: str) -> None:
    both = pair(name)
    engine = Rig(both.model, layout_of(both.folder, 16)).engine
    prompt = prompts(7, (23,))[0]
    expected = greedy(both.plain, prompt, 5)

    mine = engine.reference_greedy(prompt, 5)

    assert_equal_up_to_ties(mine.tokens, expected, NOISE)
    assert mine.gaps == pytest.approx(expected.gaps, abs=1e-4)


def test_shortfalls_are_zero_for_greedy_tokens_and_positive_for_others(pair: Callable[[str], Pair]) -> None:
    both = pair("llama")
    engine: Engine = Rig(both.model, layout_of(both.folder, 16)).engine
    prompt = prompts(8, (12,))[0]
    best = list(engine.reference_greedy(prompt, 4).tokens)

    assert max(engine.shortfalls(prompt, best)) <= NOISE
    worse = [best[0], (best[1] + 1) % VOCABULARY]
    assert engine.shortfalls(prompt, worse)[1] > NOISE
    assert engine.shortfalls(prompt, []) == ()


@pytest.mark.parametrize("name", CONFIGS)
def test_bfloat16_output_is_greedy_up_to_its_own_rounding(pair: Callable[[str], Pair], name: str) -> None:
    both = pair(name)
    model = both.load("bfloat16")
    rig = Rig(model, layout_of(both.folder, 16, "bfloat16"))
    prompt = prompts(9, (40,))[0]

    (answer,) = serve(rig, [prompt], ANSWER, chunk=16, arrives=lambda _: 0)

    assert max(rig.engine.shortfalls(prompt, answer)) < 0.25
