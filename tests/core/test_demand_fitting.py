"""Whether a pod fits into a room, rule by rule as Kubernetes has them, and the clause that says why it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headroom.core.demand import Room, why_not
from headroom.model.facts import UNREADABLE, Shape, Taint
from tests.core.demand_stage import GPU, MICRO, a_room, a_shape, affinity, amounts, says

ZONED = a_room(labels=(("cores", "64"), ("empty", ""), ("gpu", "h100"), ("zone", "a")))


def test_a_pod_fits_where_nothing_speaks_against_it() -> None:
    shape = a_shape(8, 32, 100, node_selector=(("gpu", "h100"),))
    assert why_not(shape, a_room(labels=(("gpu", "h100"),), free=amounts(8, 32, 100))) == ""
    assert why_not(Shape(), Room(name="n")) == ""


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ((("gpu", "h100"),), ""),
        ((("gpu", "h100"), ("zone", "a")), ""),
        ((("empty", ""),), ""),
        ((("gpu", "a100"),), "it requires label gpu=a100"),
        ((("absent", ""),), "it requires label absent="),
        ((("gpu", "h100"), ("zone", "b")), "it requires label zone=b"),
    ],
)
def test_a_node_selector(selector: Any, why: str) -> None:
    assert why_not(a_shape(node_selector=selector), ZONED) == why


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (says("gpu", "In", "a100", "h100"), True),
        (says("gpu", "In", "a100"), False),
        (says("absent", "In", "x"), False),
        (says("gpu", "In"), False),
        (says("gpu", "NotIn", "a100"), True),
        (says("gpu", "NotIn", "h100"), False),
        (says("absent", "NotIn", "x"), True),
        (says("gpu", "NotIn"), False),
        (says("gpu", "Exists"), True),
        (says("empty", "Exists"), True),
        (says("absent", "Exists"), False),
        (says("gpu", "Exists", "h100"), False),
        (says("absent", "DoesNotExist"), True),
        (says("gpu", "DoesNotExist"), False),
        (says("cores", "Gt", "63"), True),
        (says("cores", "Gt", "64"), False),
        (says("cores", "Lt", "65"), True),
        (says("cores", "Lt", "64"), False),
        (says("cores", "Lt", "+65"), True),
        (says("cores", "Gt", "-1"), True),
        (says("cores", "Gt", " 1"), False),
        (says("cores", "Gt", "1_0"), False),
        (says("cores", "Gt", "\u0661"), False),
        (says("cores", "Gt", "1.5"), False),
        (says("cores", "Lt", "9223372036854775808"), False),
        (says("cores", "Lt", "9223372036854775807"), True),
        (says("cores", "Gt", "1", "2"), False),
        (says("cores", "Gt"), False),
        (says("gpu", "Gt", "1"), False),
        (says("absent", "Lt", "1"), False),
        (says("gpu", "Like", "h"), False),
        ({"key": "gpu"}, False),
        ({"operator": "Exists"}, False),
    ],
)
def test_an_expression_of_node_affinity(expression: dict[str, Any], holds: bool) -> None:
    assert (why_not(a_shape(affinity=affinity([expression])), ZONED) == "") is holds


@pytest.mark.parametrize(
    ("terms", "holds"),
    [
        ([[says("gpu", "In", "h100"), says("zone", "In", "a")]], True),
        ([[says("gpu", "In", "h100"), says("zone", "In", "b")]], False),
        ([[says("gpu", "In", "a100")], [says("zone", "In", "a")]], True),
        ([[]], False),
        ([{}], False),
        ([{"matchExpressions": None, "matchFields": None}], False),
        ([[], [says("zone", "In", "a")]], True),
        ([], False),
        ([{"matchFields": [says("metadata.name", "In", "n")]}], True),
        ([{"matchFields": [says("metadata.name", "In", "m")]}], False),
        ([{"matchFields": [says("metadata.name", "NotIn", "m")]}], True),
        ([{"matchFields": [says("metadata.name", "Exists")]}], False),
        ([{"matchFields": [says("metadata.uid", "In", "n")]}], False),
        ([{"matchExpressions": [says("gpu", "Exists")], "matchFields": [says("metadata.name", "In", "m")]}], False),
    ],
)
def test_terms_of_node_affinity(terms: list[Any], holds: bool) -> None:
    assert (why_not(a_shape(affinity=affinity(*terms)), ZONED) == "") is holds


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "{}",
        '{"nodeAffinity": null}',
        '{"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}}',
        '{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}',
    ],
)
def test_what_is_only_preferred_or_is_about_pods_is_not_judged(text: str) -> None:
    assert why_not(a_shape(affinity=text), ZONED) == ""


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '{"nodeAffinity": 7}', "\ud800", "[" * 100_000, affinity([{"key": 1}])]
)
def test_affinity_that_cannot_be_read_fits_nowhere(text: str) -> None:
    assert why_not(a_shape(affinity=text), ZONED) == "its affinity cannot be read"


@pytest.mark.parametrize("text", ["{", "{}", "7", '[{"key": 7}]', "[7]"])
def test_tolerations_that_cannot_be_read_fit_nowhere(text: str) -> None:
    assert why_not(a_shape(tolerations=text), ZONED) == "its tolerations cannot be read"


ML = Taint("dedicated", "ml", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "taint", "holds"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}, ML, True),
        ({"key": "dedicated", "value": "ml"}, ML, True),
        ({"key": "dedicated", "operator": "", "value": "ml"}, ML, True),
        ({"key": "dedicated", "value": "web"}, ML, False),
        ({"key": "other", "value": "ml"}, ML, False),
        ({"key": "dedicated", "operator": "Exists"}, ML, True),
        ({"key": "other", "operator": "Exists"}, ML, False),
        ({"operator": "Exists"}, ML, True),
        ({"key": "", "operator": "Exists", "effect": ""}, ML, True),
        ({"operator": "Exists", "effect": "NoExecute"}, ML, False),
        ({"operator": "Exists", "effect": "NoExecute"}, Taint("x", "", "NoExecute"), True),
        ({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}, Taint("x", "", "NoExecute"), True),
        ({"key": "x"}, Taint("x", "", "NoSchedule"), True),
        ({"key": "x", "operator": "Matches"}, Taint("x", "", "NoSchedule"), False),
    ],
)
def test_a_toleration(toleration: dict[str, Any], taint: Taint, holds: bool) -> None:
    found = why_not(a_shape(tolerations=json.dumps([toleration])), a_room(taints=(taint,)))
    assert (found == "") is holds


@pytest.mark.parametrize(
    ("taint", "why"),
    [
        (ML, "it does not tolerate taint dedicated=ml:NoSchedule"),
        (Taint("x", "", "NoExecute"), "it does not tolerate taint x:NoExecute"),
        (Taint("x", "", "PreferNoSchedule"), ""),
        (
            Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
            "it does not tolerate taint node.kubernetes.io/unschedulable:NoSchedule",
        ),
    ],
)
def test_a_taint_repels_who_does_not_tolerate_it(taint: Taint, why: str) -> None:
    assert why_not(a_shape(), a_room(taints=(taint,))) == why


def test_every_taint_must_be_tolerated() -> None:
    shape = a_shape(tolerations='[{"key": "dedicated", "operator": "Exists"}]')
    assert (
        why_not(shape, a_room(taints=(ML, Taint("x", "y", "NoSchedule"))))
        == "it does not tolerate taint x=y:NoSchedule"
    )


# --- resources ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "room", "why"),
    [
        (a_shape(8), a_room(gpus=4), f"it needs 8 {GPU} and 4 are there"),
        (a_shape(8), a_room(gpus=1), f"it needs 8 {GPU} and 1 is there"),
        (a_shape(8), a_room(free=()), f"it needs 8 {GPU} and none is there"),
        (a_shape(0.5), a_room(gpus=0.25), f"it needs 0.5 {GPU} and 0.25 are there"),
        (a_shape(1, 96), a_room(free=amounts(8, 64)), "it needs 96 cpu and 64 are there"),
        (a_shape(1, 0, 512), a_room(free=amounts(8, 0, 256.5)), "it needs 512Gi memory and 256.5Gi are there"),
        (a_shape(1, 0, 2048), a_room(free=amounts(8, 0, 1)), "it needs 2Ti memory and 1Gi are there"),
        (a_shape(16, 96), a_room(free=amounts(8, 64)), f"it needs 16 {GPU} and 8 are there"),
        (a_shape(1), a_room(free=(*amounts(8), ("pods", 0))), "the node has no pod slots left"),
        (a_shape(1), a_room(free=(*amounts(8), ("pods", MICRO))), ""),
        (Shape(requests=(("cpu", 0), (GPU, MICRO))), a_room(gpus=1), ""),
        (a_shape(UNREADABLE // MICRO), a_room(gpus=1e30), f"its request for {GPU} cannot be read"),
    ],
)
def test_what_is_asked_for_must_be_there(shape: Shape, room: Room, why: str) -> None:
    assert why_not(shape, room) == why


NAMED = "is configured there (resources of the machine, or of the template)"


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (a_shape(8, 999, 9999), ""),
        (a_shape(9, 1), f"it needs 9 {GPU} and 8 are there"),
        (Shape(requests=(("ephemeral-storage", 2**50 * MICRO),)), ""),
        (Shape(requests=(("pods", 2**50 * MICRO),)), ""),
        (Shape(requests=(("rdma/hca", 0), (GPU, MICRO))), ""),
        (Shape(requests=((GPU, MICRO), ("rdma/hca", MICRO))), f"it needs 1 rdma/hca and none {NAMED}"),
        (Shape(requests=(("hugepages-1Gi", 2**30 * MICRO),)), f"it needs 1Gi hugepages-1Gi and none {NAMED}"),
        (Shape(requests=(("amd.com/gpu", MICRO),)), f"it needs 1 amd.com/gpu and none {NAMED}"),
        (Shape(requests=(("nvidia.com/mig-1g.5gb", MICRO),)), f"it needs 1 nvidia.com/mig-1g.5gb and none {NAMED}"),
        (Shape(requests=(("cpu", UNREADABLE),)), "its request for cpu cannot be read"),
    ],
)
def test_of_a_machine_that_is_off_devices_and_what_is_said_are_limited(shape: Shape, why: str) -> None:
    assert why_not(shape, a_room(gpus=8, partly_known=True)) == why
    limited = a_room(free=amounts(8, 4), partly_known=True)
    assert why_not(a_shape(1, 5), limited) == "it needs 5 cpu and 4 are there"


def test_what_is_named_of_a_machine_that_is_off_is_there() -> None:
    named = a_room(free=(("hugepages-1Gi", 2**30 * MICRO), *amounts(8), ("rdma/hca", 2 * MICRO)), partly_known=True)
    assert (
        why_not(Shape(requests=(("hugepages-1Gi", 2**30 * MICRO), (GPU, MICRO), ("rdma/hca", 2 * MICRO))), named) == ""
    )
    assert why_not(Shape(requests=(("rdma/hca", 3 * MICRO),)), named) == "it needs 3 rdma/hca and 2 are there"


def test_long_affinity_is_told_in_short() -> None:
    values = [f"v{number}" for number in range(9)]
    terms = [[says("zone", "In", *values)], *[[says("gpu", "DoesNotExist")]] * 7]
    told = why_not(a_shape(affinity=affinity(*terms)), ZONED)
    assert told == (
        "its affinity requires zone In (v0, v1, v2, v3, v4, ...) or gpu DoesNotExist or gpu DoesNotExist "
        "or gpu DoesNotExist or gpu DoesNotExist or 3 more"
    )
