"""Exact accounting: a pod with our finalizer stays until its end is in the ledger, and not a moment longer."""

from __future__ import annotations

from typing import Final

from headroom.core.usage import coverage
from headroom.core.usage.coverage import BudgetScope
from headroom.core.usage.devices import ENDED_PHASES
from headroom.model.actions import RemoveFinalizer
from headroom.model.decisions import Ref
from headroom.model.facts import Pairs, Pod
from headroom.model.times import MINUTE
from headroom.model.world import World, ref_of

FINALIZER: Final = "headroom.dev/usage"
OVERDUE_MS: Final = 5 * MINUTE
"""A pod whose deletion takes this long has lost its node; nobody will tell how it ended, and it must not be stuck for ever."""
NODE_GONE_MS: Final = 2 * MINUTE
"""So long after its node was deleted, and not before its own deletion is due, nobody is left who could tell."""
MOST: Final = 500
"""At once; the others are due as soon as these are gone."""


def is_kept(pod: Pod) -> bool:
    """Whether a pod is only there because of our finalizer, or soon will be."""
    return FINALIZER in pod.finalizers and (pod.phase in ENDED_PHASES or pod.deleting is not None)


def removals(world: World) -> dict[Ref | None, list[RemoveFinalizer]]:
    """The finalizers to remove, under the budget that does: the first that covers the pod; None where no budget does.

    That is so for budgets that are gone, paused or not exact any more.
    """
    found: dict[Ref | None, list[RemoveFinalizer]] = {}
    if not world.complete or not world.ledger.loaded:
        return found
    if free := _needless(world)[:MOST]:
        found[None] = [RemoveFinalizer(object=f"Pod/{pod.key}") for pod in free]
    if not world.usage.kept:
        return found
    scopes, keepers = _exact(world), dict[tuple[str, Pairs], Ref | None]()
    for pod in _releasable(world)[:MOST]:
        like = pod.namespace, pod.labels
        if like not in keepers:
            keepers[like] = next((ref for ref, scope in scopes if scope.covers(pod.namespace, pod.labels)), None)
        found.setdefault(keepers[like], []).append(RemoveFinalizer(object=f"Pod/{pod.key}"))
    return found


def _needless(world: World) -> list[Pod]:
    """Pods that live on with a finalizer although no exact budget covers them any more."""
    alive = [pod for uid in world.pods.finalized if (pod := world.pods.get(uid)) is not None and not is_kept(pod)]
    # Whom a budget covers that cannot be read, nobody knows: it may have been made by a newer version.
    if not alive or any(each.spec is None for _, each in world.of_kind(coverage.KIND) if not each.deleting):
        return []
    exact = [each for each in coverage.budgets_of(world) if each.spec.accounting == "Exact" and not each.deleting]
    scopes = [coverage.scope_of(world, each) for each in exact]
    free = (
        pod
        for pod in alive
        if FINALIZER in pod.finalizers and not any(each.covers(pod.namespace, pod.labels) for each in scopes)
    )
    return sorted(free, key=lambda pod: pod.key)


def _releasable(world: World) -> list[Pod]:
    found = (world.pods.get(uid) for uid in world.usage.kept)
    return sorted((pod for pod in found if pod is not None and _is_told(world, pod)), key=lambda pod: pod.key)


def _is_told(world: World, pod: Pod) -> bool:
    """Whether the ledger has all that can be known of a pod."""
    if pod.uid in world.ledger.unwritten:
        return False
    if pod.phase in ENDED_PHASES:
        return not world.usage.of_pod(pod.uid) or world.usage.has_end(pod.uid)
    if pod.deleting is None:
        return False
    if not pod.node or world.as_of >= pod.deleting + OVERDUE_MS:
        return True
    # A node that is only unready may come back and tell. One that was deleted will not, unless it registers again.
    lost = world.nodes.lost.get(pod.node)
    return lost is not None and world.as_of >= max(pod.deleting, lost.gone_at + NODE_GONE_MS)


def _exact(world: World) -> list[tuple[Ref, BudgetScope]]:
    return [
        (ref_of(budget), coverage.scope_of(world, budget))
        for budget in coverage.budgets_of(world)
        if budget.spec.accounting == "Exact" and not budget.spec.paused and not budget.deleting
    ]
