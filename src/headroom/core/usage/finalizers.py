"""Exact accounting: a pod with our finalizer stays until its end is in the ledger, and not a moment longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.api.kinds import AnyResource
from headroom.core.usage import coverage
from headroom.core.usage.coverage import Scope
from headroom.core.usage.observing import ENDED_PHASES
from headroom.model.actions import RemoveFinalizer
from headroom.model.facts import Pod
from headroom.model.times import MINUTE
from headroom.model.world import World

FINALIZER: Final = "headroom.dev/usage"
OVERDUE_MS: Final = 5 * MINUTE
"""A pod whose deletion takes this long has lost its node; nobody will tell how it ended, and it must not be stuck for ever."""


def is_kept(pod: Pod) -> bool:
    """Whether a pod is only there because of our finalizer, or soon will be."""
    return FINALIZER in pod.finalizers and (pod.phase in ENDED_PHASES or pod.deleting is not None)


def removals(world: World, budget: AnyResource, scope: Scope) -> Iterator[RemoveFinalizer]:
    """The finalizers that a budget lets go of; of several budgets that cover a pod, the first does."""
    for pod in _releasable(world):
        if _covers(scope, pod) and _keeper(world, pod) is budget:
            yield RemoveFinalizer(object=f"Pod/{pod.key}")


def orphans(world: World) -> Iterator[RemoveFinalizer]:
    """The finalizers that no budget lets go of: it is gone, paused or not exact any more."""
    for pod in _releasable(world):
        if _keeper(world, pod) is None:
            yield RemoveFinalizer(object=f"Pod/{pod.key}")


def _releasable(world: World) -> list[Pod]:
    if not world.complete or not world.ledger.loaded:
        return []
    found = (world.pods.get(uid) for uid in world.usage.kept)
    return sorted((pod for pod in found if pod is not None and _is_told(world, pod)), key=lambda pod: pod.key)


def _is_told(world: World, pod: Pod) -> bool:
    """Whether the ledger has all that can be known of a pod."""
    if pod.uid in world.ledger.unwritten:
        return False
    if pod.phase in ENDED_PHASES:
        rows = world.usage.of_pod(pod.uid)
        return not rows or rows[-1].ended is not None
    return pod.deleting is not None and (not pod.node or world.as_of >= pod.deleting + OVERDUE_MS)


def _keeper(world: World, pod: Pod) -> AnyResource | None:
    for budget in coverage.budgets_of(world):
        is_keeping = budget.spec.accounting == "Exact" and not budget.spec.paused and not budget.deleting
        if is_keeping and _covers(coverage.scope_of(world, budget), pod):
            return budget
    return None


def _covers(scope: Scope, pod: Pod) -> bool:
    return pod.namespace in scope.namespaces and coverage.selects(scope.selector, pod.labels)
