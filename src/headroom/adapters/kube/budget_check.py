"""The last look at a budget: before pods are stopped for it, and before what it holds is let go because it is not in view."""

from __future__ import annotations

from headroom.adapters.kube import errors, paths, raw
from headroom.adapters.kube.changing import meta, read, split
from headroom.adapters.kube.client import Kube
from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudget
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.decisions import Ref
from headroom.model.errors import Unavailable
from headroom.model.world import World, ref_of

_KIND = GPUWorkloadBudget.kind.name


async def check_unchanged(kube: Kube, resource: AnyResource, doing: str) -> None:
    """Raise `Unavailable` if a budget is not the one that was decided on: its spec has changed, or it is going or gone."""
    ref = ref_of(resource)
    if ref.kind != _KIND or not resource.resource_version:
        return  # it was never read from an API server
    found = await read(kube, paths.resource(ref.kind, ref.namespace, ref.name), raw.Object)
    if found is None or meta(found).uid != resource.uid or meta(found).deletion_timestamp:
        raise Unavailable(f"{doing}: budget {ref.namespace}/{ref.name} was deleted meanwhile")
    if meta(found).generation != resource.generation:
        raise Unavailable(f"{doing}: budget {ref.namespace}/{ref.name} was changed meanwhile, so it is decided anew")


async def check_gone(kube: Kube, world: World, action: Action) -> None:
    """Raise `Unavailable` if a chore would let go what a budget holds that exists but is not in view.

    An operator that has just started has nothing to compare its first list of budgets with, and that list may be false.
    """
    ref = _author(world, action)
    if ref is None or ref in world.resources:
        return
    doing = f"{type(action).__name__} for budget {ref.namespace}/{ref.name}, which is not in view"
    try:
        await kube.get(paths.resource(ref.kind, ref.namespace, ref.name))
    except errors.NotFound as problem:
        if errors.says_gone(problem, ref.name):
            return
        raise Unavailable(f"{doing}: {problem}; that does not say that it was deleted") from problem
    raise Unavailable(f"{doing}: it still exists, so nothing is let go")


def _author(world: World, action: Action) -> Ref | None:
    """The budget that did what the action undoes; None if none is named."""
    by = ""
    if isinstance(action, actions.DeleteBudgetHold):
        by = action.budget
    elif isinstance(action, actions.ReleasePod | actions.ResumePod):
        pod = world.pods.get(action.uid)
        mark = marks.HELD_BY if isinstance(action, actions.ReleasePod) else marks.PAUSED_BY
        by = dict(pod.annotations).get(mark, "") if pod is not None else ""
    elif isinstance(action, actions.ResumeOwner):
        owner = world.workloads.get(f"{action.kind}/{action.object}")
        by = owner.suspended_by if owner is not None else ""
    namespace, name = split(by.removeprefix(f"{_KIND}/"))
    return Ref(_KIND, namespace, name) if namespace and name and "/" not in name else None
