"""Values that many rows of a table share, each numbered once, and who has them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, KeysView, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value", bound=Hashable)
Ints = NDArray[np.int64]

ABSENT: Final = -1
"""Stands in a column where a moment or a number is not known."""
_EMPTY: Final[frozenset[str]] = frozenset()
_NOWHERE: Final[Mapping[str, int]] = MappingProxyType({})


class Numbering(Generic[Value]):
    """Gives each distinct value a small number and one shared object, and forgets unused values."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self._values: list[Value | None] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def take(self, value: Value) -> int:
        """The number of `value`, counted once more."""
        number = self._numbers.get(value)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._values[number] = value
            else:
                number = len(self._values)
                self._values.append(value)
                self._uses.append(0)
            self._numbers[value] = number
        self._uses[number] += 1
        return number

    def drop(self, number: int) -> None:
        """One use less; at none the number becomes free."""
        self._uses[number] -= 1
        if self._uses[number] == 0:
            value = self._values[number]
            self._values[number] = None
            if value is not None:
                del self._numbers[value]
            self._free.append(number)

    def __getitem__(self, number: int) -> Value:
        value = self._values[number]
        if value is None:
            raise KeyError(number)
        return value

    def number(self, value: Value) -> int:
        """The number of a value, ABSENT if nobody has it."""
        return self._numbers.get(value, ABSENT)

    def items(self) -> Iterator[tuple[int, Value]]:
        """Every number in use with its value."""
        return ((number, value) for value, number in self._numbers.items())

    def __len__(self) -> int:
        return len(self._numbers)


class UidIndex:
    """Which pods share a value: value to the uids that have it."""

    def __init__(self) -> None:
        self._members: dict[str, set[str]] = {}

    def add(self, value: str, uid: str) -> None:
        """Put a pod under a value."""
        self._members.setdefault(value, set()).add(uid)

    def remove(self, value: str, uid: str) -> None:
        """Take a pod away from a value."""
        members = self._members.get(value)
        if members is not None:
            members.discard(uid)
            if not members:
                del self._members[value]

    def __getitem__(self, value: str) -> frozenset[str] | set[str]:
        return self._members.get(value, _EMPTY)

    def values(self) -> KeysView[str]:
        """Every value that some pod has."""
        return self._members.keys()


class Spread:
    """On which nodes the pods are that share a value: value to how many are on each node."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, int]] = {}

    def add(self, value: str, node: str, pods: int = 1) -> None:
        """Count a pod with a value on a node; -1: no more."""
        nodes = self._nodes.setdefault(value, {})
        nodes[node] = nodes.get(node, 0) + pods
        if not nodes[node]:
            del nodes[node]
        if not nodes:
            del self._nodes[value]

    def __getitem__(self, value: str) -> Mapping[str, int]:
        return self._nodes.get(value, _NOWHERE)

    def values(self) -> KeysView[str]:
        """Every value that some pod has."""
        return self._nodes.keys()
