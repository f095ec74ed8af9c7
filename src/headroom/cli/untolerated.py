"""Spotpools whose nodes no GPU pod among the given manifests tolerates: `headroom check` warns of them, since they never launch one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headroom.adapters.documents import Documents
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.model.decisions import Ref
    from headroom.model.facts import Pod


def untolerated(found: Documents, serves: Mapping[str, Collection[str]]) -> Iterator[tuple[Ref, Problem]]:
    """Each such pool; `serves` names the namespaces beside their own that administrators let pools serve."""
    from headroom.api.spot_pools import DEMAND
    from headroom.core.spot_pools import ANY, KIND
    from headroom.model.world import ref_of

    for pool in found.resources:
        if pool.kind == KIND and not pool.problems and pool.spec.desired == DEMAND:
            others = serves.get(f"{pool.namespace}/{pool.name}", ())
            pods = [pod for pod in found.pods if pod.namespace in (pool.namespace, *others) and not pod.node]
            if ANY not in others and (problem := _problem(pool, pods)) is not None:
                yield ref_of(pool), problem


def _problem(pool: AnyResource, pods: list[Pod]) -> Problem | None:
    from headroom.api.schema import Problem
    from headroom.core.demand import constraints_of
    from headroom.core.demand import untolerated as repelling
    from headroom.core.spot_pools import own_taint

    gpu, taint = pool.spec.template.gpu_resource_name, own_taint(pool.namespace)
    shapes = {pod.shape for pod in pods if dict(pod.shape.requests).get(gpu)}
    if not shapes or not all(repelling(constraints_of(each), (taint,)) for each in shapes):
        return None
    return Problem(
        "spec.desired",
        f"is Demand, and none of the given pods with {gpu} tolerates the taint {taint.key}={taint.value}:{taint.effect} of its nodes, "
        f"so it launches nothing for them; add to their tolerations {{key: {taint.key}, value: {taint.value}, effect: {taint.effect}}}",
    )
