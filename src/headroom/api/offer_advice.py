"""What is allowed in a LeftoverNodePool and still hardly meant: said by `headroom check`, refused by nobody."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from headroom.api.kinds import AnyResource
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.api.schema import Problem

ARM: Final = frozenset({"g5g", "p6e-gb200"})
AMD: Final = frozenset({"g4ad"})
FAMILIES: Final = (
    *sorted(ARM | AMD),
    *("g4dn", "g5", "g6", "g6e", "g6f", "gr6", "gr6f"),
    *("p3", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"),
)
"""Families of AWS with GPUs. There may be newer ones, so another name is only looked at for a slip."""
_ALIKE: Final = 0.6
FEW_RUNGS: Final = 3


def of_pool(pool: AnyResource, given: Collection[str] = ()) -> list[Problem]:
    """Everything that is dubious about a valid pool; `given` are the fields that its spec gives itself."""
    spec: LeftoverNodePoolSpec = pool.spec
    return [*_families(spec), *_choice(spec, given), *_ranking(spec, given), *_rolling(spec), *_nodes(spec)]


def between(pool: AnyResource, others: Iterable[AnyResource]) -> Iterator[Problem]:
    """What is dubious about a pool beside others: weights that two of them may use."""
    weights = pool.spec.weights
    for other in others:
        if other.kind != pool.kind or other.spec is None or other.name >= pool.name:
            continue
        theirs = other.spec.weights
        if weights.min <= theirs.max and theirs.min <= weights.max:
            yield Problem(
                "spec.weights",
                f"are {weights.min} to {weights.max} and overlap {theirs.min} to {theirs.max} of {other.name}, so this pool will not "
                "be Ready; give each its own range",
            )
            return


def _families(spec: LeftoverNodePoolSpec) -> Iterator[Problem]:
    for number, family in enumerate(spec.families):
        field = f"spec.families[{number}]"
        if family not in FAMILIES:
            near = difflib.get_close_matches(family, FAMILIES, n=1, cutoff=_ALIKE)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield Problem(field, f"is {family}, which is not a known GPU family of AWS{meant}")
        elif (family in ARM) != (spec.architecture == "arm64"):
            arch = "arm64" if family in ARM else "amd64"
            yield Problem(
                field, f"is {family}, whose machines are {arch}; with architecture {spec.architecture} none is taken"
            )
        elif (family in AMD) != (spec.gpu_vendor == "amd"):
            vendor = "amd" if family in AMD else "nvidia"
            yield Problem(
                field, f"is {family}, whose GPUs are of {vendor}; with gpuVendor {spec.gpu_vendor} none is taken"
            )


def _choice(spec: LeftoverNodePoolSpec, given: Collection[str]) -> Iterator[Problem]:
    if spec.max_instance_types == 1:
        yield Problem(
            "spec.maxInstanceTypes", "is 1, so no machine is offered while that type is sold out; 5 suits most"
        )
    if spec.max_zones == 1:
        yield Problem("spec.maxZones", "is 1, so no machine is offered while that zone is sold out; 2 suits most")
    rungs = spec.weights.max - spec.weights.min + 1
    if rungs < FEW_RUNGS:
        yield Problem("spec.weights", f"have room for only {rungs} NodePools to fall back to")
    if "limits" in given and spec.gpu_resource not in spec.limits:
        yield Problem("spec.limits", f"have no {spec.gpu_resource}, so 1000 of them are allowed")


def _ranking(spec: LeftoverNodePoolSpec, given: Collection[str]) -> Iterator[Problem]:
    if spec.strategy == "CheapestAboveScore":
        yield Problem(
            "spec.strategy",
            "is CheapestAboveScore, which compares prices of machines, not of GPUs, and counts no interruptions; "
            "CostAndRisk compares the expected cost of a useful GPU-hour",
        )
        if "restartHours" in given:
            yield Problem("spec.restartHours", "counts only with strategy CostAndRisk")
        if spec.min_spot_score == 0:
            yield Problem("spec.minSpotScore", "is 0, so the cheapest offer is taken whatever its risk")
    elif "minSpotScore" in given:
        yield Problem(
            "spec.minSpotScore", "counts only with strategy CheapestAboveScore; CostAndRisk weighs every score"
        )
    if not spec.switch_threshold.rstrip("%").strip("0."):
        yield Problem(
            "spec.switchThreshold", "is 0%, so the first offer changes for the smallest saving; 5% suits most"
        )


def _rolling(spec: LeftoverNodePoolSpec) -> Iterator[Problem]:
    """What makes Karpenter replace nodes while pods run on them."""
    if spec.consolidation_policy == "WhenEmptyOrUnderutilized":
        yield Problem(
            "spec.consolidationPolicy",
            "is WhenEmptyOrUnderutilized, so a change of weights lets Karpenter move running pods to a cheaper NodePool; "
            "WhenEmpty leaves them alone",
        )
    if spec.expire_after != "Never":
        yield Problem(
            "spec.expireAfter",
            f"is {spec.expire_after}, so Karpenter replaces every node at that age, with what runs on it; Never keeps them",
        )
    if spec.rollout == "Replace":
        yield Problem(
            "spec.rollout",
            "is Replace, so a change of the template replaces all running nodes; Keep leaves them until they are empty",
        )


def _nodes(spec: LeftoverNodePoolSpec) -> Iterator[Problem]:
    if not spec.taints:
        yield Problem(
            "spec.taints",
            f"are empty, so Karpenter may bring these machines for pods without GPUs; {spec.gpu_resource}:NoSchedule keeps those off",
        )
