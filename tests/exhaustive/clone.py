"""A copy of a world, many times faster than ``copy.deepcopy``: what is immutable by type is shared.

Frozen dataclasses are shared with the arrays in them (not with the jobs and leases that some carry), because
the core never writes into an array that it has handed out; ``test_a_clone_shares_nothing_that_changes``
compares with ``deepcopy``. Counters are shared on purpose: nothing is decided by them.
"""

import dataclasses
from collections import OrderedDict
from enum import Enum
from types import FunctionType, MethodType, NoneType
from typing import Any, TypeVar

import msgspec
import numpy as np
from tests.exhaustive.memory import Sealer

from kvseal.core.counters import Counters

T = TypeVar("T")

_SHARED = (
    int,
    float,
    str,
    bytes,
    tuple,
    frozenset,
    NoneType,
    Enum,
    msgspec.Struct,
    FunctionType,
    Counters,
    Sealer,
)


def _kind(kind: type) -> str:
    if issubclass(kind, _SHARED):
        return "shared"
    if _is_frozen(kind):
        return "carrier" if _carried(kind) else "shared"
    bases: tuple[type, ...] = (list, dict, set, MethodType, np.ndarray)
    return next((base.__name__ for base in bases if issubclass(kind, base)), "object")


def _is_frozen(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _carried(kind: type) -> list[str]:
    """The fields of a frozen dataclass that hold something that changes."""
    fields = dataclasses.fields(kind)
    return [f.name for f in fields if isinstance(f.type, type) and _kind(f.type) in ("object", "carrier")]


class Cloner:
    """Copies worlds; remembers what it learned about their types."""

    def __init__(self) -> None:
        self._shared: set[type] = set()
        self._kinds: dict[type, tuple[str, tuple[str, ...]]] = {}
        self._memo: dict[int, Any] = {}

    def clone(self, thing: T) -> T:
        """A copy of the object graph from ``thing`` on."""
        self._memo.clear()
        return self._clone(thing)  # type: ignore[no-any-return]

    def _learn(self, kind: type) -> tuple[str, tuple[str, ...]]:
        names = tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
        learned = self._kinds[kind] = (_kind(kind), names)
        if learned[0] == "shared":
            self._shared.add(kind)
        return learned

    def _clone(self, thing: Any) -> Any:
        kind = type(thing)
        how, names = self._kinds.get(kind) or self._learn(kind)
        if how == "shared":
            return thing
        memo, shared = self._memo, self._shared
        known = memo.get(id(thing))
        if known is not None:
            return known
        copy: Any
        match how:
            case "ndarray":
                copy = memo[id(thing)] = thing.copy()
            case "list":
                copy = memo[id(thing)] = []
                copy.extend([item if type(item) in shared else self._clone(item) for item in thing])
            case "set":
                copy = memo[id(thing)] = set(thing)
            case "dict":
                copy = memo[id(thing)] = OrderedDict() if kind is OrderedDict else {}
                for key, value in thing.items():
                    copy[key] = value if type(value) in shared else self._clone(value)
            case "method":
                copy = memo[id(thing)] = MethodType(thing.__func__, self._clone(thing.__self__))
            case _:
                copy = memo[id(thing)] = object.__new__(kind)
                for name in names or thing.__dict__:
                    value = getattr(thing, name)
                    object.__setattr__(copy, name, value if type(value) in shared else self._clone(value))
        return copy
