"""Virtual time: what happens next, in an order that depends on nothing but the seed."""

import heapq
from collections.abc import Callable
from typing import Any


class Agenda:
    """A queue of (time, order of arrival, what to do). ``now`` is in seconds and never goes back."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._queue)

    def at(self, time_s: float, do: Callable[..., None], *args: Any) -> None:
        """Do it at this time, or now if that is past."""
        self._order += 1
        heapq.heappush(self._queue, (max(time_s, self.now), self._order, do, args))

    def after(self, delay_s: float, do: Callable[..., None], *args: Any) -> None:
        """Do it in so many seconds."""
        self._order += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._order, do, args))

    def run_until(self, time_s: float) -> None:
        """Everything that is due up to this time."""
        queue = self._queue
        while queue and queue[0][0] <= time_s:
            self.now, _, do, args = heapq.heappop(queue)
            self.ran += 1
            do(*args)
        self.now = max(self.now, time_s)
