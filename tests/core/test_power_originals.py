"""The four cases that the original program gets wrong when it is run: each of them is decided here as it should be."""

from __future__ import annotations

from headroom.model import actions
from tests.builders import NOON
from tests.core.power_stage import (
    HOUR,
    MINUTE,
    SECOND,
    Stage,
    a_pool,
    a_view,
    decided,
    effects,
    finished,
    off,
    on,
    running,
    waiting,
)


def test_a_machine_that_takes_three_minutes_to_boot_is_woken_once() -> None:
    stage = Stage(a_pool(), pods=[waiting("p0", 2)])
    stage.boot_ms = 3 * MINUTE
    stage.pass_time(5 * MINUTE, every=10 * SECOND)
    assert stage.commands() == [(10, "wake w1")]
    assert stage.pods["uid-p0"].node == "w1"


def test_both_machines_sleep_when_both_are_idle_and_only_once() -> None:
    stage = Stage(
        a_pool(),
        nodes=[on("w1", 4), on("w2", 8)],
        pods=[finished("a", "w1", NOON - HOUR), finished("b", "w2", NOON - HOUR)],
    )
    stage.pass_time(10 * MINUTE, every=10 * SECOND)
    assert [command for _, command in stage.commands()] == ["sleep w2", "sleep w1"]


def test_a_pod_of_sixteen_gpus_wakes_nothing_ever() -> None:
    stage = Stage(a_pool(), pods=[waiting("p0", 16)])
    stage.pass_time(20 * MINUTE, every=10 * SECOND)
    assert stage.commands() == []


def test_the_machine_that_is_needed_is_not_switched_off() -> None:
    nodes = [on("n1", 4), on("n2", 4), on("n3", 4)]
    pods = [running("a", "n1", 2), running("b", "n2", 2), waiting("p", 4)]
    pool = a_pool(machines={"n1": 4, "n2": 4, "n3": 4}, idleSeconds=0)
    decision = decided(a_view(pool, nodes=nodes, pods=pods))["one"]
    assert effects(decision) == []
    assert decision.message == "3 of 3 machines are on, 2 in use; 1 pending pod fits on n3."
    asleep = decided(a_view(pool, nodes=[*nodes[:2], off("n3", 4)], pods=pods))["one"]
    assert [type(each) for each in effects(asleep)] == [actions.WakeMachine]
