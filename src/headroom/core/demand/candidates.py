"""Rooms that could be opened, in classes of which any room is as good as another, with what they cost as one number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom.core.demand.free_capacity import FreeCapacity
from headroom.core.demand.packing import PodBatch
from headroom.core.demand.units import Candidate
from headroom.model.numbering import Ints

FEW: Final = 12
"""Up to so many classes, every set of rooms is thought of."""
NEVER: Final = 10**100
"""The price of what cannot be had."""


class Class(NamedTuple):
    """Rooms that no pending pod can tell apart and that cost the same."""

    rooms: tuple[int, ...]
    """By name."""
    price: int
    has: tuple[int, ...]
    """What is in one of them, by resource; then, where there are few classes, how many pods of each lot it holds."""


class Closed:
    """All that could be opened for some lots."""

    def __init__(self, stock: FreeCapacity, candidates: Mapping[str, Candidate], lots: Sequence[PodBatch]) -> None:
        self.stock, self.lots = stock, lots
        self.empty = stock.free.copy()
        """What is free in each room before anybody is in it."""
        classes = _classes(stock, candidates, lots)
        self.class_of = {room: number for number, each in enumerate(classes) for room in each.rooms}
        self.firsts = np.array([each.rooms[0] for each in classes], np.int64)
        self.holds = np.zeros((len(lots), len(classes)), np.int64)
        """For each lot and class, how many pods of the lot an empty room holds."""
        for number, lot in enumerate(lots):
            allowed = stock.allowed(lot.part)[self.firsts]
            self.holds[number] = np.where(allowed, stock.holds(lot.part, self.firsts), 0)
        self.gpus = [stock.gpus(lot.part) for lot in lots]
        """What one pod of each lot takes."""
        self.classes = classes
        """The cheapest first, then by name."""
        asks = [stock.ask(lot.part).tolist() for lot in lots]
        self.need = [
            sum(ask[row] * lot.many for ask, lot in zip(asks, lots, strict=True)) for row in range(len(stock.names))
        ]
        """What all lots take together, by resource; then, where there are few classes, how many pods of each lot there are."""
        self.is_small = len(classes) <= FEW
        if self.is_small:
            self.classes = [
                each._replace(has=(*each.has, *self.holds[:, number].tolist())) for number, each in enumerate(classes)
            ]
            self.need += [lot.many for lot in lots]
        self._by_worth = [self._worth(row) for row in range(len(self.need))]

    @cached_property
    def order(self) -> list[int]:
        """Lots, the largest first: by GPUs, then by the largest part of a room that one pod takes."""
        most = np.maximum(1, self.empty.max(axis=1, initial=1))
        parts = [float((self.stock.ask(lot.part) / most).max()) for lot in self.lots]
        return sorted(range(len(parts)), key=lambda lot: (-self.gpus[lot], -parts[lot], self.lots[lot].part.digest))

    @cached_property
    def later(self) -> Ints:
        """For each lot and class, the GPUs that later lots ask for and that could be had there."""
        found, total = np.zeros(self.holds.shape, np.int64), np.zeros(len(self.classes), np.int64)
        for lot in reversed(self.order):
            found[lot] = total
            total = total + np.where(self.holds[lot] > 0, self.gpus[lot] * self.lots[lot].many, 0)
        return found

    @cached_property
    def prices(self) -> NDArray[np.float64]:
        """What a room of each class costs, nearly."""
        return np.array([float(each.price) for each in self.classes])

    @cached_property
    def gpus_there(self) -> Ints:
        """The GPUs in a room of each class."""
        rows = self.stock.gpu_rows
        return np.array([sum(each.has[row] for row in rows) for each in self.classes], np.int64)

    def _worth(self, row: int) -> list[int]:
        """Classes by what one step of a resource costs in them, the cheapest first."""
        # Amounts have 63 bits, so two prices of a step that differ at all differ within 126 bits behind the point.
        worth = [(each.price << 128) // each.has[row] if each.has[row] else -1 for each in self.classes]
        return sorted((number for number, each in enumerate(worth) if each >= 0), key=worth.__getitem__)

    def price_of(self, rooms: Iterable[int]) -> int:
        """What a set of rooms costs."""
        return sum(self.classes[self.class_of[room]].price for room in rooms)

    def least(self, need: Sequence[int], counts: Sequence[int], first: int) -> int:
        """What it costs at least to have so much more of each resource, with rooms of the classes from `first` on.

        `counts` says how many rooms of each class are taken already. A part of a room costs that part of its price.
        """
        return max((self._least(row, each, counts, first) for row, each in enumerate(need) if each > 0), default=0)

    def _least(self, row: int, need: int, counts: Sequence[int], first: int) -> int:
        total = 0
        for number in self._by_worth[row]:
            if number < first:
                continue
            each = self.classes[number]
            there = len(each.rooms) - counts[number]
            if each.has[row] * there >= need:
                return total - (-each.price * need // each.has[row])
            total, need = total + each.price * there, need - each.has[row] * there
        return NEVER


def _classes(stock: FreeCapacity, candidates: Mapping[str, Candidate], lots: Sequence[PodBatch]) -> list[Class]:
    prices = _prices([candidates[room.name].cost for room in stock.rooms])
    masks = np.array([stock.allowed(lot.part) for lot in lots], np.bool_).reshape(len(lots), len(prices))
    open_to = np.packbits(masks, axis=0)
    alike: dict[tuple[int, bytes, bytes], list[int]] = {}
    for room, price in enumerate(prices):
        alike.setdefault((price, open_to[:, room].tobytes(), stock.free[:, room].tobytes()), []).append(room)
    found = [
        Class(tuple(rooms), price, tuple(stock.free[:, rooms[0]].tolist())) for (price, *_), rooms in alike.items()
    ]
    return sorted(found, key=lambda each: (each.price, each.rooms))


def _prices(costs: Sequence[tuple[int, ...]]) -> list[int]:
    """Costs as single numbers that add up and compare as the costs do, and where those are equal, as the number of rooms does."""
    length = max(map(len, costs), default=0)
    counted = [(*(max(0, part) for part in cost), *(0,) * (length - len(cost)), 1) for cost in costs]
    weights = [1]
    for place in range(length, 0, -1):
        weights.append(weights[-1] * (1 + sum(cost[place] for cost in counted)))
    weights.reverse()
    return [sum(part * weight for part, weight in zip(cost, weights, strict=True)) for cost in counted]
