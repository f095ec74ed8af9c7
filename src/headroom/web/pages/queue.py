"""The queue as rows: each with its estimated start, and a pod to link to."""

from __future__ import annotations

from collections.abc import Iterable

from headroom.api.enforcement import QueuedUnit
from headroom.core.budgets import unit_of
from headroom.model.world import World
from headroom.web.pages import parts
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope


def rows(world: World, scope: Scope, queue: Iterable[QueuedUnit]) -> list[Model]:
    """One row for each gang and each single pod."""
    found = list(queue)
    first = _first_pods(world, scope) if found else {}
    return [
        parts.known(
            {
                "unit": each.unit,
                "pod": first.get(each.unit, ""),
                "gpus": each.gpus,
                "pods": each.pods or None,
                "since": each.since,
                "startsAt": each.starts_at,
                "state": each.state,
            }
        )
        for each in found
    ]


def _first_pods(world: World, scope: Scope) -> dict[str, str]:
    """The first visible pod of every queued gang and pod."""
    found: dict[str, str] = {}
    for uid in world.pods.queued:
        pod = world.pods.get(uid)
        if pod is not None and scope.sees(pod.namespace):
            unit = unit_of(pod)
            found[unit] = min(found.get(unit, pod.key), pod.key)
    return found
