"""Whether Karpenter could bring nodes for the same pods: labels and requirements as it reads them, limits, and GPUs or none."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.demand import served_by_karpenter
from headroom.model.facts import NodePool, Requirement, Shape, Taint
from tests.core.demand_stage import MICRO, a_shape, a_view, affinity, says

AWS = "karpenter.k8s.aws"
TYPE = "node.kubernetes.io/instance-type"


def needs(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


def serves(shape: Shape | None = None, *requirements: Requirement, **fields: Any) -> bool:
    pool = NodePool(name="gpu", requirements=requirements, **fields)
    return served_by_karpenter(a_view(node_pools={"gpu": pool}), shape or a_shape(1)) == "gpu"


def test_any_pool_that_says_nothing_against_it_could() -> None:
    assert serves()
    assert served_by_karpenter(a_view(), a_shape(1)) == ""


def test_the_first_by_name_is_told() -> None:
    pools = {name: NodePool(name=name, ready=name != "a") for name in ("c", "b", "a")}
    assert served_by_karpenter(a_view(node_pools=pools), a_shape(1)) == "b"


@pytest.mark.parametrize(
    ("taint", "tolerations", "could"),
    [
        (Taint("x", "", "NoSchedule"), "", False),
        (Taint("x", "", "NoExecute"), "", False),
        (Taint("x", "", "PreferNoSchedule"), "", True),
        (Taint("x", "", "NoSchedule"), '[{"key": "x", "operator": "Exists"}]', True),
    ],
)
def test_a_taint_keeps_pods_away_that_do_not_tolerate_it(taint: Taint, tolerations: str, could: bool) -> None:
    assert serves(a_shape(1, tolerations=tolerations), taints=(taint,)) is could


@pytest.mark.parametrize(
    ("limits", "could"),
    [
        ((("nvidia.com/gpu", 0),), False),
        ((("nvidia.com/gpu", 3 * MICRO),), False),
        ((("nvidia.com/gpu", 4 * MICRO),), True),
        ((("amd.com/gpu", 0),), True),
        ((("nodes", 0),), False),
        ((("cpu", 0),), False),
        ((("cpu", 100 * MICRO), ("memory", 2**40 * MICRO)), True),
    ],
)
def test_a_limit_may_allow_not_even_one(limits: Any, could: bool) -> None:
    assert serves(a_shape(4), limits=limits) is could


# --- labels -----------------------------------------------------------------------------------------------------------------------

OURS = "example.com/tier"
ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("asked", "offered", "could"),
    [
        (says(OURS, "In", "a"), [], False),
        (says(OURS, "Exists"), [], False),
        (says(OURS, "NotIn", "a"), [], True),
        (says(OURS, "DoesNotExist"), [], True),
        (says("plain", "In", "a"), [], False),
        (says("nvidia.com/gpu.product", "In", "H100"), [], False),
        (says(ZONE, "In", "a"), [], True),
        (says(f"{AWS}/instance-memory", "Gt", "1000"), [], True),
        (says(ZONE, "In", "a"), [needs(ZONE, "In", "a", "b")], True),
        (says(ZONE, "In", "c"), [needs(ZONE, "In", "a", "b")], False),
        (says(ZONE, "In", "a"), [needs(ZONE, "NotIn", "a")], False),
        (says(ZONE, "In", "a", "b"), [needs(ZONE, "NotIn", "a")], True),
        (says(ZONE, "NotIn", "a", "b"), [needs(ZONE, "In", "a", "b")], False),
        (says(ZONE, "NotIn", "a"), [needs(ZONE, "NotIn", "b")], True),
        (says(ZONE, "DoesNotExist"), [needs(ZONE, "Exists")], False),
        (says(ZONE, "DoesNotExist"), [needs(ZONE, "NotIn", "a")], True),
        (says(ZONE, "Exists"), [needs(ZONE, "DoesNotExist")], False),
        (says(OURS, "In", "a"), [needs(OURS, "Exists")], True),
        (says(OURS, "Gt", "5"), [needs(OURS, "Lt", "7")], True),
        (says(OURS, "Gt", "5"), [needs(OURS, "Lt", "6")], False),
        (says(OURS, "Gt", "5"), [needs(OURS, "Lte", "6")], True),
        (says(OURS, "Lt", "5"), [needs(OURS, "Gte", "5")], False),
        (says(OURS, "Gt", "5"), [needs(OURS, "In", "4", "9")], True),
        (says(OURS, "Gt", "9"), [needs(OURS, "In", "4", "9")], False),
        (says(OURS, "In", "7"), [needs(OURS, "Gte", "7")], True),
        (says(OURS, "Gt", "x"), [needs(OURS, "Exists")], False),
        (says("kubernetes.io/hostname", "In", "n1"), [], False),
    ],
)
def test_what_a_pod_asks_for_and_a_pool_offers_must_have_something_in_common(
    asked: dict[str, Any], offered: list[Requirement], could: bool
) -> None:
    assert serves(a_shape(1, affinity=affinity([asked])), *offered) is could


def test_a_node_selector_is_met_by_the_labels_of_the_template() -> None:
    shape = a_shape(1, node_selector=((OURS, "a"),))
    assert serves(shape, labels=((OURS, "a"),))
    assert not serves(shape, labels=((OURS, "b"),))
    both = a_shape(1, node_selector=((OURS, "a"),), affinity=affinity([says(OURS, "In", "b")]))
    assert not serves(both, needs(OURS, "In", "a", "b"))


@pytest.mark.parametrize(
    ("terms", "could"),
    [
        ([[says(OURS, "In", "a")], [says(ZONE, "In", "a")]], True),
        ([[says(OURS, "In", "a")], [says(OURS, "In", "b")]], False),
        ([[]], False),
        ([], False),
        ([{"matchFields": [says("metadata.name", "In", "n")]}], False),
    ],
)
def test_one_alternative_is_enough(terms: list[Any], could: bool) -> None:
    assert serves(a_shape(1, affinity=affinity(*terms))) is could


def test_what_cannot_be_read_is_served_by_nobody() -> None:
    assert not serves(a_shape(1, affinity="{"))


# --- GPUs -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requirement", "could"),
    [
        (needs(f"{AWS}/instance-category", "In", "g", "p"), True),
        (needs(f"{AWS}/instance-category", "In", "c", "gr"), True),
        (needs(f"{AWS}/instance-category", "In", "c", "m", "r"), False),
        (needs(f"{AWS}/instance-category", "NotIn", "c", "m"), True),
        (needs(f"{AWS}/instance-category", "NotIn", "g", "p"), False),
        (needs(f"{AWS}/instance-family", "In", "m5", "p5"), True),
        (needs(f"{AWS}/instance-family", "In", "g6e"), True),
        (needs(f"{AWS}/instance-family", "In", "gr6"), True),
        (needs(f"{AWS}/instance-family", "In", "c7g", "m5", "inf2", "u-6tb1"), True),
        (needs(f"{AWS}/instance-family", "In", "c7g", "m5", "inf2"), False),
        (needs(f"{AWS}/instance-family", "NotIn", "p5"), True),
        (needs(TYPE, "In", "p5.48xlarge"), True),
        (needs(TYPE, "In", "m5.large", "c7g.xlarge"), False),
        (needs(TYPE, "In", "m5.large", "g4dn.xlarge"), True),
        (needs(TYPE, "In", "Standard_D4s_v5"), True),
        (needs(TYPE, "In", "n1-standard-4"), True),
        (needs(TYPE, "In", "c-4x-amd64-linux"), True),
        (needs(TYPE, "Exists"), True),
        (needs(f"{AWS}/instance-gpu-count", "In", "4", "8"), True),
        (needs(f"{AWS}/instance-gpu-count", "In", "1", "2"), False),
        (needs(f"{AWS}/instance-gpu-count", "Lt", "1"), False),
        (needs(f"{AWS}/instance-gpu-count", "Lt", "5"), True),
        (needs(f"{AWS}/instance-gpu-count", "Lt", "4"), False),
        (needs(f"{AWS}/instance-gpu-count", "Gt", "0"), True),
        (needs(f"{AWS}/instance-gpu-count", "DoesNotExist"), False),
        (needs(f"{AWS}/instance-gpu-name", "In", "h100"), True),
        (needs(f"{AWS}/instance-gpu-name", "Exists"), True),
        (needs(f"{AWS}/instance-gpu-name", "DoesNotExist"), False),
    ],
)
def test_a_pool_of_machines_without_enough_gpus_does_not_help(requirement: Requirement, could: bool) -> None:
    assert serves(a_shape(4), requirement) is could


def test_the_template_may_say_it_too() -> None:
    assert not serves(None, labels=((TYPE, "m5.large"),))
    assert serves(None, labels=((TYPE, "p5.48xlarge"),))
