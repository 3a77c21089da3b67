"""Draws depend on seed, index and logits; distributions are the ones that temperature and top_p name."""

import math

import pytest
import torch

from kvseal.core.sampling import SamplingParams
from kvseal.engine import sampling
from kvseal.engine.sampling import Draw, choose, finite_rows, uniform

WIDE = 5000


def logits(seed: int, rows: int, width: int = WIDE) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 3


def many(row: torch.Tensor, params: SamplingParams, count: int) -> torch.Tensor:
    """How often each token is drawn in ``count`` draws."""
    tokens = choose(row.expand(count, -1), [Draw(params, i) for i in range(count)])
    return torch.bincount(torch.tensor(tokens), minlength=row.shape[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_temperature_zero_is_the_best_token(dtype: torch.dtype) -> None:
    rows = logits(1, 4).to(dtype)
    greedy = SamplingParams(temperature=0.0, top_p=0.3, seed=5)
    assert choose(rows, [Draw(greedy, i) for i in range(4)]) == rows.argmax(-1).tolist()


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.1])
def test_a_tiny_temperature_is_greedy_too(top_p: float) -> None:
    rows = logits(2, 3)
    cold = SamplingParams(temperature=1e-30, top_p=top_p, seed=5)
    assert choose(rows, [Draw(cold, i) for i in range(3)]) == rows.argmax(-1).tolist()


@pytest.mark.parametrize(
    "params", [SamplingParams(1.0, 1.0, 7), SamplingParams(0.8, 0.9, 7), SamplingParams(1.5, 0.5, 7)]
)
def test_a_draw_does_not_depend_on_its_neighbours(params: SamplingParams) -> None:
    rows = logits(3, 9)
    others = [
        SamplingParams(),
        SamplingParams(0.7, 1.0, 1),
        SamplingParams(3.0, 0.99, 2),
        SamplingParams(1.0, 0.2, 3),
    ]
    alone = [choose(rows[i : i + 1], [Draw(params, i)])[0] for i in range(9)]
    for place in range(9):
        draws = [Draw(others[i % 4], i) for i in range(9)]
        draws[place] = Draw(params, place)
        assert choose(rows, draws)[place] == alone[place]


def test_seed_and_index_both_matter() -> None:
    row = logits(4, 1).expand(40, -1) * 0.1
    draws = {
        seed: choose(row, [Draw(SamplingParams(1.0, 1.0, seed), i) for i in range(40)])
        for seed in (1, 2, -1, 2**64)
    }
    assert len({tuple(tokens) for tokens in draws.values()}) == 4
    assert len(set(draws[1])) > 30
    again = choose(row, [Draw(SamplingParams(1.0, 1.0, 1), i) for i in range(40)])
    assert again == draws[1]


def test_numbers_are_uniform_and_fixed_for_ever() -> None:
    numbers = [uniform(42, i) for i in range(4000)]
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / 4000 - 0.5) < 0.02
    assert abs(sum(number < 0.1 for number in numbers) / 4000 - 0.1) < 0.02
    # A seed that a client wrote down must give the same text after an upgrade.
    assert (uniform(42, 0), uniform(42, 1)) == (0.9976480632037248, 0.5156560963979712)
    assert uniform(1, 23) != uniform(12, 3)


def test_frequencies_follow_temperature() -> None:
    row = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(row[0] / temperature, -1)
        seen = many(row, SamplingParams(temperature, 1.0, 11), 8000) / 8000
        assert torch.allclose(seen, expected, atol=4 * math.sqrt(0.25 / 8000))


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    row = torch.log(torch.tensor([[0.1, 0.4, 0.05, 0.3, 0.15]]))
    for top_p, kept in (
        (0.39, [1]),
        (0.41, [1, 3]),
        (0.69, [1, 3]),
        (0.71, [1, 3, 4]),
        (0.999, [0, 1, 2, 3, 4]),
    ):
        seen = many(row, SamplingParams(1.0, top_p, 13), 4000)
        assert seen.nonzero()[:, 0].tolist() == kept
        expected = row[0].exp()[kept] / row[0].exp()[kept].sum()
        assert torch.allclose(seen[kept] / 4000, expected, atol=4 * math.sqrt(0.25 / 4000))


def test_top_p_over_a_flat_vocabulary_reaches_beyond_the_candidates() -> None:
    # 0.9 of the mass needs 4,500 tokens, more than are sorted at first.
    flat = torch.zeros(1, WIDE)
    seen = many(flat, SamplingParams(1.0, 0.9, 17), 400)
    assert int((seen > 0).sum()) > 300
    assert torch.count_nonzero(seen[4500:]) == 0


def test_both_ways_of_ranking_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = logits(6, 20)
    draws = [Draw(SamplingParams(1.0, 0.95, i), 0) for i in range(20)]
    expected = choose(rows, draws)
    monkeypatch.setattr(sampling, "_CANDIDATES", 2)
    assert choose(rows, draws) == expected


@pytest.mark.parametrize("top_p", [1.0, 0.5])
@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_unit_interval_draw_a_possible_token(
    monkeypatch: pytest.MonkeyPatch, number: float, top_p: float
) -> None:
    monkeypatch.setattr(sampling, "uniform", lambda *_: number)
    row = torch.tensor([[-200.0, 5.0, -200.0, 4.0, -200.0]])
    (token,) = choose(row, [Draw(SamplingParams(1.0, top_p, 1), 0)])
    assert token in (1, 3)


def test_every_kind_of_not_finite_is_seen() -> None:
    rows = torch.zeros(5, 100)
    rows[1, 99], rows[2, 0], rows[3, 50] = torch.nan, torch.inf, -torch.inf
    assert finite_rows(rows).tolist() == [True, False, False, False, True]
    assert finite_rows(rows.bfloat16()).tolist() == [True, False, False, False, True]
