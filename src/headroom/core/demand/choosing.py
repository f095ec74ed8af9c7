"""What to open for pods that found no place: as much as possible in their order, and for that the cheapest set of rooms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice, zip_longest
from operator import sub
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from headroom.core.demand import searching
from headroom.core.demand.candidates import Closed
from headroom.core.demand.constraints import HOSTNAME, constraints_of
from headroom.core.demand.fitting import why_not
from headroom.core.demand.free_capacity import Assignment, FreeCapacity
from headroom.core.demand.heuristics import RULES, Content, OpenedRooms, first_by_name, greedy
from headroom.core.demand.packing import MOST_PODS, MOST_ROOMS, STEPS_OF_A_LOT, PodBatch, SearchBudget, pack
from headroom.core.demand.units import Candidate, Chosen, PendingPods, Room, Unit

STEPS: Final = 10_000
"""How much one choice tries: less than a tenth of a second."""
MOST_LAUNCHES: Final = 2000
"""Of one supply at once: what pods need beyond that, the next rounds open."""
MOST_SUBSETS: Final = 64
"""Where only so many may be opened, no more ways than this are tried."""


def choose(
    units: Sequence[Unit],
    candidates: Sequence[Candidate],
    rooms: Sequence[Room] = (),
    at_most: int | None = None,
) -> Chosen:
    """The cheapest candidates to open for these units, `at_most` so many; a later unit never takes the room of an earlier one.

    What is free in `rooms` is used too: they are open already, cost nothing and do not count.
    """
    every = expand(candidates, sum(unit.count for unit in units))
    if at_most is None or at_most >= len(every):
        return _choose(units, every, rooms).chosen
    if not at_most:
        return _choose(units, [], rooms).chosen
    best = _choose(units, every, rooms)
    if len(best.chosen.rooms) <= at_most:
        return best.chosen
    tries = [_choose(units, some, rooms) for some in _subsets(units, every, at_most, best.chosen)]
    return min(tries, key=lambda each: each.rank).chosen


def cheapest_alike(candidates: Sequence[Candidate], labels: Collection[str], most: int) -> list[Candidate]:
    """Candidates without launches that a cheaper one makes needless: `labels` are those that pods look at, `most` machines are enough.

    Nobody can ask for the name of a machine that is not there yet.
    """
    if len(candidates) == 1:
        return [*candidates]
    best: dict[object, Candidate] = {}
    for each in candidates:
        known = best.setdefault(_likeness(each, labels, most), each)
        if (each.cost, each.room.name) < (known.cost, known.room.name):
            best[_likeness(each, labels, most)] = each
    kept = {each.room.name for each in best.values()}
    return [each for each in candidates if each.room.name in kept]


def _likeness(candidate: Candidate, labels: Collection[str], most: int) -> object:
    """Equal for candidates of which the cheapest is enough."""
    room = candidate.room
    if room.source != "Launch" or candidate.count < most:
        return room.name
    told = tuple(pair for pair in room.labels if pair[0] in labels and pair[0] != HOSTNAME)
    return told, room.free, room.taints, room.partly_known, candidate.failed


def expand(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """Candidates one by one, and of those with a count no more than so many, nor more than `MOST_LAUNCHES` in all."""
    found: list[Candidate] = []
    most = min(most, max(1, MOST_LAUNCHES // max(1, len(candidates))))
    for each in candidates:
        found.append(each if each.count == 1 else structs.replace(each, count=1))
        for number in range(2, min(each.count, most) + 1):
            room = structs.replace(each.room, name=f"{each.room.name}#{number}")
            found.append(structs.replace(each, room=room, count=1))
    return found


class _Choice(NamedTuple):
    """What to open, and how good that is: the least is the best."""

    chosen: Chosen
    rank: tuple[tuple[int, ...], tuple[int, ...], int, tuple[str, ...]]
    """Who is left, in the order of the units; the cost; how many are opened, and which."""


def _choose(units: Sequence[Unit], candidates: Sequence[Candidate], rooms: Sequence[Room]) -> _Choice:
    costs = {each.room.name: each for each in candidates}
    by_name = {room.name: Candidate(room=room) for room in rooms} | costs
    if not units or not by_name:
        return _Choice(Chosen(rest=tuple(units)), (tuple(unit.count for unit in units), (), 0, ()))
    stock = FreeCapacity((each.room for each in by_name.values()), [part for unit in units for part in unit.parts])
    serving, counts = _Serving(stock), [unit.count for unit in units]
    served = [serving.serve(unit) for unit in units]
    serving.empty()
    lots = list(serving.lots.values())
    opened = _cheapest(Closed(stock, by_name, lots), serving.opened()) if lots else OpenedRooms(0, (), {})
    rest = [(unit, many) for unit, many, count in zip(units, served, counts, strict=True) if many < count]
    names = tuple(name for room in opened.rooms if (name := stock.rooms[room].name) in costs)
    chosen = Chosen(
        rooms=names,
        into=_dealt(stock, units, served, opened, lots),
        rest=tuple(unit.without(many) if many else unit for unit, many in rest),
    )
    left = tuple(map(sub, counts, served))
    cost = tuple(map(sum, zip_longest(*(costs[name].cost for name in names), fillvalue=0)))
    return _Choice(chosen, (left, cost, len(names), names))


def _subsets(
    units: Sequence[Unit], candidates: Sequence[Candidate], size: int, chosen: Chosen
) -> list[list[Candidate]]:
    """So many of the candidates, in every way that may make a difference; where there are too many ways, what the most urgent need."""
    wishes = [constraints_of(part.shape) for unit in units for part in unit.parts]
    keys, by_name = frozenset().union(*(each.keys for each in wishes)), any(each.by_name for each in wishes)
    by_name |= any(part.apart for unit in units for part in unit.parts)  # what is there already counts by room
    alike: dict[object, list[Candidate]] = {}
    for each in sorted(candidates, key=lambda each: each.room.name):
        room = each.room
        told = room.name if by_name else tuple(pair for pair in room.labels if pair[0] in keys)
        alike.setdefault((each.cost, room.free, told, room.taints, room.partly_known), []).append(each)
    found: list[list[Candidate]] = [[]]
    for kind in alike.values():
        found = [[*some, *kind[:many]] for some in found for many in range(min(len(kind), size - len(some)) + 1)]
        if len(found) > MOST_SUBSETS or sum(unit.count for unit in units) > MOST_PODS:
            urgent = set(by_urgency(chosen, units)[:size])
            return [[each for each in candidates if each.room.name in urgent]]
    return [some for some in found if len(some) == size]


def by_urgency(chosen: Chosen, units: Iterable[Unit]) -> list[str]:
    """The rooms that are opened, by the turn of the first pod that each is for."""
    turn = {uid: place for place, unit in enumerate(units) for part in unit.parts for uid in part.pods}
    first = {name: min((turn[uid] for uid in chosen.into.get(name, ())), default=len(turn)) for name in chosen.rooms}
    return sorted(chosen.rooms, key=lambda name: (first[name], name))


def impossible(units: Sequence[Unit], rooms: Iterable[Room]) -> dict[str, str]:
    """Shapes, by digest, that none of these rooms holds even alone, each with a sentence about the one that comes nearest."""
    parts = {part.digest: part for unit in units for part in unit.parts}
    stock = FreeCapacity(rooms, list(parts.values()))
    return {
        digest: _nearest(stock, part) for digest, part in parts.items() if stock.rooms and not len(stock.fits(part))
    }


def _nearest(stock: FreeCapacity, part: PendingPods) -> str:
    """Why the room that comes nearest does not do: one that labels and taints allow, with the most of the GPUs it asks for."""
    asked = [row for row in stock.gpu_rows if stock.ask(part)[row]]
    best = int(np.lexsort((-stock.free[asked].sum(axis=0), ~stock.allowed(part)))[0])
    room = stock.rooms[best]
    return f"The nearest is {room.name}, but {why_not(part.shape, room) or 'it has too little left'}."


# --- who can be served ----------------------------------------------------------------------------------------------------------


class _Limits(NamedTuple):
    """What rooms have left, as numbers that one pod can be compared with."""

    gone: frozenset[str]
    """Resources of which no room has anything."""
    most: list[int]
    """That one room has, by resource."""
    spare: list[int]
    """That all have together; nothing where there are too many rooms for others to change places."""

    @classmethod
    def of(cls, stock: FreeCapacity) -> _Limits:
        """Of rooms as they are now."""
        most = stock.free.max(axis=1, initial=0).tolist()
        gone = frozenset(name for name, each in zip(stock.names, most, strict=True) if not each)
        return cls(gone, most, [sum(row) for row in stock.free.tolist()] if len(stock.rooms) <= MOST_ROOMS else [])


class _Serving:
    """Lets one unit after the other in, as if everything were open."""

    def __init__(self, stock: FreeCapacity) -> None:
        self._stock, self._empty, self._patience = stock, stock.free.copy(), SearchBudget()
        self.lots: dict[str, PodBatch] = {}
        """By digest: who is in."""
        self.content: dict[str, list[Assignment]] = {}
        """By digest: where they are."""
        self._pods = 0
        """That are in."""
        self._limits: _Limits | None = None
        """Of what is free, as long as that does not change."""

    def serve(self, unit: Unit) -> int:
        """Let in as many of a unit as possible; how many."""
        if not unit.gang and self._is_out(unit.parts[0]):
            return 0
        # Who fits nowhere while everything is empty will not later, however others change places.
        if not all(len(self._stock.fits(part, free=self._empty)) for part in unit.parts):
            return 0
        lots = [PodBatch(part, part.count) for part in unit.parts]
        held = (
            [self._stock.fill(*lots[0])]
            if not unit.gang
            else pack(self._stock, lots, self._patience) or [[] for _ in lots]
        )
        for lot, holding in zip(lots, held, strict=True):
            self._let_in(lot.part, sum(each.many for each in holding))
            self.content.setdefault(lot.part.key, []).extend(holding)
        done = sum(each.many for holding in held for each in holding)
        if unit.gang:
            return unit.count if done or self._moves_up(lots) else 0
        while done < unit.count and self._moves_up([PodBatch(unit.parts[0], 1)]):
            done += 1
        return done

    def _is_out(self, part: PendingPods) -> bool:
        """Whether it is clear at once that not one of these pods goes in, even if others change places."""
        if self._limits is None:
            self._limits = _Limits.of(self._stock)
        limits = self._limits
        if any(name in limits.gone for name, amount in part.shape.requests if amount):
            return True
        asks = self._stock.asking(part)
        if all(ask <= limits.most[row] for row, ask in asks):
            return False
        may_move = self._pods < MOST_PODS and len(self._stock.rooms) <= MOST_ROOMS
        return not may_move or any(ask > limits.spare[row] for row, ask in asks)

    def _let_in(self, part: PendingPods, many: int) -> None:
        if many:
            self._pods, self._limits = self._pods + many, None
            before = self.lots.get(part.key, PodBatch(part, 0))
            self.lots[part.key] = PodBatch(before.part, before.many + many)

    def _moves_up(self, more: Sequence[PodBatch]) -> bool:
        """Whether some more go in if those who are in change places. Tried only where few are in: for many it takes too long."""
        inside = self.lots
        every = [*inside.values(), *more]
        if not inside or sum(lot.many for lot in every) > MOST_PODS or len(self._stock.rooms) > MOST_ROOMS:
            return False
        if not self._is_enough(every) or not self._patience.lasts(STEPS_OF_A_LOT * len(every)):
            return False
        self.lots = dict(inside)
        for lot in more:
            self._let_in(lot.part, lot.many)
        before = self._stock.free.copy()
        self._stock.free[:] = self._empty
        held, self._limits = pack(self._stock, list(self.lots.values()), self._patience), None
        if held is None:
            self._stock.free[:], self.lots = before, inside
            self._pods = sum(lot.many for lot in inside.values())
            return False
        self.content = dict(zip(self.lots, held, strict=True))
        return True

    def _is_enough(self, lots: Iterable[PodBatch]) -> bool:
        """Whether all rooms together have what the lots take together; if not, no change of places helps."""
        asks = [(self._stock.ask(lot.part).tolist(), lot.many) for lot in lots]
        needs = [sum(ask[row] * many for ask, many in asks) for row in range(len(self._stock.names))]
        return all(sum(free) >= need for free, need in zip(self._empty.tolist(), needs, strict=True))

    def opened(self) -> Content:
        """Who is in which room."""
        content: Content = {}
        for lot, digest in enumerate(self.lots):
            for room, many in self.content[digest]:
                inside = content.setdefault(room, {})
                inside[lot] = inside.get(lot, 0) + many
        return content

    def empty(self) -> None:
        """Let everybody out."""
        self._stock.free[:] = self._empty


# --- the cheapest set -----------------------------------------------------------------------------------------------------------


def _cheapest(closed: Closed, content: Content) -> OpenedRooms:
    """The cheapest rooms for all lots. `content` is one way to hold them, which may be dear."""
    best = first_by_name(content, closed)
    floor = closed.least(closed.need, (0,) * len(closed.classes), 0)
    for rule in RULES:
        found = greedy(closed, rule) if best.price > floor else None
        if found is not None and found[:2] < best[:2]:
            best = found
    return searching.cheapest(closed, best, SearchBudget(STEPS))


def _dealt(
    stock: FreeCapacity, units: Sequence[Unit], served: Sequence[int], opened: OpenedRooms, lots: Sequence[PodBatch]
) -> dict[str, tuple[str, ...]]:
    """The pods of each room that is opened."""
    pods: dict[str, list[str]] = {lot.part.key: [] for lot in lots}
    for unit, many in zip(units, served, strict=True):
        for part in unit.parts if many else ():
            pods[part.key] += part.pods if unit.gang else part.pods[:many]
    left = {digest: iter(each) for digest, each in pods.items()}
    return {
        stock.rooms[room].name: tuple(
            uid for lot, many in opened.content[room].items() for uid in islice(left[lots[lot].part.key], many)
        )
        for room in opened.rooms
    }
