"""A pass touches the pages of its slices and nothing else, and trouble in one slice stays there."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.engine.conftest import Pair
from tests.engine.families import CONFIGS, VOCABULARY
from tests.engine.reference import greedy
from tests.engine.rig import Rig, layout_of, step

from kvseal.core.batch import Slice
from kvseal.core.errors import InvariantViolation
from kvseal.core.leases import BlockTable
from kvseal.engine import runner
from kvseal.engine.packing import Limits, PackedBatch, pack

PAGE = 16
TEXT = [(7 * i + i * i) % VOCABULARY for i in range(60)]


@pytest.fixture
def rig(pair: Callable[[str], Pair]) -> Rig:
    both = pair("llama")
    return Rig(both.model, layout_of(both.folder, PAGE))


def numbers(rig: Rig, page: int) -> torch.Tensor:
    """A page as [layers, 2, kv_heads, page_size, head_dim]."""
    layout = rig.layout
    shape = (layout.layers, 2, layout.kv_heads, layout.page_size, layout.head_dim)
    return torch.from_numpy(rig.pool[page]).view(torch.float32).view(shape)


def test_pages_outside_the_tables_stay_byte_for_byte(rig: Rig) -> None:
    mine = [rig.sequence(TEXT[:20], room=20), rig.sequence(TEXT[:37], room=20)]
    others = np.setdiff1d(np.arange(len(rig.pool)), [page for item in mine for page in item.pages])
    rig.pool[others] = np.random.default_rng(0).integers(
        0, 256, (len(others), rig.layout.page_bytes), np.uint8
    )
    before = rig.pool[others].copy()

    for most in (16, 16, 16, 1, 1, 1):
        step(rig, mine, most)

    assert np.array_equal(rig.pool[others], before)


def test_pages_of_the_own_table_before_the_start_stay_byte_for_byte(rig: Rig) -> None:
    sequence = rig.sequence(TEXT[:45], room=8)
    step(rig, [sequence], 32)
    before = rig.pool[sequence.pages[:2]].copy()
    step(rig, [sequence])
    step(rig, [sequence])
    assert np.array_equal(rig.pool[sequence.pages[:2]], before)


def test_bytes_of_a_page_depend_on_tokens_and_not_on_places(pair: Callable[[str], Pair]) -> None:
    both = pair("llama")
    written = []
    for seed in (1, 2):
        rig = Rig(both.model, layout_of(both.folder, PAGE), seed=seed)
        sequences = [rig.sequence(TEXT[:40], room=4), rig.sequence(TEXT[5:25], room=4)]
        for most in (16, 16, 16, 16):
            step(rig, sequences, most)
        written.append([rig.pool[item.pages].tobytes() for item in sequences])
    assert written[0] == written[1]


def test_first_write_into_a_page_clears_the_rest_of_it(rig: Rig) -> None:
    """G8: a tail travels with its page, so it must not hold what was there before."""
    sequence = rig.sequence(TEXT[:20])
    step(rig, [sequence])
    tail = numbers(rig, sequence.pages[1])[:, :, :, 4:]
    assert not tail.any()
    assert numbers(rig, sequence.pages[1])[:, :, :, :4].all()


@pytest.mark.parametrize("most", [16, 60])
def test_nothing_beyond_the_sequence_is_read(rig: Rig, most: int) -> None:
    """G8 removed, G6 holds: with tails of NaN the output is the same, no tail is read."""
    expected, uncleared = rig.sequence(TEXT[:37], room=8), rig.sequence(TEXT[:37], room=8)
    while len(expected.answer) < 6:
        step(rig, [expected], most)
    # A neighbour of other length makes the kernel pad, in prefill and in decode.
    neighbour = rig.sequence(TEXT[:5], room=60)
    while len(uncleared.answer) < 6:
        slices = [replace(item.next(most), clear=()) for item in (uncleared, neighbour)]
        for sequence, item, outcome in zip(
            (uncleared, neighbour), slices, rig.engine.run(slices).results, strict=True
        ):
            assert outcome.finite
            sequence.take(item, outcome.token)
    assert numbers(rig, uncleared.pages[2])[0, 0, 0, 15].isnan().all()
    assert uncleared.answer == expected.answer


def test_what_an_earlier_pass_gathered_is_never_read(rig: Rig) -> None:
    sequences = [rig.sequence(TEXT[:length], room=8) for length in (40, 3, 17)]
    step(rig, sequences)
    before = [list(item.tokens) for item in sequences]
    expected = step(rig, sequences)
    for item, tokens in zip(sequences, before, strict=True):
        item.tokens = tokens
        item.lease.extent = len(tokens) - 1
    scratch = rig.engine._kernel._scratch  # type: ignore[attr-defined]
    assert len(scratch)
    with torch.inference_mode():
        scratch.fill_(torch.nan)
    again = step(rig, sequences)
    assert [item.token for item in again.results] == [item.token for item in expected.results]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("chunk", [1, 12])
def test_a_poisoned_page_fails_its_own_slice_only(pair: Callable[[str], Pair], name: str, chunk: int) -> None:
    """G12, F22: one sequence reads NaN; its neighbours in the pass get the tokens that are theirs."""
    both = pair(name)
    rig = Rig(both.model, layout_of(both.folder, PAGE))
    texts = [TEXT[:20], TEXT[3:40], TEXT[9:31]]
    sequences = [rig.sequence(text, room=4) for text in texts]
    slices = []
    for sequence in sequences:
        while sequence.lease.extent < len(sequence.tokens) - chunk:
            item = sequence.next(len(sequence.tokens) - chunk - sequence.lease.extent)
            rig.engine.run([replace(item, sampling=None)])
            sequence.take(item, None)
        slices.append(sequence.next())
    numbers(rig, sequences[1].pages[0])[1, 1, 0, 3, 0] = torch.nan

    results = rig.engine.run(slices).results

    assert [item.finite for item in results] == [True, False, True]
    assert results[1].token is None
    for i in (0, 2):
        assert results[i].token == greedy(both.plain, texts[i], 1).tokens[0]


def test_a_chunk_that_wants_no_token_tells_that_it_is_not_finite(rig: Rig) -> None:
    sequence = rig.sequence(TEXT[:40])
    step(rig, [sequence], 16)
    rig.pool[sequence.pages[0]] = 0xFF
    (result,) = rig.engine.run([sequence.next(16)]).results
    assert (result.finite, result.token) == (False, None)


def test_results_come_in_the_order_of_the_slices(rig: Rig) -> None:
    texts = [TEXT[:30], TEXT[:1], TEXT[:50], TEXT[4:5], TEXT[:2]]
    alone = [step(rig, [rig.sequence(text)]).results[0] for text in texts]
    together = step(rig, [rig.sequence(text) for text in texts]).results
    assert [item.token for item in together] == [item.token for item in alone]


def test_no_slices_no_results(rig: Rig) -> None:
    assert rig.engine.run([]).results == ()


def test_written_is_what_the_model_was_given_and_not_what_was_asked(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G5: an engine that swaps a prompt for a placeholder must be found out by the ids that it wrote."""

    def placeholder(slices: list[Slice], limits: Limits) -> PackedBatch:
        batch = pack(slices, limits)
        return replace(batch, ids=torch.zeros_like(batch.ids))

    monkeypatch.setattr(runner, "pack", placeholder)
    item = rig.sequence(TEXT[:20]).next()
    (result,) = rig.engine.run([item]).results
    assert result.written.tolist() == [0] * 20
    assert result.written.dtype == np.int64


def test_written_outlives_the_pass(rig: Rig) -> None:
    sequence = rig.sequence(TEXT[:20], room=4)
    (first,) = step(rig, [sequence]).results
    kept = first.written.copy()
    step(rig, [sequence])
    assert np.array_equal(first.written, kept)


def table(*pages: int) -> BlockTable:
    return BlockTable(pages)


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([Slice(table(1), 0, tuple(TEXT[:17]))], "cannot hold 17 tokens"),
        ([Slice(table(1, 96), 0, tuple(TEXT[:17]))], "outside the pool"),
        ([Slice(table(1, -1), 0, tuple(TEXT[:17]))], "outside the pool"),
        ([Slice(table(1), 0, (5, VOCABULARY))], "outside the vocabulary"),
        ([Slice(table(1), 0, (-1,))], "outside the vocabulary"),
        ([Slice(table(1), 0, ())], "at least one token"),
        ([Slice(table(1), -1, (5,))], "not negative"),
        ([Slice(table(1, 1), 0, tuple(TEXT[:17]))], "in use elsewhere"),
        ([Slice(table(1, 2), 16, (5,)), Slice(table(2), 0, (5,))], "in use elsewhere"),
        ([Slice(table(1, 2), 16, (5,)), Slice(table(1), 3, (5,))], "in use elsewhere"),
        ([Slice(table(1, 2), 16, (5,), clear=(1,))], "may clear only"),
        ([Slice(table(1, 2), 17, (5,), clear=(2,))], "may clear only"),
        ([Slice(table(1, 2), 0, (5,), clear=(2,))], "may clear only"),
        ([Slice(table(1, 2), 0, (5,), clear=(9,))], "may clear only"),
    ],
)
def test_a_slice_that_names_what_is_not_its_own_is_refused_before_any_byte_is_written(
    rig: Rig, slices: list[Slice], reason: str
) -> None:
    before = rig.pool.copy()
    with pytest.raises(InvariantViolation, match=reason):
        rig.engine.run(slices)
    assert np.array_equal(rig.pool, before)


def test_full_pages_may_be_shared_by_readers(rig: Rig) -> None:
    sequence = rig.sequence(TEXT[:32], room=16)
    step(rig, [sequence], 32)
    shared, own = sequence.pages[:2], rig.sequence(TEXT[:16]).pages[0]
    both = [
        Slice(table(*shared, sequence.pages[2]), 32, (9,), runner.GREEDY, clear=(sequence.pages[2],)),
        Slice(table(*shared, own), 32, (9,), runner.GREEDY, clear=(own,)),
    ]
    first, second = rig.engine.run(both).results
    assert first.token == second.token
    assert np.array_equal(rig.pool[sequence.pages[2]], rig.pool[own])


def test_the_reference_pass_touches_no_page(rig: Rig) -> None:
    before = rig.pool.copy()
    rig.engine.reference_greedy(TEXT[:20], 3)
    rig.engine.shortfalls(TEXT[:20], [1, 2])
    assert np.array_equal(rig.pool, before)
