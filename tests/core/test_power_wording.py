"""The words about machines: true of each of them, told once, and each sentence with its end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.power_status import Energy
from headroom.core.power import holding
from headroom.model.facts import Owner, Shape
from headroom.model.times import text
from tests.builders import NOON
from tests.core.power_stage import (
    GPU,
    HOUR,
    LONG_AGO,
    MINUTE,
    SECOND,
    a_pool,
    a_round,
    a_view,
    cordoned,
    decided,
    explained,
    finished,
    of_daemon_set,
    on,
    remembered,
    running,
    status,
    told,
    waiting,
    wakes,
    was,
)
from tests.core.test_power_trials import REFUSED, refused
from tests.core.test_power_waking import gang, many


def said(*pools: Any, **more: Any) -> str:
    return decided(a_view(*pools, **more))["one"].message


# --- a pool ---------------------------------------------------------------------------------------------------------------------


def test_a_pool_whose_machines_are_all_named_elsewhere_says_so() -> None:
    world = a_view(a_pool("one", {"w1": 4}, order=2), a_pool("other", {"w1": 4}, order=1), pods=many(1, 8))
    [vain] = status(decided(world)["one"]).unserved
    says = "The pool owns none of its machines: PowerPool/other come before it (order, then name)."
    assert (vain.reason, vain.message) == ("NoMachineFits", says)


def test_our_own_cordon_that_is_being_lifted_is_not_called_somebody_elses() -> None:
    idle = "1 of 1 machines is on; w2 has been idle since 2026-11-15T07:00:00Z and"
    pool = remembered(a_pool(machines={"w2": 8}), was("w2", "On", LONG_AGO, idle_since=LONG_AGO))
    assert said(pool, nodes=[cordoned(on("w2"))]) == f"{idle} gets new pods again: its cordon is being removed."
    theirs = f"{idle} stays on, since somebody else cordoned its node."
    assert said(pool, nodes=[cordoned(on("w2"), by="")]) == theirs


@pytest.mark.parametrize(
    ("pod", "node", "says"),
    [
        (waiting("p0", 8), on("w2", 0), "1 is on with 0 of 8 GPUs"),
        (waiting("p0", 8), on("w2", 6), "the nearest is w2, but it needs 8 nvidia.com/gpu and 6 are there"),
        (waiting("p0", 8), cordoned(on("w2"), by=""), "1 is on and cordoned"),
        (waiting("p0", 8), None, "1 is on and full"),
    ],
)
def test_a_machine_that_is_on_and_no_help_is_called_what_it_is(pod: Any, node: Any, says: str) -> None:
    full = [running("a", "w2", 8)] if node is None else []
    world = a_view(a_pool(machines={"w2": 8}), nodes=[node or on("w2")], pods=[pod, *full])
    [vain] = status(decided(world)["one"]).unserved
    assert says in vain.message


def test_a_machine_that_is_on_and_empty_is_not_called_full() -> None:
    world = a_view(a_pool(machines={"w1": 8, "w2": 8}), nodes=[on("w1"), on("w2")], pods=gang(3, 8))
    [vain] = status(decided(world)["one"]).unserved
    assert vain.message.endswith("does not fit on 2 machines: 2 are on.")


def test_how_many_are_on_is_told_once_and_as_the_status_counts() -> None:
    pool = remembered(
        a_pool(machines={"w1": 4, "w2": 8, "w3": 16}), was("w3", "Draining", NOON - 5 * SECOND, idle_since=LONG_AGO)
    )
    nodes = [on("w2"), cordoned(on("w3", 16))]
    decision = decided(a_view(pool, nodes=nodes, pods=[running("a", "w2", 8)]))
    assert decision["one"].message == (
        "Draining w3 (16 GPUs), idle since 2026-11-15T07:00:00Z; 1 of 3 machines is on, 1 in use."
    )
    assert status(decision["one"]).on == 1
    arm = structs.replace(waiting("p0"), shape=Shape(requests=((GPU, 1_000_000),), node_selector=(("cpu", "arm"),)))
    picky = remembered(
        a_pool(listed=[_labelled("w1", "arm"), _labelled("w3", "x86")]),
        was("w3", "Draining", NOON - 5 * SECOND, idle_since=LONG_AGO),
    )
    both = said(picky, nodes=[cordoned(on("w3", labels=(("cpu", "x86"),)))], pods=[arm])
    assert both.startswith("Waking w1 (8 GPUs) for 1 pod that needs 1 GPU; 0 of 2 machines are on. Draining w3")
    assert both.count("machines are on") == 1


def _labelled(name: str, cpu: str) -> dict[str, Any]:
    ends = {"scaleUpEndpoint": f"http://power-api/{name}/up", "scaleDownEndpoint": f"http://power-api/{name}/down"}
    return {"name": name, "gpuCount": 8, "labels": {"cpu": cpu}} | ends


# --- trials and quotes ------------------------------------------------------------------------------------------------------------


def other_shape(name: str, message: str) -> Any:
    shape = Shape(requests=((GPU, 1_000_000),), spread='[{"topologyKey":"rack"}]')
    return structs.replace(waiting(name, since=NOON - 2 * MINUTE), shape=shape, unschedulable_message=message)


def test_machines_on_trial_are_told_apart_from_others_and_from_one_another() -> None:
    pool = a_pool(machines={"w1": 1, "w2": 1, "w3": 8})
    pods = [*refused(1), other_shape("q0", "no rack"), waiting("big", 8)]
    world = a_view(pool, nodes=[on("n1", 2)], pods=pods)
    assert wakes(decided(world)["one"]) == ["w1", "w2", "w3"]
    assert decided(world)["one"].message == (
        "Waking w3 (8 GPUs) for 1 pod that needs 8 GPUs, and w1 (1 GPU) on trial for 1 pod that needs 1 GPU: kube-scheduler "
        f"does not place team-a/p0 on n1, where it would fit ({REFUSED.rstrip('.')}), and w2 (1 GPU) on trial for others; "
        "0 of 3 machines are on."
    )
    details = {pod.name: found.details for pod in world.pods if (found := explained(world, pod)) is not None}
    assert details["p0"] == (f"on trial, since kube-scheduler does not place it on n1: {REFUSED}",)
    assert details["q0"] == ("on trial, since kube-scheduler does not place it on n1: no rack.",)
    assert details["big"] == ()


def test_a_quote_ends_before_our_own_words_go_on() -> None:
    pods = [other_shape("q0", "no rack"), other_shape("q1", "no rack")]
    world = a_view(a_pool(machines={"w1": 1, "w2": 1}), nodes=[on("n1", 2)], pods=pods)
    [vain] = status(decided(world)["one"]).unserved
    assert "where it would fit: no rack. w1 is on trial" in vain.message
    long = a_view(
        a_pool(machines={"w1": 1}),
        nodes=[on("n1", 2)],
        pods=[other_shape(f"q{n}", "no " * 999) for n in (0, 1)],
    )
    [vain] = status(decided(long)["one"]).unserved
    assert "no no ... w1 is on trial" in vain.message


# --- one machine ------------------------------------------------------------------------------------------------------------------


def test_a_busy_machine_names_the_pods_that_keep_it_on() -> None:
    pods = [running(f"train-{number}", "w2") for number in (2, 0, 1, 3, 4)]
    others = [of_daemon_set("agent", "w2"), finished("old", "w2", NOON - HOUR), running("far", "n1")]
    world = a_view(a_pool(), nodes=[on("w2"), on("n1")], pods=[*pods, *others])
    assert holding(a_round(world), "w2") == ("kept on by team-a/train-0, team-a/train-1, team-a/train-2 and 2 more",)
    assert holding(a_round(a_view(a_pool(), nodes=[on("w2")], pods=[pods[1], *others[:2]])), "w2") == (
        "kept on by team-a/train-0",
    )
    assert holding(a_round(world), "w1") == () == holding(a_round(world), "none")


def test_pods_that_would_be_evicted_keep_nothing_on() -> None:
    web = running("web", "w2", 0, owner=Owner("ReplicaSet", "web", "uid-web"))
    pool, nodes = a_pool(machines={"w2": 8}, drain="NonGpuPods"), [on("w2")]
    busy = a_view(pool, nodes=nodes, pods=[web, running("train", "w2")])
    assert holding(a_round(busy), "w2") == ("kept on by team-a/train",)
    draining = remembered(pool, was("w2", "Draining", NOON - SECOND, idle_since=LONG_AGO))
    world = a_view(draining, nodes=[cordoned(on("w2"))], pods=[web])
    assert holding(a_round(world), "w2") == (
        "goes to sleep once its pods end, unless a new pod needs it",
        "evicted first: team-a/web",
    )


IDLE = was("w2", "On", LONG_AGO, idle_since=LONG_AGO)
LATELY = was("w2", "On", LONG_AGO, idle_since=NOON - MINUTE)


@pytest.mark.parametrize(
    ("pool", "memory", "more", "says"),
    [
        (
            {},
            LATELY,
            {},
            f"may sleep from {text(NOON + 9 * MINUTE)} on, after 600s idle (idleSeconds)",
        ),
        (
            {"minOnSeconds": 6 * 3600},
            LATELY,
            {},
            f"may sleep from {text(NOON + HOUR)} on, since it was in use, woken or tried recently",
        ),
        ({"protectedMachines": ["w2"]}, IDLE, {}, "stays on, since it is protected"),
        ({"minOn": 1}, IDLE, {}, "stays on, since 1 machine must be on now (minOn, keepOn)"),
        ({"paused": True}, IDLE, {}, "stays as it is: the pool is paused"),
        (
            {},
            IDLE,
            {"pods": [waiting("p0")]},
            f"kept on for 1 pod, until {text(NOON + HOUR)} at most",
        ),
        (
            {},
            IDLE,
            {"pods": [waiting("p0", nominated_node="w2", nominated_since=NOON)]},
            "kept on for team-a/p0, since kube-scheduler preempts pods there",
        ),
        ({}, IDLE, {}, "goes to sleep once its pods end, unless a new pod needs it"),
    ],
)
def test_an_idle_machine_says_when_it_sleeps_and_what_holds_it_up(
    pool: dict[str, Any], memory: Any, more: dict[str, Any], says: str
) -> None:
    world = a_view(remembered(a_pool(machines={"w2": 8}, **pool), memory), nodes=[on("w2")], **more)
    assert holding(a_round(world), "w2") == (says,)


def test_a_machine_that_waits_for_its_turn_to_sleep_says_so() -> None:
    pool = remembered(a_pool(), IDLE, was("w1", "Sleeping", NOON - MINUTE, slept_at=NOON - MINUTE))
    world = a_view(pool, nodes=[on("w2"), cordoned(on("w1", 4))])
    [says] = holding(a_round(world), "w2")
    assert says == "sleeps later: 1 machine is going to sleep, the most at a time (maxConcurrentSleeps)"


# --- energy -----------------------------------------------------------------------------------------------------------------------


def test_energy_that_cannot_be_read_is_counted_anew_and_said_once() -> None:
    pool = remembered(
        a_pool(template={"idleWatts": 100}), energy=Energy(used_kwh="lots", saved_kwh="3", as_of=text(NOON))
    )
    decision = decided(a_view(pool))["one"]
    says = "Of the energy in the status usedKwh 'lots' cannot be read, so it is counted from zero again."
    assert told(decision) == [("EnergyLost", says)]
    found = status(decision).energy
    assert found is not None
    assert (found.used_kwh, found.saved_kwh) == ("0", "3")
    assert told(decided(a_view(structs.replace(pool, status=decision.status)))["one"]) == []
    never = remembered(a_pool(template={"idleWatts": 100}), energy=Energy(used_kwh="-1", as_of="noon"))
    [(_, both)] = told(decided(a_view(never))["one"])
    assert "usedKwh '-1' and asOf 'noon' cannot be read" in both
