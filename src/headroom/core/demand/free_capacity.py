"""Rooms side by side as numbers, so that one question about a shape is asked of all of them at once.

Amounts are 64-bit integers in a unit of their own for each resource, chosen so that nothing overflows: what pods ask for is rounded up
and what rooms have is rounded down. The unit is far below a byte or a thousandth of a CPU for any machine that exists.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom.core.demand.constraints import constraints_of, refusal
from headroom.core.demand.fitting import ORDINARY, PODS, WHOLE, is_gpu
from headroom.core.demand.units import OF_GANGS, Apart, PendingPods, Room
from headroom.model.facts import Amounts, Shape
from headroom.model.numbering import Ints

Bools = NDArray[np.bool_]

ENDLESS: Final = 2**62
"""Stands for what a room does not limit."""
_SUMS: Final = 2**60
"""No sum of what pods ask for comes near to this."""


class Units(NamedTuple):
    """How many millionths one step of each resource is, and beyond how many steps a request is more than any room has."""

    steps: dict[str, int]
    most: int


def units_of(most_of: dict[str, int], pods: int) -> Units:
    """Units in which `pods` requests can be added up; `most_of` is the most that a room has of each resource."""
    most, steps = _SUMS // (pods + 1), {}
    for name, amount in most_of.items():
        step = 1
        while amount // step > most:
            step *= 10
        steps[name] = step
    return Units(steps, most)


def asked(amount: int, step: int, most: int) -> int:
    """What a pod asks for in steps, rounded up; where it is more than any room has, just that."""
    return min(-(-amount // step), most + 1)


class Assignment(NamedTuple):
    """How many pods of a part a room takes."""

    room: int
    many: int


def _rooms_for(largest: Sequence[int], skew: int, pods: int) -> int:
    """How many rooms to open for pods that spread, the largest first: the fewest that hold them all, or else the most of them."""
    best, most = 0, 0
    for many in range(1, len(largest) + 1):
        held = sum(min(each, largest[many - 1] + skew) for each in largest[:many])
        if held >= pods:
            return many
        best, most = (many, held) if held > most else (best, most)
    return best


class FreeCapacity:
    """Rooms, by name, and what is free in them."""

    def __init__(self, rooms: Iterable[Room], parts: Sequence[PendingPods]) -> None:
        self.rooms = sorted(rooms, key=lambda room: room.name)
        groups = {each.name for part in parts for each in part.apart}
        self.names = sorted(
            {PODS} | groups | {name for part in parts for name, amount in part.shape.requests if amount}
        )
        self._row = {name: row for row, name in enumerate(self.names)}
        self.gpu_rows = [row for row, name in enumerate(self.names) if is_gpu(name)]
        self.group_rows = [self._row[name] for name in sorted(groups)]
        """Of groups that keep apart: how many more of their pods each room may have."""
        self.free, self._units = self._counted(sum(part.count for part in parts))
        # What is there at once is taken before what is only coming.
        self._later = np.array([room.source != "Node" for room in self.rooms], np.bool_)
        self._asks: dict[str, Ints] = {}
        self._asked_rows: dict[str, list[tuple[int, int]]] = {}
        self._allowed: dict[str, Bools] = {}
        self._profiles: dict[tuple[frozenset[str], bool], tuple[Ints, list[int]]] = {}
        self._numbers: dict[str, Ints] = {}
        for name in sorted(groups):
            self._keep_apart(name, [part for part in parts if any(each.name == name for each in part.apart)])

    def _counted(self, pods: int) -> tuple[Ints, Units]:
        kinds: dict[tuple[Amounts, bool], int] = {}
        kind = [kinds.setdefault((room.free, room.partly_known), len(kinds)) for room in self.rooms]
        most = dict.fromkeys(self.names, 0)
        for free, _ in kinds:
            for name, amount in free:
                if name in most and amount > most[name]:
                    most[name] = amount
        units = units_of(most, pods)
        table = np.zeros((len(self.names), len(kinds)), np.int64)
        table[[self._row[PODS], *self.group_rows]] = ENDLESS
        for number, (free, partly_known) in enumerate(kinds):
            if partly_known:
                table[[name in ORDINARY for name in self.names], number] = ENDLESS
            for name, amount in free:
                if name in self._row:
                    table[self._row[name], number] = max(0, amount) // units.steps[name]
        return np.ascontiguousarray(table[:, kind]), units

    def _keep_apart(self, name: str, parts: Sequence[PendingPods]) -> None:
        """Say how many more pods of a group each room may have."""
        group = next(each for each in parts[0].apart if each.name == name)
        there = np.array(
            [group.here.get(room.name, 0) + dict(room.apart).get(name, 0) for room in self.rooms], np.int64
        )
        if group.max_skew is None:
            self.free[self._row[name]] = np.where(there, 0, 1)
            return
        every = np.arange(len(self.rooms))
        holds = np.zeros(len(self.rooms), np.int64)
        for part in parts:
            np.maximum(holds, np.where(self.allowed(part), self.holds(part, every), 0), out=holds)
        # The host with the fewest has more only once it is open; but a gang is for nothing unless all of it is.
        is_sure = np.array([room.source == "Node" for room in self.rooms], np.bool_) | parts[0].digest.startswith(
            OF_GANGS
        )
        level = self._level(group, there, holds, sum(part.count for part in parts), is_sure)
        if level is not None:
            more = np.maximum(0, level + group.max_skew - there)
            # Where no host is known yet, what is opened decides: a smaller one would lower what each of the others may have.
            self.free[self._row[name]] = more if group.hosts else np.where(holds + there < level, 0, more)

    def _level(self, group: Apart, there: Ints, holds: Ints, pods: int, is_sure: Bools) -> int | None:
        """How many pods the host with the fewest will have: no more than it takes to place them all. None if nothing limits them."""
        hosts, skew = group.hosts, group.max_skew or 1
        if len(hosts) < group.min_domains:
            return 0
        here = {room.name: number for number, room in enumerate(self.rooms)}
        sure = there + np.where(is_sure, holds, 0)
        ends = [int(sure[here[name]]) if name in here else most for name, most in hosts.items()]
        fewest = [int(there[here[name]]) if name in here else group.here.get(name, 0) for name in hosts]
        if not hosts:
            order = np.argsort(-(holds + there) * (holds > 0), kind="stable")[: int((holds > 0).sum())]
            largest = (holds + there)[order].tolist()
            many = _rooms_for(largest, skew, pods)
            if not many or (many == 1 and largest[0] >= pods):
                return None
            ends, fewest = largest[:many], [largest[0] if many == 1 else 0]
            holds, there = holds[order[:many]], there[order[:many]]
        level, highest = min(fewest), min(ends)
        while level < highest and int(np.minimum(holds, np.maximum(0, level + skew - there)).sum()) < pods:
            level += 1
        return level

    # --- shapes -----------------------------------------------------------------------------------------------------------

    def ask(self, part: PendingPods) -> Ints:
        """What one pod takes of each resource."""
        known = self._asks.get(part.key)
        if known is None:
            known = self._asks[part.key] = self.steps_of(part.shape.requests, part.apart)
        return known

    def steps_of(self, requests: Amounts, groups: Iterable[Apart] = ()) -> Ints:
        """What a pod with these requests, and of these groups, takes of each resource."""
        found = np.zeros(len(self.names), np.int64)
        for row, ask in self._steps(requests, groups):
            found[row] = ask
        return found

    def _steps(self, requests: Amounts, groups: Iterable[Apart]) -> Iterator[tuple[int, int]]:
        """The rows of which it takes something."""
        wanted, units = {**dict(requests), PODS: WHOLE, **{each.name: 1 for each in groups}}, self._units
        for name, amount in wanted.items():
            if amount and name in self._row:
                yield self._row[name], asked(amount, units.steps[name], units.most)

    def gpus(self, part: PendingPods) -> int:
        """How many GPUs one pod takes, in steps."""
        return int(self.ask(part)[self.gpu_rows].sum())

    def allowed(self, part: PendingPods) -> Bools:
        """Into which rooms pods may go as far as labels and taints say."""
        known = self._allowed.get(part.digest)
        if known is None:
            known = self._allowed[part.digest] = self._judged(part.shape)
        return known

    def _judged(self, shape: Shape) -> Bools:
        wishes = constraints_of(shape)
        if wishes.problem or not self.rooms:
            return np.zeros(len(self.rooms), np.bool_)
        kind, firsts = self._profile(wishes.keys, wishes.by_name)
        # Rooms that no such pod can tell apart are judged once.
        return np.array([not refusal(wishes, self.rooms[first]) for first in firsts], np.bool_)[kind]

    def _profile(self, keys: frozenset[str], by_name: bool) -> tuple[Ints, list[int]]:
        """Rooms numbered by what they say under some labels and by their taints, and the first room of each number."""
        known = self._profiles.get((keys, by_name))
        if known is None:
            kind = _numbered([room.taints for room in self.rooms])
            for key in sorted(keys):
                kind = _together(kind, self._values(key))
            if by_name:
                kind = np.arange(len(self.rooms))  # whatever else they have in common
            known = self._profiles[keys, by_name] = kind, np.unique(kind, return_index=True)[1].tolist()
        return known

    def _values(self, key: str) -> Ints:
        """Rooms numbered by what they say under one label."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = _numbered([labels.get(key) for labels in self._labels])
        return known

    @cached_property
    def _labels(self) -> list[dict[str, str]]:
        return [dict(room.labels) for room in self.rooms]

    def fits(self, part: PendingPods, within: Bools | None = None, free: Ints | None = None) -> Ints:
        """The rooms into which one pod fits as they are now, or with so much free in them."""
        allowed, there = self.allowed(part), self.free if free is None else free
        rooms = np.flatnonzero(allowed if within is None else allowed & within)
        for row, ask in self.asking(part):
            rooms = rooms[there[row, rooms] >= ask]
        return rooms

    def asking(self, part: PendingPods) -> list[tuple[int, int]]:
        """The rows of which a pod takes something, GPUs first: few rooms have some left."""
        known = self._asked_rows.get(part.key)
        if known is None:
            rows = self._steps(part.shape.requests, part.apart)
            known = sorted(rows, key=lambda each: (each[0] not in self.gpu_rows, each[0]))
            self._asked_rows[part.key] = known
        return known

    # --- taking -----------------------------------------------------------------------------------------------------------

    def left(self, rooms: Ints) -> Ints:
        """How many GPUs are left in some rooms."""
        total = np.zeros(len(rooms), np.int64)
        for row in self.gpu_rows:
            total += self.free[row, rooms]
        return total

    def holds(self, part: PendingPods, rooms: Ints) -> Ints:
        """How many pods each of some rooms holds."""
        found = np.full(len(rooms), ENDLESS, np.int64)
        for row, ask in self.asking(part):
            np.minimum(found, self.free[row, rooms] // ask, out=found)
        return found

    def fill(self, part: PendingPods, count: int, within: Bools | None = None) -> list[Assignment]:
        """Take room for up to so many pods, the fullest room first; since like pods keep it the fullest, each is filled up."""
        rooms = self.fits(part, within) if count else np.empty(0, np.int64)
        if not len(rooms):
            return []
        rooms = rooms[np.lexsort((self.left(rooms), self._later[rooms]))]
        room_for = np.minimum(self.holds(part, rooms), count)
        before = np.cumsum(room_for) - room_for
        taken = np.minimum(room_for, count - before)[before < count]
        rooms = rooms[: len(taken)]
        self.free[:, rooms] -= self.ask(part)[:, None] * taken
        return [Assignment(*each) for each in zip(rooms.tolist(), taken.tolist(), strict=True)]

    def take(self, part: PendingPods, held: Iterable[Assignment]) -> None:
        """Put pods into rooms."""
        ask = self.ask(part)
        for room, many in held:
            self.free[:, room] -= ask * many

    def give_back(self, part: PendingPods, held: Iterable[Assignment]) -> None:
        """Undo that."""
        self.take(part, [Assignment(room, -many) for room, many in held])


def _numbered(values: Iterable[Hashable]) -> Ints:
    """Equal values get equal numbers, from 0 on."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)


def _together(first: Ints, second: Ints) -> Ints:
    """Equal numbers, from 0 on, where both are equal."""
    return np.unique(first * (1 + second.max(initial=0)) + second, return_inverse=True)[1].astype(np.int64)


def dealt(pods: Sequence[str], held: Iterable[Assignment]) -> Iterator[tuple[int, Sequence[str]]]:
    """Which pods go into which room, one after the other."""
    done = 0
    for room, many in held:
        yield room, pods[done : done + many]
        done += many
