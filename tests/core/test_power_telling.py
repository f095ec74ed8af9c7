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


def said(*pools: Any, **more: Any) -> tuple[str, str]:
    decision = decided(a_view(*(pools or (a_pool(),)), **more))["one"]
    return decision.reason, decision.message


def test_a_pool_speaks_in_one_sentence() -> None:
    assert said() == ("Steady", "0 of 2 machines are on.")
    assert said(pods=many(6)) == ("Waking", "Waking w2 (8 GPUs) for 6 pods that need 6 GPUs; 0 of 2 machines are on.")
    assert said(pods=many(1, 8)) == (
        "Waking",
        "Waking w2 (8 GPUs) for 1 pod that needs 8 GPUs; 0 of 2 machines are on.",
    )
    assert said(pods=many(12)) == (
        "Waking",
        "Waking w1 and w2 (12 GPUs) for 12 pods that need 12 GPUs; 0 of 2 machines are on.",
    )
    half = structs.replace(waiting("half"), shape=Shape(requests=((GPU, 500_000),)))
    assert said(pods=[half])[1] == "Waking w1 (4 GPUs) for 1 pod that needs 0.5 GPUs; 0 of 2 machines are on."


def test_what_boots_says_since_when_and_for_whom() -> None:
    pool = remembered(a_pool(), was("w2", "Booting", woken_at=NOON - MINUTE))
    boots = "w2 (8 GPUs) boots since 2026-11-15T11:59:00Z"
    assert said(pool, pods=many(6)) == ("Waking", f"{boots} for 6 pods that need 6 GPUs; 0 of 2 machines are on.")
    assert said(pool) == ("Waking", f"{boots} with no pending pod left for it; 0 of 2 machines are on.")
    both = said(pool, pods=[*many(6), waiting("huge", 16)])
    assert both[1].startswith(
        f"{boots} for 6 pods that need 6 GPUs; 0 of 2 machines are on. Pod team-a/huge is unserved:"
    )


def test_a_pool_at_rest_says_who_is_idle() -> None:
    pool, nodes = a_pool(minOn=1), [on("w1", 4)]
    assert said(pool, nodes=nodes)[1] == (
        "1 of 2 machines is on; w1 is idle since 2026-11-15T07:00:00Z and stays on, since 1 machine must be on now "
        "(minOn, keepOn)."
    )
    both = a_pool(protectedMachines=["w1", "w2"])
    assert said(both, nodes=[on("w1", 4), on("w2")])[1] == "2 of 2 machines are on; w1 and w2 are idle."
    assert said(nodes=[on("w1", 4)], pods=[running("a", "w1")])[1] == "1 of 2 machines is on, 1 in use."
    failed = remembered(a_pool(), was("w1", "Failed", failures=1, retry_after=NOON + HOUR))
    assert said(failed)[1] == "0 of 2 machines are on, w1 has failed."


def test_going_to_sleep_is_said() -> None:
    pool = remembered(a_pool(), was("w2", "Sleeping", slept_at=NOON - SECOND))
    assert said(pool, nodes=[cordoned(on("w2"))]) == (
        "Sleeping",
        "w2 (8 GPUs) is going to sleep; 0 of 2 machines are on.",
    )


def test_conditions_come_with_what_they_tell_and_stay() -> None:
    pool = a_pool()
    assert [each.type for each in decided(a_view(pool))["one"].status.conditions] == ["Ready"]
    stuck = decided(a_view(pool, pods=many(1, 16)))["one"]
    assert [each.type for each in stuck.status.conditions] == ["Ready", "Unserved"]
    after = decided(a_view(structs.replace(pool, status=stuck.status)))["one"]
    condition = find(after.status.conditions, "Unserved")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", "AllServed", "No pod is unserved.")


def test_every_turn_is_an_event_and_nothing_else_is() -> None:
    stage = Stage(a_pool(machines={"w2": 8}, idleSeconds=30), pods=many(1, 8))
    heard: list[tuple[str, str]] = []
    for _ in range(300):
        stage.pass_time(SECOND)
        heard += told(stage.decisions["one"])
        if stage.now == NOON + 150 * SECOND:
            stage.end("uid-p0")
    assert heard == [
        ("WakingMachine", "w2 (8 GPUs) wakes for 1 pod that needs 8 GPUs."),
        ("MachineOn", "w2 is on, 120s after its wake command."),
        ("DrainingMachine", "w2 (8 GPUs) is idle since 2026-11-15T12:02:30Z and is cordoned."),
        ("SleepingMachine", "w2 (8 GPUs) goes to sleep; it was idle since 2026-11-15T12:02:30Z."),
        ("MachineOff", "w2 is off."),
    ]


def test_what_went_wrong_is_a_warning() -> None:
    lost = decided(a_view(remembered(a_pool(), was("w2", "On")), nodes=[off("w2")]))["one"]
    [event] = [each for each in lost.actions if isinstance(each, EmitEvent)]
    assert (event.event_type, event.reason) == ("Warning", "MachineUnknown")
    assert (event.object, event.message) == ("PowerPool/one", "w2 does not answer: its node is not Ready.")
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
    ("pool", "more", "state", "sentence"),
    [
        (a_pool(), {"pods": many(6)}, "Waking", "w2 (8 GPUs) of PowerPool/one wakes for it."),
        (
            BOOTS,
            {"pods": many(6)},
            "Booting",
            (
                "w2 (8 GPUs) of PowerPool/one boots for it since 2026-11-15T11:59:00Z; if its node is not Ready "
                "by 2026-11-15T12:14:00Z, another machine is tried."
            ),
        ),
        (
            a_pool(),
            {"pods": many(1), "nodes": [on("w2")]},
            "Placed",
            "It fits on w2 (8 GPUs) of PowerPool/one, which is on.",
        ),
        (a_pool(), {"pods": many(1), "nodes": [on("n1")]}, "Placed", "It fits on n1, so no machine wakes for it."),
        (
            a_pool(),
            {"pods": many(1, gates=("example.com/wait",))},
            "Gated",
            "No machine wakes for it: it has a scheduling gate (example.com/wait).",
        ),
        (
            a_pool(),
            {"pods": many(1, 16)},
            "NoMachineFits",
            (
                "PowerPool/one wakes no machine for it: no machine of the pool can hold it: the nearest is w2, but it needs 16 "
                "nvidia.com/gpu and 8 are there."
            ),
        ),
        (
            a_pool(),
            {"pods": [*many(1), *FULL], "nodes": [on("w1", 4), on("w2")]},
            "NotEnoughMachines",
            "PowerPool/one wakes no machine for it: of 2 machines that could hold it, 2 are on and full.",
        ),
        (
            a_pool(),
            {"pods": many(1), "node_pools": {"gpu": NodePool(name="gpu")}},
            "SharedWithKarpenter",
            (
                "PowerPool/one wakes no machine for it: Karpenter's NodePool gpu can serve it, and the pool leaves such pods "
                "to Karpenter (shareWithKarpenter)."
            ),
        ),
        (
            a_pool(machines={"w1": 8, "w2": 8}),
            {"pods": gang(3, 8)},
            "NotEnoughMachines",
            ("PowerPool/one wakes no machine for it: its gang of 3 pods does not fit on 2 machines: 2 are off."),
        ),
        (
            a_pool(gpuResourceName="amd.com/gpu"),
            {"pods": many(1)},
            "NoMachineFits",
            "No PowerPool has machines with the GPUs that it requests.",
        ),
        (
            a_pool(machines={"w1": 1, "w2": 1}, maxConcurrentWakes=1),
            {"pods": [waiting("a"), waiting("p0", priority=-1)]},
            "WakeLimit",
            (
                "A machine of PowerPool/one wakes for it later: 1 machine is booting, the most at a time "
                "(maxConcurrentWakes)."
            ),
        ),
        (
            a_pool(paused=True),
            {"pods": many(1)},
            "Paused",
            "PowerPool/one wakes no machine for it: the pool is paused.",
        ),
    ],
)
def test_a_pod_that_waits_is_explained(pool: Any, more: dict[str, Any], state: str, sentence: str) -> None:
    assert asked(a_view(pool, **more)) == (state, sentence)


def test_what_kube_scheduler_says_is_quoted() -> None:
    world = a_view(a_pool(machines={"w1": 1, "w2": 1}), nodes=[on("n1")], pods=refused(2))
    found = {pod.name: explained(world, pod) for pod in world.pods}
    assert found["p0"] is not None
    assert found["p0"].state == "Waking"
    assert found["p0"].details == (f"on trial, since kube-scheduler does not place it on n1: {REFUSED}",)
    assert found["p1"] is not None
    assert found["p1"].sentence == (
        f"PowerPool/one wakes no machine for it: kube-scheduler does not place it on n1, where it would fit: {REFUSED} "
        "w1 is on trial, and no other machine wakes until such a pod is bound."
    )


BY_FIELD = (
    '{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":'
    '[{"key":"metadata.name","operator":"In","values":["w2"]}]}]}}}'
)


@pytest.mark.parametrize("asks", [{"node_selector": (("kubernetes.io/hostname", "w2"),)}, {"affinity": BY_FIELD}])
def test_a_pod_may_ask_for_one_machine_by_name(asks: dict[str, Any]) -> None:
    shape = Shape(requests=((GPU, 1_000_000),), **asks)
    pods = [structs.replace(waiting("p0"), shape=shape), running("b", "w2", 8)]
    world = a_view(a_pool(machines={"w1": 8, "w2": 8}), nodes=[on("w1"), on("w2")], pods=pods)
    assert asked(world) == (
        "NotEnoughMachines",
        "PowerPool/one wakes no machine for it: of 1 machine that could hold it, 1 is on and full.",
    )


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
