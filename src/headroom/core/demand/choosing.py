"""What to open for pods that found no place: as much as possible in their order, and for that the cheapest set of rooms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import numpy as np

from headroom.core.demand import searching
from headroom.core.demand.closed import Closed
from headroom.core.demand.fitting import why_not
from headroom.core.demand.opening import RULES, Content, Opened, first_by_name, greedy
from headroom.core.demand.packing import MOST_PODS, MOST_ROOMS, STEPS_OF_A_LOT, Lot, Patience, pack
from headroom.core.demand.stock import Holding, Stock
from headroom.core.demand.units import Candidate, Chosen, Part, Room, Unit

STEPS: Final = 10_000
"""How much one choice tries: less than a tenth of a second."""


def choose(units: Sequence[Unit], candidates: Sequence[Candidate]) -> Chosen:
    """The cheapest rooms to open for these units; a later unit never takes the room of an earlier one."""
    if not units or not candidates:
        return Chosen(rest=tuple(units))
    by_name = {each.room.name: each for each in candidates}
    stock = Stock((each.room for each in by_name.values()), [part for unit in units for part in unit.parts])
    # While everything is empty: who fits nowhere then will not later, however others change places.
    possible = [all(len(stock.fits(part)) for part in unit.parts) for unit in units]
    serving = _Serving(stock)
    served = [serving.serve(unit) if fits else 0 for unit, fits in zip(units, possible, strict=True)]
    serving.empty()
    lots = list(serving.lots.values())
    opened = _cheapest(Closed(stock, by_name, lots), serving.opened()) if lots else Opened(0, (), {})
    rest = [(unit, many) for unit, many in zip(units, served, strict=True) if many < unit.count]
    return Chosen(
        rooms=tuple(stock.rooms[room].name for room in opened.rooms),
        into=_dealt(stock, units, served, opened, lots),
        rest=tuple(unit.without(many) if many else unit for unit, many in rest),
    )


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
            self.content.setdefault(lot.part.digest, []).extend(holding)
        done = sum(each.many for holding in held for each in holding)
        if unit.gang:
            return unit.count if done or self._moves_up(lots) else 0
        while done < unit.count and self._moves_up([Lot(unit.parts[0], 1)]):
            done += 1
        return done

    def _let_in(self, part: Part, many: int) -> None:
        if many:
            before = self.lots.get(part.digest, Lot(part, 0))
            self.lots[part.digest] = Lot(before.part, before.many + many)

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
    pods: dict[str, list[str]] = {lot.part.digest: [] for lot in lots}
    for unit, many in zip(units, served, strict=True):
        for part in unit.parts if many else ():
            pods[part.digest] += part.pods if unit.gang else part.pods[:many]
    left = {digest: iter(each) for digest, each in pods.items()}
    return {
        stock.rooms[room].name: tuple(
            uid for lot, many in opened.content[room].items() for uid in islice(left[lots[lot].part.digest], many)
        )
        for room in opened.rooms
    }
