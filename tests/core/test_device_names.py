"""Which names the API server's policies are told, so that they see what a budget counts through device classes; and parts."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api import marks
from headroom.api.budget_index import MOST_NAMES, IndexEntry
from headroom.core.budgets import hold_of
from headroom.core.budgets.index import due, index_of
from headroom.model.actions import ApplyBudgetIndex
from headroom.model.device_facts import Device, DeviceClass, DeviceSlice
from headroom.model.devices import WHOLE, DeviceTable
from headroom.model.facts import Namespace
from headroom.model.world import World
from tests.builders import a_resource, a_world

GPUS = ('device.driver == "gpu.nvidia.com"',)
CLASSES = (
    DeviceClass(name="h100", extended_resource="example.com/h100", selectors=GPUS),
    DeviceClass(name="nic", extended_resource="example.com/nic", selectors=('device.driver == "nic"',)),
)


def a_cluster(*, required: bool = False, classes: Any = CLASSES, **spec: Any) -> World:
    labels = ((marks.REQUIRE_BUDGET, ""),) if required else ()
    namespaces = {"team-a": Namespace(name="team-a", labels=labels)}
    return a_world(a_resource(**spec), devices=DeviceTable(classes), namespaces=namespaces)


@pytest.mark.parametrize(
    ("said", "listed"),
    [
        ("nvidia.com/gpu", ("nvidia.com/gpu", "example.com/h100")),
        ("gpu.nvidia.com", ("gpu.nvidia.com", "example.com/h100", "nvidia.com/gpu")),
        ("example.com/*", ("example.com/*",)),
        ("nic", ("nic", "example.com/nic")),
        ("amd.com/gpu", ("amd.com/gpu",)),
    ],
)
def test_a_hold_lists_every_name_of_what_its_budget_counts(said: str, listed: tuple[str, ...]) -> None:
    world = a_cluster(gpuResources=[{"name": said}])
    [budget] = world.resources.values()
    assert hold_of(world, budget).resources == listed


def test_a_hold_never_lists_more_than_the_api_server_takes() -> None:
    many = [DeviceClass(name=f"c{n}", extended_resource=f"example.com/c{n}", selectors=GPUS) for n in range(500)]
    world = a_cluster(classes=many)
    [budget] = world.resources.values()
    assert len(hold_of(world, budget).resources) == MOST_NAMES


def test_the_index_tells_what_is_a_gpu_where_every_gpu_pod_needs_a_budget() -> None:
    assert index_of(a_cluster()) == ()
    world = a_cluster(required=True)
    first, second = index_of(world)
    assert first == IndexEntry(budget="", resources=("example.com/h100",))
    assert (second.budget, second.resources) == ("team-a/one", ("nvidia.com/gpu", "example.com/h100"))
    assert [each.budget for each in index_of(a_cluster(required=True, classes=()))] == ["team-a/one"]


def test_the_index_is_written_when_a_device_class_comes_or_goes() -> None:
    world, before = a_cluster(required=True), index_of(a_cluster(required=True, classes=()))
    told: dict[str, Any] = {"now": world.now, "resources": world.resources, "namespaces": world.namespaces}
    known = index_of(world)
    assert list(due(World(**told, devices=world.devices, index=before))) == [ApplyBudgetIndex(budget="", budgets=known)]
    assert list(due(World(**told, devices=world.devices, index=known))) == []
    assert [type(each) for each in due(World(**told, index=known))] == [ApplyBudgetIndex]


@pytest.mark.parametrize(
    ("memory", "cores", "part"),
    [(10, 0, WHOLE // 8), (10, 25, WHOLE // 4), (1, 100, WHOLE), (80, 1, WHOLE), (0, 0, WHOLE)],
)
def test_of_a_device_that_several_claims_have_the_largest_part_that_one_takes_counts(
    memory: int, cores: int, part: int
) -> None:
    """The claim says what it takes: all cores with next to no memory leave nothing for anybody else."""
    device = Device(name="gpu-0", product="H100", capacity=(("cores", 100), ("memory", 80)))
    table = DeviceTable(slices=(DeviceSlice(name="s", driver="d", pool="p", node="n", devices=(device,)),))
    consumed = tuple((name, amount) for name, amount in (("cores", cores), ("memory", memory)) if amount)
    assert table.part("d", "p", "gpu-0", consumed) == part
