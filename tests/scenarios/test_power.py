"""Power on the full simulator: machines wake once for pods that wait, and sleep once nobody needs them; nobody is harmed by either."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api.policies import policies
from headroom.model.times import moment
from tests.scenarios.ladder import UNHURRIED, a_budget
from tests.scenarios.power_stage import (
    HOUR,
    LABEL,
    MINUTE,
    SECOND,
    a_job,
    a_node,
    a_pod,
    a_pool,
    at,
    machines,
    nodes,
    play,
)

SOON = 5 * SECOND
"""Two periods of the plan, and what it takes to write the intent."""


def test_a_pod_wakes_a_machine_runs_there_and_the_machine_sleeps_again() -> None:
    pool = a_pool()
    run = play([pool, *machines(pool, "Off")], [at("60s", a_pod("train", 8, "10m"))], duration="30m")

    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1"), ("Sleep", "metal-1")]
    assert 60 * SECOND <= run.when("Wake", "metal-1") <= 60 * SECOND + SOON
    assert run.phases() == {"train": "Succeeded"}
    # Awake after 90 s, the pod runs for 10 min, then 5 min of idleness, the cordon, and 10 s for it to settle.
    over = 60 + 90 + 2 + 600 + 300 + 10
    assert over * SECOND <= run.when("Sleep", "metal-1") <= (over + 40) * SECOND
    assert run.states() == {"metal-1": "Off"}
    assert (run.status()["on"], run.status()["off"]) == (0, 1)
    assert run.simulation.machines.power("metal-1").power == "Off"


def test_a_machine_that_slept_wakes_again_and_takes_pods() -> None:
    pool = a_pool()
    pods = [at("60s", a_pod("first", 8, "2m")), at("20m", a_pod("second", 4, "2m"))]
    run = play([pool, *machines(pool, "Off")], pods, duration="40m")

    assert run.problems() == []
    assert [command for command, _ in run.commands()] == ["Wake", "Sleep", "Wake", "Sleep"]
    assert set(run.phases().values()) == {"Succeeded"}


@pytest.mark.parametrize("asked", [False, True], ids=["nobody can be asked", "machines can be asked"])
def test_only_as_many_machines_wake_as_pods_need(asked: bool) -> None:
    pool = a_pool(gpus=[4, 8, 8, 8], asked=asked)
    jobs = [at("60s", a_job("many", 2, "10m", pods=8)), at("61s", a_job("one", 4, "10m"))]
    run = play([pool, *machines(pool, "Off")], jobs, duration="14m")

    assert run.problems() == []
    # Sixteen and four GPUs fit onto two machines with eight and the one with four.
    assert sorted(run.commands()) == [("Wake", "metal-1"), ("Wake", "metal-2"), ("Wake", "metal-3")]
    assert sorted(set(run.phases().values())) == ["Succeeded"]


def test_pods_that_find_room_elsewhere_wake_nothing() -> None:
    pool = a_pool()
    there = a_node("other", 8, **LABEL)
    pods = [at("60s", a_pod("small", 8, "10m")), at("61s", a_pod("huge", 16))]
    pods.append(at("62s", a_pod("elsewhere", 1, nodeSelector={"metal": "no"})))
    run = play([pool, there, *machines(pool, "Off")], pods, duration="10m")

    assert run.problems() == []
    assert run.commands() == []
    assert {each["reason"] for each in run.status()["unserved"]} == {"NoMachineFits"}


def test_a_job_that_is_tried_again_and_again_wakes_no_second_machine() -> None:
    pool = a_pool(gpus=[8, 8, 8])
    job = a_job("crashing", 8, "")
    job["spec"]["template"]["metadata"]["annotations"] = {"sim.headroom.dev/fails-after": "20s"}
    run = play([pool, *machines(pool, "Off")], [at("60s", job)], duration="20m")

    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1")]


def test_idle_machines_go_one_after_the_other_and_finished_pods_keep_none_on() -> None:
    pool = a_pool(gpus=[4, 8, 4])
    done = [at("10s", a_pod(f"done-{number}", 4, "1m")) for number in range(4)]
    run = play([pool, *machines(pool, "On"), *nodes(pool)], done, duration="30m")

    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-2"), ("Sleep", "metal-1"), ("Sleep", "metal-3")]
    assert run.states() == {f"metal-{number}": "Off" for number in (1, 2, 3)}


def test_pods_of_daemons_keep_no_machine_on_and_any_other_does() -> None:
    pool = a_pool(gpus=[8, 8])
    daemon, plain = a_pod("daemon", 0, nodeName="metal-1"), a_pod("plain", 0, nodeName="metal-2")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    daemon["metadata"]["ownerReferences"] = [owner]
    run = play([pool, *machines(pool, "On"), *nodes(pool), daemon, plain], duration="20m")

    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-1")]
    assert run.simulation.machines.lost == []


def test_pods_without_gpus_are_evicted_where_the_pool_says_so() -> None:
    pool = a_pool(gpus=[8], drain="NonGpuPods")
    template = {"metadata": {"labels": {"app": "web"}}, "spec": a_pod("web", 0, nodeSelector={})["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    metadata = {"name": "web", "namespace": "lab"}
    service = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
    later = a_node("other", 0)
    run = play([pool, *machines(pool, "On"), *nodes(pool), service], [at("60s", later)], duration="20m")

    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-1")]
    [web] = [each for each in run.simulation.server.objects("Pod", "lab") if each["status"]["phase"] == "Running"]
    assert web["spec"]["nodeName"] == "other"


def test_pods_of_a_budget_that_is_used_up_wake_nothing_until_it_has_room() -> None:
    pool = a_pool()
    spent: dict[str, Any] = {"namespace": "lab", "pod": "earlier", "gpus": 8, "labels": {"team": "vision"}}
    spent |= {"start": "2025-12-31T23:00:00Z", "end": "2025-12-31T23:30:00Z"}
    usage = {"apiVersion": "sim.headroom.dev/v1", "kind": "Usage", "metadata": {"name": "earlier"}, "spec": spent}
    budget = a_budget("vision", "4", "100% Hold")
    pod = a_pod("train", 8, "10m")
    pod["metadata"]["labels"] = {"team": "vision"}
    more: dict[str, Any] = {
        "resource": "GPUWorkloadBudget/lab/vision",
        "merge": {"spec": {"quota": {"gpuHours": "40"}}},
    }
    timeline = [at("2m", pod), {"at": "8m", "patch": more}]
    run = play([pool, *machines(pool, "Off"), *policies(), budget, usage], timeline, duration="15m")

    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1")]
    assert run.when("Wake", "metal-1") >= 8 * MINUTE
    assert run.phases() == {"train": "Running"}


# --- limits ---------------------------------------------------------------------------------------------------------------------


def test_enough_machines_stay_on_and_protected_ones_never_sleep() -> None:
    pool = a_pool(gpus=[8, 8, 8, 8], minOn=2, protectedMachines=["metal-1"])
    marked = nodes(pool)
    marked[1]["metadata"]["annotations"] = {"headroom.dev/protected": "true"}
    run = play([pool, *machines(pool, "On"), *marked], duration="30m")

    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-3"), ("Sleep", "metal-4")]
    assert run.states()["metal-1"] == run.states()["metal-2"] == "On"


def test_a_floor_wakes_machines_that_nobody_asks_for() -> None:
    pool = a_pool(gpus=[8, 4, 8], minOn=2)
    run = play([pool, *machines(pool, "Off")], duration="10m")

    assert run.problems() == []
    assert sorted(run.commands()) == [("Wake", "metal-1"), ("Wake", "metal-2")]


def test_after_an_outage_machines_wake_a_few_at_a_time() -> None:
    """C15: everybody asks at once, and the mains bear two machines that boot."""
    pool = a_pool(gpus=[8] * 6, maxConcurrentWakes=2)
    jobs = [at("60s", a_job("storm", 8, "20m", pods=6))]
    run = play([pool, *machines(pool, "Off")], jobs, duration="12m")

    assert run.problems() == []
    assert sorted(run.commands()) == [("Wake", f"metal-{number}") for number in range(1, 7)]
    assert set(run.phases().values()) == {"Running"}


@pytest.mark.parametrize("period", [4, 14, 40])
def test_load_that_comes_and_goes_does_not_make_machines_flap(period: int) -> None:
    """C8: work for the half of each period, for some hours; toggles are bounded whatever the period is."""
    pool = a_pool(gpus=[8, 8], togglesPerHour=4)
    pods = [
        at(f"{number * period + 1}m", a_job(f"wave-{number}", 8, f"{period * 30}s", pods=2))
        for number in range(240 // period)
    ]
    run = play([pool, *machines(pool, "Off")], pods, duration="4h30m", pace=UNHURRIED)

    assert run.problems() == []
    assert "Failed" not in run.states().values()
    if period == 4:
        assert [command for command, _ in run.commands()].count("Wake") == 2, "pauses are shorter than the idle time"


def test_a_minimum_time_on_and_off_is_kept() -> None:
    pool = a_pool(minOnSeconds=900, minOffSeconds=600, idleSeconds=60)
    pods = [at("60s", a_pod("first", 8, "1m")), at("18m", a_pod("second", 8, "1m"))]
    run = play([pool, *machines(pool, "Off")], pods, duration="60m")

    assert run.problems() == []
    woken, slept, again = (each.at for each in run.told[:3])
    assert slept - woken >= 15 * MINUTE
    assert again - slept >= 10 * MINUTE
    assert set(run.phases().values()) == {"Succeeded"}


def test_two_pools_serve_in_their_order() -> None:
    first, second = a_pool("cheap", [8]), a_pool("dear", [8])
    second["spec"]["order"] = 1
    pods = [at("60s", a_job("work", 8, "20m", pods=2))]
    run = play([first, second, *machines(first, "Off"), *machines(second, "Off")], pods, duration="10m")

    assert run.problems() == []
    assert sorted(run.commands()) == [("Wake", "cheap-1"), ("Wake", "dear-1")]
    run = play(
        [first, second, *machines(first, "Off"), *machines(second, "Off")],
        [at("60s", a_job("work", 8, "20m"))],
        duration="10m",
    )
    assert run.commands() == [("Wake", "cheap-1")]


# --- people ---------------------------------------------------------------------------------------------------------------------


def test_a_pool_that_is_deleted_while_it_drains_leaves_no_cordon() -> None:
    pool = a_pool(idleSeconds=60)
    deleted = {"at": "66s", "delete": "PowerPool/metal"}
    run = play([pool, *machines(pool, "On"), *nodes(pool)], [deleted], duration="10m")

    assert run.report.failures == []
    assert run.auditor.tracks["metal-1"].cordons, "it was meant to be draining"
    assert run.commands() == []
    assert run.cordoned() == []


def test_a_machine_that_leaves_its_pool_while_it_drains_leaves_no_cordon() -> None:
    pool = a_pool(gpus=[8, 8], idleSeconds=60)
    less = {"resource": "PowerPool/metal", "merge": {"spec": {"machines": pool["spec"]["machines"][1:]}}}
    run = play([pool, *machines(pool, "On"), *nodes(pool)], [{"at": "66s", "patch": less}], duration="10m")

    assert run.problems() == []
    assert run.auditor.tracks["metal-1"].cordons, "it was meant to be draining"
    assert run.commands() == [("Sleep", "metal-2")]
    assert run.cordoned() == []


def test_a_machine_that_two_pools_name_is_switched_by_one() -> None:
    """C14: a copied manifest, under another name."""
    pool = a_pool(gpus=[8, 8])
    copy = pool | {"metadata": {"name": "zinc"}}
    timeline = [at("60s", a_job("work", 8, "5m", pods=2))]
    run = play([pool, copy, *machines(pool, "Off")], timeline, duration="25m")

    assert run.problems() == []
    assert {told.pool for told in run.told} == {"metal"}
    assert sorted(run.commands()) == [(word, f"metal-{number}") for word in ("Sleep", "Wake") for number in (1, 2)]
    assert run.condition("Conflict", "zinc")[0] == "True"


def test_a_paused_pool_changes_nothing_and_goes_on_afterwards() -> None:
    pool = a_pool(gpus=[8, 8])
    pause: dict[str, Any] = {"resource": "PowerPool/metal", "merge": {"spec": {"paused": True}}}
    resume: dict[str, Any] = {"resource": "PowerPool/metal", "merge": {"spec": {"paused": False}}}
    timeline = [
        {"at": "30s", "patch": pause},
        at("60s", a_pod("train", 8, "30m")),
        {"at": "10m", "patch": resume},
    ]
    run = play([pool, *machines(pool, "Off")], timeline, duration="20m")

    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1")]
    assert run.when("Wake", "metal-1") >= 10 * MINUTE
    assert run.phases() == {"train": "Running"}


def test_a_machine_that_people_switch_on_is_capacity_and_idles_out() -> None:
    """C13: what is observed wins over what is remembered."""
    pool = a_pool(gpus=[8, 8])
    hand = machines(pool, "On")[1]
    timeline = [at("60s", hand), at("4m", a_pod("train", 8, "2m"))]
    run = play([pool, *machines(pool, "Off")], timeline, duration="30m")

    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-2")], "the pod had room on what was switched on by hand"
    assert run.phases() == {"train": "Succeeded"}


def test_a_machine_that_people_switch_off_is_off_and_wakes_when_it_is_needed() -> None:
    pool = a_pool(gpus=[8])
    timeline = [at("60s", machines(pool, "Off")[0]), at("10m", a_pod("train", 8, "2m"))]
    run = play([pool, *machines(pool, "On"), *nodes(pool)], timeline, duration="25m")

    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1"), ("Sleep", "metal-1")]
    assert run.phases() == {"train": "Succeeded"}


def test_a_node_that_people_cordoned_is_left_alone() -> None:
    pool = a_pool(gpus=[8, 8])
    kept = nodes(pool)
    kept[0]["spec"] = {"unschedulable": True}
    run = play([pool, *machines(pool, "On"), *kept], duration="20m")

    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-2")]
    assert run.cordoned() == ["metal-1"]


def test_energy_is_what_the_watts_come_to() -> None:
    pool = a_pool()
    run = play([pool, *machines(pool, "Off")], [at("60s", a_pod("train", 8, "30m"))], duration="1h")

    assert run.problems() == []
    [woken], [slept] = ([each.at for each in run.told if each.command == word] for word in ("Wake", "Sleep"))
    until = moment(run.status()["energy"]["asOf"]) or 0
    used, saved = (float(run.status()["energy"][word]) for word in ("usedKwh", "savedKwh"))
    on, busy = (slept - woken) / HOUR, 0.5
    # Until its node is seen to be gone a machine counts as on, and until it is looked at again, within half a minute, as in use.
    a_minute, a_look = 0.5 / 60, 2.5 / 120
    assert 3 * busy + 0.5 * (on - busy) <= used <= 3 * busy + 0.5 * (on - busy) + 2 * a_minute + a_look
    off = (until - run.start) / HOUR - on
    assert 0.5 * off - 2 * a_minute <= saved <= 0.5 * off
