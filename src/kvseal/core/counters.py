"""Counters that stand at zero from the start, one per cause, so that an alert can be written before the first
event (F26).
"""

from collections.abc import Iterable

from kvseal.core.errors import InvariantViolation


class Counters:
    """A fixed set of names; counting an unknown one is a bug."""

    def __init__(self, names: Iterable[str]) -> None:
        self._values = dict.fromkeys(names, 0)

    def add(self, name: str, amount: int = 1) -> None:
        """Raise counter ``name`` by ``amount``, which is not negative."""
        if name not in self._values or amount < 0:
            raise InvariantViolation(f"no counter '{name}', or a negative amount {amount}")
        self._values[name] += amount

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def snapshot(self) -> dict[str, int]:
        """A copy of all values."""
        return dict(self._values)
