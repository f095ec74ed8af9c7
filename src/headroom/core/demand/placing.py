"""Who goes where among the rooms that exist or are coming, and what is left: per room, never by sums.

kube-scheduler's verdict wins over ours. Where it has refused pods for a minute that fit into a node as it stands, there is something
that we do not model, and that node is no place for such pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from headroom.core.demand.free_capacity import Assignment, Bools, FreeCapacity, dealt
from headroom.core.demand.packing import PodBatch, SearchBudget, pack
from headroom.core.demand.units import VERDICT_MS, PendingPods, Placed, Room, SchedulerVerdict, Unit
from headroom.model.facts import Pod
from headroom.model.numbering import ABSENT, Ints
from headroom.model.world import World


def place(world: World, units: Sequence[Unit], rooms: Iterable[Room]) -> Placed:
    """Put units into rooms, in their order. A gang goes in whole or not at all."""
    stock = FreeCapacity(rooms, [part for unit in units for part in unit.parts])
    if not stock.rooms:
        return Placed(rest=tuple(units))
    patience = SearchBudget()
    judge = _Judge(world, stock, units, patience)
    into: dict[str, list[str]] = {}
    rest = []
    for unit in units:
        held = _served(stock, unit, [judge.open_to(unit, part) for part in unit.parts], patience)
        for part, holding in zip(unit.parts, held, strict=True):
            for room, pods in dealt(part.pods, holding):
                into.setdefault(stock.rooms[room].name, []).extend(pods)
        served = sum(each.many for holding in held for each in holding)
        if served < unit.count:
            rest.append(unit.without(served) if served else unit)
    return Placed(
        into={name: tuple(pods) for name, pods in into.items()},
        rest=tuple(rest),
        verdicts=judge.verdicts,
        recheck_at=judge.recheck_at if into else None,
    )


def _served(
    stock: FreeCapacity, unit: Unit, open_: list[Bools | None], patience: SearchBudget
) -> list[list[Assignment]]:
    lots = [PodBatch(part, part.count, within) for part, within in zip(unit.parts, open_, strict=True)]
    if not unit.gang:
        return [stock.fill(*lots[0])]
    return pack(stock, lots, patience) or [[] for _ in lots]


class _Judge:
    """Which rooms kube-scheduler refuses to which shapes, seen before anybody is placed."""

    def __init__(self, world: World, stock: FreeCapacity, units: Sequence[Unit], patience: SearchBudget) -> None:
        self._world, self._stock, self._patience = world, stock, patience
        self.verdicts: dict[str, SchedulerVerdict] = {}
        self._open: dict[tuple[str, str], Bools] = {}
        """By gang, empty for none, and part."""
        self._names = np.array([room.name for room in stock.rooms], np.object_)
        self._known = _known_since(stock)
        self._turns: list[int] = [each + VERDICT_MS for each in self._known.tolist() if each >= 0]
        self._old = (self._known >= 0) & (self._known <= world.now - VERDICT_MS)
        now_free = stock.free.copy()
        self._keep_what_is_new()
        singles: dict[str, list[PendingPods]] = {}
        for unit in units:
            if unit.gang:
                self._judge_gang(unit)
            else:
                singles.setdefault(unit.parts[0].key, []).append(unit.parts[0])
        for alike in singles.values():
            self._judge_singles(alike)
        stock.free[:] = now_free

    def _keep_what_is_new(self) -> None:
        """Take out of the rooms what became free a moment ago: that kube-scheduler has not used it says nothing."""
        for number, room in enumerate(self._stock.rooms):
            for moment, amounts in room.freed:
                if not self._has_had_time(moment):
                    self._stock.free[:, number] -= self._stock.steps_of(amounts)
                    self._stock.free[self._stock.group_rows, number] = 0  # it may have been of the group

    def open_to(self, unit: Unit, part: PendingPods) -> Bools | None:
        """The rooms that kube-scheduler does not refuse to these pods; None for all."""
        return self._open.get((unit.gang, part.key))

    @property
    def recheck_at(self) -> int | None:
        """When it has had a minute with some room or some pod that is new to it."""
        return min((each for each in self._turns if each > self._world.now), default=None)

    def _pods(self, parts: Iterable[PendingPods]) -> list[Pod]:
        return [pod for part in parts for uid in part.pods if (pod := self._world.pods.get(uid)) is not None]

    def _judge_singles(self, alike: list[PendingPods]) -> None:
        told = [pod for pod in self._pods(alike) if pod.unschedulable_since is not None]
        if told and self._has_had_time(max(min(map(_since, told)), _changed(alike))):
            self._refuse("", alike[0], _longest_refused(told))

    def _judge_gang(self, unit: Unit) -> None:
        """A gang is refused as a whole: that one of its pods would fit somewhere says nothing."""
        pods = self._pods(unit.parts)
        if not pods or any(pod.unschedulable_since is None for pod in pods):
            return
        if not self._has_had_time(max(*map(_since, pods), _changed(unit.parts))):
            return
        held = pack(self._stock, [PodBatch(part, part.count, self._old) for part in unit.parts], self._patience)
        if held is None:
            return
        for part, holding in zip(unit.parts, held, strict=True):
            self._stock.give_back(part, holding)
        for part in unit.parts:
            self._refuse(unit.gang, part, _longest_refused(self._pods([part])))

    def _has_had_time(self, since: int) -> bool:
        self._turns.append(since + VERDICT_MS)
        return since <= self._world.now - VERDICT_MS

    def _refuse(self, gang: str, part: PendingPods, pod: Pod) -> None:
        refused = self._stock.fits(part, self._old)
        if len(refused):
            open_ = np.ones(len(self._stock.rooms), np.bool_)
            open_[refused] = False
            self._open[gang, part.key] = open_
            names = self._names[refused].tolist()
            self.verdicts[part.digest] = SchedulerVerdict(
                digest=part.digest,
                scheduler=part.shape.spoken_scheduler,
                pod=pod.key,
                rooms=tuple(names),
                message=pod.unschedulable_message,
            )


def _known_since(stock: FreeCapacity) -> Ints:
    """Since when kube-scheduler could have used each room; less than nothing where it could not, or nobody knows."""
    moments = [
        room.ready_since if room.source == "Node" and room.ready_since is not None else ABSENT for room in stock.rooms
    ]
    return np.array(moments, np.int64)


def _changed(parts: Iterable[PendingPods]) -> int:
    """When a pod last started of a group that these pods keep apart from: that may have made room elsewhere."""
    return max((each.changed for part in parts for each in part.apart), default=0)


def _since(pod: Pod) -> int:
    return pod.unschedulable_since or 0


def _longest_refused(pods: list[Pod]) -> Pod:
    return min(pods, key=lambda pod: (_since(pod), pod.key))
