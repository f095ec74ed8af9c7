"""Placement: the rule of the simulated scheduler, the first node by name with room, on columns instead of objects.

A share of a GPU must fit on one card, and a pod that requests whole cards gets unshared ones. A pod that fits nowhere is tried again
only on nodes where something became free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headroom.core import demand, usage
from headroom.model.facts import Node, Shape

WHOLE: Final = 1_000_000
ANYWHERE: Final = "anywhere"
"""The node of every pod if no nodes are given."""
_BOUNDLESS: Final = 2**62
_PODS: Final = "pods"
Bools = NDArray[np.bool_]


class Placer:
    """Tracks free capacity and pending pods."""

    def __init__(self, nodes: Iterable[Node], shapes: Collection[Shape], boundless: Collection[str] = ()) -> None:
        self._nodes = sorted(nodes, key=lambda node: node.name)
        self.names = [node.name for node in self._nodes]
        self._number = {name: number for number, name in enumerate(self.names)}
        wanted = {name for shape in shapes for name, _ in shape.requests}
        self._row = {name: row for row, name in enumerate(sorted(wanted | {_PODS}))}
        self._free = np.zeros((len(self._row), len(self._nodes)), np.int64)
        for column, node in enumerate(self._nodes):
            self._free[self._row[_PODS], column] = _BOUNDLESS
            for name, amount in node.allocatable:
                if name in self._row:
                    self._free[self._row[name], column] = min(amount, _BOUNDLESS)
        # Resources that only earlier pods requested have no row.
        for name in self._row.keys() & set(boundless):
            self._free[self._row[name]] = _BOUNDLESS
        self._cards = {name: Cards(self._free[self._row[name]]) for name in _shared(shapes) - set(boundless)}
        self._placed: dict[str, tuple[int, Shape, dict[str, tuple[int, int]]]] = {}
        """By pod: its node, its shape, and its card of each shared resource."""
        self._waiting: dict[str, Shape] = {}
        self._new: list[str] = []
        self._freed: set[int] = set()
        self._allowed: dict[Shape, Bools] = {}
        self._open = np.array([_is_open(node) for node in self._nodes], np.bool_)
        """Ready and schedulable nodes."""

    def show(self, node: Node) -> None:
        """A node became ready or schedulable, or ceased to be."""
        number, is_open = self._number[node.name], _is_open(node)
        if is_open and not self._open[number]:
            self._freed.add(number)
        self._open[number] = is_open

    def add(self, uid: str, shape: Shape) -> None:
        """A pod becomes pending."""
        self._waiting[uid] = shape
        self._new.append(uid)

    def forget(self, uid: str) -> None:
        """A pod is removed: its capacity becomes free."""
        self._waiting.pop(uid, None)
        place = self._placed.pop(uid, None)
        if place is None:
            return
        number, shape, shares = place
        self._take(number, shape, -1)
        for name, (card, amount) in shares.items():
            self._cards[name].give_back(number, card, amount)
        for name, cards in self._cards.items():
            if name not in shares:
                cards.whole(number, -dict(shape.requests).get(name, 0))
        self._freed.add(number)

    @property
    def waiting(self) -> int:
        """The number of pending pods."""
        return len(self._waiting)

    def place(self) -> Iterator[tuple[str, str]]:
        """Every pod that fits now, with its node, in order of arrival."""
        new, self._new = [uid for uid in self._new if uid in self._waiting], []
        freed, self._freed = sorted(self._freed), set()
        if not self._nodes:
            for uid in new:
                del self._waiting[uid]
                yield uid, ANYWHERE
            return
        fresh = set(new)
        again = (
            self._fitting({shape for uid, shape in self._waiting.items() if uid not in fresh}, freed) if freed else {}
        )
        unfit: set[Shape] = set()
        for uid, shape in list(self._waiting.items()) if again else [(uid, self._waiting[uid]) for uid in new]:
            if shape in unfit or (uid not in fresh and shape not in again):
                continue
            # A pod that fitted nowhere can only fit where something became free since.
            number = self._first(shape, None if uid in fresh else freed)
            if number is None:
                unfit.add(shape)
                continue
            self._bind(uid, shape, number)
            yield uid, self.names[number]

    def put(self, uid: str, shape: Shape) -> str:
        """Place a running pod: where it fits, or on an extra node if the record has too few."""
        number = self._first(shape, None) if self._nodes else None
        if number is None:
            return ANYWHERE
        self._bind(uid, shape, number)
        return self.names[number]

    # --- fitting ----------------------------------------------------------------------------------------------------------

    def _fitting(self, shapes: set[Shape], freed: list[int]) -> dict[Shape, None]:
        return {shape: None for shape in shapes if self._first(shape, freed) is not None}

    def _first(self, shape: Shape, among: list[int] | None) -> int | None:
        """The first node with room, of all or of some."""
        where: Any = slice(None) if among is None else among
        fits = (self._allowed_on(shape) & self._open)[where]
        for name, amount in ((_PODS, WHOLE), *shape.requests):
            cards = self._cards.get(name)
            fits &= self._free[self._row[name]][where] >= amount if cards is None else cards.fit(amount)[where]
        place = int(np.argmax(fits)) if len(fits) else 0
        if not len(fits) or not fits[place]:
            return None
        return place if among is None else among[place]

    def _bind(self, uid: str, shape: Shape, number: int) -> None:
        self._waiting.pop(uid, None)
        self._take(number, shape, 1)
        shares = {}
        for name, amount in shape.requests:
            cards = self._cards.get(name)
            if cards is not None and amount % WHOLE:
                shares[name] = cards.share(number, amount), amount
            elif cards is not None:
                cards.whole(number, amount)
        self._placed[uid] = number, shape, shares

    def _take(self, number: int, shape: Shape, sign: int) -> None:
        for name, amount in ((_PODS, WHOLE), *shape.requests):
            self._free[self._row[name], number] -= sign * amount

    def _allowed_on(self, shape: Shape) -> Bools:
        known = self._allowed.get(shape)
        if known is None:
            known = self._allowed[shape] = np.array([_may_go(shape, node) for node in self._nodes], np.bool_)
        return known


class Cards:
    """The cards of a resource that some pods share, node by node."""

    def __init__(self, capacity: NDArray[np.int64]) -> None:
        self._untouched = capacity // WHOLE
        """Cards without any pod."""
        self._open: list[list[int]] = [[] for _ in capacity]
        """The free part of each shared card; an unused entry counts as a whole card."""
        self._largest = np.zeros(len(capacity), np.int64)

    def fit(self, amount: int) -> Bools:
        """The nodes on which an amount fits."""
        if amount % WHOLE == 0:
            found: Bools = self._untouched * WHOLE >= amount
            return found
        return (self._largest >= amount) | (self._untouched * WHOLE >= amount)

    def whole(self, node: int, amount: int) -> None:
        """Take whole cards; a negative number returns them."""
        self._untouched[node] -= amount // WHOLE

    def share(self, node: int, amount: int) -> int:
        """Take a part of the fullest card with room, or of a new one; returns the card."""
        open_ = self._open[node]
        fitting = [(left, card) for card, left in enumerate(open_) if amount <= left < WHOLE]
        if fitting:
            card = min(fitting)[1]
        else:
            # A request above one card takes whole cards; the rest stays unused.
            self._untouched[node] -= -(-amount // WHOLE)
            card = next((card for card, left in enumerate(open_) if left == WHOLE), len(open_))
            if card == len(open_):
                open_.append(WHOLE)
        open_[card] = max(0, open_[card] - amount)
        self._largest[node] = max((left for left in open_ if left < WHOLE), default=0)
        return card

    def give_back(self, node: int, card: int, amount: int) -> None:
        """Return a part of a card."""
        open_ = self._open[node]
        if amount > WHOLE:
            self._untouched[node] += -(-amount // WHOLE) - 1
        open_[card] = min(WHOLE, open_[card] + amount)
        if open_[card] == WHOLE:
            self._untouched[node] += 1
        self._largest[node] = max((left for left in open_ if left < WHOLE), default=0)


def _shared(shapes: Iterable[Shape]) -> set[str]:
    """Resources of which some pod requests a fraction: GPUs, not CPUs."""
    asked = {pair for shape in shapes for pair in shape.requests}
    return {name for name, amount in asked if amount % WHOLE and usage.gpus_in(((name, WHOLE),))}


def _is_open(node: Node) -> bool:
    return node.ready and not node.unschedulable


def _may_go(shape: Shape, node: Node) -> bool:
    """Whether labels and taints of a node allow pods of a shape."""
    wishes = demand.constraints_of(shape)
    refused = wishes.problem or demand.unmatched(wishes, node.labels, node.name)
    return not refused and demand.untolerated(wishes, node.taints) is None
