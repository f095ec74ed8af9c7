"""Warm spares: how many machines stay on beside the recent peak, which are woken ahead, and that nothing swings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.power_status import Peak, PowerPoolStatus
from headroom.core.power import warmth
from headroom.core.power.gathering import pools_of
from headroom.core.power.members import PowerPoolState
from headroom.core.power.telling import staying
from headroom.model import times
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
    status,
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


def test_the_peak_and_a_share_of_what_is_left_stay_on() -> None:
    stage = stage_with(100, 20)
    stage.pass_time(3 * HOUR, every=MINUTE)
    assert on_now(stage) == 100 + 5
    assert len(stage.commands()) == 15
    assert explained(stage, "w119") == "stays on: 100 machines in use at the peak of the last 40m, and 5 warm spares"


def test_what_was_in_use_lately_stays_on_until_its_window_has_passed() -> None:
    stage = stage_with(100, 0)
    stage.look()
    ahead = len(stage.commands())
    for number in range(60, 100):
        del stage.pods[f"uid-p{number}"]
    stage.pass_time(39 * MINUTE, every=30 * SECOND)
    assert len(stage.commands()) == ahead, "100 were in use"
    stage.pass_time(HOUR, every=MINUTE)
    assert on_now(stage) == 60 + 7


def explained(stage: Stage, name: str) -> str:
    """What is said of a machine that is idle, as if it were the only one."""
    service = a_round(stage.world())
    pool, it = next((each.pool, it) for each in service.supplies for it in each.pool.members if it.name == name)  # type: ignore[attr-defined]  # all of them are pools
    return staying(pool, it)


def test_a_pool_that_was_not_in_use_for_a_day_keeps_nothing_warm() -> None:
    stage = stage_with(20, 10)
    stage.look()
    stage.pods.clear()
    stage.pass_time(20 * HOUR, every=5 * MINUTE)
    assert on_now(stage) == 10, "of 200 machines"
    stage.pass_time(5 * HOUR, every=5 * MINUTE)
    assert on_now(stage) == 0


def test_a_pool_that_was_never_in_use_keeps_nothing_warm() -> None:
    stage = stage_with(0, 10)
    stage.pass_time(HOUR, every=MINUTE)
    assert on_now(stage) == 0


@pytest.mark.parametrize(
    ("machines", "low", "high"), [(8, 4, 6), (20, 9, 12), (130, 99, 101), (180, 149, 151), (200, 90, 110)]
)
def test_nothing_is_switched_while_use_swings_within_the_window(machines: int, low: int, high: int) -> None:
    stage = stage_with(high, 0, a_large_pool(machines))
    for name in NAMES[machines:]:
        del stage.nodes[name]
    stage.look()
    for _ in range(12):
        swinging = [f"uid-p{number}" for number in range(low, high)]
        kept = {uid: stage.pods.pop(uid) for uid in swinging}
        stage.pass_time(17 * MINUTE, every=MINUTE)
        stage.pods |= kept
        stage.pass_time(17 * MINUTE, every=MINUTE)
    assert {command.split()[0] for _, command in stage.commands()} <= {"wake"}
    assert len(stage.commands()) <= 2, "the spares, once"


@pytest.mark.parametrize(
    ("used", "idle", "machines", "woken"),
    [
        (1, 0, 20, ["w001"]),
        (1, 1, 20, []),
        (0, 0, 20, []),
        (15, 0, 20, ["w015"]),
        (16, 0, 20, []),
        (150, 0, 200, ["w150"]),
        (198, 0, 200, []),
    ],
)
def test_one_spare_is_woken_ahead_where_somebody_works(used: int, idle: int, machines: int, woken: list[str]) -> None:
    assert wakes(decided(stage_with(used, idle, a_large_pool(machines)).world())["one"]) == woken


@pytest.mark.parametrize(("used", "ahead"), [(0, 0), (1, 1), (199, 1), (200, 2), (300, 3), (391, 1), (396, 0)])
def test_one_spare_is_woken_ahead_for_a_hundred_machines_in_use(used: int, ahead: int) -> None:
    machines = {f"w{number:03}": 8 for number in range(400)}
    [pool] = pools_of(a_view(a_pool(machines=machines)))
    keep_busy(pool, used)
    warmth.measure(pool, 0)
    assert pool.ahead == ahead, "and never more than there are spares"


def test_a_spare_that_is_woken_says_why() -> None:
    message = decided(stage_with(50, 0).world())["one"].message
    assert message.startswith("Waking w050 (8 GPUs) since 50 machines are in use and 1 warm spare must be on; ")


def test_what_is_woken_ahead_is_like_what_is_used_most() -> None:
    sizes = {name: (1, 4, 8)[number % 3] for number, name in enumerate(NAMES)}
    used = [name for name in NAMES if sizes[name] != 1][:100]
    fours = [name for name in used if sizes[name] == 4]
    pods = [running(f"p{name}", name, 1) for name in used]
    nodes = [on(name, sizes[name]) if name in used else off(name, sizes[name]) for name in NAMES]
    world = a_view(a_pool(machines=sizes), nodes=nodes, pods=pods)
    assert len(fours) == 50, "as many as the large ones, and then the smaller size"
    assert [sizes[woken] for woken in wakes(decided(world)["one"])] == [4]


@pytest.mark.parametrize(
    ("machines", "percent", "spares"),
    [
        (4, None, 0),
        (5, None, 0),
        (6, None, 1),
        (20, None, 1),
        (101, None, 5),
        (101, 0, 0),
        (20, 10, 1),
        (3, 50, 1),
        (6, 1, 1),
        (11, 100, 10),
    ],
)
def test_pools_of_every_size_have_spares_in_proportion(machines: int, percent: int | None, spares: int) -> None:
    given = {} if percent is None else {"warmPercent": percent}
    stage = stage_with(1, machines - 1, a_large_pool(machines, **given))
    stage.pass_time(3 * HOUR, every=MINUTE)
    assert sum(stage.state(name) == "On" for name in NAMES[:machines]) == 1 + spares


@pytest.mark.parametrize("policy", [{"warmPercent": 0}, {"idleSeconds": 0, "warmPercent": 0}])
def test_without_a_share_machines_sleep_as_idle_seconds_say(policy: dict[str, int]) -> None:
    stage = stage_with(8, 0, a_large_pool(8, maxConcurrentSleeps=8, **policy))
    stage.look()
    stage.pods.clear()
    stage.pass_time(HOUR, every=30 * SECOND)
    assert {stage.state(name) for name in NAMES[:8]} == {"Off"}


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
    assert len(stage.commands()) == 1


def test_what_is_woken_ahead_and_waited_for_by_others_asks_for_no_more_ahead() -> None:
    refused = [
        structs.replace(waiting(f"j{number}", 8, since=NOON - 2 * MINUTE), shape=SPREAD, unschedulable_message=REFUSED)
        for number in range(20)
    ]
    stage = stage_with(100, 1)
    stage.pods |= {pod.uid: pod for pod in refused}
    stage.never = {pod.uid for pod in refused}
    stage.look()
    stage.pass_time(3 * MINUTE, every=3 * SECOND)
    assert len(stage.commands()) == 1, "one on trial; a spare is there"


def test_a_machine_on_trial_has_no_spare_beside_it() -> None:
    refused = structs.replace(waiting("j", 8, since=NOON - 2 * MINUTE), shape=SPREAD, unschedulable_message=REFUSED)
    world = a_view(a_large_pool(20), nodes=[on("n1", 8)], pods=[refused])
    assert wakes(decided(world)["one"]) == ["w000"]


def test_pods_that_never_ran_keep_nothing_warm_once_they_are_gone() -> None:
    stage = Stage(a_large_pool(20), pods=[waiting("k", 8)])
    stage.binds = False
    stage.look()
    assert [command for _, command in stage.commands()] == ["wake w000"], "and no spare before it is of use"
    stage.pods.clear()
    stage.pass_time(25 * MINUTE, every=30 * SECOND)
    assert stage.state("w000") == "Off"
    assert status(stage.decisions["one"]).peaks == ()


def stage_of_the_past(now: int = NOON, **fields: Any) -> Stage:
    """100 of 120 machines that are on are in use, and the others have been idle for long."""
    nodes = [on(name, 8) for name in NAMES[:120]] + [off(name, 8) for name in NAMES[120:]]
    pods = [running(f"p{number}", name, 8) for number, name in enumerate(NAMES[:100])]
    idle = [was(name, "On", NOON - HOUR, idle_since=NOON - 30 * MINUTE) for name in NAMES[100:120]]
    return Stage(remembered(a_large_pool(), *idle, **fields), nodes=nodes, pods=pods, now=now)


def peaks(*given: tuple[int, int]) -> tuple[Peak, ...]:
    return tuple(Peak(machines=machines, until=times.text(until)) for machines, until in given)


def test_the_clock_alone_lets_machines_sleep_when_the_peak_falls() -> None:
    lower = (110, NOON - 20 * MINUTE)
    past: dict[str, Any] = {"in_use": 100, "peaks": peaks((130, NOON - 36 * MINUTE), lower)}
    decision = decided(stage_of_the_past(**past).world())["one"]
    assert effects(decision) == []
    assert decision.next_turn_ms == 4 * MINUTE
    then = decided(stage_of_the_past(NOON + 4 * MINUTE, **past).world())["one"]
    assert len(effects(then)) == 120 - 110 - 4
    assert status(then).peaks == peaks(lower)


def test_a_status_without_the_past_counts_as_without_it() -> None:
    assert len(effects(decided(stage_of_the_past().world())["one"])) == 20 - 5


def test_a_fall_is_noted_when_it_is_seen_and_an_unchanged_world_writes_nothing_new() -> None:
    stage = stage_of_the_past(in_use=118)
    first = decided(stage.world())["one"]
    assert (status(first).in_use, status(first).peaks) == (100, peaks((118, NOON)))
    stage.look()
    stage.now += 50 * SECOND
    then = decided(stage.world())["one"]
    assert (status(then).in_use, status(then).peaks) == (100, peaks((118, NOON)))


def test_a_pool_that_is_halted_remembers_the_past() -> None:
    stage = stage_of_the_past(in_use=118, peaks=peaks((119, NOON - MINUTE)))
    stage.more["stopped"] = True
    decision = decided(stage.world())["one"]
    assert (status(decision).in_use, status(decision).peaks) == (118, peaks((119, NOON - MINUTE)))


def test_a_clock_that_was_turned_back_keeps_nothing_longer_than_the_window() -> None:
    later = NOON + 10 * HOUR
    stage = stage_of_the_past(in_use=100, peaks=peaks((118, later), (110, later + MINUTE)))
    stage.look()
    assert status(stage.decisions["one"]).peaks == peaks((118, NOON)), "both are of one moment now"
    stage.pass_time(39 * MINUTE, every=MINUTE)
    assert stage.commands() == []
    stage.pass_time(10 * MINUTE, every=MINUTE)
    assert on_now(stage) == 105


looks = st.lists(st.tuples(st.integers(1, 20 * 60), st.integers(0, 40)), min_size=1, max_size=80)


@settings(max_examples=200)
@given(looks, st.sampled_from([0, 1, 60, 600, 86400]))
def test_the_peak_is_the_highest_use_of_the_window_whoever_remembers_it(
    lives: list[tuple[int, int]], idle_seconds: int
) -> None:
    """Every look begins anew from the status as it was written; what is seen of use stands until the next look."""
    pool = a_large_pool(50, idleSeconds=idle_seconds)
    window = min(4 * idle_seconds * SECOND, 24 * HOUR)
    now, seen = NOON, list[tuple[int, int]]()
    for after, used in lives:
        now += after * SECOND
        [found] = pools_of(a_view(pool, now=now))
        keep_busy(found, used)
        warmth.measure(found, 0)
        seen = [*((until or now, machines) for until, machines in seen), (0, used)]
        past = [(until, machines) for until, machines in seen if until]
        step = max(SECOND, window // 30)
        least = max([used, *(machines for until, machines in past if until - step > now - window)])
        most = max([used, *(machines for until, machines in past if until > now - window)])
        assert least <= found.peak <= most
        told = status_of(found)
        assert len(told.peaks) <= 32
        assert [each.machines for each in told.peaks] == sorted({each.machines for each in told.peaks}, reverse=True)
        pool = structs.replace(pool, status=msgspec.json.decode(msgspec.json.encode(told), type=PowerPoolStatus))


def test_however_often_use_falls_little_is_remembered_of_it() -> None:
    pool, now = a_large_pool(), NOON
    for used in range(200, 0, -1):
        now += 11 * SECOND
        [found] = pools_of(a_view(pool, now=now))
        keep_busy(found, used)
        warmth.measure(found, 0)
        assert found.peak == 200
        pool = structs.replace(pool, status=status_of(found))
    assert 28 <= len(pool.status.peaks) <= 32


def keep_busy(pool: PowerPoolState, machines: int) -> None:
    for it in pool.members[:machines]:
        it.busy = True


def status_of(pool: PowerPoolState) -> PowerPoolStatus:
    return PowerPoolStatus(in_use=warmth.in_use(pool), peaks=warmth.peaks(pool))
