"""Which machines go to sleep: idle for long enough, one step at a time, and back at once if somebody comes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core import CAPACITY as PLAN
from headroom.model.actions import Action, CordonNode, DrainNode, SleepMachine, UncordonNode
from headroom.model.conditions import find
from headroom.model.facts import Machine, Node, Owner, Pod, Shape
from headroom.model.times import text
from tests.builders import NOON
from tests.core.power_stage import (
    HOUR,
    LONG_AGO,
    MINUTE,
    SECOND,
    Stage,
    a_machine,
    a_pool,
    a_view,
    cordoned,
    decided,
    effects,
    finished,
    machine,
    of_daemon_set,
    off,
    on,
    remembered,
    running,
    status,
    told,
    waiting,
    was,
)


def idle_since(pods: list[Pod], *, node: Node | None = None, memory: Any = None, **more: Any) -> str:
    """Since when w2 is idle."""
    pool = a_pool(machines={"w2": 8}, protectedMachines=["w2"], **more.pop("spec", {}))
    pool = remembered(pool, memory) if memory is not None else pool
    decision = decided(a_view(pool, nodes=[node or on("w2")], pods=pods, **more))["one"]
    return machine(decision, "w2").idle_since


# --- what idle means --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        running("a", "w2"),
        running("a", "w2", 0),
        running("a", "w2", phase="Pending", started=None),  # its image is still being pulled
        running("a", "w2", deleting=NOON - MINUTE),
        running("a", "w2", phase="Unknown"),
        running("a", "w2", 0, owner=Owner("ReplicaSet", "web", "uid-web")),
    ],
)
def test_any_pod_that_is_not_over_keeps_a_machine_on(pod: Pod) -> None:
    assert idle_since([pod]) == ""


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [of_daemon_set("agent", "w2")],
        [running("kube-proxy", "w2", 0, owner=Owner("Node", "w2", "uid-w2"), namespace="kube-system")],
        [finished("a", "w2", LONG_AGO - HOUR), finished("b", "w2", LONG_AGO - HOUR, phase="Failed")],
        [running("a", "another")],
    ],
)
def test_pods_that_are_over_or_belong_to_the_node_do_not(pods: list[Pod]) -> None:
    assert idle_since(pods) == text(LONG_AGO)


def test_it_is_idle_since_the_last_of_all_that_happened() -> None:
    ends = [finished("a", "w2", NOON - 20 * MINUTE), finished("b", "w2", NOON - 10 * MINUTE)]
    assert idle_since(ends) == text(NOON - 10 * MINUTE)
    assert idle_since(ends, node=on("w2", since=NOON - 5 * MINUTE)) == text(NOON - 5 * MINUTE)
    fact = Machine(name="w2", power="On", since=NOON - 3 * MINUTE)
    assert idle_since(ends, machines=[fact]) == text(NOON - 3 * MINUTE)
    memory = was("w2", "On", LONG_AGO, idle_since=NOON - MINUTE)
    assert idle_since(ends, memory=memory) == text(NOON - MINUTE)
    assert idle_since([finished("a", "w2", NOON + HOUR)]) == text(NOON), "kubelets' clocks may run ahead"


def test_a_machine_that_was_busy_is_idle_from_the_end_of_its_pod_or_from_now() -> None:
    busy = was("w2", "On", LONG_AGO, busy=True)
    assert idle_since([], memory=busy) == text(NOON)
    assert idle_since([finished("a", "w2", NOON - 20 * SECOND)], memory=busy) == text(NOON - 20 * SECOND)
    old = finished("a", "w2", NOON - HOUR)
    assert idle_since([old], memory=busy) == text(NOON), "the end of another pod says nothing of the one that is gone"


def test_a_machine_of_which_only_its_state_is_remembered_is_idle_since_then() -> None:
    assert idle_since([], memory=was("w2", "On", NOON - 20 * MINUTE)) == text(NOON - 20 * MINUTE)


LODGER = Owner("ReplicaSet", "web", "uid-web")


@pytest.mark.parametrize(
    ("pod", "stays"),
    [
        (running("a", "w2", 0, owner=LODGER), False),
        (running("a", "w2", 0), True),
        (running("a", "w2", 1, owner=LODGER), True),
        (running("a", "w2", 0, owner=LODGER, namespace="kube-system"), True),
        (running("a", "w2", 0, owner=LODGER, namespace="headroom-system"), True),
        (running("a", "w2", 0, owner=LODGER, annotations=((marks.PROTECTED, "true"),)), True),
        (running("a", "w2", 0, owner=LODGER, claims=("gpu",)), True),
        (running("a", "w2", 0, owner=LODGER, shape=Shape(requests=(("cpu", 1), ("rdma/hca", 1)))), True),
    ],
)
def test_some_pods_may_be_evicted_where_the_pool_says_so(pod: Pod, stays: bool) -> None:
    assert bool(idle_since([pod], spec={"drain": "NonGpuPods"}) == "") == stays
    assert idle_since([pod]) == ""


# --- who goes, and when -------------------------------------------------------------------------------------------------------------


def asleep(pool: Any, *nodes: Node, pods: Any = (), **more: Any) -> list[Action]:
    return effects(decided(a_view(pool, nodes=nodes, pods=pods, **more))["one"])


def test_the_largest_idle_machine_goes_first_and_one_at_a_time() -> None:
    pool = a_pool(machines={"w1": 4, "w2": 8, "w3": 8})
    nodes = [on("w1", 4), on("w2", 8), on("w3", 8)]
    decision = decided(a_view(pool, nodes=nodes))["one"]
    assert effects(decision) == [CordonNode(node="w2")]
    assert machine(decision, "w2").state == "Draining"
    assert told(decision) == [
        ("DrainingMachine", "w2 (8 GPUs) has been idle since 2026-11-15T07:00:00Z and is cordoned.")
    ]
    assert decision.message == "Draining w2 (8 GPUs), idle since 2026-11-15T07:00:00Z; 2 of 3 machines are on."


def test_a_fifth_of_a_pool_goes_at_a_time_unless_it_says_more() -> None:
    names = {f"w{number}": 8 for number in range(10, 20)}
    nodes = [on(each) for each in names]
    assert asleep(a_pool(machines=names), *nodes) == [CordonNode(node="w10"), CordonNode(node="w11")]
    assert len(asleep(a_pool(machines=names, maxConcurrentSleeps=3), *nodes)) == 3
    going = remembered(
        a_pool(machines=names), was("w10", "Sleeping", slept_at=NOON - SECOND), was("w11", "Draining", NOON)
    )
    assert asleep(going, cordoned(nodes[0]), cordoned(nodes[1]), *nodes[2:]) == []


@pytest.mark.parametrize(
    ("policy", "node"),
    [
        ({"idleSeconds": 5 * 3600 + 1}, on("w2")),
        ({"protectedMachines": ["w2"]}, on("w2")),
        ({}, on("w2", annotations=((marks.PROTECTED, "true"),))),
        ({}, on("w2", labels=(("node-role.kubernetes.io/control-plane", ""),))),
        ({}, cordoned(on("w2"), "")),
        ({"minOn": 1}, on("w2")),
        ({"minOnSeconds": 5 * 3600 + 1}, on("w2")),
    ],
)
def test_who_stays_on(policy: dict[str, Any], node: Node) -> None:
    assert asleep(a_pool(machines={"w2": 8}, **policy), node) == []
    assert asleep(a_pool(machines={"w2": 8}), on("w2")) == [CordonNode(node="w2")]


def test_the_clock_is_told_when_it_may_go() -> None:
    pool = a_pool(machines={"w2": 8}, idleSeconds=600, minOnSeconds=3600)
    node = on("w2", since=NOON - 58 * MINUTE)
    decision = decided(a_view(pool, nodes=[node]))["one"]
    assert effects(decision) == []
    assert decision.next_turn_ms == 2 * MINUTE
    assert decision.message == (
        "1 of 1 machines is on; w2 has been idle since 2026-11-15T11:02:00Z and may sleep from 2026-11-15T12:02:00Z on."
    )
    assert asleep(pool, node, now=NOON + 2 * MINUTE) == [CordonNode(node="w2")]


def test_the_last_switch_of_an_hour_is_kept_for_waking() -> None:
    toggles = [NOON - 59 * MINUTE, NOON - 50 * MINUTE, NOON - 40 * MINUTE]
    pool = remembered(
        a_pool(machines={"w2": 8}, togglesPerHour=4), was("w2", "On", LONG_AGO, toggles=toggles, idle_since=LONG_AGO)
    )
    decision = decided(a_view(pool, nodes=[on("w2")]))["one"]
    assert (effects(decision), decision.next_turn_ms) == ([], MINUTE)
    assert asleep(pool, on("w2"), now=NOON + MINUTE) == [CordonNode(node="w2")]


def test_a_machine_on_which_room_is_being_made_stays() -> None:
    pool = a_pool(machines={"w2": 8})
    pod = waiting("p", 8, nominated_node="w2", nominated_since=NOON - MINUTE)
    assert asleep(pool, on("w2"), pods=[pod]) == []


def test_machines_below_the_floor_stay() -> None:
    pool = a_pool(machines={"w1": 4, "w2": 8}, minOn=1)
    assert asleep(pool, on("w1", 4), on("w2", 8)) == [CordonNode(node="w2")]
    boots = remembered(pool, was("w2", "Booting", woken_at=NOON - MINUTE))
    assert asleep(boots, on("w1", 4)) == [], "one that boots is not on yet"


# --- on the way ---------------------------------------------------------------------------------------------------------------------


def draining(**spec: Any) -> Any:
    memory = was(
        "w2", "Draining", spec.pop("since", NOON - 10 * SECOND), idle_since=LONG_AGO, reason=spec.pop("reason", "")
    )
    return remembered(a_pool(machines={"w2": 8}, **spec), memory)


def test_the_cordon_is_asked_for_until_it_is_seen_and_settling_begins_only_then() -> None:
    stage = Stage(a_pool(machines={"w2": 8}), nodes=[on("w2")])
    assert stage.look() == [CordonNode(node="w2")]
    stage.nodes["w2"] = on("w2")  # it did not arrive
    assert stage.pass_time(30 * SECOND, every=30 * SECOND) == [CordonNode(node="w2")]
    assert stage.pass_time(SECOND) == [], "seen now"
    assert stage.pass_time(9 * SECOND) == []
    assert stage.pass_time(SECOND) == [SleepMachine(pool="one", machine="w2")]
    assert stage.state("w2") == "Sleeping"
    assert stage.pass_time(20 * SECOND) == [], "once"


def test_it_sleeps_after_it_settled() -> None:
    decision = decided(a_view(draining(), nodes=[cordoned(on("w2"))]))["one"]
    assert effects(decision) == [SleepMachine(pool="one", machine="w2")]
    found = machine(decision, "w2")
    assert (found.state, found.slept_at, found.toggles) == ("Sleeping", text(NOON), (text(NOON),))
    early = decided(a_view(draining(since=NOON - 9 * SECOND), nodes=[cordoned(on("w2"))]))["one"]
    assert (effects(early), early.next_turn_ms) == ([], SECOND)


def test_pods_that_may_be_evicted_are_before_it_sleeps() -> None:
    lodger = running("web", "w2", 0, owner=LODGER)
    pool = draining(drain="NonGpuPods")
    assert asleep(pool, cordoned(on("w2")), pods=[lodger]) == [DrainNode(node="w2")]
    stuck = draining(drain="NonGpuPods", since=NOON - 5 * MINUTE)
    decision = decided(a_view(stuck, nodes=[cordoned(on("w2"))], pods=[lodger]))["one"]
    assert effects(decision) == [UncordonNode(node="w2")]
    found = machine(decision, "w2")
    assert (found.state, found.failures, found.retry_after) == ("On", 1, text(NOON + 5 * MINUTE))
    assert found.reason == "It stays on: its pods did not end within 5 minutes."


@pytest.mark.parametrize(
    ("pods", "spec", "why"),
    [
        ([running("a", "w2")], {}, "a pod was bound to it"),
        ([waiting("a", 8)], {}, "1 pending pod fits on it"),
        ([], {"minOn": 1}, "1 machine must be on now"),
        ([], {"protectedMachines": ["w2"]}, "it is protected"),
    ],
)
def test_it_comes_back_if_it_is_needed(pods: list[Pod], spec: dict[str, Any], why: str) -> None:
    decision = decided(a_view(draining(**spec), nodes=[cordoned(on("w2"))], pods=pods))["one"]
    assert effects(decision) == [UncordonNode(node="w2")]
    assert told(decision) == [("MachineOn", f"w2 stays on: {why}.")]


def test_it_is_used_before_another_one_is_woken() -> None:
    pool = remembered(
        a_pool(machines={"w1": 8, "w2": 8}),
        was("w2", "Draining", NOON - 5 * SECOND, idle_since=LONG_AGO),
        was("w1", "Off"),
    )
    assert asleep(pool, cordoned(on("w2")), pods=[waiting("a", 8)]) == [UncordonNode(node="w2")]


def test_who_was_uncordoned_by_hand_is_left_in_peace() -> None:
    lifted = on("w2", annotations=((marks.CORDONED_BY, "PowerPool/one"),))
    decision = decided(a_view(draining(idleSeconds=0), nodes=[lifted]))["one"]
    assert effects(decision) == [UncordonNode(node="w2")], "which takes our mark away"
    assert machine(decision, "w2").retry_after == text(NOON + 5 * MINUTE)
    written = structs.replace(draining(idleSeconds=0), status=decision.status)
    assert asleep(written, on("w2"), now=NOON + 4 * MINUTE) == []
    assert asleep(written, on("w2"), now=NOON + 5 * MINUTE) == [CordonNode(node="w2")]


@pytest.mark.parametrize("state", ["On", "Failed", "Unknown", "Booting"])
def test_a_cordon_without_a_purpose_is_lifted(state: str) -> None:
    node = cordoned(on("w2") if state == "On" else off("w2", since=NOON - MINUTE))
    pool = remembered(a_pool(machines={"w2": 8}), was("w2", state, woken_at=NOON - SECOND))
    assert asleep(pool, node) == [UncordonNode(node="w2")]
    assert asleep(remembered(a_pool(machines={"w2": 8}), was("w2", "Off")), cordoned(off("w2"))) == []


def test_chores_lift_what_pools_that_are_gone_have_left() -> None:
    nodes = [cordoned(on("w2")), cordoned(on("w9")), cordoned(on("w8"), "PowerPool/gone"), cordoned(on("w7"), "")]
    world = a_view(a_pool(machines={"w2": 8}), nodes=nodes)
    mine = UncordonNode(node="w9", by="PowerPool/one")
    assert sorted(PLAN.chores(world), key=str) == [UncordonNode(node="w8", by="PowerPool/gone"), mine]


def test_chores_leave_the_cordons_of_those_who_may_know_the_node() -> None:
    unreadable = structs.replace(a_pool(machines={"w2": 8}), spec=None)
    nodes = [cordoned(on("w2")), cordoned(on("w9"), "Bandwidth/one"), cordoned(on("w8"), "PowerPool")]
    assert list(PLAN.chores(a_view(unreadable, nodes=nodes))) == []


# --- the switches of people -----------------------------------------------------------------------------------------------------


def test_an_incomplete_view_changes_nothing() -> None:
    pool = draining()
    decision = decided(a_view(pool, nodes=[], pods=[waiting("a", 8)], complete=False))["one"]
    assert decision.actions == ()
    assert status(decision).machines == pool.status.machines
    assert decision.reason == "ViewIncomplete"
    braked = find(decision.status.conditions, "Braked")
    assert braked is not None
    assert braked.reason == "ViewIncomplete"


@pytest.mark.parametrize(
    ("spec", "world", "reason"), [({"paused": True}, {}, "Paused"), ({}, {"stopped": True}, "Stopped")]
)
def test_nothing_turns_while_people_said_stop(spec: dict[str, Any], world: dict[str, Any], reason: str) -> None:
    pool = remembered(
        a_pool(machines={"w1": 8, "w2": 8, "w3": 8}, **spec),
        was("w1", "Booting", woken_at=NOON - MINUTE),
        was("w2", "Draining", idle_since=LONG_AGO),
        was("w3", "Off"),
    )
    nodes = [on("w1"), cordoned(on("w2"))]
    decision = decided(a_view(pool, nodes=nodes, pods=[waiting(f"p{n}", 8) for n in range(3)], **world))["one"]
    assert decision.actions == ()
    assert decision.reason == reason
    assert [each.state for each in status(decision).machines] == ["On", "Draining", "Off"], "what is seen is still told"


def test_a_pool_that_is_being_deleted_does_nothing_more() -> None:
    pool = structs.replace(a_pool(), deleting=True)
    decision = decided(a_view(pool, pods=[waiting("a")]))["one"]
    assert (decision.actions, decision.reason) == ((), "Deleting")


def test_a_machine_that_was_paused_on_its_way_goes_on() -> None:
    """It is empty: nothing failed."""
    draining = was("w1", "Draining", NOON - 20 * MINUTE, idle_since=NOON - HOUR)
    pool = remembered(a_pool(machines={"w1": 4}), draining)
    decision = decided(a_view(pool, nodes=[cordoned(on("w1", 4))]))["one"]
    assert effects(decision) == [SleepMachine(pool="one", machine="w1")]


def test_a_switch_that_would_switch_off_another_machine_sends_nobody_to_sleep() -> None:
    """One of them may be busy, and even if it is not: nobody could tell what the other did."""
    same = {"scaleDownEndpoint": "http://power-api/rack/down"}
    pool = a_pool(listed=[a_machine("w1", 4, **same), a_machine("w2", 4, **same), a_machine("w3", 4)])
    nodes = [on(name, 4) for name in ("w1", "w2", "w3")]
    world = a_view(pool, nodes=nodes, pods=[running("p", "w2", 4)])
    assert effects(decided(world)["one"]) == [CordonNode(node="w3")]
    named = {"body": '{"machine": "${machine}"}'}
    apart = a_pool(listed=[a_machine("w1", 4, **same), a_machine("w2", 4, **same)], webhook=named)
    assert effects(decided(a_view(apart, nodes=nodes[:2]))["one"]) == [CordonNode(node="w1")]
    bmc = {"name": "w1", "gpuCount": 4, "redfish": {"address": "https://bmc.example.com"}}
    two = [a_pool("one", listed=[bmc]), a_pool("two", listed=[bmc | {"name": "w2"}])]
    found = decided(a_view(*two, nodes=nodes[:2]))
    assert [effects(each) for each in found.values()] == [[], []]
    assert found["one"].message.endswith(
        "w1 has been idle since 2026-11-15T07:00:00Z and stays on, since its switch also switches off w2."
    )
