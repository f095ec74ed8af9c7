"""The assignment: which pods each room that is coming was opened or kept for, by shape and number.

It stands in the status, so pods keep the room that is coming for them, whatever else could be had for them by now: a machine of an
earlier supply that is to be had again, or one that comes for another reason. By shape, so that a Job which is retried asks for nothing new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headroom.core import demand
from headroom.core.capacity import trials
from headroom.core.capacity.rounds import WHOLE, CapacityRound, free_rooms, without
from headroom.core.capacity.serving import declined, is_judged
from headroom.core.demand import PendingPods, Room, Unit

Reserved = dict[str, Counter[str]]
"""By room and digest: how many pods have their place there."""


def take_up(round_: CapacityRound) -> None:
    """Let those have their place for whom a room is coming."""
    on_trial = trials.running(round_.tried)
    reserved: Reserved = {
        name: Counter(each.assigned)
        for name, each in sorted(round_.coming.items())
        if each.assigned and name not in on_trial and not each.failed
    }
    coming_for: dict[str, list[str]] = {}
    for name, assigned in reserved.items():
        for digest in assigned:
            coming_for.setdefault(digest, []).append(name)
    left: list[Unit] = []
    for unit in round_.left:
        names = {name: None for part in unit.parts for name in coming_for.get(part.digest, ())}
        rooms = [name for name in names if not declined(round_, round_.owners[name], unit)]
        rest = unit if not rooms or is_judged(round_, unit) else _settle(round_, unit, rooms, reserved)
        left += [rest] if rest is not None else []
    round_.pending.put(left)


def _settle(round_: CapacityRound, unit: Unit, rooms: Sequence[str], reserved: Reserved) -> Unit | None:
    """Give the pods of a unit the places that come for them; what is left of it."""
    into, known = dict(round_.into), {name: Counter(reserved[name]) for name in rooms}
    waiting = {uid for part in unit.parts for uid in _fill(round_, part, rooms, reserved)}
    left = unit.only(waiting)
    if left is None or not unit.gang:
        return left
    # A gang goes whole or not at all: what comes for some of it is of use only with places for the others.
    others = free_rooms(round_, {*round_.coming, *trials.running(round_.tried)})
    chosen = demand.choose([left], [], others)
    if chosen.rest:
        round_.into = into
        reserved.update(known)
        return unit
    round_.hold(chosen.into)
    round_.keep(chosen.into)
    return None


def _fill(round_: CapacityRound, part: PendingPods, rooms: Sequence[str], reserved: Reserved) -> tuple[str, ...]:
    """Pods of a part into the rooms that come for such; who finds no place."""
    left = part.pods
    for name in rooms:
        many = min(reserved[name][part.digest], len(left))
        many = min(many, _holds(without(round_, round_.coming[name].room), part)) if many else 0
        if many:
            round_.hold({name: left[:many]})
            reserved[name][part.digest] -= many
            left = left[many:]
    return left


def _holds(room: Room, part: PendingPods) -> int:
    """How many such pods a room holds."""
    if demand.why_not(part.shape, room):
        return 0
    free = dict(room.free)
    asks = [(name, amount) for name, amount in (*part.shape.requests, ("pods", WHOLE)) if amount]
    return min((free[name] // amount for name, amount in asks if name in free), default=part.count)


def share(round_: CapacityRound, *, failed: bool) -> None:
    """Let others use what is free on its way, of each supply those for whom it would open something."""
    on_trial = trials.running(round_.tried)
    by_supply: dict[object, list[str]] = {}
    for name, each in round_.coming.items():
        if name not in on_trial and each.failed == failed:
            by_supply.setdefault(round_.owners[name].ref, []).append(name)
    for supply in round_.supplies:
        rooms = [without(round_, round_.coming[name].room) for name in by_supply.get(supply.ref, ())]
        mine = round_.pending.of(supply) if rooms else []
        if mine:
            placed = demand.place(round_.world, mine, rooms)
            round_.hold(placed.into)
            round_.pending.serve(supply, placed.rest)
