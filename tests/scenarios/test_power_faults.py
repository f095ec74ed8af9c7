"""Power under faults: whatever dies, lies, is lost or comes late, no pod is lost, nothing is sent twice, and in the end all is well."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from msgspec import structs

from tests.scenarios.ladder import AS_EVER, UNHURRIED
from tests.scenarios.power_stage import (
    MINUTE,
    SECOND,
    PowerRun,
    a_job,
    a_node,
    a_pod,
    a_pool,
    at,
    is_ready,
    leading,
    machines,
    nodes,
    play,
)
from tests.tiers import DEEP

VERBS = {"PATCH": "patch", "POST": "create"}


def story(*faults: dict[str, Any], duration: str = "35m", **more: Any) -> PowerRun:
    """Two Jobs come, a machine wakes for each, and both sleep when the work is done."""
    pool = a_pool(gpus=[8, 8, 8], asked=more.pop("asked", False))
    timeline = [{"at": "0s", "fault": {"actor": "operator-*"} | fault} for fault in faults]
    timeline += [at("60s", a_job("first", 8, "5m")), at("3m", a_job("second", 8, "5m"))]
    return play([pool, *machines(pool, "Off")], timeline, duration=duration, **more)


@cache
def calm() -> PowerRun:
    """The story without any fault."""
    return story(pace=AS_EVER)


def over(run: PowerRun) -> list[str]:
    """What is not as it should be when all is over."""
    found = [f"{name} is {phase}" for name, phase in run.phases().items() if phase not in ("Succeeded", "Failed")]
    done = [each["metadata"]["name"] for each in run.simulation.server.objects("Job") if _is_done(each)]
    found += [f"{name} is not done" for name in ("first", "second") if name not in done]
    states = run.states()
    # One that could not be woken and is not needed any more is not tried again.
    found += [f"{name} is {state}" for name, state in states.items() if state not in ("Off", "Failed")]
    found += [f"{name} is on" for name in states if run.simulation.machines.power(name).power != "Off"]
    return found + [f"{name} is cordoned" for name in run.cordoned()]


def _is_done(job: dict[str, Any]) -> bool:
    return any(each["type"] == "Complete" for each in (job.get("status") or {}).get("conditions") or [])


def test_without_faults_each_machine_is_woken_and_sent_to_sleep_once() -> None:
    run = calm()
    assert run.problems() == []
    assert over(run) == []
    assert sorted(run.commands()) == [
        ("Sleep", "metal-1"),
        ("Sleep", "metal-2"),
        ("Wake", "metal-1"),
        ("Wake", "metal-2"),
    ]


# --- the operator and the API server ----------------------------------------------------------------------------------------------


def effects() -> list[tuple[str, str]]:
    """The verb and path of everything that the operator did for power in the calm story, the calls to switches included."""
    run = calm()
    writes = [
        (VERBS[each.method], each.path.partition("?")[0])
        for each in run.report.trace.writes
        if each.actor == "operator-1" and not any(part in each.path for part in ("/leases", "/events", "/bandwidths"))
    ]
    calls = [(told.command.lower(), f"/power/metal/{told.machine}") for told in run.told]
    return list(dict.fromkeys([*writes, *calls]))


@pytest.mark.parametrize("kind", ["CrashBefore", "CrashAfter", "LostReply", "Refusal"])
def test_every_effect_struck_once(kind: str) -> None:
    """Each effect meets the fault the first time it is tried, in a run of its own."""
    for verb, path in effects():
        for nth in range(1, 4) if path.endswith("/status") else (1,):
            run = story({"type": kind, "verb": verb, "path": path, "nth": nth}, duration="50m")
            assert run.problems() == [], (verb, path, nth)
            assert over(run) == [], (verb, path, nth)
            assert [word for _, _, word in run.report.happened] == [kind], (verb, path, nth)


@pytest.mark.parametrize(
    "faults",
    [
        [{"type": "WatchDelay", "ms": 4000}],
        [{"type": "WatchDelay", "ms": 45_000, "path": "*/pods"}],
        [{"type": "WatchDelay", "ms": 45_000, "path": "*/nodes"}],
        [{"type": "WatchDelay", "ms": 20_000, "path": "*/powerpools"}],
        [{"type": "StaleView", "from": "55s", "until": "100s"}, {"type": "StaleView", "from": "11m", "until": "14m"}],
        [{"type": "LostReply", "probability": 0.2, "until": "20m"}, {"type": "Duplicate", "probability": 0.3}],
        [{"type": "DroppedStream", "probability": 0.1, "until": "20m"}, {"type": "Expire", "probability": 0.02}],
    ],
    ids=["late", "pods late", "nodes late", "pools late", "stale", "lost", "broken"],
)
def test_a_bad_view_or_lost_replies_harm_nobody(faults: list[dict[str, Any]]) -> None:
    run = story(*faults, duration="60m")
    assert run.problems() == []
    assert over(run) == []


@pytest.mark.parametrize("late", [0, 3000, 20_000])
def test_two_leaders_switch_nothing_twice(late: int) -> None:
    """Both lead at once, each by a lease of its own; one may see everything later than the other."""
    delay = [{"type": "WatchDelay", "actor": "operator-2", "ms": late}] if late else []
    run = story(*delay, operators=2, make_operator=leading, duration="50m")
    assert run.problems() == []
    assert over(run) == []
    assert sorted(run.commands()) == sorted(calm().commands())


@pytest.mark.parametrize("second", [61, 62, 65, 90, 120, 149, 152, 160])
def test_an_operator_that_dies_while_a_machine_boots_sends_nothing_twice(second: int) -> None:
    """C16: its successor knows from the status what was asked for."""
    pool = a_pool(gpus=[8, 8])
    timeline = [at("60s", a_job("first", 8, "5m")), {"at": f"{second}s", "killOperator": "operator-1"}]
    run = play([pool, *machines(pool, "Off")], timeline, duration="25m")
    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1"), ("Sleep", "metal-1")]


def test_a_stop_of_the_whole_cluster_ends_all_effects() -> None:
    stop = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "headroom", "namespace": "headroom-system"},
        "data": {"stop": "true"},
    }
    pool = a_pool(gpus=[8, 8])
    timeline = [
        at("30s", stop),
        at("60s", a_job("first", 8, "5m")),
        {"at": "8m", "delete": "ConfigMap/headroom-system/headroom"},
    ]
    run = play([pool, *machines(pool, "Off")], timeline, duration="12m")
    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1")]
    assert run.when("Wake", "metal-1") > 8 * MINUTE


# --- switches -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "woken"),
    [
        ({"type": "Refusal", "status": 500}, ["metal-2"]),
        ({"type": "Refusal", "status": 429}, ["metal-2"]),
        ({"type": "Refusal", "status": 404}, ["metal-2"]),
        ({"type": "Refusal", "status": 302}, ["metal-2"]),
        ({"type": "Refusal", "status": 307}, ["metal-2"]),
        ({"type": "Outage"}, ["metal-2"]),
        ({"type": "Slow", "ms": 3000}, ["metal-1"]),
        ({"type": "Slow", "ms": 9000}, ["metal-1"]),
        ({"type": "LostReply"}, ["metal-1"]),
        ({"type": "Ignored"}, ["metal-1", "metal-2"]),
        ({"type": "Late", "ms": 120_000}, ["metal-1"]),
    ],
    ids=["500", "429", "404", "302", "307", "unreachable", "slow", "too slow", "reset", "lying", "late"],
)
@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
def test_an_endpoint_that_fails_passes_the_demand_on(fault: dict[str, Any], woken: list[str], asked: bool) -> None:
    """P-L3: what surely failed goes to the next machine at once, what is still off after two minutes, what nobody knows later."""
    pool = a_pool(gpus=[8, 8], asked=asked)
    faults = [{"at": "0s", "fault": {"verb": "wake", "path": "*/metal-1"} | fault}]
    run = play([pool, *machines(pool, "Off")], [*faults, at("60s", a_pod("train", 8))], duration="12m")
    assert run.problems() == []
    if asked and fault["type"] == "Late":
        woken = ["metal-1", "metal-2"]  # it is seen to be off for two minutes
    assert list(dict.fromkeys(name for command, name in run.commands() if command == "Wake")) == woken
    assert run.phases() == {"train": "Running"}
    if woken[0] == "metal-2":
        assert run.when("Wake", "metal-2") < 75 * SECOND
    if woken == ["metal-1", "metal-2"]:
        silence = 175 if asked else 355
        assert silence * SECOND < run.when("Wake", "metal-2") < (silence + 25) * SECOND


@pytest.mark.parametrize(
    ("fault", "stays_on"),
    [
        ({"type": "Refusal", "status": 500, "times": 1}, True),
        ({"type": "Refusal", "status": 308, "times": 1}, True),
        ({"type": "Outage", "until": "10m"}, True),
        ({"type": "LostReply", "times": 1}, False),
        ({"type": "Ignored", "times": 1}, True),
        ({"type": "Late", "ms": 100_000, "times": 1}, False),
    ],
    ids=["500", "308", "unreachable", "reset", "lying", "late"],
)
def test_a_machine_that_does_not_sleep_is_let_in_again_and_told_later(fault: dict[str, Any], stays_on: bool) -> None:
    pool = a_pool(gpus=[8])
    faults = [{"at": "0s", "fault": {"verb": "sleep"} | fault}]
    run = play([pool, *machines(pool, "On"), *nodes(pool)], faults, duration="60m")
    assert run.problems() == []
    assert run.states() == {"metal-1": "Off"}
    cordons = run.auditor.tracks["metal-1"].cordons
    assert (len(cordons) > 1) == stays_on, "the cordon is lifted while it stays on"


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
def test_a_machine_that_never_boots_fails_and_the_next_one_takes_over(asked: bool) -> None:
    """C9: on, and never a node."""
    pool = a_pool(gpus=[8, 8], asked=asked)
    fault = {"at": "0s", "fault": {"type": "Ignored", "verb": "boot", "path": "*/metal-1"}}
    run = play([pool, *machines(pool, "Off")], [fault, at("60s", a_pod("train", 8))], duration="14m")
    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1"), ("Wake", "metal-2"), ("Sleep", "metal-1")]
    assert run.phases() == {"train": "Running"}
    assert run.states()["metal-1"] == "Off"
    assert run.machine("metal-1")["failures"] == 1


def test_a_machine_with_fewer_gpus_than_it_should_have_counts_as_what_it_is() -> None:
    pool = a_pool(gpus=[8, 8])
    fault = {"at": "0s", "fault": {"type": "Crippled", "verb": "boot", "path": "*/metal-1", "gpus": 4}}
    timeline = [fault, at("60s", a_pod("large", 8, "30m")), at("6m", a_pod("small", 4, "30m"))]
    run = play([pool, *machines(pool, "Off")], timeline, duration="14m")
    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1"), ("Wake", "metal-2")]
    assert run.phases() == {"large": "Running", "small": "Running"}
    assert "4" in run.machine("metal-1").get("reason", "")


def test_a_late_machine_is_capacity_and_then_idles_out() -> None:
    """It comes up after the demand was passed on; the next pod goes there, and nothing more is woken."""
    pool = a_pool(gpus=[8, 8, 8])
    fault = {"at": "0s", "fault": {"type": "Late", "verb": "boot", "path": "*/metal-1", "ms": 400_000}}
    timeline = [fault, at("60s", a_pod("train", 8, "20m")), at("10m", a_pod("next", 8, "2m"))]
    run = play([pool, *machines(pool, "Off")], timeline, duration="50m")
    assert run.problems() == []
    assert [each for each in run.commands() if each[0] == "Wake"] == [("Wake", "metal-1"), ("Wake", "metal-2")]
    assert run.states() == {f"metal-{number}": "Off" for number in (1, 2, 3)}
    assert set(run.phases().values()) == {"Succeeded"}


# --- pods that come at the last moment ----------------------------------------------------------------------------------------------


def draining(*acts: Any, timeline: Sequence[dict[str, Any]] = (), duration: str = "8m") -> PowerRun:
    """An idle machine about to sleep; one that nobody needs stands beside it."""
    pool = a_pool(gpus=[8], idleSeconds=60)
    return play([pool, *machines(pool, "On"), *nodes(pool), a_node("other")], timeline, duration=duration, acts=acts)


@cache
def instants() -> tuple[float, ...]:
    """Every half second from before the cordon to the command, in seconds."""
    run = draining()
    [cordon] = run.auditor.tracks["metal-1"].cordons
    begin, end = cordon.begin - run.start, run.when("Sleep", "metal-1")
    assert end - begin >= 10 * SECOND
    return tuple(moment / SECOND for moment in range(begin - 1000, end, 500))


@pytest.mark.parametrize("part", range(4))
def test_a_pod_that_binds_at_any_instant_before_the_switch_keeps_the_machine_on(part: int) -> None:
    """C6: a scheduler that has not seen the cordon yet, or somebody who names the node themselves."""
    for moment in instants()[part::4]:
        run = draining((moment, lambda simulation: simulation.server.put(a_pod("late", 8, nodeName="metal-1"))))
        assert run.problems() == [], moment
        assert run.phases() == {"late": "Running"}, moment
        assert run.cordoned() == [], moment
        assert run.states() == {"metal-1": "On"}, moment


@pytest.mark.parametrize("part", range(4))
def test_a_pod_that_waits_at_any_instant_before_the_switch_gets_the_machine(part: int) -> None:
    for moment in instants()[part::4]:
        run = draining((moment, lambda simulation: simulation.server.put(a_pod("late", 8))))
        assert run.problems() == [], moment
        assert run.phases() == {"late": "Running"}, moment


# --- the view -------------------------------------------------------------------------------------------------------------------------


def test_when_all_machines_turn_idle_at_once_only_a_few_are_switched_off_on_that_word() -> None:
    """C10: three of the pool within a minute."""
    pool = a_pool(gpus=[8] * 6, idleSeconds=20, maxConcurrentSleeps=6, warmPercent=0)
    pods = [a_pod(f"train-{number}", 8, "3m") for number in range(6)]
    expect = [
        {"at": "230s", "resource": "PowerPool/metal", "path": "status.conditions[Braked].status", "equals": "True"},
        {"at": "400s", "resource": "PowerPool/metal", "path": "status.conditions[Braked].status", "equals": "False"},
    ]
    run = play([pool, *machines(pool, "On"), *nodes(pool), *pods], duration="30m", expect=expect)
    assert run.problems() == []
    began = sorted(track.cordons[0].begin - run.start for track in run.auditor.tracks.values())
    assert all(sum(at <= each < at + 60 * SECOND for each in began) <= 3 for at in began)
    assert len(run.commands()) == 6


def test_an_operator_that_does_not_see_everything_switches_nothing() -> None:
    """P-S6, G-S4: pods cannot be listed any more, and the machine falls idle by what was last seen."""
    pool = a_pool(gpus=[8], idleSeconds=60)
    blind = [
        {"at": "30s", "fault": {"type": "Outage", "actor": "operator-1", "path": "*/pods", "until": "20m"}},
    ]
    run = play([pool, *machines(pool, "On"), *nodes(pool)], blind, duration="30m")
    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-1")]
    assert run.when("Sleep", "metal-1") > 20 * MINUTE


# --- everything at once ---------------------------------------------------------------------------------------------------------------

MIX: list[dict[str, Any]] = [
    {"type": "LostReply", "path": "/power/*", "probability": 0.06},
    {"type": "Refusal", "path": "/power/*", "status": 500, "probability": 0.06},
    {"type": "Ignored", "verb": "[ws]*", "path": "/power/*", "probability": 0.04},
    {"type": "Refusal", "path": "/power/*", "status": 302, "probability": 0.02},
    {"type": "Late", "verb": "[ws]*", "path": "/power/*", "probability": 0.1, "ms": 200_000},
    {"type": "Ignored", "verb": "boot", "probability": 0.05},
    {"type": "Crippled", "verb": "boot", "probability": 0.05, "gpus": 3},
    {"type": "LostReply", "verb": "patch", "probability": 0.02},
    {"type": "Refusal", "verb": "patch", "status": 409, "probability": 0.05},
    {"type": "CrashBefore", "probability": 0.001},
    {"type": "CrashAfter", "probability": 0.001},
    {"type": "WatchDelay", "ms": 700, "probability": 0.2},
    {"type": "DroppedStream", "probability": 0.002},
]
"""Three times what is usual, so that some hours are enough."""
SOON_LED = structs.replace(UNHURRIED, lease_seconds=60, renew_seconds=20.0)
"""A lease of ten minutes is looked at six hundred times before it is taken over, and every look may be the end of whoever looks."""


@pytest.mark.parametrize("seed", range(4 if DEEP else 2))  # of pools that are asked, and of pools that are not
def test_hours_of_everything_that_goes_wrong(seed: int) -> None:
    pool = a_pool(gpus=[4, 8, 8, 8, 4, 8], asked=seed % 2 == 0, warmPercent=0)
    timeline = [{"at": "0s", "fault": {"until": "4h"} | fault} for fault in MIX]
    lengths = ("7m", "25m", "50m", "3m")
    for number in range(40):
        job = a_job(
            f"job-{number}", (1, 8, 4, 2)[(number + seed) % 4], lengths[(number * 3 + seed) % 4], 1 + number % 3
        )
        timeline.append(at(f"{number * 5 + 1}m", job))
    base = [pool, *machines(pool, "Off")]
    run = play(base, timeline, duration="8h", seed=seed, patience=5 * MINUTE, pace=SOON_LED)
    assert run.problems() == []
    assert [name for name, phase in run.phases().items() if phase not in ("Succeeded", "Failed")] == []
    jobs = run.simulation.server.objects("Job")
    assert [each["metadata"]["name"] for each in jobs if not _is_done(each)] == []
    on = [name for name in run.states() if run.simulation.machines.power(name).power == "On"]
    ready = [each["metadata"]["name"] for each in run.simulation.server.objects("Node") if is_ready(each)]
    assert ready == []
    assert {run.states()[name] for name in on} <= {"Failed"}, "only what never became a node is still on"
