"""The last look at a budget before pods are stopped for it: whoever changed, paused or deleted it meanwhile is heeded."""

from __future__ import annotations

from headroom.adapters.kube import paths, raw
from headroom.adapters.kube.changing import meta, read
from headroom.adapters.kube.client import Kube
from headroom.api.budgets import GPUWorkloadBudget
from headroom.api.kinds import AnyResource
from headroom.model.errors import Unavailable
from headroom.model.world import ref_of


async def check_unchanged(kube: Kube, resource: AnyResource, doing: str) -> None:
    """Raise `Unavailable` if a budget is not the one that was decided on: its spec has changed, or it is going or gone."""
    ref = ref_of(resource)
    if ref.kind != GPUWorkloadBudget.kind.name or not resource.resource_version:
        return  # it was never read from an API server
    found = await read(kube, paths.resource(ref.kind, ref.namespace, ref.name), raw.Object)
    if found is None or meta(found).uid != resource.uid or meta(found).deletion_timestamp:
        raise Unavailable(f"{doing}: budget {ref.namespace}/{ref.name} was deleted meanwhile")
    if meta(found).generation != resource.generation:
        raise Unavailable(f"{doing}: budget {ref.namespace}/{ref.name} was changed meanwhile, so it is decided anew")
