"""Pods that ask for GPUs by ResourceClaims: demand like any other, where a pool names their device class."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.core.demand import wanted
from headroom.model.conditions import find
from headroom.model.device_facts import (
    AllocatedDevice,
    Claim,
    ClaimTemplate,
    Device,
    DeviceChoice,
    DeviceRequest,
    DeviceSlice,
)
from headroom.model.devices import DeviceTable
from headroom.model.facts import Pod, Shape
from headroom.model.times import MINUTE
from tests.builders import NOON
from tests.core.power_stage import (
    LONG_AGO,
    Stage,
    a_pool,
    a_view,
    decided,
    explained,
    machine,
    on,
    remembered,
    status,
    waiting,
    wakes,
    was,
)

GPU_CLASS = "gpu.nvidia.com"
NAMED: dict[str, Any] = {"deviceClasses": [GPU_CLASS]}


def template(count: int, name: str = "gpus", kind: str = GPU_CLASS, **fields: Any) -> ClaimTemplate:
    choice = DeviceChoice(device_class=kind, count=count, **fields)
    return ClaimTemplate(
        uid=name, namespace="team-a", name=name, requests=(DeviceRequest(name="r", choices=(choice,)),)
    )


def claiming(name: str, of: str = "gpus", **fields: Any) -> Pod:
    """A pod that asks for no resource, but for devices of a template."""
    return waiting(name, 0, shape=Shape(), claim_templates=(of,), **fields)


def slices(*nodes: str, count: int = 8) -> list[DeviceSlice]:
    devices = tuple(Device(name=f"gpu-{number}") for number in range(count))
    return [DeviceSlice(name=node, driver=GPU_CLASS, pool=node, node=node, devices=devices) for node in nodes]


def table(*templates: ClaimTemplate, nodes: tuple[str, ...] = ()) -> DeviceTable:
    return DeviceTable([], templates, slices(*nodes))


def allocated(name: str, node: str, count: int, pod: str) -> Claim:
    devices = tuple(
        AllocatedDevice(device_class=GPU_CLASS, driver=GPU_CLASS, pool=node, device=f"gpu-{number}")
        for number in range(count)
    )
    return Claim(uid=name, namespace="team-a", name=name, allocated=devices, is_allocated=True, reserved_for=(pod,))


def ready(name: str) -> Any:
    """A node whose GPUs are there for claims only."""
    return structs.replace(on(name, 0), allocatable=(("cpu", 64_000_000), ("pods", 110_000_000)))


@pytest.mark.parametrize(("count", "woken"), [(3, ["w1"]), (8, ["w2"]), (9, [])])
def test_a_machine_wakes_for_what_is_claimed(count: int, woken: list[str]) -> None:
    view = a_view(a_pool(**NAMED), pods=[claiming("p")], devices=table(template(count)))
    assert wakes(decided(view)["one"]) == woken


def test_pods_with_claims_share_machines_with_each_other() -> None:
    pods = [claiming(f"p{number}") for number in range(4)]
    view = a_view(a_pool(machines={"w1": 4, "w2": 4}, **NAMED), pods=pods, devices=table(template(2)))
    assert wakes(decided(view)["one"]) == ["w1", "w2"]


def test_without_the_class_they_are_left_out_with_that_reason() -> None:
    view = a_view(a_pool(), pods=[claiming("p")], devices=table(template(3)))
    assert wakes(decided(view)["one"]) == []
    left_out = wanted(view).left_out["uid-p"]
    assert left_out.reason == "DeviceClaims"
    assert left_out.message == (
        "It requests devices of class gpu.nvidia.com by ResourceClaim, and no pool names such a class (deviceClasses)."
    )
    told = explained(view, next(iter(view.pods)))
    assert told is not None
    assert told.state == "DeviceClaims"


def test_and_the_pool_that_has_such_gpus_tells_of_them() -> None:
    pods = [claiming(f"p{number}") for number in range(3)]
    fresh = structs.replace(claiming("p9"), unschedulable_since=None)
    view = a_view(
        a_pool(),
        a_pool("other", machines={"x1": 8}, gpuResourceName="amd.com/gpu"),
        pods=[*pods, fresh],
        devices=table(template(3)),
    )
    found = decided(view)
    [told] = status(found["one"]).unserved
    assert (told.pod, told.pods, told.reason) == ("team-a/p0", 3, "DeviceClaims")
    condition = find(found["one"].status.conditions, "Unserved")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "DeviceClaims")
    assert status(found["other"]).unserved == ()


def test_a_class_that_is_no_gpu_is_no_pools_matter() -> None:
    view = a_view(a_pool(), pods=[claiming("p")], devices=table(template(3, kind="nic.example.com")))
    assert status(decided(view)["one"]).unserved == ()


@pytest.mark.parametrize("kind", ["nic.example.com", "gpu.amd.com"])
def test_another_class_wakes_nothing(kind: str) -> None:
    view = a_view(a_pool(**NAMED), pods=[claiming("p")], devices=table(template(3, kind=kind)))
    assert wakes(decided(view)["one"]) == []


def test_a_claim_that_is_shared_is_asked_for_once_and_one_that_is_allocated_not_at_all() -> None:
    claim = Claim(uid="c", namespace="team-a", name="c", requests=template(4).requests)
    pods = [waiting(f"p{number}", 0, shape=Shape(), claims=("c",)) for number in range(3)]
    view = a_view(a_pool(machines={"w1": 4, "w2": 4}, **NAMED), pods=pods, claims={claim.key: claim})
    assert wakes(decided(view)["one"]) == ["w1"]
    given = structs.replace(claim, is_allocated=True)
    view = a_view(a_pool(**NAMED), pods=pods[:1], claims={claim.key: given})
    assert wakes(decided(view)["one"]) == []


@pytest.mark.parametrize(("held", "woken"), [(0, []), (5, []), (6, ["w2"])])
def test_devices_that_are_free_on_a_node_are_room(held: int, woken: list[str]) -> None:
    pool = remembered(
        a_pool(machines={"w1": 8, "w2": 8}, **NAMED), was("w1", "On", LONG_AGO), was("w2", "Off", LONG_AGO)
    )
    claim = allocated("c", "w1", held, "uid-old")
    old = waiting("old", 0, shape=Shape(), node="w1", phase="Running", claims=("c",))
    view = a_view(
        pool,
        nodes=[ready("w1")],
        pods=[claiming("p"), old],
        claims={claim.key: claim},
        devices=table(template(3), nodes=("w1",)),
    )
    decision = decided(view)["one"]
    assert wakes(decision) == woken
    assert machine(decision, "w1").state == "On"


def test_a_machine_has_come_once_its_devices_are_shown() -> None:
    pool = remembered(a_pool(machines={"w1": 8}, **NAMED), was("w1", "Booting", woken_at=NOON - MINUTE))
    early = decided(a_view(pool, nodes=[ready("w1")], devices=table(template(3))))["one"]
    assert machine(early, "w1").state == "Booting"
    view = a_view(pool, nodes=[ready("w1")], pods=[claiming("p")], devices=table(template(3), nodes=("w1",)))
    late = decided(view)["one"]
    assert machine(late, "w1").state == "On"


def test_no_second_machine_wakes_while_the_first_boots_and_has_just_come() -> None:
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8}, **NAMED), pods=[claiming("p")], devices=table(template(8)))
    stage.binds = False
    stage.pass_time(90 * 1000)
    stage.nodes["w1"] = ready("w1")
    stage.more["devices"] = table(template(8), nodes=("w1",))
    stage.pass_time(30 * 1000)
    assert [each for _, each in stage.commands()] == ["wake w1"]
