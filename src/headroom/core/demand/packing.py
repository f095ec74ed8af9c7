"""Several kinds of pods into rooms together, all or none of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from headroom.core.demand.free_capacity import Assignment, Bools, FreeCapacity
from headroom.core.demand.units import PendingPods

MOST_PODS: Final = 24
MOST_ROOMS: Final = 16
"""Up to these sizes every arrangement is tried before it is said that there is none, while patience lasts."""
STEPS: Final = 2_000
STEPS_OF_A_LOT: Final = 20
"""What `pack` takes of the patience for each lot, where it is asked over and over."""


class SearchBudget:
    """How many steps may still be spent on trying. Steps are counted and not timed, so the same world gives the same answer."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def lasts(self, steps: int = 1) -> bool:
        """Spend some; whether there were any left."""
        self.left -= steps
        return self.left >= 0


class PodBatch(NamedTuple):
    """Some pods of a part, and the rooms that are open to them."""

    part: PendingPods
    many: int
    within: Bools | None = None
    """None for all."""


Held = list[list[Assignment]]
"""For each lot, in the order in which they were given, how many of it each room takes."""


def pack(stock: FreeCapacity, lots: Sequence[PodBatch], patience: SearchBudget) -> Held | None:
    """Take room for all the lots; None, and nothing is taken, if no arrangement was found."""
    narrow = sorted(range(len(lots)), key=lambda each: _narrowness(stock, lots[each]))
    large = sorted(range(len(lots)), key=lambda each: (-stock.gpus(lots[each].part), each))
    for order in (narrow, large) if large != narrow else (narrow,):
        held = _in_order(stock, lots, order)
        if held is not None:
            return held
    # Pods of one kind are packed best by filling up.
    return _searched(stock, lots, narrow, patience) if len(lots) > 1 else None


def _narrowness(stock: FreeCapacity, lot: PodBatch) -> tuple[int, int, str]:
    """Who has the fewest rooms to choose from comes first."""
    return len(stock.fits(lot.part, lot.within)), -stock.gpus(lot.part), lot.part.digest


def _in_order(stock: FreeCapacity, lots: Sequence[PodBatch], order: Sequence[int]) -> Held | None:
    held: Held = [[] for _ in lots]
    for each in order:
        part, many, within = lots[each]
        held[each] = stock.fill(part, many, within)
        if sum(one.many for one in held[each]) < many:
            for lot, taken in zip(lots, held, strict=True):
                stock.give_back(lot.part, taken)
            return None
    return held


# --- every arrangement ----------------------------------------------------------------------------------------------------------


def _searched(
    stock: FreeCapacity, lots: Sequence[PodBatch], order: Sequence[int], patience: SearchBudget
) -> Held | None:
    open_ = [set(stock.fits(lots[each].part, lots[each].within).tolist()) for each in order]
    rooms = sorted(set[int]().union(*open_))
    if sum(lot.many for lot in lots) > MOST_PODS or len(rooms) > MOST_ROOMS:
        return None
    search = _Search(stock, [lots[each] for each in order], rooms, open_, patience)
    if not search.begin(0):
        return None
    held: Held = [[] for _ in lots]
    for each, counts in zip(order, search.counts, strict=True):
        held[each] = [Assignment(room, many) for room, many in zip(rooms, counts, strict=True) if many]
        stock.take(lots[each].part, held[each])
    return held


class _Search:
    """Tries how many of each lot go into each room, lot by lot and room by room."""

    def __init__(
        self,
        stock: FreeCapacity,
        lots: Sequence[PodBatch],
        rooms: list[int],
        open_: list[set[int]],
        patience: SearchBudget,
    ) -> None:
        self._asks = [[(row, ask) for row, ask in enumerate(stock.ask(lot.part).tolist()) if ask] for lot in lots]
        self._wanted = [lot.many for lot in lots]
        self._open = [[room in each for room in rooms] for each in open_]
        kinds = list(zip(*self._open, strict=True))
        self._kinds = [kinds.index(each) for each in kinds]
        """Rooms that are open to the same lots have the same number."""
        self._free: list[list[int]] = stock.free[:, rooms].T.tolist()
        self._patience = patience
        self.counts = [[0] * len(rooms) for _ in lots]

    def begin(self, lot: int) -> bool:
        """Whether this lot and all after it go somewhere."""
        if lot == len(self._wanted):
            return True
        if not all(self._is_room_for(each) for each in range(lot, len(self._wanted))):
            return False
        holds = [self._holds(lot, room) for room in range(len(self._free))]
        return self._go_on(lot, 0, self._wanted[lot], _Begun(holds, _sums_from(holds), self._twins()))

    def _twins(self) -> list[int | None]:
        """For each room the last one before it that is just the same now, if there is one: it takes no fewer."""
        seen: dict[tuple[int, ...], int] = {}
        twins: list[int | None] = []
        for room, free in enumerate(self._free):
            key = (self._kinds[room], *free)
            twins.append(seen.get(key))
            seen[key] = room
        return twins

    def _go_on(self, lot: int, room: int, left: int, begun: _Begun) -> bool:
        """Whether what is left of a lot goes into this room and those after it, and all later lots go somewhere."""
        if not left:
            return self.begin(lot + 1)
        if begun.room_from[room] < left or not self._patience.lasts():
            return False
        twin = begun.twins[room]
        most = min(left, begun.holds[room], left if twin is None else self.counts[lot][twin])
        for many in range(most, -1, -1):
            self._put(lot, room, many)
            if self._go_on(lot, room + 1, left - many, begun):
                return True
            self._put(lot, room, -many)
        return False

    def _put(self, lot: int, room: int, many: int) -> None:
        if many:
            free = self._free[room]
            for row, ask in self._asks[lot]:
                free[row] -= ask * many
            self.counts[lot][room] += many

    def _holds(self, lot: int, room: int) -> int:
        free = self._free[room]
        return min([free[row] // ask for row, ask in self._asks[lot]]) if self._open[lot][room] else 0

    def _is_room_for(self, lot: int) -> bool:
        left = self._wanted[lot]
        for room in range(len(self._free)):
            left -= self._holds(lot, room)
            if left <= 0:
                return True
        return False


class _Begun(NamedTuple):
    """What is known of the rooms when a lot's turn comes; what goes into one room changes nothing in those after it."""

    holds: list[int]
    """How many of the lot each room holds."""
    room_from: list[int]
    """How many of it each room and all after it hold together; at the end none."""
    twins: list[int | None]


def _sums_from(holds: list[int]) -> list[int]:
    return [*reversed(list(accumulate(reversed(holds)))), 0]
