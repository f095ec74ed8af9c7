"""Pods that are bound keep a machine from being taken for empty, and those with its GPUs keep it on, whoever made them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.model.facts import Machine, Node, Owner, Pod, Shape, Taint
from headroom.model.times import HOUR, MINUTE
from tests.builders import NOON
from tests.core.power_stage import (
    Stage,
    a_pool,
    a_view,
    decided,
    effects,
    off,
    on,
    remembered,
    running,
    status,
    waiting,
    wakes,
    was,
)

DAEMON = Owner(kind="DaemonSet", name="agent", uid="u-agent", group="apps")


def unreachable(name: str, minutes: int = 10) -> Node:
    """A node that has not been heard of for some time."""
    return off(name, since=NOON - minutes * MINUTE)


def two(pod: Pod, **more: Any) -> dict[str, list[str]]:
    """Which machines wake for an 8-GPU pod where w1 is unreachable with a pod still bound to it, and w2 is off."""
    pool = remembered(a_pool(machines={"w1": 8, "w2": 8}), was("w1", "Unknown", NOON - 10 * MINUTE), was("w2", "Off"))
    world = a_view(pool, nodes=[unreachable("w1"), off("w2")], pods=[waiting("p", 8), pod], **more)
    decision = decided(world)["one"]
    return {"wakes": wakes(decision)}


def test_a_machine_that_is_not_ready_is_no_candidate_while_a_pod_is_bound_to_it() -> None:
    assert two(running("still-there", "w1", 8)) == {"wakes": ["w2"]}


def test_nor_is_it_when_it_is_the_only_one() -> None:
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", "Unknown", NOON - 10 * MINUTE))
    world = a_view(pool, nodes=[unreachable("w1")], pods=[waiting("p", 8), running("still-there", "w1", 1)])
    decision = decided(world)["one"]
    assert wakes(decision) == []
    [told] = status(decision).unserved
    assert told.reason == "NotEnoughMachines"
    assert "still-there" in told.message


def test_one_whose_power_is_known_to_be_off_runs_nothing_and_is_woken_with_what_its_pods_leave() -> None:
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", "Off", NOON - 10 * MINUTE))
    machines = [Machine(name="w1", power="Off", since=NOON - 10 * MINUTE)]
    world = a_view(pool, nodes=[unreachable("w1")], pods=[waiting("p", 8), running("q", "w1", 2)], machines=machines)
    assert wakes(decided(world)["one"]) == []
    world = a_view(pool, nodes=[unreachable("w1")], pods=[waiting("p", 6), running("q", "w1", 2)], machines=machines)
    assert wakes(decided(world)["one"]) == ["w1"]


@pytest.mark.parametrize(
    "pod",
    [
        running("ended", "w1", 8, phase="Succeeded", ended=NOON - HOUR),
        running("agent", "w1", 0, owner=DAEMON),
    ],
    ids=["finished", "of a DaemonSet without GPUs"],
)
def test_pods_that_are_over_or_come_with_the_node_do_not_count(pod: Pod) -> None:
    pool = remembered(a_pool(machines={"w1": 8}), was("w1", "Unknown", NOON - 10 * MINUTE))
    assert wakes(decided(a_view(pool, nodes=[unreachable("w1")], pods=[waiting("p", 8), pod]))["one"]) == ["w1"]


def test_a_node_that_is_out_of_service_is_not_woken() -> None:
    taint = Taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")
    node = structs.replace(off("w1"), taints=(taint,))
    world = a_view(a_pool(machines={"w1": 8}), nodes=[node], pods=[waiting("p", 8)])
    decision = decided(world)["one"]
    assert wakes(decision) == []
    assert "out of service" in status(decision).unserved[0].message


# --- GPUs of a DaemonSet ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "goes"), [(0, True), (1, False)])
def test_a_pod_of_a_daemon_set_keeps_a_machine_on_if_it_has_gpus(gpus: int, goes: bool) -> None:
    pod = running("agent", "w1", gpus, owner=DAEMON)
    stage = Stage(a_pool(machines={"w1": 8}, idleSeconds=60), nodes=[on("w1")], pods=[pod])
    stage.pass_time(HOUR, every=MINUTE)
    assert bool(stage.commands()) is goes


@pytest.mark.parametrize(
    ("resource", "goes"), [("nvidia.com/mig-1g.5gb", False), ("nvidia.com/gpu.shared", False), ("vendor.io/nic", True)]
)
def test_so_does_one_with_gpus_by_another_name_than_the_pools(resource: str, goes: bool) -> None:
    pod = running("agent", "w1", 0, owner=DAEMON, shape=Shape(requests=((resource, 1_000_000),)))
    stage = Stage(a_pool(machines={"w1": 8}, idleSeconds=60), nodes=[on("w1")], pods=[pod])
    stage.pass_time(HOUR, every=MINUTE)
    assert bool(stage.commands()) is goes


def test_so_does_one_with_a_claim_which_may_be_for_a_gpu() -> None:
    pod = running("agent", "w1", 0, owner=DAEMON, claims=(("gpu", "team-a/claim"),))
    stage = Stage(a_pool(machines={"w1": 8}, idleSeconds=60), nodes=[on("w1")], pods=[pod])
    stage.pass_time(HOUR, every=MINUTE)
    assert stage.commands() == []


def test_a_static_pod_does_not_whatever_it_has() -> None:
    mirror = (("kubernetes.io/config.mirror", "x"),)
    pod = running("static", "w1", 1, owner=Owner(kind="Node", name="w1", uid="u"), annotations=mirror)
    world = a_view(
        remembered(a_pool(machines={"w1": 8}, idleSeconds=60), was("w1", "On", NOON - HOUR, idle_since=NOON - HOUR)),
        nodes=[on("w1")],
        pods=[pod],
    )
    assert effects(decided(world)["one"])
