"""Announced demand: pods that a budget queues and expects to release soon. They are pending in a moment, so their machines are kept or opened in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headroom.api import marks
from headroom.core import usage
from headroom.model import times
from headroom.model.facts import Pod
from headroom.model.gangs import gang_of
from headroom.model.starts import start_of
from headroom.model.world import World


class EstimatedStarts(NamedTuple):
    """What budgets say of pods that are released as one."""

    starts_at: int
    pods: int


class Announced:
    """When queued pods start, by what their budgets have decided."""

    def __init__(self, world: World) -> None:
        self._queued: dict[str, EstimatedStarts] = {}
        """By Kind/namespace/name of what is released as one."""
        for budget in usage.budgets_of(world):
            held = budget.status.held
            for each in held.queue if held is not None and not budget.deleting else ():
                # It starts once the last of its budgets lets it; one that does not know when is such a one.
                before = self._queued.get(each.unit, EstimatedStarts(0, 0))
                self._queued[each.unit] = EstimatedStarts(
                    max(start_of(each), before.starts_at), max(each.pods, before.pods)
                )

    def __bool__(self) -> bool:
        return bool(self._queued)

    def unit_of(self, pod: Pod) -> str:
        """As what a pod is queued that nothing but our gate keeps back; empty if it is not."""
        return next((each for each in _names(pod) if each in self._queued), "") if pod.gates == (marks.GATE,) else ""

    def start_of(self, unit: str, pods: int) -> int | None:
        """When so many queued pods start; None if nobody knows.

        Who says to belong to what a budget queues may only say so: if there are more of them than the budget counts, none is believed.
        """
        queue = self._queued[unit]
        return queue.starts_at if queue.starts_at < times.LAST and queue.pods == pods else None

    def start_of_owner(self, name: str, now: int) -> int | None:
        """When an owner is resumed that budgets suspended, as Kind/namespace/name; None if nobody knows."""
        queue = self._queued.get(name)
        if queue is None or queue.starts_at >= times.LAST:
            return None
        return queue.starts_at or now  # it is being resumed


def _names(pod: Pod) -> Iterator[str]:
    """As what a pod may be queued."""
    if gang := gang_of(pod):
        yield gang
    if pod.owner is not None:
        yield f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"
    yield f"Pod/{pod.key}"
