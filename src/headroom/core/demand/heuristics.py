"""Opening rooms by rules of thumb: the largest pods first, each time the room that is worth most, then whatever can be spared is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom.core.demand.candidates import Closed
from headroom.core.demand.free_capacity import Assignment
from headroom.model.numbering import Ints

MOST_POLISHED: Final = 32
"""So many of the emptiest rooms are looked at again."""

Content = dict[int, dict[int, int]]
"""For each room that is open, how many pods of each lot are in it."""
Rule = Callable[["Layout", int], NDArray[np.float64]]
"""What a room of each class costs by what it is good for now, for a lot that needs one."""


class OpenedRooms(NamedTuple):
    """Rooms that hold all lots. The least is the best."""

    price: int
    rooms: tuple[int, ...]
    """By name."""
    content: Content


class Layout:
    """Rooms as they are opened and filled."""

    def __init__(self, closed: Closed) -> None:
        self.closed, self.stock = closed, closed.stock
        self.stock.free[:] = closed.empty
        self.content: Content = {}
        self.need = [lot.many for lot in closed.lots]
        self._open = np.zeros(len(self.stock.rooms), np.bool_)
        self.left = [list(reversed(each.rooms)) for each in closed.classes]
        """The rooms of each class that are still closed, the last one the next to be opened."""
        self.used_up = np.zeros(len(closed.classes), np.bool_)
        """Classes of which every room is open."""

    def put(self, lot: int, room: int, many: int) -> None:
        """So many pods into a room; the first ones open it."""
        self.stock.take(self.closed.lots[lot].part, [Assignment(room, many)])
        self._note(lot, room, many)

    def _note(self, lot: int, room: int, many: int) -> None:
        inside = self.content.setdefault(room, {})
        inside[lot] = inside.get(lot, 0) + many
        if not inside[lot]:
            del inside[lot]
        self._open[room] = True
        self.need[lot] -= many

    def fill(self, lot: int) -> list[Assignment]:
        """As many of a lot as go into the rooms that are open."""
        held = self.stock.fill(self.closed.lots[lot].part, self.need[lot], self._open)
        for room, many in held:
            self._note(lot, room, many)
        return held

    def is_enough_beside(self, room: int) -> bool:
        """Whether the other open rooms have as many GPUs left as are taken in this one; if not, nobody need try."""
        taken = sum(self.closed.gpus[lot] * many for lot, many in self.content[room].items())
        is_open = np.flatnonzero(self._open)
        return int(self.stock.left(is_open[is_open != room]).sum()) >= taken

    def open_next(self, number: int) -> int:
        """Open the next room of a class."""
        room = self.left[number].pop()
        self.used_up[number] = not self.left[number]
        self.content[room] = {}
        self._open[room] = True
        return room

    def close(self, room: int) -> dict[int, int]:
        """Take everybody out of a room and close it; who was in it."""
        inside = dict(self.content[room])
        for lot, many in inside.items():
            self.put(lot, room, -many)
        del self.content[room]
        self._open[room] = False
        number = self.closed.class_of[room]
        self.left[number].append(room)
        self.used_up[number] = False
        return inside

    def reopen(self, room: int, inside: dict[int, int]) -> None:
        """Undo that."""
        number = self.closed.class_of[room]
        self.left[number].remove(room)
        self.used_up[number] = not self.left[number]
        for lot, many in inside.items():
            self.put(lot, room, many)


def greedy(closed: Closed, rule: Rule) -> OpenedRooms | None:
    """Rooms for all lots by a rule, polished; None if it found no place for some."""
    layout = Layout(closed)
    for lot in closed.order:
        layout.fill(lot)
        while layout.need[lot]:
            worth = rule(layout, lot)
            number = int(np.argmin(worth))
            if np.isinf(worth[number]):
                return None
            each = int(closed.holds[lot, number])
            for _ in range(max(1, min(layout.need[lot] // each, len(layout.left[number])))):
                layout.put(lot, layout.open_next(number), min(each, layout.need[lot]))
    polish(layout)
    return first_by_name(layout.content, closed)


# --- rules ----------------------------------------------------------------------------------------------------------------------


def _worth(layout: Layout, lot: int, use: Ints) -> NDArray[np.float64]:
    """Price by use; endless for classes that have no room left or hold no such pod. The first of equals is taken."""
    can = (layout.closed.holds[lot] > 0) & ~layout.used_up
    return np.where(can, layout.closed.prices / np.maximum(1, use), np.inf)


def for_all(layout: Layout, lot: int) -> NDArray[np.float64]:
    """By the GPUs that are still asked for and could go there."""
    closed = layout.closed
    # Pods of later lots are all still to be placed; what this one needs, the class holds or it does not come into question.
    could = closed.later[lot] + closed.gpus[lot] * layout.need[lot]
    return _worth(layout, lot, np.minimum(closed.gpus_there, could))


def for_its_own(layout: Layout, lot: int) -> NDArray[np.float64]:
    """By how many of the same pods could go there."""
    return _worth(layout, lot, np.minimum(layout.closed.holds[lot], layout.need[lot]))


def cheapest(layout: Layout, lot: int) -> NDArray[np.float64]:
    """By the price alone."""
    return _worth(layout, lot, np.ones(len(layout.closed.classes), np.int64))


RULES: Final[tuple[Rule, ...]] = (for_all, for_its_own, cheapest)


# --- polishing ------------------------------------------------------------------------------------------------------------------


def polish(layout: Layout) -> None:
    """Close rooms whose pods find place in the others, and change rooms for cheaper ones that hold the same pods."""
    for room in _emptiest(layout):
        _spare(layout, room)
    for room in _emptiest(layout):
        _change(layout, room)


def _emptiest(layout: Layout) -> list[int]:
    closed, content = layout.closed, layout.content
    used = {room: sum(closed.gpus[lot] * many for lot, many in inside.items()) for room, inside in content.items()}
    return sorted(used, key=lambda room: (used[room], -closed.class_of[room], -room))[:MOST_POLISHED]


def _spare(layout: Layout, room: int) -> None:
    if not layout.is_enough_beside(room):
        return
    inside = layout.close(room)
    moved: list[tuple[int, list[Assignment]]] = []
    for lot in inside:
        moved.append((lot, layout.fill(lot)))
        if layout.need[lot]:
            for each, held in moved:
                for other, many in held:
                    layout.put(each, other, -many)
            layout.reopen(room, inside)
            return


def _change(layout: Layout, room: int) -> None:
    closed, inside = layout.closed, layout.content[room]
    taken = closed.empty[:, room] - closed.stock.free[:, room]
    for number in range(closed.class_of[room]):
        fits = bool((closed.empty[:, closed.firsts[number]] >= taken).all())
        if layout.left[number] and fits and all(closed.holds[lot, number] for lot in inside):
            going = layout.close(room)
            new = layout.open_next(number)
            for lot, many in going.items():
                layout.put(lot, new, many)
            return


def first_by_name(content: Content, closed: Closed) -> OpenedRooms:
    """Rooms that are open, with the first of each class by name standing for the others."""
    of_class: dict[int, list[int]] = {}
    for room in sorted(content):
        of_class.setdefault(closed.class_of[room], []).append(room)
    new = {
        room: closed.classes[number].rooms[place]
        for number, rooms in of_class.items()
        for place, room in enumerate(rooms)
    }
    moved = {new[room]: dict(lots) for room, lots in content.items()}
    return OpenedRooms(closed.price_of(moved), tuple(sorted(moved)), moved)
