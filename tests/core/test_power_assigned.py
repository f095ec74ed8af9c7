"""Pods keep the room that is coming for them: two pools could serve one pod, and one machine wakes."""

from __future__ import annotations

import pytest
from msgspec import structs

from headroom.api.power_status import Assigned
from headroom.core.demand import digest_of
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import Stage, a_pool, off, on, waiting, was

A_DAY = 24 * HOUR


def two_pools(**first: object) -> tuple[Stage, list[str]]:
    """An earlier pool with machine a, a later one with machine b, both off, and a pod that either could serve."""
    early = a_pool("early", {"a": 8}, order=1, **first)
    late = a_pool("late", {"b": 8}, order=2)
    stage = Stage(early, late, nodes=[off("a"), off("b")], pods=[waiting("p", 8)])
    return stage, []


def wakes(stage: Stage) -> list[str]:
    return [words.removeprefix("wake ") for _, words in stage.commands() if words.startswith("wake")]


def barred_until(stage: Stage, moment: int) -> None:
    """The earlier pool's machine has just been sent to sleep, so it may not wake before that moment."""
    [ref] = [ref for ref in stage.pools if ref.name == "early"]
    pool = stage.pools[ref]
    rested = pool.spec.policy.min_off_seconds * SECOND
    known = was("a", "Off", since=moment - rested, slept_at=moment - rested)
    stage.pools[ref] = structs.replace(pool, status=structs.replace(pool.status, machines=(known,)))


def test_a_machine_that_may_wake_again_is_left_alone_while_another_boots_for_the_pod() -> None:
    stage, _ = two_pools()
    barred_until(stage, NOON + 30 * SECOND)
    stage.look()
    assert wakes(stage) == ["b"]
    stage.pass_time(10 * MINUTE)
    assert wakes(stage) == ["b"]
    assert stage.pods["uid-p"].node == "b"


def test_a_machine_that_boots_for_its_pools_floor_serves_the_pod() -> None:
    early, late = a_pool("early", {"a": 8}, order=1), a_pool("late", {"b": 8}, order=2, minOn=1)
    stage = Stage(early, late, nodes=[off("a"), off("b")])
    stage.look()
    assert wakes(stage) == ["b"]
    stage.pods["uid-p"] = waiting("p", 8)
    stage.pass_time(10 * MINUTE)
    assert wakes(stage) == ["b"]


def test_a_floor_and_a_pod_that_come_in_one_tick_wake_one_machine() -> None:
    early, late = a_pool("early", {"a": 8}, order=1), a_pool("late", {"b": 8}, order=2, minOn=1)
    stage = Stage(early, late, nodes=[off("a"), off("b")], pods=[waiting("p", 8)])
    stage.pass_time(10 * MINUTE)
    assert wakes(stage) == ["b"]


def test_a_floor_takes_no_more_pods_than_its_machines_hold() -> None:
    early, late = a_pool("early", {"a": 8}, order=1), a_pool("late", {"b": 8, "c": 8}, order=2, minOn=1)
    pods = [waiting(f"p{number}", 8) for number in range(2)]
    stage = Stage(early, late, nodes=[off(name) for name in "abc"], pods=pods)
    stage.look()
    assert sorted(wakes(stage)) == ["a", "b"]
    stage.pass_time(10 * MINUTE)
    assert sorted(wakes(stage)) == ["a", "b"]


def test_a_gang_too_large_for_the_floor_is_served_as_a_whole_elsewhere() -> None:
    early, late = a_pool("early", {"a": 8, "b": 8}, order=1), a_pool("late", {"c": 8, "d": 8}, order=2, minOn=1)
    gang = {"labels": (("scheduling.x-k8s.io/pod-group", "g"),), "group_size": 2}
    pods = [waiting(f"p{number}", 8, since=NOON - 2 * MINUTE, labels=gang["labels"]) for number in range(2)]
    stage = Stage(early, late, nodes=[off(name) for name in "abcd"], pods=pods)
    stage.look()
    assert sorted(wakes(stage))[:2] == ["a", "b"]
    assert len(wakes(stage)) == 3  # and the floor, which holds no more than half of it


def test_the_assignment_stands_in_the_status_while_the_machine_boots_and_no_longer() -> None:
    stage, _ = two_pools()
    stage.look()
    shape = digest_of(stage.pods["uid-p"].shape)
    assert _assigned(stage, "a") == (Assigned(shape=shape, pods=1),)
    stage.pass_time(20 * MINUTE)
    assert stage.pods["uid-p"].node == "a"
    assert _assigned(stage, "a") == ()


def test_a_pod_that_is_made_anew_keeps_the_room_of_its_shape() -> None:
    stage, _ = two_pools()
    barred_until(stage, NOON + 30 * SECOND)
    stage.look()
    for number in range(8):
        stage.pods.clear()
        stage.pods[f"uid-p{number}"] = waiting(f"p{number}", 8, since=stage.now)
        stage.pass_time(10 * SECOND)
    assert wakes(stage) == ["b"]


def test_when_the_machine_fails_its_pods_pass_on() -> None:
    stage, _ = two_pools()
    stage.dead.add("a")
    stage.look()
    assert wakes(stage) == ["a"]
    stage.pass_time(HOUR, every=10 * SECOND)
    assert wakes(stage)[:2] == ["a", "b"]
    assert stage.pods["uid-p"].node == "b"


def test_a_status_without_assignments_counts_as_without_them() -> None:
    stage, _ = two_pools()
    stage.look()
    for ref, pool in list(stage.pools.items()):
        machines = tuple(structs.replace(each, assigned=()) for each in pool.status.machines)
        stage.pools[ref] = structs.replace(pool, status=structs.replace(pool.status, machines=machines))
    stage.pass_time(10 * MINUTE)
    assert wakes(stage) == ["a"]


@pytest.mark.parametrize("minutes", [10])
def test_a_machine_that_is_to_be_had_now_and_then_makes_no_second_one_wake(minutes: int) -> None:
    """For a day the earlier pool's machine may wake for ten minutes and may not for ten more, and pods come and go."""
    early, late = a_pool("early", {"a": 8}, order=1), a_pool("late", {"b": 8}, order=2)
    stage = Stage(early, late, nodes=[off("a"), off("b")])
    most = 0
    for number in range(A_DAY // (20 * MINUTE)):
        uid = f"uid-p{number:03d}"
        stage.refusing.clear() if number % 2 else stage.refusing.add("a")
        before = len(wakes(stage))
        stage.pods[uid] = waiting(f"p{number:03d}", 8, since=stage.now)
        stage.pass_time(minutes * MINUTE, every=15 * SECOND)
        woken = [name for name in wakes(stage)[before:] if name not in stage.refusing]
        most = max(most, len(woken))
        if stage.pods[uid].node:
            stage.end(uid, gone=True)
        stage.pass_time((20 - minutes) * MINUTE, every=30 * SECOND)
        stage.pods.clear()
    assert most <= 1


def _assigned(stage: Stage, name: str) -> tuple[Assigned, ...]:
    return next(it.assigned for each in stage.pools.values() for it in each.status.machines if it.name == name)


def test_what_is_on_already_is_assigned_to_nobody() -> None:
    stage = Stage(a_pool("one", {"a": 8}), nodes=[on("a")], pods=[waiting("p", 8)])
    stage.look()
    assert _assigned(stage, "a") == ()
