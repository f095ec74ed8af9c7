"""How a rung is written as a Karpenter NodePool.

A NodePool is named by a digest of its template, so a rung with another template is another NodePool: Karpenter replaces every node of one
whose template changes. Weight, limits and disruption are no part of it and may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from headroom.api.offers import NODE_CLASSES, LeftoverNodePoolSpec
from headroom.core.offers.ladder import DesiredRung
from headroom.core.offers.quotes import WHOLE
from headroom.model.node_pool_specs import template_digest

PREFIX: Final = "leftover-"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
"""Labels of nodes that tell which offer a machine is of."""
_DIGITS: Final = 8
_DIGEST: Final = re.compile(f"[0-9a-f]{{{_DIGITS}}}")
_CPU: Final = "cpu"


def template_of(spec: LeftoverNodePoolSpec, node_class: str, step: DesiredRung) -> dict[str, Any]:
    """What the nodes of a rung are like. Lists are in order, so that equal rungs have equal templates."""
    requirements = [
        ("kubernetes.io/arch", (spec.architecture,)),
        ("kubernetes.io/os", ("linux",)),
        (CAPACITY_TYPE, (step.capacity_type,)),
        (INSTANCE_TYPE, tuple(sorted(step.types))),
        (ZONE, tuple(sorted(step.zones))),
    ]
    labels = {"metadata": {"labels": dict(sorted(spec.labels.items()))}} if spec.labels else {}
    taints = {"taints": [_taint(each) for each in spec.taints]} if spec.taints else {}
    return labels | {
        "spec": taints
        | {
            "expireAfter": spec.expire_after,
            "nodeClassRef": {
                "group": NODE_CLASSES[spec.node_class_kind],
                "kind": spec.node_class_kind,
                "name": node_class,
            },
            "requirements": [
                {"key": key, "operator": "In", "values": list(values)} for key, values in requirements if values
            ],
        }
    }


def name_of(pool: str, template: Mapping[str, Any]) -> str:
    """The NodePool's name."""
    return f"{PREFIX}{pool}-{template_digest({'template': template})[:_DIGITS]}"


def is_name_of(pool: str, name: str) -> bool:
    """Whether a name is one that Headroom gives what it makes for a pool."""
    return _DIGEST.fullmatch(name.removeprefix(f"{PREFIX}{pool}-")) is not None


def is_named_by(pool: str, name: str, template: str) -> bool:
    """Whether a NodePool has the name that a rung of the pool with a template of that digest has."""
    return bool(template) and name == f"{PREFIX}{pool}-{template[:_DIGITS]}"


def spec_of(
    spec: LeftoverNodePoolSpec, template: Mapping[str, Any], weight: int, limits: Mapping[str, int]
) -> dict[str, Any]:
    """The whole spec of a NodePool. Everything is said, so that no default of the API server makes a difference."""
    return {
        "template": template,
        "weight": weight,
        "limits": limit_texts(limits),
        "disruption": {
            "consolidationPolicy": spec.consolidation_policy,
            "consolidateAfter": spec.consolidate_after,
            "budgets": [{"nodes": spec.budgets_nodes}],
        },
    }


def limit_texts(limits: Mapping[str, int]) -> dict[str, str]:
    """Limits as they are written."""
    return {name: amount_text(amount) for name, amount in sorted(limits.items())}


def amount_text(amount: int) -> str:
    """Millionths as a Kubernetes quantity, in its own spelling."""
    for size, suffix in ((WHOLE, ""), (1000, "m")):
        if amount % size == 0:
            return f"{amount // size}{suffix}"
    return f"{amount}u"


def frozen_limits(gpu: str, used: Mapping[str, int]) -> dict[str, int]:
    """Limits that let no node be added: what there is. CPUs count too, since Karpenter sees no GPU in types with a part of one."""
    return {name: used.get(name, 0) for name in (gpu, _CPU)}


def _taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})
