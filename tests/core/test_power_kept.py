"""What is kept on for pods that kube-scheduler refuses, and the moment it takes before that is a verdict."""

from __future__ import annotations

import pytest
from msgspec import structs

from headroom.model.actions import CordonNode
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
    on,
    remembered,
    running,
    waiting,
    wakes,
    was,
)
from tests.core.test_power_trials import refused, woken


@pytest.mark.parametrize("refused_for", [2 * MINUTE, 10 * MINUTE, 59 * MINUTE])
def test_an_idle_machine_that_would_hold_a_refused_pod_stays_on(refused_for: int) -> None:
    """Free GPUs are there only in fragments but for one idle machine: that one is needed, whatever kube-scheduler says."""
    pool = a_pool(machines={"w1": 4, "w2": 4, "w3": 4, "w4": 4}, idleSeconds=60)
    nodes = [on(name, 4) for name in ("w1", "w2", "w3", "w4")]
    used = [running("a", "w1", 2), running("b", "w2", 2)]
    pods = [*used, waiting("big", 4, since=NOON - refused_for)]
    decision = decided(a_view(pool, nodes=nodes, pods=pods))["one"]
    assert effects(decision) == [CordonNode(node="w4")], "one is enough for it"
    written = structs.replace(pool, status=decision.status)
    left = decided(a_view(written, nodes=nodes[:3], pods=pods))["one"]
    assert effects(left) == []
    assert "w3" in left.message


def test_as_many_stay_on_as_would_hold_them_however_many_there_are() -> None:
    """kube-scheduler is down for a while: what its pods need is not switched off meanwhile."""
    machines = {f"w{number:02}": 8 for number in range(40)}
    pods = [waiting(f"p{number}", 8, since=NOON - 5 * MINUTE) for number in range(30)]
    stage = Stage(a_pool(machines=machines, idleSeconds=60), nodes=[on(name, 8) for name in machines], pods=pods)
    stage.binds = False
    stage.pass_time(20 * MINUTE, every=30 * SECOND)
    assert 29 <= sum(stage.state(name) == "On" for name in machines) <= 30
    assert len(woken(stage)) <= 1, "that is the one on trial"


def test_it_is_kept_while_another_one_is_tried() -> None:
    pool = remembered(
        a_pool(machines={"w1": 2, "w2": 2}, idleSeconds=60), was("w1", "On", NOON - HOUR, idle_since=NOON - HOUR)
    )
    stage = Stage(pool, nodes=[on("w1", 2)], pods=refused(1))
    stage.never = {"uid-p0"}
    stage.pass_time(10 * MINUTE, every=15 * SECOND)
    assert [command for _, command in stage.commands()] == ["wake w2", "sleep w2"]


def test_it_is_not_kept_for_ever() -> None:
    pool = a_pool(machines={"w3": 4}, idleSeconds=60)
    stage = Stage(pool, nodes=[on("w3", 4)], pods=[waiting("big", 4, since=NOON - 2 * MINUTE)])
    stage.binds = False
    stage.pass_time(70 * MINUTE, every=5 * SECOND)
    assert [(at // 60, command) for at, command in stage.commands()] == [(58, "sleep w3")]


# --- before their verdict -------------------------------------------------------------------------------------------------------


def test_a_machine_that_has_just_become_idle_is_for_who_has_waited() -> None:
    pool = remembered(a_pool(machines={"w1": 2}, idleSeconds=0), was("w1", "On", NOON - HOUR, busy=True))
    decision = decided(a_view(pool, nodes=[on("w1", 2)], pods=refused(2)))["one"]
    assert effects(decision) == [], "kube-scheduler takes a moment"
    assert decision.message == "1 of 1 machines is on; 2 pending pods fit on w1."


def test_a_moment_before_it_binds_is_no_verdict_that_lasts() -> None:
    """GPUs become free under pods that have waited for long: kube-scheduler takes a moment, and that is all."""
    pool = a_pool(machines={"w1": 8, "w2": 8, "w3": 8})
    pods = [waiting(f"p{number}", 8, since=NOON - 5 * MINUTE) for number in range(3)]
    first = decided(a_view(pool, nodes=[on("n1", 8)], pods=pods))["one"]
    assert wakes(first) == ["w1"]
    bound = running("p0", "n1", 8, created=NOON - 5 * MINUTE, started=NOON + 3 * SECOND)
    written = structs.replace(pool, status=first.status)
    later = decided(a_view(written, nodes=[on("n1", 8)], pods=[bound, *pods[1:]], now=NOON + 5 * SECOND))["one"]
    assert wakes(later) == ["w2"]
