"""A part of the simulation that fits every run of the tests; `make simulate` and `make ablation` do more."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.simulation.coverage import missed
from tests.simulation.faults import Dice, Fault
from tests.simulation.ledger import POISON, Ledger, Pool
from tests.simulation.oracle import EVERY_KIND, Kind, Violation
from tests.simulation.runner import Batch, Findings, run_batch
from tests.simulation.setup import Cluster, Setup, from_seed
from tests.simulation.shrink import shrink
from tests.simulation.stage import Stage
from tests.simulation.stories import STORIES, Story
from tests.simulation.world import simulate

from kvseal.core.guards import GUARDS
from kvseal.lab.ablation import without

ROOT = Path(__file__).parents[2]
SEEDS = 1500
LEAK = frozenset({Kind.PROVENANCE})
# Where to begin looking: seeds that found it once. Any seed would do in the end.
FIRST_LINES = {
    "G3": (64, LEAK),
    "G4": (115, LEAK),
    "G4:flight": (115, LEAK),
    "G4:outcome": (263, LEAK),
    "G5": (8, LEAK),
    "G6": (301, LEAK),
    "G7": (143, LEAK),
    "G9": (11, LEAK),
    "G10": (1, frozenset({Kind.ORDER})),
    "G12": (8, frozenset({Kind.CONTAINMENT})),
}


@pytest.fixture(scope="module")
def findings() -> Findings:
    return run_batch(Batch(0, SEEDS))


def test_no_seed_breaks_a_promise(findings: Findings) -> None:
    assert findings.violations == []
    assert findings.counts["tokens delivered"] > SEEDS


def test_the_generator_reaches_every_fault_every_code_and_every_transition(findings: Findings) -> None:
    assert missed(findings.counts) == []


def test_most_requests_are_answered_in_spite_of_all_faults(findings: Findings) -> None:
    """A core that failed everything would be safe too."""
    ended = {name: findings.counts[f"ended {name}"] for name in ("finished", "failed", "aborted", "rejected")}
    assert ended["finished"] > 0.4 * sum(ended.values())


@pytest.mark.parametrize("way", FIRST_LINES)
def test_a_first_line_is_missed_when_it_is_removed_alone(way: str) -> None:
    """G3, G4, G5, G6, G7, G9, G10, G12: see the table in docs/evidence.md."""
    first, judged = FIRST_LINES[way]
    found = run_batch(Batch(first, 5000, removed=(way,), judged=judged))
    assert [kind for _, kind, _ in found.violations] == list(judged)


def test_every_first_line_that_a_simulator_can_see_is_in_the_list_above() -> None:
    """G11 stands before the wire: tests/wire shows it."""
    seen = {way.partition(":")[0] for way in FIRST_LINES}
    assert seen == {guard.id for guard in GUARDS if guard.line == "first"} - {"G11"}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.guard)
def test_a_second_line_holds_when_the_guards_before_it_are_removed(story: Story) -> None:
    """G1, G2, G8."""
    found = run_batch(Batch(0, 200, story.source, story.behind, LEAK))
    assert found.violations == []
    assert found.counts["tokens delivered"] > 200


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.guard)
def test_a_second_line_is_missed_when_it_is_removed_as_well(story: Story) -> None:
    """G1, G2, G8."""
    found = run_batch(Batch(0, 2000, story.source, (*story.behind, story.guard), LEAK))
    assert [kind for _, kind, _ in found.violations] == [Kind.PROVENANCE]


def test_each_second_line_has_a_story_that_fits_the_table_of_guards() -> None:
    told = {story.guard: {way.partition(":")[0] for way in story.behind} for story in STORIES}
    assert told == {guard.id: set(guard.behind) for guard in GUARDS if guard.line == "second"}


def test_in_the_incident_any_one_of_the_five_guards_is_enough() -> None:
    """G1, G2, G5, G6, G8: all five had to be missing."""
    story = STORIES[0]
    every = {*story.behind, story.guard}
    for kept in sorted(every):
        assert run_batch(Batch(0, 100, story.source, tuple(every - {kept}), LEAK)).violations == []


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_seed_replays_exactly_in_another_process(hash_seed: str) -> None:
    """Nothing depends on the order of sets or on the addresses of objects."""
    here = {seed: simulate(from_seed(seed), traced=True).trace for seed in (3, 12, 27, 40)}
    code = (
        "from tests.simulation.setup import from_seed\n"
        "from tests.simulation.world import simulate\n"
        f"for seed in {list(here)}: print(simulate(from_seed(seed), traced=True).trace.fingerprint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(trace.fingerprint) for trace in here.values() if trace is not None]


def test_a_trace_changes_nothing() -> None:
    plain, traced = simulate(from_seed(12)), simulate(from_seed(12), traced=True)
    assert (plain.counts, plain.events, plain.fired) == (traced.counts, traced.events, traced.fired)


def test_shrinking_keeps_the_violation_and_little_else() -> None:
    with without("G4"):
        first, judged = FIRST_LINES["G4"]
        seed = run_batch_until(first)
        setup = from_seed(seed)
    with without("G4"):
        small = shrink(setup, judged)
        report = simulate(small, judged=judged, traced=True)
    assert report.violation is not None
    assert report.violation.kind is Kind.PROVENANCE
    assert len(small.asks) <= 2
    assert len(small.rates) <= len(setup.rates)
    assert report.trace is not None
    assert report.trace.lines[-1].endswith(str(report.violation))


def run_batch_until(first: int) -> int:
    """The first seed from here on that shows a leak with the guards that are removed now."""
    return next(
        seed for seed in range(first, first + 5000) if simulate(from_seed(seed), judged=LEAK).violation
    )


def test_shrinking_a_world_without_violation_is_refused() -> None:
    with pytest.raises(ValueError, match="seed 12 shows no violation"):
        shrink(from_seed(12))


def test_a_fault_can_be_left_out_by_its_number() -> None:
    setup = from_seed(115)
    fired = simulate(setup).fired
    without_first = simulate(replace(setup, suppress=frozenset(fired[:1])))
    assert fired[0] not in without_first.fired


# --- the oracle sees what it must see


def test_foreign_torn_misplaced_flipped_and_cleared_bytes_are_all_recognised() -> None:
    ledger, pool = Ledger(), Pool(3, 4)
    ann, bob = (ledger.path(ledger.root(tenant, b"layout"), (5, 6, 7)) for tenant in ("ann", "bob"))
    for position, node in enumerate(ann):
        pool.put(0, position, ledger.write(node, "writer", ""))
    for position, node in enumerate(bob):
        pool.put(1, position, ledger.write(node, "writer", ""))
    assert ledger.read(pool, (0,), 3, ann) == (False, "")
    assert "tenant bob" in ledger.read(pool, (1,), 3, ann).cause
    clean = bytes(pool.bytes[0])
    for damage in (
        clean[8:16] + clean[:8] + clean[16:],  # misplaced
        clean[:4] + bytes(pool.bytes[1][4:]),  # torn
        bytes(len(clean)),  # cleared
        bytes([clean[0] ^ 4]) + clean[1:],  # flipped
    ):
        pool.bytes[2][:] = damage
        assert ledger.read(pool, (2,), 3, ann).cause


def test_poison_reads_as_nan_and_what_is_beyond_the_extent_is_not_read() -> None:
    """G8: NaN gives no token at all."""
    ledger, pool = Ledger(), Pool(1, 4)
    own = ledger.path(ledger.root("ann", b"layout"), (5, 6, 7))
    pool.bytes[0][:] = POISON * 4
    assert ledger.read(pool, (0,), 1, own).nan
    assert ledger.read(pool, (0,), 0, own) == (False, "")


def test_what_was_computed_from_tainted_bytes_is_tainted() -> None:
    ledger, pool = Ledger(), Pool(1, 4)
    own = ledger.path(ledger.root("ann", b"layout"), (5, 6))
    pool.put(0, 0, ledger.write(own[0], "writer", ""))
    pool.put(0, 1, ledger.write(own[1], "writer", "position 0: something"))
    assert ledger.read(pool, (0,), 2, own).cause == "position 0: something"
    token = ledger.taint("position 0: something")
    assert ledger.cause(token) == "position 0: something"
    assert ledger.cause(5) == ""


def test_a_tainted_token_is_a_violation_when_it_is_delivered_and_not_before() -> None:
    stage = Stage(Cluster(decode_pages=(12,), prefill_pages=(12,)))
    request = stage.ask("r", 9)
    token = stage.world.ledger.taint("position 0: something")
    assert request.delivered == []
    with pytest.raises(Violation, match="something"):
        stage.world.clients.deliver("r", (token,))  # type: ignore[arg-type]


def test_dice_of_a_healed_world_hit_nothing() -> None:
    dice = Dice(Random(1), {Fault.FLIP: 1.0})
    assert dice.roll(Fault.FLIP)
    dice.healed = True
    assert not dice.roll(Fault.FLIP)


def test_every_kind_of_violation_is_judged_unless_said_otherwise() -> None:
    assert frozenset(Kind) == EVERY_KIND
    assert Setup(1).kinds == ()
