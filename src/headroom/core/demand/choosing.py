"""What to open for pods that found no place: as much as possible in their order, and for that the cheapest set of rooms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from headroom.core.demand import searching
from headroom.core.demand.closed import Closed
from headroom.core.demand.fitting import why_not
from headroom.core.demand.opening import RULES, Content, Opened, first_by_name, greedy
from headroom.core.demand.packing import MOST_PODS, MOST_ROOMS, STEPS_OF_A_LOT, Lot, Patience, pack
from headroom.core.demand.stock import Holding, Stock
from headroom.core.demand.units import Candidate, Chosen, Part, Room, Unit
from headroom.core.demand.wishes import wishes_of

STEPS: Final = 10_000
"""How much one choice tries: less than a tenth of a second."""
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


def expand(candidates: Iterable[Candidate], most: int) -> list[Candidate]:
    """Candidates one by one, and of those with a count no more than so many."""
    found: list[Candidate] = []
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
    stock = Stock((each.room for each in by_name.values()), [part for unit in units for part in unit.parts])
    # While everything is empty: who fits nowhere then will not later, however others change places.
    possible = [all(len(stock.fits(part)) for part in unit.parts) for unit in units]
    serving = _Serving(stock)
    served = [serving.serve(unit) if fits else 0 for unit, fits in zip(units, possible, strict=True)]
    serving.empty()
    lots = list(serving.lots.values())
    opened = _cheapest(Closed(stock, by_name, lots), serving.opened()) if lots else Opened(0, (), {})
    rest = [(unit, many) for unit, many in zip(units, served, strict=True) if many < unit.count]
    names = tuple(name for room in opened.rooms if (name := stock.rooms[room].name) in costs)
    chosen = Chosen(
        rooms=names,
        into=_dealt(stock, units, served, opened, lots),
        rest=tuple(unit.without(many) if many else unit for unit, many in rest),
    )
    left = tuple(unit.count - many for unit, many in zip(units, served, strict=True))
    cost = tuple(map(sum, zip_longest(*(costs[name].cost for name in names), fillvalue=0)))
    return _Choice(chosen, (left, cost, len(names), names))


def _subsets(
    units: Sequence[Unit], candidates: Sequence[Candidate], size: int, chosen: Chosen
) -> list[list[Candidate]]:
    """So many of the candidates, in every way that may make a difference; where there are too many ways, what the most urgent need."""
    wishes = [wishes_of(part.shape) for unit in units for part in unit.parts]
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
    stock = Stock(rooms, list(parts.values()))
    return {
        digest: _nearest(stock, part) for digest, part in parts.items() if stock.rooms and not len(stock.fits(part))
    }


def _nearest(stock: Stock, part: Part) -> str:
    """Why the room that comes nearest does not do: one that labels and taints allow, with the most of the GPUs it asks for."""
    asked = [row for row in stock.gpu_rows if stock.ask(part)[row]]
    best = int(np.lexsort((-stock.free[asked].sum(axis=0), ~stock.allowed(part)))[0])
    room = stock.rooms[best]
    return f"The nearest is {room.name}, but {why_not(part.shape, room) or 'there is not quite enough'}."


# --- who can be served ----------------------------------------------------------------------------------------------------------


class _Serving:
    """Lets one unit after the other in, as if everything were open."""

    def __init__(self, stock: Stock) -> None:
        self._stock, self._empty, self._patience = stock, stock.free.copy(), Patience()
        self.lots: dict[str, Lot] = {}
        """By digest: who is in."""
        self.content: dict[str, list[Holding]] = {}
        """By digest: where they are."""

    def serve(self, unit: Unit) -> int:
        """Let in as many of a unit as possible; how many."""
        lots = [Lot(part, part.count) for part in unit.parts]
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
        while done < unit.count and self._moves_up([Lot(unit.parts[0], 1)]):
            done += 1
        return done

    def _let_in(self, part: Part, many: int) -> None:
        if many:
            before = self.lots.get(part.key, Lot(part, 0))
            self.lots[part.key] = Lot(before.part, before.many + many)

    def _moves_up(self, more: Sequence[Lot]) -> bool:
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
        held = pack(self._stock, list(self.lots.values()), self._patience)
        if held is None:
            self._stock.free[:], self.lots = before, inside
            return False
        self.content = dict(zip(self.lots, held, strict=True))
        return True

    def _is_enough(self, lots: Iterable[Lot]) -> bool:
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


def _cheapest(closed: Closed, content: Content) -> Opened:
    """The cheapest rooms for all lots. `content` is one way to hold them, which may be dear."""
    best = first_by_name(content, closed)
    floor = closed.least(closed.need, (0,) * len(closed.classes), 0)
    for rule in RULES:
        found = greedy(closed, rule) if best.price > floor else None
        if found is not None and found[:2] < best[:2]:
            best = found
    return searching.cheapest(closed, best, Patience(STEPS))


def _dealt(
    stock: Stock, units: Sequence[Unit], served: Sequence[int], opened: Opened, lots: Sequence[Lot]
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
