"""Warm machines: how many stay on in a large pool that nobody uses, which are woken ahead, and that nothing swings."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.core.power.telling import staying
from headroom.model.facts import Shape
from tests.builders import NOON
from tests.core.power_stage import (
    GPU,
    HOUR,
    MINUTE,
    SECOND,
    Stage,
    a_pool,
    a_round,
    a_view,
    decided,
    effects,
    off,
    on,
    remembered,
    running,
    waiting,
    wakes,
    was,
)

REFUSED = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."
SPREAD = Shape(requests=((GPU, 8_000_000),), spread='[{"topologyKey":"zone"}]')
NAMES = [f"w{number:03}" for number in range(200)]


def a_large_pool(machines: int = 200, **policy: Any) -> AnyResource:
    return a_pool(machines=dict.fromkeys(NAMES[:machines], 8), minOffSeconds=0, **policy)


def stage_with(used: int, idle: int, pool: AnyResource | None = None) -> Stage:
    """The first machines are used, the next ones idle, and all others off."""
    nodes = [on(name, 8) for name in NAMES[: used + idle]] + [off(name, 8) for name in NAMES[used + idle :]]
    pods = [running(f"p{number}", name, 8) for number, name in enumerate(NAMES[:used])]
    return Stage(pool or a_large_pool(), nodes=nodes, pods=pods)


def on_now(stage: Stage) -> int:
    return sum(stage.state(name) == "On" for name in NAMES)


def test_six_of_a_hundred_that_nobody_uses_stay_on() -> None:
    stage = stage_with(100, 20)
    stage.pass_time(3 * HOUR, every=MINUTE)
    assert on_now(stage) == 100 + 6
    assert len(stage.commands()) == 14
    assert "stays on: 6 % of the 100 machines that nobody uses stay warm" in explained(stage, "w119")


def explained(stage: Stage, name: str) -> str:
    """What is said of a machine that is idle, as if it were the only one."""
    service = a_round(stage.world())
    pool, it = next((each.pool, it) for each in service.supplies for it in each.pool.members if it.name == name)  # type: ignore[attr-defined]  # all of them are pools
    return staying(pool, it)


def test_what_nobody_used_for_a_day_sleeps_all_the_same() -> None:
    stage = stage_with(0, 10)
    stage.pass_time(26 * HOUR, every=2 * MINUTE)
    assert on_now(stage) == 0


@pytest.mark.parametrize(("machines", "low", "high"), [(130, 99, 101), (180, 149, 151), (200, 97, 103)])
def test_nothing_is_switched_while_use_swings_within_idle_seconds(machines: int, low: int, high: int) -> None:
    stage = stage_with(high, 0, a_large_pool(machines))
    for name in NAMES[machines:]:
        del stage.nodes[name]
    stage.look()
    for _ in range(40):
        swinging = [f"uid-p{number}" for number in range(low, high)]
        kept = {uid: stage.pods.pop(uid) for uid in swinging}
        stage.pass_time(7 * MINUTE, every=30 * SECOND)
        stage.pods |= kept
        stage.pass_time(7 * MINUTE, every=30 * SECOND)
    assert len(stage.commands()) <= 2


def test_one_is_woken_ahead_for_fifty_in_use() -> None:
    assert wakes(decided(stage_with(49, 0).world())["one"]) == []
    decision = decided(stage_with(50, 0).world())["one"]
    assert wakes(decision) == ["w050"]
    why = "Waking w050 (8 GPUs) since 50 machines are in use and 1 machine is kept ready for who comes; "
    assert decision.message.startswith(why)
    assert wakes(decided(stage_with(50, 1).world())["one"]) == [], "one is there"
    assert wakes(decided(stage_with(100, 0).world())["one"]) == ["w100", "w101"]
    assert wakes(decided(stage_with(190, 0).world())["one"]) == [], "too few are left to keep one warm"


def test_what_is_woken_ahead_is_like_what_is_used_most() -> None:
    sizes = {name: (1, 4, 8)[number % 3] for number, name in enumerate(NAMES)}
    used = [name for name in NAMES if sizes[name] != 1][:100]
    fours = [name for name in used if sizes[name] == 4]
    pods = [running(f"p{name}", name, 1) for name in used]
    nodes = [on(name, sizes[name]) if name in used else off(name, sizes[name]) for name in NAMES]
    world = a_view(a_pool(machines=sizes), nodes=nodes, pods=pods)
    assert len(fours) == 50, "as many as the large ones, and then the smaller size"
    assert [sizes[woken] for woken in wakes(decided(world)["one"])] == [4, 4]


@pytest.mark.parametrize(
    ("machines", "percent", "warm"), [(99, None, 0), (100, None, 6), (100, 0, 0), (20, 5, 1), (10, 100, 10)]
)
def test_only_large_pools_have_them_unless_told(machines: int, percent: int | None, warm: int) -> None:
    given = {} if percent is None else {"warmPercent": percent}
    stage = stage_with(0, machines, a_large_pool(machines, **given))
    stage.pass_time(3 * HOUR, every=MINUTE)
    assert sum(stage.state(name) == "On" for name in NAMES[:machines]) == warm


def test_a_small_pool_goes_to_sleep_as_the_policy_says() -> None:
    stage = stage_with(0, 40, a_large_pool(40, maxConcurrentSleeps=8))
    assert len(effects(decided(stage.world())["one"])) == 8


def test_nothing_is_woken_only_to_be_warm() -> None:
    world = a_view(a_large_pool(), nodes=[off(name, 8) for name in NAMES])
    assert effects(decided(world)["one"]) == []


def test_a_pool_that_is_halted_wakes_nothing_ahead() -> None:
    paused = stage_with(160, 0, a_large_pool(paused=True))
    paused.look()
    assert paused.commands() == []


def test_nothing_is_woken_ahead_for_those_for_whom_nothing_is_woken() -> None:
    """Pods below the floor would take each machine that is woken ahead, and the next one."""
    low = [waiting(f"low{number}", 8) for number in range(5)]
    stage = stage_with(100, 0, a_large_pool(priorityFloor=10))
    stage.pods |= {pod.uid: pod for pod in low}
    stage.look()
    stage.pass_time(10 * MINUTE, every=30 * SECOND)
    assert stage.commands() == []
    for pod in low:
        del stage.pods[pod.uid]
    stage.pass_time(MINUTE, every=30 * SECOND)
    assert len(stage.commands()) == 2


def test_what_is_woken_ahead_and_waited_for_by_others_asks_for_no_more_ahead() -> None:
    refused = [
        structs.replace(waiting(f"j{number}", 8, since=NOON - 2 * MINUTE), shape=SPREAD, unschedulable_message=REFUSED)
        for number in range(20)
    ]
    stage = stage_with(100, 1)
    stage.pods |= {pod.uid: pod for pod in refused}
    stage.never = {pod.uid for pod in refused}
    stage.look()
    stage.pass_time(3 * MINUTE, every=SECOND)
    assert len(stage.commands()) == 2, "one on trial, and one of the two that are kept ready"


def test_the_clock_alone_lets_machines_sleep_that_were_used_a_while_ago() -> None:
    nodes = [on(name, 8) for name in NAMES[:120]] + [off(name, 8) for name in NAMES[120:]]
    pods = [running(f"p{number}", name, 8) for number, name in enumerate(NAMES[:100])]
    idle = [was(name, "On", NOON - HOUR, idle_since=NOON - 11 * MINUTE) for name in NAMES[100:120]]
    pool = remembered(a_large_pool(), *idle)
    decision = decided(a_view(pool, nodes=nodes, pods=pods))["one"]
    assert effects(decision) == [], "they count as used for a quarter of an hour"
    assert decision.next_turn_ms == 4 * MINUTE
    then = decided(a_view(pool, nodes=nodes, pods=pods, now=NOON + 4 * MINUTE))["one"]
    assert len(effects(then)) == 14
