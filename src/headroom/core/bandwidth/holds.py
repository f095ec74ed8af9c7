"""What the links of each node have left, with pods that are bound and pods that were only answered for counted alike.

A pod counts on the virtual switch of its node, and on the card too, unless it talks only to siblings and all of them are on its node. A pod that was answered for counts on every node of its answer, since nobody says which one kube-scheduler takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

FourRates = tuple[int, int, int, int]
"""Local up and down, network up and down, in bits per second."""
NOTHING: Final[FourRates] = (0, 0, 0, 0)
_MOST: Final = 2**62
_NONE: Final = -_MOST
GROWTH: Final = 64
UNKNOWN_ROW: Final = 0
"""The row of all names that are no node: nothing fits there."""


class PodAsk(NamedTuple):
    """What one pod asks for."""

    uid: str
    up: int = 0
    down: int = 0
    group: str = ""
    """Its sibling group; empty for a pod that has no siblings."""
    siblings_only: bool = False
    """It says that it talks only to siblings on the same node."""

    @property
    def may_be_local(self) -> bool:
        """Whether it has siblings that it could be alone with."""
        return self.siblings_only and bool(self.group)


class GroupOnNode(Struct, gc=False):
    """The pods of one group on one node."""

    pods: int = 0
    up: int = 0
    """Of those that talk only to siblings: whether they count on the card is the same for all of them."""
    down: int = 0


def is_local(group: Mapping[str, GroupOnNode]) -> bool:
    """Whether siblings talk inside their node: all are on one."""
    return len(group) == 1


class _Node(Struct):
    name: str
    row: int
    used: list[int]
    capacity: FourRates | None = None
    """None: there is no such node, but pods name it."""
    pods: int = 0


class _Rows(dict[str, int]):
    """The row of each node; asked for by the thousand, so a name that is no node needs no look of its own."""

    def __missing__(self, _name: str) -> int:
        return UNKNOWN_ROW


class LinkTable:
    """The links of all nodes."""

    def __init__(self) -> None:
        self.freed = False
        """Whether anything has more room than when this was last set to False."""
        self.groups: dict[str, dict[str, GroupOnNode]] = {}
        self._rows = _Rows()
        self._ranks: npt.NDArray[np.int64] | None = None
        self._nodes: dict[str, _Node] = {}
        self._free: list[int] = []
        self._names: list[str] = [""]
        """By row."""
        self._left = np.full((4, GROWTH), _NONE, np.int64)
        self._size = np.ones((4, GROWTH), np.int64)

    # Nodes

    def set_node(self, name: str, capacity: FourRates) -> None:
        """Add a node, or change what its links can carry."""
        node = self._node(name)
        if node.capacity != capacity:
            node.capacity = capacity
            self._rows[name] = node.row
            self._ranks = None
            self._size[:, node.row] = np.minimum(np.maximum(capacity, 1), _MOST)
            self._show(node)
            self.freed = True

    def remove_node(self, name: str) -> None:
        """Nothing fits on it any more; what its pods hold is remembered for a node of that name."""
        node = self._nodes.get(name)
        if node is not None:
            node.capacity = None
            self._rows.pop(name, None)
            self._ranks = None
            self._left[:, node.row] = _NONE
            self._forget_idle(node)

    def names(self) -> Iterable[str]:
        """All nodes that are there."""
        return self._rows.keys()

    def rows(self, names: Iterable[str]) -> npt.NDArray[np.int64]:
        """The row of each name."""
        return np.fromiter(map(self._rows.__getitem__, names), np.int64)

    def ranks(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The places of nodes in the order of their names."""
        if self._ranks is None:
            self._ranks = np.zeros(self._left.shape[1], np.int64)
            self._ranks[self.rows(sorted(self._rows))] = np.arange(len(self._rows))
        return self._ranks[rows]

    def near(self, group: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64] | None:
        """How many pods of a group are on each of these; None if none is on any node."""
        found = self.groups.get(group) if group else None
        if not found:
            return None
        by_row = np.zeros(self._left.shape[1])
        by_row[self.rows(found)] = [each.pods for each in found.values()]
        by_row[UNKNOWN_ROW] = 0
        return by_row[rows]

    def all_rows(self) -> npt.NDArray[np.int64]:
        """The row of every node."""
        return np.fromiter(self._rows.values(), np.int64, len(self._rows))

    def mask(self, names: Iterable[str]) -> npt.NDArray[np.uint8]:
        """1 in the rows of these names."""
        found = np.zeros(self._left.shape[1], np.uint8)
        found[self.rows(names)] = 1
        found[UNKNOWN_ROW] = 0
        return found

    def name_of(self, row: int) -> str:
        """The node in a row; empty if there is none."""
        return self._names[row] if row < len(self._names) else ""

    def left(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What is left of the four there."""
        return self._left[:, rows]

    def sizes(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What the four can carry, at least 1."""
        return self._size[:, rows]

    def left_of(self, name: str) -> FourRates:
        """What is left of the four of one node; below zero where more was taken than there is, or where there is no such node."""
        node = self._nodes.get(name)
        if node is None or node.capacity is None:
            return (_NONE, _NONE, _NONE, _NONE)
        a, b, c, d = (size - used for size, used in zip(node.capacity, node.used, strict=True))
        return (a, b, c, d)

    def oversubscribed(self) -> list[str]:
        """The nodes with a link of which more was taken than there is."""
        return sorted(each for each in self._rows if min(self.left_of(each)) < 0)

    # Pods

    def add(self, ask: PodAsk, name: str) -> None:
        """Count a pod on a node."""
        self._take(self._node(name), ask, 1)
        if ask.group:
            self._change_group(ask, name, 1)

    def remove(self, ask: PodAsk, name: str) -> None:
        """Count a pod on a node no more."""
        node = self._node(name)
        if ask.group:
            self._change_group(ask, name, -1)
        self._take(node, ask, -1)
        self._forget_idle(node)

    def _change_group(self, ask: PodAsk, name: str, times: int) -> None:
        """A pod joins its group on a node, or leaves it: the others may come to talk over the card, or cease to."""
        group = self.groups.setdefault(ask.group, {})
        was_local = is_local(group)
        here = group.setdefault(name, GroupOnNode())
        here.pods += times
        if ask.siblings_only:
            up, down = ask.up * times, ask.down * times
            here.up, here.down = here.up + up, here.down + down
            if not was_local:
                self._charge(name, up, down)
        if not here.pods:
            del group[name]
        if not group:
            del self.groups[ask.group]
        elif is_local(group) != was_local:
            # Two nodes at most: one of them has just come or gone.
            sign = 1 if was_local else -1
            for each, there in group.items():
                self._charge(each, sign * there.up, sign * there.down)

    def _take(self, node: _Node, ask: PodAsk, times: int) -> None:
        node.pods += times
        up, down = ask.up * times, ask.down * times
        on_card = not ask.may_be_local
        self._use(node, (up, down, up * on_card, down * on_card))

    def _charge(self, name: str, up: int, down: int) -> None:
        self._use(self._node(name), (0, 0, up, down))

    def _use(self, node: _Node, more: FourRates) -> None:
        if more == NOTHING:
            return
        for index, each in enumerate(more):
            node.used[index] += each
        if min(more) < 0:
            self.freed = True
        self._show(node)

    # Rows

    def _show(self, node: _Node) -> None:
        if node.capacity is not None:
            # Exact sums are whole numbers of any size; a column that is compared has 64 bits.
            for index in range(4):
                left = node.capacity[index] - node.used[index]
                self._left[index, node.row] = max(min(left, _MOST), _NONE)

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            row = self._free.pop() if self._free else self._grow()
            self._names[row] = name
            node = self._nodes[name] = _Node(name=name, row=row, used=[0, 0, 0, 0])
        return node

    def _grow(self) -> int:
        row = len(self._names)
        self._names.append("")
        if row >= self._left.shape[1]:
            more = row // 2 + GROWTH
            self._left = np.concatenate([self._left, np.full((4, more), _NONE, np.int64)], axis=1)
            self._size = np.concatenate([self._size, np.ones((4, more), np.int64)], axis=1)
        return row

    def _forget_idle(self, node: _Node) -> None:
        if node.capacity is None and not node.pods and self._nodes.pop(node.name, None) is not None:
            self._free.append(node.row)
