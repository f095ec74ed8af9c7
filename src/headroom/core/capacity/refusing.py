"""Rooms beside pods that kube-scheduler refuses though they would fit: which of them are worth keeping, and what is remembered if one closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec import structs

from headroom.core import demand
from headroom.core.capacity import trials
from headroom.core.capacity.rounds import CapacityRound, without
from headroom.core.capacity.supplies import Trial
from headroom.core.demand import Unit
from headroom.model.world import World

ENOUGH_TRIED: Final = 3
"""By the time so many were tried without success, such pods have had an hour, however often they were recreated."""


class RefusedPods(NamedTuple):
    """Pods that a room would hold, and that are refused."""

    room: str
    namespaces: set[str]
    since: int
    """Since when the first of them is."""


def refused_beside(round_: CapacityRound, may_help: Callable[[str, int], bool]) -> Iterator[RefusedPods]:
    """For whom rooms may be kept: kube-scheduler may be right only for now.

    `may_help` says whether a room could be of use to pods that were refused since a moment: one that has come since is no answer.
    """
    verdicts, pending = round_.verdicts, (*round_.wanted.units, *round_.wanted.exhausted)
    for unit in (each for each in pending if verdicts and not each.due_at):
        since = _refused_since(round_.world, unit)
        tried = (part.digest for part in unit.parts if trials.times_in_vain(round_.tried, part) < ENOUGH_TRIED)
        names = {name for digest in tried if digest in verdicts for name in verdicts[digest].rooms}
        rooms = [round_.rooms[name] for name in sorted(names) if may_help(name, since)]
        # As if it had just come: nobody was refused there.
        fresh = [structs.replace(without(round_, room), source="Machine", ready_since=None) for room in rooms]
        for name, uids in demand.place(round_.world, [unit], fresh).into.items() if fresh else ():
            yield RefusedPods(name, round_.namespaces_of(uids), since)


def _refused_since(world: World, unit: Unit) -> int:
    """Since when kube-scheduler has refused the first of a unit's pods."""
    pods = (world.pods.get(uid) for part in unit.parts for uid in part.pods)
    return min((pod.unschedulable_since for pod in pods if pod and pod.unschedulable_since is not None), default=0)


def trials_if_closed(round_: CapacityRound, room: str) -> Iterator[Trial]:
    """What is to be remembered if a room closes: that it was no help to those who are refused beside it."""
    for verdict in round_.verdicts.values():
        known = round_.tried.get(verdict.digest)
        if room in verdict.rooms and not (known is not None and known.runs):
            yield trials.if_closed(known.trial if known is not None else None, verdict, room, round_.world.now)
