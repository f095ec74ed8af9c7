"""What people are told: one sentence for a pool, one for a pod that waits, conditions only where there is something to say."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.core.power import served
from headroom.model.actions import EmitEvent
from headroom.model.conditions import find
from headroom.model.facts import Node, NodePool, Pod, Shape
from headroom.model.world import World
from tests.builders import NOON
from tests.core.power_stage import (
    GPU,
    HOUR,
    LONG_AGO,
    MINUTE,
    SECOND,
    Stage,
    a_pool,
    a_round,
    a_view,
    cordoned,
    decided,
    explained,
    off,
    on,
    remembered,
    running,
    told,
    waiting,
    was,
)
from tests.core.test_power_trials import REFUSED, refused
from tests.core.test_power_waking import gang, many
from tests.sentences import Says


def said(*pools: Any, **more: Any) -> tuple[str, str]:
    decision = decided(a_view(*(pools or (a_pool(),)), **more))["one"]
    return decision.reason, decision.message


def test_a_pool_speaks_in_one_sentence(says: Says) -> None:
    half = structs.replace(waiting("half"), shape=Shape(requests=((GPU, 500_000),)))
    waking = [said(pods=each) for each in (many(6), many(1, 8), many(12), [half])]
    assert (said()[0], {reason for reason, _ in waking}) == ("Steady", {"Waking"})
    says(said()[1], *(message for _, message in waking))


def test_what_boots_says_since_when_and_for_whom(says: Says) -> None:
    pool = remembered(a_pool(), was("w2", "Booting", woken_at=NOON - MINUTE))
    served_, nobody = said(pool, pods=many(6)), said(pool)
    assert (served_[0], nobody[0]) == ("Waking", "Waking")
    says(served_[1], nobody[1], said(pool, pods=[*many(6), waiting("huge", 16)])[1])


def test_a_pool_at_rest_says_who_is_idle(says: Says) -> None:
    failed = remembered(a_pool(), was("w1", "Failed", failures=1, retry_after=NOON + HOUR))
    says(
        said(a_pool(minOn=1), nodes=[on("w1", 4)])[1],
        said(a_pool(protectedMachines=["w1", "w2"]), nodes=[on("w1", 4), on("w2")])[1],
        said(nodes=[on("w1", 4)], pods=[running("a", "w1")])[1],
        said(failed)[1],
    )


def test_going_to_sleep_is_said(says: Says) -> None:
    pool = remembered(a_pool(), was("w2", "Sleeping", slept_at=NOON - SECOND))
    reason, message = said(pool, nodes=[cordoned(on("w2"))])
    assert reason == "Sleeping"
    says(message)


def test_conditions_come_with_what_they_tell_and_stay(says: Says) -> None:
    pool = a_pool()
    assert [each.type for each in decided(a_view(pool))["one"].status.conditions] == ["Ready"]
    stuck = decided(a_view(pool, pods=many(1, 16)))["one"]
    assert [each.type for each in stuck.status.conditions] == ["Ready", "Unserved"]
    after = decided(a_view(structs.replace(pool, status=stuck.status)))["one"]
    condition = find(after.status.conditions, "Unserved")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "AllServed")
    says(condition.message)


def test_every_turn_is_an_event_and_nothing_else_is(says: Says) -> None:
    stage = Stage(a_pool(machines={"w2": 8}, idleSeconds=30), pods=many(1, 8))
    heard: list[tuple[str, str]] = []
    for _ in range(300):
        stage.pass_time(SECOND)
        heard += told(stage.decisions["one"])
        if stage.now == NOON + 150 * SECOND:
            stage.end("uid-p0")
    assert [reason for reason, _ in heard] == [
        "WakingMachine",
        "MachineOn",
        "DrainingMachine",
        "SleepingMachine",
        "MachineOff",
    ]
    says(*(message for _, message in heard))


def test_what_went_wrong_is_a_warning(says: Says) -> None:
    lost = decided(a_view(remembered(a_pool(), was("w2", "On")), nodes=[off("w2")]))["one"]
    [event] = [each for each in lost.actions if isinstance(each, EmitEvent)]
    assert (event.event_type, event.reason) == ("Warning", "MachineUnknown")
    assert event.object == "PowerPool/one"
    says(event.message)
    came = decided(a_view(remembered(a_pool(), was("w2", "Off")), nodes=[on("w2")], pods=[running("a", "w2")]))["one"]
    assert [each.event_type for each in came.actions if isinstance(each, EmitEvent)] == ["Normal"]


@pytest.mark.parametrize(
    ("memory", "node", "turn"),
    [
        (was("w2", "Booting", woken_at=NOON - MINUTE), off("w2"), 14 * MINUTE),
        (was("w2", "Sleeping", slept_at=NOON - MINUTE), cordoned(on("w2")), 14 * MINUTE),
        (was("w2", "Draining", NOON - 4 * SECOND, idle_since=LONG_AGO), cordoned(on("w2")), 6 * SECOND),
        (was("w2", "On", LONG_AGO, idle_since=NOON - MINUTE), on("w2"), 9 * MINUTE),
        (was("w2", "Off"), off("w2"), 24 * HOUR),
    ],
)
def test_the_next_turn_of_the_clock_is_told(memory: Any, node: Node, turn: int) -> None:
    decision = decided(a_view(remembered(a_pool(machines={"w2": 8}), memory), nodes=[node]))["one"]
    assert decision.next_turn_ms == turn
    longest = 60 * SECOND if memory.state == "Off" else 30 * SECOND
    assert decision.look_again_ms == min(turn, longest)


# --- pods -----------------------------------------------------------------------------------------------------------------------


def asked(world: World, name: str = "p0") -> tuple[str, str]:
    pod = next(each for each in world.pods if each.name == name)
    found = explained(world, pod)
    assert found is not None
    return found.state, found.sentence


BOOTS = remembered(a_pool(), was("w2", "Booting", woken_at=NOON - MINUTE))
FULL = [running("a", "w1", 4), running("b", "w2", 8)]


@pytest.mark.parametrize(
    ("pool", "more", "state"),
    [
        pytest.param(a_pool(), {"pods": many(6)}, "Waking", id="wakes"),
        pytest.param(BOOTS, {"pods": many(6)}, "Booting", id="boots"),
        pytest.param(a_pool(), {"pods": many(1), "nodes": [on("w2")]}, "Placed", id="fits on a machine"),
        pytest.param(a_pool(), {"pods": many(1), "nodes": [on("n1")]}, "Placed", id="fits on a node"),
        pytest.param(a_pool(), {"pods": many(1, gates=("example.com/wait",))}, "Gated", id="gate"),
        pytest.param(a_pool(), {"pods": many(1, 16)}, "NoMachineFits", id="too large"),
        pytest.param(
            a_pool(),
            {"pods": [*many(1), *FULL], "nodes": [on("w1", 4), on("w2")]},
            "NotEnoughMachines",
            id="all are full",
        ),
        pytest.param(
            a_pool(),
            {"pods": many(1), "node_pools": {"gpu": NodePool(name="gpu")}},
            "SharedWithKarpenter",
            id="Karpenter",
        ),
        pytest.param(
            a_pool(machines={"w1": 8, "w2": 8}), {"pods": gang(3, 8)}, "NotEnoughMachines", id="too large a gang"
        ),
        pytest.param(a_pool(gpuResourceName="amd.com/gpu"), {"pods": many(1)}, "NoMachineFits", id="other GPUs"),
        pytest.param(
            a_pool(machines={"w1": 1, "w2": 1}, maxConcurrentWakes=1),
            {"pods": [waiting("a"), waiting("p0", priority=-1)]},
            "WakeLimit",
            id="one at a time",
        ),
        pytest.param(a_pool(paused=True), {"pods": many(1)}, "Paused", id="paused"),
    ],
)
def test_a_pod_that_waits_is_explained(pool: Any, more: dict[str, Any], state: str, says: Says) -> None:
    found, sentence = asked(a_view(pool, **more))
    assert found == state
    says(sentence)


def test_what_kube_scheduler_says_is_quoted(says: Says) -> None:
    world = a_view(a_pool(machines={"w1": 1, "w2": 1}), nodes=[on("n1")], pods=refused(2))
    found = {pod.name: explained(world, pod) for pod in world.pods}
    assert found["p0"] is not None
    assert found["p0"].state == "Waking"
    [detail] = found["p0"].details
    assert found["p1"] is not None
    assert REFUSED in detail
    assert REFUSED in found["p1"].sentence
    says(detail, found["p1"].sentence)


BY_FIELD = (
    '{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":'
    '[{"key":"metadata.name","operator":"In","values":["w2"]}]}]}}}'
)


@pytest.mark.parametrize(
    "asks", [{"node_selector": (("kubernetes.io/hostname", "w2"),)}, {"affinity": BY_FIELD}], ids=["label", "field"]
)
def test_a_pod_may_ask_for_one_machine_by_name(asks: dict[str, Any], says: Says) -> None:
    shape = Shape(requests=((GPU, 1_000_000),), **asks)
    pods = [structs.replace(waiting("p0"), shape=shape), running("b", "w2", 8)]
    world = a_view(a_pool(machines={"w1": 8, "w2": 8}), nodes=[on("w1"), on("w2")], pods=pods)
    state, sentence = asked(world)
    assert state == "NotEnoughMachines"
    says(sentence)


def test_every_pool_has_its_say() -> None:
    world = a_view(a_pool("a", {"a1": 4}), a_pool("b", {"b1": 8}, order=5), pods=many(1, 16))
    pod = next(iter(world.pods))
    found = explained(world, pod)
    assert found is not None
    assert found.sentence.startswith("PowerPool/a wakes no machine for it")
    assert len(found.details) == 1
    assert found.details[0].startswith("PowerPool/b: NoMachineFits")


def test_nothing_is_said_of_pods_that_have_a_node_or_without_pools() -> None:
    bound: Pod = running("a", "n1")
    assert explained(a_view(a_pool(), pods=[bound]), bound) is None
    assert explained(a_view(pods=many(1)), many(1)[0]) is None


def test_other_sources_know_who_is_served() -> None:
    world = a_view(
        a_pool(machines={"w1": 4}), nodes=[on("n1", 1)], pods=[*many(5), waiting("huge", 16, since=LONG_AGO)]
    )
    found = served(a_round(world))
    assert sorted(found.values()) == ["w1"] * 4, "one goes to n1, which is nobody's machine"
    assert "uid-huge" not in found
