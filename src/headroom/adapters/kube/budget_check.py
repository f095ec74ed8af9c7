"""The last look at a budget or pool: before pods are stopped for it, and before what it did is undone because it is not in view."""

from __future__ import annotations

from headroom.adapters.kube import errors, paths, raw
from headroom.adapters.kube.changing import meta, read, split
from headroom.adapters.kube.client import Kube
from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudget
from headroom.api.kinds import KINDS, AnyResource
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.decisions import Ref
from headroom.model.errors import Unavailable
from headroom.model.facts import Pod
from headroom.model.world import World, ref_of

_KIND = GPUWorkloadBudget.kind.name


async def check_unchanged(kube: Kube, resource: AnyResource, doing: str) -> None:
    """Raise `Unavailable` if a budget is not the one that was decided on: its spec has changed, or it is going or gone."""
    ref = ref_of(resource)
    if ref.kind != _KIND or not resource.resource_version:
        return  # it was never read from an API server
    found = await read(kube, paths.resource(ref.kind, ref.namespace, ref.name), raw.Object)
    if found is None or meta(found).uid != resource.uid or meta(found).deletion_timestamp:
        raise Unavailable(f"{doing}: budget {ref.namespace}/{ref.name} has been deleted")
    if meta(found).generation != resource.generation:
        raise Unavailable(f"{doing}: budget {ref.namespace}/{ref.name} has changed, so it is decided again")


async def check_gone(kube: Kube, world: World, action: Action) -> None:
    """Raise `Unavailable` if an action would undo what one of our resources did that exists but is not in view.

    An operator that has just started has nothing to compare its first lists with, and those may be false.
    """
    named = dict.fromkeys(ref for mark in _marks(world, action) if (ref := _named(mark)) is not None)
    for ref in named:
        if ref in world.resources:
            continue
        what = f"budget {ref.namespace}/{ref.name}" if ref.kind == _KIND else str(ref)
        doing = f"{type(action).__name__} for {what}, which cannot be seen"
        try:
            await kube.get(paths.resource(ref.kind, ref.namespace, ref.name))
        except errors.NotFound as problem:
            if errors.says_gone(problem, ref.name):
                continue
            raise Unavailable(f"{doing}: {problem}; that does not say that it was deleted") from problem
        raise Unavailable(f"{doing}: it still exists, so nothing is released")


def _marks(world: World, action: Action) -> list[str]:
    """Who did what the action undoes, as our marks name them."""
    match action:
        case actions.DeleteBudgetHold():
            return [action.budget]
        case actions.ReleasePod():
            return _noted(world.pods.get(action.uid), marks.HELD_BY)
        case actions.ResumePod():
            return _noted(world.pods.get(action.uid), marks.PAUSED_BY)
        case actions.UncordonNode():
            return [action.by]
        case actions.ResumeOwner():
            owner = world.workloads.get(f"{action.kind}/{action.object}")
            return [owner.suspended_by] if owner is not None else []
        case actions.ApplyBudgetIndex() | actions.RemoveFinalizer():
            # The index is written from all budgets in view, and a finalizer goes when none of them covers its pod.
            return [each.budget for each in world.index or ()]
    return []


def _noted(fact: Pod | None, mark: str) -> list[str]:
    return [] if fact is None else [dict(fact.annotations).get(mark, "")]


def _named(by: str) -> Ref | None:
    """The resource that a mark names, a budget with or without its kind; None if it names none of ours."""
    kind, *rest = by.split("/")
    if kind in KINDS and kind != _KIND and 1 <= len(rest) <= 2:
        return Ref(kind, rest[0] if len(rest) == 2 else "", rest[-1])
    namespace, name = split(by.removeprefix(f"{_KIND}/"))
    return Ref(_KIND, namespace, name) if namespace and name and "/" not in name else None
