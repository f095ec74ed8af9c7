"""The cheapest set of rooms that holds all lots, by trying sets in the order of what they cost at least."""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from headroom.core.demand.candidates import NEVER, Closed
from headroom.core.demand.heuristics import Content, OpenedRooms
from headroom.core.demand.packing import STEPS_OF_A_LOT, PodBatch, SearchBudget, pack

MOST_PODS: Final = 48
"""For more pods what the rules of thumb found stands."""
STEPS_OF_A_SET: Final = 20
"""What one set takes of the patience, where it is clear at once that it does not hold all lots."""


def cheapest(closed: Closed, known: OpenedRooms, patience: SearchBudget) -> OpenedRooms:
    """The best set there is, if it can be found in time; else the best that is known."""
    if not closed.is_small or sum(lot.many for lot in closed.lots) > MOST_PODS:
        return known
    counts = (0,) * len(closed.classes)
    best, queue = known, [(closed.least(closed.need, counts, 0), counts, 0)]
    while queue and queue[0][0] <= best.price and patience.lasts(STEPS_OF_A_SET):
        _, counts, first = heapq.heappop(queue)
        found = _holding(closed, counts, patience)
        if found is None:
            for entry in _larger(closed, counts, first):
                heapq.heappush(queue, entry)
        elif found[:2] < best[:2]:
            best = found
    return best


def _larger(closed: Closed, counts: tuple[int, ...], first: int) -> list[tuple[int, tuple[int, ...], int]]:
    """The sets with one room more, of the same class or a later one, so that each set comes up once."""
    found = []
    for number in range(first, len(counts)):
        if counts[number] < len(closed.classes[number].rooms):
            more = (*counts[:number], counts[number] + 1, *counts[number + 1 :])
            floor = _price(closed, more) + closed.least(_missing(closed, more), more, number)
            if floor < NEVER:
                found.append((floor, more, number))
    return found


def _price(closed: Closed, counts: tuple[int, ...]) -> int:
    return sum(many * each.price for many, each in zip(counts, closed.classes, strict=True))


def _missing(closed: Closed, counts: tuple[int, ...]) -> list[int]:
    """What all lots need beyond what these rooms have."""
    pairs = [(many, each.has) for many, each in zip(counts, closed.classes, strict=True) if many]
    return [need - sum(many * has[row] for many, has in pairs) for row, need in enumerate(closed.need)]


def _holding(closed: Closed, counts: tuple[int, ...], patience: SearchBudget) -> OpenedRooms | None:
    """The set with all lots in it; None if it does not hold them."""
    if max(_missing(closed, counts)) > 0 or not patience.lasts(STEPS_OF_A_LOT * len(closed.lots)):
        return None
    stock = closed.stock
    stock.free[:] = closed.empty
    rooms = tuple(sorted(room for many, each in zip(counts, closed.classes, strict=True) for room in each.rooms[:many]))
    within = np.zeros(len(stock.rooms), np.bool_)
    within[list(rooms)] = True
    held = pack(stock, [PodBatch(lot.part, lot.many, within) for lot in closed.lots], patience)
    if held is None:
        return None
    content: Content = {room: {} for room in rooms}
    for lot, holding in enumerate(held):
        for room, many in holding:
            content[room][lot] = many
    return OpenedRooms(_price(closed, counts), rooms, content)
