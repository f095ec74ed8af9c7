"""The brake: of machines that look idle together only a few begin to drain within idleSeconds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.model import times
from headroom.model.actions import CordonNode
from headroom.model.conditions import find
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import LONG_AGO, Stage, a_pool, a_view, cordoned, decided, effects, machine, on, remembered
from tests.core.power_stage import was as remember


def fleet(count: int, since: int = NOON - 10 * MINUTE, **spec: Any) -> AnyResource:
    """A pool whose machines are all idle since the same second."""
    names = [f"w{number:02d}" for number in range(count)]
    pool = a_pool(machines=dict.fromkeys(names, 8), **{"maxConcurrentSleeps": count, "warmPercent": 0} | spec)
    return remembered(pool, *(remember(name, "On", LONG_AGO, idle_since=since) for name in names))


def nodes(pool: AnyResource) -> list[Any]:
    return [on(each.name) for each in pool.spec.machines]


def is_braked(decision: Any) -> bool:
    condition = find(decision.status.conditions, "Braked")
    return condition is not None and (condition.status, condition.reason) == ("True", "ManyTurnedIdle")


@pytest.mark.parametrize(("count", "most"), [(1, 1), (3, 3), (4, 3), (10, 3), (13, 3), (20, 6), (100, 30)])
def test_at_most_three_or_three_in_ten_begin_at_once(count: int, most: int) -> None:
    pool = fleet(count)
    decision = decided(a_view(pool, nodes=nodes(pool)))["one"]
    assert [type(each) for each in effects(decision)] == [CordonNode] * most
    assert is_braked(decision) == (count > most)
    if count > most:
        assert (decision.next_turn_ms or HOUR) <= 10 * MINUTE


def test_a_fleet_that_is_idle_since_one_second_goes_to_sleep_bit_by_bit() -> None:
    pool = fleet(10)
    stage = Stage(pool, nodes=nodes(pool))
    stage.pass_time(HOUR, every=10 * SECOND)
    began = sorted(at for at, action in stage.done if isinstance(action, CordonNode))
    assert len(began) == 10
    assert all(sum(at <= each < at + 10 * MINUTE for each in began) <= 3 for at in began)
    assert all(later - first < 11 * MINUTE for first, later in pairwise(began)), "and none waits for longer"


def test_what_began_to_drain_goes_on() -> None:
    pool = fleet(10)
    stage = Stage(pool, nodes=nodes(pool))
    stage.pass_time(2 * MINUTE)
    assert [each for _, each in stage.commands()] == ["sleep w00", "sleep w01", "sleep w02"]
    assert is_braked(stage.decisions["one"])


def test_it_is_remembered_over_a_restart_and_whatever_becomes_of_the_machines() -> None:
    """Three began nine minutes ago: one sleeps, one was kept on and is busy, one still drains."""
    pool = fleet(10)
    began = times.text(NOON - 9 * MINUTE)
    known = [structs.replace(each, drained_at=began) for each in pool.status.machines[:3]]
    known[0] = structs.replace(known[0], state="Off", idle_since="")
    known[2] = structs.replace(known[2], state="Draining", since=times.text(NOON - SECOND))
    pool = remembered(pool, *known, *pool.status.machines[3:])
    view = [*nodes(pool)[3:], on("w01"), cordoned(on("w02"))]
    early = decided(a_view(pool, nodes=view))["one"]
    assert effects(early) == []
    assert is_braked(early)
    assert (early.next_turn_ms or HOUR) <= MINUTE
    assert machine(early, "w01").drained_at == began
    late = decided(a_view(pool, nodes=view, now=NOON + MINUTE))["one"]
    assert len([each for each in effects(late) if isinstance(each, CordonNode)]) == 3


def test_short_idle_seconds_do_not_make_it_shorter_than_a_minute() -> None:
    pool = fleet(5, idleSeconds=5)
    stage = Stage(pool, nodes=nodes(pool))
    stage.pass_time(50 * SECOND)
    assert len(stage.commands()) == 3
    stage.pass_time(2 * MINUTE)
    assert len(stage.commands()) == 5


def test_a_clock_that_was_turned_back_does_not_hold_it_for_longer() -> None:
    pool = fleet(10)
    ahead = times.text(NOON + HOUR)
    pool = remembered(pool, *(structs.replace(each, drained_at=ahead) for each in pool.status.machines))
    assert (decided(a_view(pool, nodes=nodes(pool)))["one"].next_turn_ms or HOUR) <= 10 * MINUTE
