"""Every reachable state of small worlds, run by the cores that serve.

F05, F06, F08, F13, F15, F16, F17, F22 and F23 are in them, wherever they may strike.
"""

import copy
from collections.abc import Callable

import pytest
from tests.exhaustive.canon import digest
from tests.exhaustive.clone import Cloner
from tests.exhaustive.explore import ANY, BROKEN, Explorer, replaced
from tests.exhaustive.oracle import advance
from tests.exhaustive.parts import Violation
from tests.exhaustive.scopes import CI, FAULTS, HELD, LIFE, MISSED, PAIR, REUSE, Scope
from tests.exhaustive.without import replacements
from tests.exhaustive.world import World

from kvseal.core.messages import Prefill

pytestmark = pytest.mark.timeout(600)

LIMIT = 60_000  # states; more would mean that a scope has outgrown the tests

LOAD = (
    "deliver Prefill r0.1",
    "plan prefill",
    "digest source r0.1#0",
    "deliver Manifest r0.1#0",
    "done r0.1#0",
)


def run(scope: Scope, *actions: str) -> World:
    """The world after these actions, each of which must be possible where it stands."""
    world = World(scope)
    for action in actions:
        assert action in (*world.progress(), *world.mishaps()), action
        advance(world, action)
    return world


@pytest.mark.parametrize("scope", CI, ids=lambda scope: scope.name)
def test_no_reachable_state_lets_a_foreign_byte_be_read(scope: Scope) -> None:
    result = Explorer(scope, ANY, LIMIT).run()
    assert result.violation is None
    assert result.complete
    faults = {"land" if kind == "error" else kind for kind in scope.kinds}
    assert {"submit", "deliver", "digest", "done", "plan", "begin", "finish", *faults} <= set(result.actions)


@pytest.mark.parametrize("removed", MISSED, ids="+".join)
def test_without_a_guard_a_reachable_state_leaks(removed: tuple[str, ...]) -> None:
    with replaced(replacements(removed)):
        result = Explorer(MISSED[removed], BROKEN, LIMIT).run(removed)
        assert result.violation is not None
        assert result.violation.kind == "leak"
        with pytest.raises(Violation, match="leak"):
            run(MISSED[removed], *result.violation.trace)


@pytest.mark.parametrize("removed", HELD, ids="+".join)
def test_a_second_line_alone_is_not_missed(removed: tuple[str, ...]) -> None:
    with replaced(replacements(removed)):
        result = Explorer(HELD[removed], BROKEN, LIMIT).run(removed)
    assert result.complete
    assert result.violation is None


def test_guards_are_put_back() -> None:
    with replaced(replacements(("G5", "G6"))):
        assert Explorer(PAIR, BROKEN, 50).run().states >= 50
    assert Explorer(PAIR, ANY, LIMIT).run().complete


def test_every_fault_is_in_some_scope() -> None:
    assert {kind for scope in CI for kind in scope.kinds} == set(FAULTS)


# --- the tool itself
# ---------------------------------------------------------------------------------------------------------


def test_a_request_runs_to_its_answer() -> None:
    world = run(
        PAIR, "submit", *LOAD, "digest landed r0.1#0", "plan", "begin", "finish", "deliver Release r0.1"
    )
    assert world.answers[0].tokens == [3]
    assert world.answers[0].ends == 1
    assert world.decode.pool.count().free == PAIR.pages


@pytest.mark.parametrize("scope", [PAIR, REUSE], ids=lambda scope: scope.name)
def test_a_clone_shares_nothing_that_changes(scope: Scope) -> None:
    world = run(scope, "submit", "submit", *LOAD)
    before = digest(world)
    fast, slow = Cloner().clone(world), copy.deepcopy(world)
    assert digest(fast) == digest(slow) == before
    for action in ("digest landed r0.1#0", "plan", "begin", "finish"):
        advance(fast, action)
        advance(slow, action)
        assert digest(fast) == digest(slow)
        assert digest(world) == before


def test_strangers_are_one_state_whoever_of_them_is_where() -> None:
    one = run(LIFE, "submit", "submit", "deliver Prefill r0.1")
    for action in ("abort 0", "deliver Release r0.1"):
        advance(one, action)
    other = run(LIFE, "submit", "submit", "deliver Prefill r1.1")
    for action in ("abort 1", "deliver Release r1.1"):
        advance(other, action)
    assert digest(one) == digest(other)


def changed_extent(world: World) -> None:
    for job in world.decode._jobs.values():
        assert job.lease is not None
        job.lease.extent += 1


def lost_message(world: World) -> None:
    world.network = [packet for packet in world.network if not isinstance(packet.message, Prefill)]


@pytest.mark.parametrize("change", [changed_extent, lost_message])
def test_states_that_differ_have_different_digests(change: Callable[[World], None]) -> None:
    world = run(PAIR, "submit")
    before = digest(world)
    change(world)
    assert digest(world) != before
