"""The Spin model and the cores say the same: its runs are theirs, and its counter-examples hurt them too.

F05, F06 and F13 are among the counter-examples: bytes that land late, pages that are used again without
proof, a pass over pages that were given back.
"""

import os
from functools import cache

import pytest
from spec.check import ENOUGH_STATES, HELD, MISSED, Verdict, random_run, tools_missing, verify
from tests.exhaustive.explore import replaced
from tests.exhaustive.oracle import advance
from tests.exhaustive.parts import Violation
from tests.exhaustive.scopes import SPEC
from tests.exhaustive.without import replacements
from tests.exhaustive.world import World

pytestmark = pytest.mark.timeout(900)

RUNS, STEPS = 15, 2000


@pytest.fixture(autouse=True)
def tools() -> None:
    """Spin may be missing on a developer's machine, but never where the checks are run for all."""
    missing = tools_missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (apt-get install spin gcc libc6-dev)")


@cache
def verdict(*removed: str) -> Verdict:
    return verify(removed)


def replay(actions: tuple[str, ...], unheard: tuple[str, ...] = ()) -> World:
    """Drive the real cores, past alarms of the kinds ``unheard``. KeyError: an action is impossible there."""
    world = World(SPEC)
    for action in actions:
        if action not in (*world.progress(), *world.mishaps()):
            raise KeyError(action)
        try:
            advance(world, action)
        except Violation as violation:
            if violation.kind not in unheard:
                raise
    return world


@pytest.mark.slow
def test_the_model_has_no_error_in_all_its_states() -> None:
    found = verdict()
    assert found.complete
    assert found.errors == 0
    assert found.states >= ENOUGH_STATES


@pytest.mark.slow
@pytest.mark.parametrize("removed", HELD, ids="+".join)
def test_a_second_line_alone_is_not_missed_by_the_model(removed: tuple[str, ...]) -> None:
    found = verdict(*removed)
    assert found.complete
    assert found.errors == 0


@pytest.mark.parametrize("removed", MISSED, ids="+".join)
def test_a_counter_example_leaks_in_the_cores_without_the_guard(removed: tuple[str, ...]) -> None:
    actions = verdict(*removed).actions
    assert actions
    with replaced(replacements(removed)), pytest.raises(Violation) as caught:
        replay(actions, unheard=("book", "unproven"))
    assert caught.value.kind == "leak"


@pytest.mark.parametrize("removed", MISSED, ids="+".join)
def test_a_counter_example_is_harmless_where_all_guards_are_in_force(removed: tuple[str, ...]) -> None:
    try:
        world = replay(verdict(*removed).actions)
    except KeyError:
        return  # a guard made the next action impossible
    assert all(answer.ends <= 1 for answer in world.answers)


@pytest.mark.parametrize("faults", range(SPEC.faults + 1))
def test_every_run_of_the_model_is_a_run_of_the_cores(faults: int) -> None:
    runs = [random_run(seed, STEPS, faults) for seed in range(1, RUNS + 1)]
    assert sum(map(len, runs)) > 10 * RUNS
    for run in runs:
        replay(run)
