"""Every reachable state of a scope, breadth first, so that a counter-example is a shortest one."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.exhaustive.canon import digest
from tests.exhaustive.clone import Cloner
from tests.exhaustive.oracle import advance, check_stuck
from tests.exhaustive.parts import Violation
from tests.exhaustive.scopes import Scope
from tests.exhaustive.world import World

from kvseal.core import guards

BROKEN = ("leak", "answer")  # what a client can be hurt by; the rest are alarms of our own
ANY = (*BROKEN, "unproven", "book", "stuck", "assertion")


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at the end of the shortest way to it."""

    kind: str
    text: str
    states: int
    trace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """Of one exploration. ``alarms`` are the first violations of kinds that were not asked for."""

    scope: str
    removed: tuple[str, ...]
    states: int
    transitions: int
    depth: int
    seconds: float
    complete: bool
    violation: Found | None
    alarms: dict[str, Found]
    actions: dict[str, int]


@contextmanager
def replaced(functions: dict[str, Callable[..., object]]) -> Iterator[None]:
    """Put other functions in the place of guards, where all of the core finds them."""
    before = {name: getattr(guards, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(guards, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(guards, name, function)


class Explorer:
    """Breadth-first search over canonical states. ``wanted`` are the kinds of violation that end it."""

    def __init__(self, scope: Scope, wanted: tuple[str, ...], limit: int = 10_000_000) -> None:
        self.scope = scope
        self.wanted = wanted
        self.limit = limit
        self.came: dict[bytes, tuple[bytes, str]] = {}
        self.alarms: dict[str, Found] = {}
        self.actions: dict[str, int] = {}
        self.transitions = 0
        self.depth = 0

    def run(self, removed: tuple[str, ...] = ()) -> Result:
        """Explore until all is seen, something that is wanted is found, or the limit is reached."""
        start = time.perf_counter()
        cloner = Cloner()
        first = World(self.scope)
        root = digest(first)
        self.came[root] = (b"", "")
        queue: deque[tuple[int, bytes, World]] = deque([(0, root, first)])
        violation: Found | None = None
        while queue and violation is None and len(self.came) < self.limit:
            self.depth, here, world = queue.popleft()
            for action in [*world.progress(), *world.mishaps()]:
                after = cloner.clone(world)
                self.transitions += 1
                verb = action.partition(" ")[0]
                self.actions[verb] = self.actions.get(verb, 0) + 1
                try:
                    advance(after, action)
                    there = digest(after)
                    if action == "wait" and there == here:
                        check_stuck(after)
                except Violation as error:
                    violation = self._found(error, here, action)
                    if violation is not None:
                        break
                    continue
                if there not in self.came:
                    self.came[there] = (here, action)
                    queue.append((self.depth + 1, there, after))
        seconds = time.perf_counter() - start
        complete = not queue and violation is None
        return Result(
            self.scope.name,
            removed,
            len(self.came),
            self.transitions,
            self.depth,
            seconds,
            complete,
            violation,
            self.alarms,
            self.actions,
        )

    def _found(self, error: Violation, here: bytes, action: str) -> Found | None:
        found = Found(error.kind, str(error), len(self.came), (*self._trace(here), action))
        if error.kind in self.wanted:
            return found
        self.alarms.setdefault(error.kind, found)
        return None

    def _trace(self, state: bytes) -> list[str]:
        actions: list[str] = []
        while state:
            state, action = self.came[state]
            actions.append(action)
        return actions[-2::-1]
