"""The canary compares only tokens that another order of summation cannot turn (F19)."""

from collections.abc import Sequence

from kvseal.workers.canary import MIN_GAP, make_canary


def test_the_surest_candidate_is_taken() -> None:
    asked: list[tuple[int, ...]] = []

    def reference(tokens: Sequence[int], count: int) -> tuple[Sequence[int], Sequence[float]]:
        asked.append(tuple(tokens))
        return list(range(count)), [float(tokens[0])] * count

    prompt, output = make_canary(reference, 1000, 40, "float32")
    assert prompt == max(asked, key=lambda tokens: tokens[0])
    assert output == (0, 1, 2, 3)
    assert len(prompt) == 40


def test_tokens_from_the_first_unsure_one_on_are_not_compared() -> None:
    def reference(_tokens: Sequence[int], count: int) -> tuple[Sequence[int], Sequence[float]]:
        return [7, 8, 9, 10][:count], [1.0, 1.0, MIN_GAP["bfloat16"] / 2, 1.0][:count]

    assert make_canary(reference, 1000, 40, "bfloat16")[1] == (7, 8)


def test_one_token_is_compared_even_by_a_model_that_is_sure_of_nothing() -> None:
    def reference(_tokens: Sequence[int], count: int) -> tuple[Sequence[int], Sequence[float]]:
        return [7] * count, [0.0] * count

    assert make_canary(reference, 1000, 40, "float32")[1] == (7,)


def test_every_id_is_in_the_vocabulary() -> None:
    def reference(_tokens: Sequence[int], count: int) -> tuple[Sequence[int], Sequence[float]]:
        return [0] * count, [1.0] * count

    prompt, _ = make_canary(reference, 50, 200, "float32")
    assert all(0 <= token < 50 for token in prompt)
