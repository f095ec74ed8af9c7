"""Which machines are woken: those that hold what waits, as few GPUs as possible, and nothing for who cannot be helped."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.model import conditions
from headroom.model.actions import UncordonNode, WakeMachine
from headroom.model.facts import NodeClaim, NodePool, Pod, Shape, Taint
from headroom.model.times import text
from tests.builders import NOON, a_resource
from tests.core.power_stage import (
    GPU,
    HOUR,
    MINUTE,
    SECOND,
    Stage,
    a_machine,
    a_pool,
    a_view,
    cordoned,
    decided,
    effects,
    explained,
    machine,
    off,
    on,
    remembered,
    running,
    status,
    told,
    waiting,
    wakes,
    was,
)


def many(count: int, gpus: int = 1, **fields: Any) -> list[Pod]:
    return [waiting(f"p{number}", gpus, **fields) for number in range(count)]


def unserved(decision: Any) -> list[tuple[str, int, str]]:
    return [(each.pod, each.pods, each.reason) for each in status(decision).unserved]


# --- how many, and which --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "woken"),
    [
        (many(1, 8), ["w2"]),
        (many(6), ["w2"]),
        (many(4), ["w1"]),
        (many(9), ["w1", "w2"]),
        (many(3, 4), ["w1", "w2"]),
        (many(1, 16), []),
        ([], []),
    ],
)
def test_as_few_gpus_as_possible_are_woken(pods: list[Pod], woken: list[str]) -> None:
    decision = decided(a_view(a_pool(), pods=pods))["one"]
    assert effects(decision) == [WakeMachine(pool="one", machine=each) for each in woken]
    assert [machine(decision, each).state for each in woken] == ["Booting"] * len(woken)
    assert [machine(decision, each).woken_at for each in woken] == [text(NOON)] * len(woken)


@pytest.mark.parametrize("word", ["busyWatts", "idleWatts"])
def test_watts_may_count_first(word: str) -> None:
    listed = [a_machine("w1", 4, **{word: 900}), a_machine("w2", 8, **{word: 500})]
    for prefer, woken in (("FewestGPUs", "w1"), ("FewestWatts", "w2")):
        assert wakes(decided(a_view(a_pool(listed=listed, prefer=prefer), pods=many(2)))["one"]) == [woken]


def test_what_exists_or_is_coming_is_used_first() -> None:
    pool = a_pool(machines={"w1": 4, "w2": 8, "w3": 8})
    there = on("other", 8)
    assert wakes(decided(a_view(pool, nodes=[there], pods=many(8)))["one"]) == []
    claim = NodeClaim(name="claim", allocatable=((GPU, 8_000_000),))
    assert wakes(decided(a_view(pool, node_claims={"claim": claim}, pods=many(8)))["one"]) == []
    boots = remembered(pool, was("w2", "Booting", woken_at=NOON - MINUTE))
    assert wakes(decided(a_view(boots, pods=many(8)))["one"]) == []
    assert wakes(decided(a_view(boots, pods=many(9)))["one"]) == ["w1"]
    half = a_view(boots, nodes=[off("w2", 4)], pods=many(8))
    assert wakes(decided(half)["one"]) == ["w1"], "its node showed four GPUs when it was last on"


def test_a_pod_finds_the_machine_whose_node_is_remembered_or_promised() -> None:
    shape = Shape(requests=((GPU, 1_000_000),), node_selector=(("gpu", "h100"),))
    pods = [structs.replace(waiting("p"), shape=shape)]
    listed = [a_machine("w1", 4), a_machine("w2", 8, labels={"gpu": "h100"}), a_machine("w3", 8)]
    assert wakes(decided(a_view(a_pool(listed=listed), pods=pods))["one"]) == ["w2"]
    node = off("w1", 4, labels=(("gpu", "h100"),), taints=(Taint("node.kubernetes.io/unreachable", "", "NoExecute"),))
    assert wakes(decided(a_view(a_pool(listed=listed), nodes=[node], pods=pods))["one"]) == ["w1"]
    tainted = off("w1", 4, labels=(("gpu", "h100"),), taints=(Taint("dedicated", "ml", "NoSchedule"),))
    assert wakes(decided(a_view(a_pool(listed=listed), nodes=[tainted], pods=pods))["one"]) == ["w2"]


def test_a_node_that_lost_its_gpus_on_the_way_down_counts_as_the_pool_says() -> None:
    """Whoever brings GPUs to a node stops before it does, so the last that is seen of a node may be none."""
    pool = remembered(a_pool(machines={"w2": 8}), was("w2", "Off"))
    assert wakes(decided(a_view(pool, nodes=[off("w2", 0)], pods=many(1, 8)))["one"]) == ["w2"]


def test_a_machine_that_is_short_of_cpus_is_not_woken_for_who_needs_them() -> None:
    shape = Shape(requests=(("cpu", 64_000_000), (GPU, 1_000_000)))
    pods = [structs.replace(waiting("p"), shape=shape)]
    pool = a_pool(
        listed=[a_machine("w1", 4, resources={"cpu": "32"}), a_machine("w2", 8)], template={"resources": {"cpu": 64}}
    )
    assert wakes(decided(a_view(pool, pods=pods))["one"]) == ["w2"]


def test_pools_are_asked_in_order_and_pass_on_what_they_cannot_hold() -> None:
    small, large = a_pool("a", {"a1": 4}), a_pool("b", {"b1": 8})
    found = decided(a_view(small, large, pods=many(6)))
    assert (wakes(found["a"]), wakes(found["b"])) == (["a1"], ["b1"])
    found = decided(a_view(small, a_pool("b", {"b1": 8}, order=-1), pods=many(6)))
    assert (wakes(found["a"]), wakes(found["b"])) == ([], ["b1"])


def test_a_pool_whose_machine_failed_passes_on_what_it_was_to_serve() -> None:
    booting = was("a1", "Booting", NOON - HOUR, woken_at=NOON - HOUR)
    first, second = remembered(a_pool("a", {"a1": 8}), booting), a_pool("b", {"b1": 8})
    found = decided(a_view(first, second, pods=many(1, 8)))
    assert (wakes(found["a"]), wakes(found["b"])) == ([], ["b1"])


def test_a_pool_of_other_gpus_is_no_help_and_says_nothing() -> None:
    pool = a_pool("amd", {"x1": 8}, gpuResourceName="amd.com/gpu")
    found = decided(a_view(pool, pods=many(1)))["amd"]
    assert (wakes(found), unserved(found)) == ([], [])


# --- who cannot be helped ---------------------------------------------------------------------------------------------------------


def test_a_pod_that_no_machine_can_hold_wakes_nothing() -> None:
    decision = decided(a_view(a_pool(), pods=many(1, 16)))["one"]
    assert decision.reason == "NoMachineFits"
    assert decision.message == (
        "Pod team-a/p0 is unserved: no machine of the pool can hold it: the nearest is w2, but it needs 16 nvidia.com/gpu "
        "and 8 are there."
    )
    assert unserved(decision) == [("team-a/p0", 1, "NoMachineFits")]
    condition = conditions.find(decision.status.conditions, "Unserved")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "NoMachineFits")


def test_who_waits_for_machines_that_are_full_is_told_so() -> None:
    nodes = [on("w1", 4), on("w2", 8)]
    pods = [running("a", "w1", 4), running("b", "w2", 8), waiting("p", 2)]
    decision = decided(a_view(a_pool(), nodes=nodes, pods=pods))["one"]
    assert decision.reason == "NotEnoughMachines"
    assert decision.message == "Pod team-a/p is unserved: of 2 machines that could hold it, 2 are on and full."


def test_low_priorities_wake_nothing() -> None:
    decision = decided(a_view(a_pool(), pods=many(1, priority=-11)))["one"]
    assert wakes(decision) == []
    assert unserved(decision) == [("team-a/p0", 1, "BelowPriorityFloor")]
    assert wakes(decided(a_view(a_pool(priorityFloor=-100), pods=many(1, priority=-11)))["one"]) == ["w1"]


def test_what_karpenter_could_serve_is_left_to_it_unless_shared() -> None:
    claims = {"gpu": NodePool(name="gpu")}
    decision = decided(a_view(a_pool(), node_pools=claims, pods=many(1)))["one"]
    assert wakes(decision) == []
    assert unserved(decision) == [("team-a/p0", 1, "SharedWithKarpenter")]
    condition = conditions.find(decision.status.conditions, "SharedWithKarpenter")
    assert condition is not None
    assert condition.message == "Karpenter can serve pending pods (NodePool gpu), so no machine wakes for them."
    assert wakes(decided(a_view(a_pool(shareWithKarpenter=True), node_pools=claims, pods=many(1)))["one"]) == ["w1"]
    tainted = {"gpu": NodePool(name="gpu", taints=(Taint("a", "", "NoSchedule"),))}
    assert wakes(decided(a_view(a_pool(), node_pools=tainted, pods=many(1)))["one"]) == ["w1"]


def test_pods_of_a_budget_that_is_used_up_wake_nothing_unless_the_pool_says_so() -> None:
    budget = a_resource()
    over = conditions.judged(budget, "QuotaExceeded", True, "QuotaReached", "Used up.", NOON)
    budget = structs.replace(budget, status=structs.replace(budget.status, conditions=(over,)))
    pods = many(1, labels=(("team", "a"),))
    world = a_view(a_pool(), budget, pods=pods)
    assert wakes(decided(world)["one"]) == []
    assert unserved(decided(world)["one"]) == [], "the budget says it all"
    found = explained(world, pods[0])
    assert found is not None
    assert found.sentence == "No machine wakes for it: its budget team-a/one is over quota."
    free = a_pool(wakeForExhaustedBudgets=True)
    assert wakes(decided(a_view(free, budget, pods=pods))["one"]) == ["w1"]
    both = a_view(
        a_pool("a", {"a1": 4}), a_pool("b", {"b1": 4}, wakeForExhaustedBudgets=True, paused=True), budget, pods=pods
    )
    said = explained(both, pods[0])
    assert said is not None
    assert said.sentence.endswith("the pool wakes no machine for such pods (wakeForExhaustedBudgets).")
    assert said.details == ("PowerPool/b: Paused: The pool is paused.",)


def gang(count: int, gpus: int) -> list[Pod]:
    labels = (("scheduling.x-k8s.io/pod-group", "train"),)
    return many(count, gpus, labels=labels, since=NOON - MINUTE)


def test_half_a_gang_wakes_nothing() -> None:
    decision = decided(a_view(a_pool(machines={"w1": 8, "w2": 8}), pods=gang(3, 8)))["one"]
    assert wakes(decision) == []
    assert decision.message == (
        "Pod team-a/p0 and 2 like it are unserved: its gang of 3 pods does not fit on 2 machines: 2 are off."
    )
    assert wakes(decided(a_view(a_pool(machines={"w1": 8, "w2": 8, "w3": 8}), pods=gang(3, 8)))["one"]) == [
        "w1",
        "w2",
        "w3",
    ]


def test_part_of_a_gang_may_go_where_there_is_room_already() -> None:
    pool = a_pool(machines={"w1": 8, "w2": 8})
    decision = decided(a_view(pool, nodes=[on("free", 8)], pods=gang(2, 8)))["one"]
    assert wakes(decision) == ["w1"]
    boots = remembered(pool, was("w1", "Booting", woken_at=NOON - MINUTE))
    assert wakes(decided(a_view(boots, nodes=[on("free", 8)], pods=gang(2, 8)))["one"]) == []


def test_what_others_take_is_not_left_for_a_gang() -> None:
    pool = a_pool(machines={"w1": 8, "w2": 8})
    first = waiting("first", 4, priority=9)
    assert wakes(decided(a_view(pool, nodes=[on("free", 8)], pods=[first, *gang(2, 8)]))["one"]) == ["w1", "w2"]


def test_a_gang_keeps_the_idle_machine_it_needs_beside_others() -> None:
    pool = a_pool(machines={"w1": 8, "w2": 8}, idleSeconds=0)
    decision = decided(a_view(pool, nodes=[on("w1", 8)], pods=gang(2, 8)))["one"]
    assert effects(decision) == [WakeMachine(pool="one", machine="w2")], (
        "w1 is idle, and half of the gang will go there"
    )


# --- limits -----------------------------------------------------------------------------------------------------------------------


def test_machines_boot_in_turn_where_few_may_at_a_time() -> None:
    pool = a_pool(machines={"w1": 8, "w2": 8, "w3": 8}, maxConcurrentWakes=1)
    pods = [*many(1, 8, priority=5), *[waiting(f"q{number}", 8) for number in range(2)]]
    decision = decided(a_view(pool, pods=pods))["one"]
    assert len(wakes(decision)) == 1
    assert unserved(decision) == [("team-a/q0", 2, "WakeLimit")]
    assert "are next" in decision.message
    assert conditions.find(decision.status.conditions, "Unserved") is None, "it is only a matter of time"
    stage = Stage(pool, pods=pods)
    stage.pass_time(7 * MINUTE)
    assert [at for at, _ in stage.commands()] == [1, 121, 241]


def test_a_pool_with_a_limit_does_not_pass_on_who_waits_for_its_turn() -> None:
    first = a_pool("a", {"a1": 8, "a2": 8}, maxConcurrentWakes=1)
    found = decided(a_view(first, a_pool("b", {"b1": 8}), pods=many(2, 8)))
    assert (wakes(found["a"]), wakes(found["b"])) == (["a1"], [])


@pytest.mark.parametrize(
    ("memory", "until"),
    [
        (was("w2", "Off", slept_at=NOON - 30 * SECOND), NOON + 4 * MINUTE + 30 * SECOND),
        (was("w2", "Failed", failures=2, retry_after=NOON + MINUTE), NOON + MINUTE),
        (was("w2", "Off", toggles=[NOON - 50 * MINUTE + number * MINUTE for number in range(6)]), NOON + 10 * MINUTE),
    ],
)
def test_a_machine_rests_before_it_is_woken_again(memory: Any, until: int) -> None:
    pool = remembered(a_pool(machines={"w2": 8}), memory)
    early = decided(a_view(pool, pods=many(1), now=until - SECOND))["one"]
    assert wakes(early) == []
    assert early.reason == "NotEnoughMachines"
    assert early.next_turn_ms == SECOND
    assert text(until) in early.message
    assert "of 1 machine that could hold it, 1 is barred from waking (w2: " in early.message
    assert wakes(decided(a_view(pool, pods=many(1), now=until))["one"]) == ["w2"]


def test_a_machine_whose_node_somebody_cordoned_is_left_alone() -> None:
    decision = decided(a_view(a_pool(machines={"w2": 8}), nodes=[cordoned(off("w2"), "")], pods=many(1)))["one"]
    assert wakes(decision) == []
    assert "somebody else cordoned its node" in decision.message


def test_a_machine_that_we_cordoned_is_opened_as_it_wakes() -> None:
    decision = decided(
        a_view(remembered(a_pool(machines={"w2": 8}), was("w2", "Off")), nodes=[cordoned(off("w2"))], pods=many(1))
    )["one"]
    assert effects(decision) == [WakeMachine(pool="one", machine="w2"), UncordonNode(node="w2")]


# --- failures -----------------------------------------------------------------------------------------------------------------


def test_a_machine_that_does_not_boot_gives_way_to_the_next_one() -> None:
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8}), pods=many(1, 8))
    stage.dead = {"w1"}
    stage.pass_time(18 * MINUTE)
    assert stage.commands() == [(1, "wake w1"), (901, "wake w2")]
    assert (stage.state("w1"), stage.state("w2")) == ("Failed", "On")
    failed = conditions.find(stage.decisions["one"].status.conditions, "MachinesFailed")
    assert failed is not None
    assert failed.message.startswith("w1: Its node was not Ready 900s after the wake command of ")


def test_machines_that_failed_come_last_and_then_again() -> None:
    stage = Stage(a_pool(machines={"w1": 8}), pods=many(1, 8))
    stage.dead = {"w1"}
    stage.pass_time(65 * MINUTE, every=5 * SECOND)
    assert [at // 60 for at, _ in stage.commands()] == [0, 15, 45], "at once, then after 15 and 30 minutes"
    names = [reason for reason, _ in told(stage.decisions["one"])]
    assert names == []


def test_a_switch_that_says_no_is_tried_again_later_and_another_one_at_once() -> None:
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8}), pods=many(1, 8))
    stage.refusing = {"w1"}
    stage.pass_time(3 * MINUTE)
    assert stage.commands() == [(1, "wake w1"), (2, "wake w2")]
    alone = Stage(a_pool(machines={"w1": 8}), pods=many(1, 8))
    alone.refusing = {"w1"}
    alone.pass_time(4 * MINUTE)
    assert [at for at, _ in alone.commands()] == [1, 32, 93, 214]


def test_a_late_machine_is_capacity() -> None:
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8}, bootTimeoutSeconds=60), pods=many(1, 8))
    stage.boot_ms = 90 * SECOND
    stage.pass_time(14 * MINUTE)
    assert [command for _, command in stage.commands()] == ["wake w1", "wake w2", "sleep w2"]
    assert stage.pods["uid-p0"].node == "w1"


def test_nothing_is_posted_again_while_it_boots() -> None:
    stage = Stage(a_pool(), pods=many(2))
    stage.boot_ms = 14 * MINUTE
    stage.look()
    stage.calls = {}  # as after a restart
    stage.pass_time(13 * MINUTE, every=5 * SECOND)
    assert len(stage.commands()) == 1


def test_a_retried_job_does_not_wake_a_second_machine() -> None:
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8}), pods=many(1, 8))
    for number in range(10):
        stage.pass_time(5 * SECOND)
        stage.pods = {f"try-{number}": waiting(f"try-{number}", 8, since=stage.now)}
    assert stage.commands() == [(1, "wake w1")]


# --- machines that must be on ---------------------------------------------------------------------------------------------------


def test_the_smallest_machines_are_woken_to_reach_the_floor() -> None:
    decision = decided(a_view(a_pool(machines={"w3": 8, "w2": 4, "w1": 4, "w4": 2}, minOn=2)))["one"]
    assert wakes(decision) == ["w1", "w4"]
    assert decision.message == "Waking w1 and w4 (6 GPUs) since 2 machines must be on now; 0 of 4 machines are on."


def test_those_that_boot_for_pods_count_for_the_floor() -> None:
    assert wakes(decided(a_view(a_pool(minOn=1), pods=many(8)))["one"]) == ["w2"]


def test_the_floor_keeps_machines_on_that_were_about_to_sleep() -> None:
    pool = remembered(a_pool(machines={"w1": 4}, minOn=1), was("w1", "Draining", idle_since=NOON - HOUR))
    decision = decided(a_view(pool, nodes=[cordoned(on("w1", 4))]))["one"]
    assert effects(decision) == [UncordonNode(node="w1")]
    assert machine(decision, "w1").state == "On"


@pytest.mark.parametrize("how", [NOON - 2 * SECOND, NOON - 2 * MINUTE])
def test_a_machine_whose_cordon_is_just_being_lifted_is_room(how: int) -> None:
    pool = remembered(a_pool(), was("w1", "Off"), was("w2", "On", how, idle_since=NOON - HOUR))
    decision = decided(a_view(pool, nodes=[cordoned(on("w2", 8))], pods=many(1, 4)))["one"]
    assert effects(decision) == [UncordonNode(node="w2")]
    assert decision.message.endswith("1 pending pod fits on w2.")


@pytest.mark.parametrize(
    "taint",
    [
        Taint("node.cilium.io/agent-not-ready", "true", "NoExecute"),
        Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"),
        Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule"),
        Taint("startup-taint.cluster-autoscaler.kubernetes.io/driver", "", "NoSchedule"),
    ],
)
def test_a_machine_on_which_not_everything_has_started_yet_is_coming(taint: Taint) -> None:
    booted = was("w2", "On", NOON - 2 * MINUTE, woken_at=NOON - 5 * MINUTE)
    node = on("w2", 8, since=NOON - 2 * MINUTE, taints=(taint,))
    pool = remembered(a_pool(), was("w1", "Off"), booted)
    assert wakes(decided(a_view(pool, nodes=[node], pods=many(1, 4)))["one"]) == []
    late = a_view(pool, nodes=[node], pods=many(1, 4, since=NOON + 14 * MINUTE), now=NOON + 15 * MINUTE)
    assert wakes(decided(late)["one"]) == ["w1"], "it should have started by now"
    asleep = remembered(a_pool(machines={"w2": 8}), was("w2", "Off"))
    assert wakes(decided(a_view(asleep, nodes=[off("w2", 8, taints=(taint,))], pods=many(1, 4)))["one"]) == ["w2"]


def test_a_device_that_was_promised_and_has_not_been_found_yet_is_coming() -> None:
    asks = Shape(requests=(("nvidia.com/gpu", 4_000_000), ("rdma/hca", 1_000_000)))
    pods = [structs.replace(waiting("p0", 4), shape=asks)]
    booted = was("w2", "On", NOON - 2 * MINUTE, woken_at=NOON - 5 * MINUTE)
    pool = remembered(a_pool(template={"resources": {"rdma/hca": "8"}}), was("w1", "Off"), booted)
    assert wakes(decided(a_view(pool, nodes=[on("w2", 8, since=NOON - 2 * MINUTE)], pods=pods))["one"]) == []


def test_a_cordon_that_cannot_be_lifted_does_not_keep_pods_waiting() -> None:
    pool = remembered(a_pool(), was("w1", "Off"), was("w2", "On", NOON - 6 * MINUTE, idle_since=NOON - HOUR))
    decision = decided(a_view(pool, nodes=[cordoned(on("w2", 8))], pods=many(1, 4)))["one"]
    assert wakes(decision) == ["w1"]


def test_a_machine_that_is_still_on_is_kept_before_another_one_is_woken() -> None:
    draining = was("w1", "Draining", NOON - SECOND, idle_since=NOON - HOUR)
    pool = remembered(a_pool(machines={"w1": 8, "w2": 4}, minOn=1), draining, was("w2", "Off"))
    assert effects(decided(a_view(pool, nodes=[cordoned(on("w1", 8))]))["one"]) == [UncordonNode(node="w1")]
