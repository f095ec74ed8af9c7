"""Fruitless wakes: pods that no machine helps wake at most a few an hour for each namespace."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.power_status import Fruitless
from headroom.core.power import fruitless
from headroom.model import actions, times
from headroom.model.conditions import find
from headroom.model.facts import Pod, Shape
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON
from tests.core.power_stage import GPU, Stage, a_pool, a_view, decided, machine, remembered, status, waiting, wakes, was

AGO = NOON - 10 * MINUTE


def pool_of(count: int, name: str = "one", **spec: Any) -> Any:
    return a_pool(name, {f"{name}-{number}": 8 for number in range(count)}, **spec)


def shaped(name: str, milli: int, namespace: str = "lab", **fields: Any) -> Pod:
    """A pod of a whole machine with a CPU request of its own."""
    shape = Shape(requests=(("cpu", milli * 1000), (GPU, 8_000_000)))
    return waiting(name, shape=shape, namespace=namespace, **fields)


def doubted(pool: Any, many: int, at: int = AGO, namespace: str = "lab") -> Any:
    """A pool that remembers so many fruitless wakes."""
    known = Fruitless(namespace=namespace, at=(times.text(at),) * many)
    return remembered(pool, fruitless=(known,))


def count(stage: Stage, since: int, until: int) -> int:
    return sum(since <= at < until for at, each in stage.done if isinstance(each, actions.WakeMachine))


def test_pods_that_are_made_anew_and_never_run_wake_few_machines_an_hour() -> None:
    """Ten pods that the scheduler never places, each time with another shape."""
    stage = Stage(pool_of(10), now=NOON)
    stage.binds = False
    epoch = 0
    while stage.now < NOON + 6 * HOUR:
        stage.pods = {
            pod.uid: structs.replace(pod, created=stage.now, unschedulable_since=stage.now)
            for pod in (shaped(f"a{number}-{epoch}", 1000 + epoch) for number in range(10))
        }
        stage.pass_time(25 * MINUTE, every=15 * SECOND)
        epoch += 1
    first = count(stage, NOON, NOON + 25 * MINUTE)
    assert first == 10, "nobody knew better"
    for hour in range(1, 6):
        assert count(stage, NOON + hour * HOUR, NOON + (hour + 1) * HOUR) <= 2 * fruitless.AN_HOUR
    assert count(stage, NOON + HOUR, stage.now) <= 6 * fruitless.AN_HOUR


@pytest.mark.parametrize(("many", "woken"), [(0, 8), (1, 4), (4, 1), (5, 0), (7, 0)])
def test_after_fruitless_wakes_only_so_many_pods_are_served(many: int, woken: int) -> None:
    pods = [shaped(f"p{number}", 1000) for number in range(8)]
    pool = pool_of(10)
    decision = decided(a_view(doubted(pool, many) if many else pool, pods=pods))["one"]
    assert len(wakes(decision)) == woken
    condition = find(decision.status.conditions, "FruitlessWakes")
    assert (condition is not None and condition.status == "True") == (many >= fruitless.AN_HOUR)
    if woken < 8:
        [unserved] = status(decision).unserved
        assert (unserved.pods, unserved.reason) == (8 - woken, "FruitlessWakes")


def test_pods_of_others_in_the_same_group_are_served() -> None:
    """Equal pods of two namespaces are one group; the cap takes out pods."""
    pods = [shaped(f"{namespace}-{number}", 1000, namespace) for number in range(2) for namespace in ("lab", "other")]
    decision = decided(a_view(doubted(pool_of(10), 5), pods=pods))["one"]
    assert len(wakes(decision)) == 2
    [unserved] = status(decision).unserved
    assert (unserved.pod, unserved.pods) == ("lab/lab-0", 2)


def test_all_pools_count_together() -> None:
    pods = [shaped(f"p{number}", 1000) for number in range(8)]
    view = a_view(doubted(pool_of(4), 3), doubted(pool_of(4, "two"), 2), pods=pods)
    assert [wakes(each) for each in decided(view).values()] == [[], []]


def test_a_gang_is_tried_whole_as_rarely_as_five_pods() -> None:
    labels = (("scheduling.x-k8s.io/pod-group", "train"),)
    pods = [shaped(f"r{number}", 1000, labels=labels, since=NOON - MINUTE) for number in range(7)]
    for many, ago, woken in ((5, HOUR, 7), (5, HOUR - SECOND, 0), (9, 5 * HOUR, 7), (9, 5 * HOUR - SECOND, 0)):
        pool = doubted(pool_of(10), many, NOON - ago)
        assert len(wakes(decided(a_view(pool, pods=pods))["one"])) == woken, (many, ago)


def test_it_ends_by_itself() -> None:
    pool = doubted(pool_of(2), 5)
    pods = [shaped("p", 1000)]
    early = decided(a_view(pool, pods=pods, now=AGO + HOUR - SECOND))["one"]
    assert (wakes(early), early.next_turn_ms) == ([], SECOND)
    assert len(wakes(decided(a_view(pool, pods=pods, now=AGO + HOUR))["one"])) == 1
    late = decided(a_view(pool, now=AGO + 24 * HOUR))["one"]
    assert status(late).fruitless == ()


def test_what_goes_to_sleep_unused_is_remembered_with_its_namespace() -> None:
    stage = Stage(pool_of(1), pods=[shaped("p", 1000)])
    stage.binds = False
    stage.pass_time(3 * MINUTE)
    assert machine(stage.decisions["one"], "one-0").woken_for == ("lab",)
    stage.pods.clear()
    stage.pass_time(15 * MINUTE, every=10 * SECOND)
    [known] = status(stage.decisions["one"]).fruitless
    assert (known.namespace, len(known.at)) == ("lab", 1)
    assert machine(stage.decisions["one"], "one-0").woken_for == ()


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_used_is_no_fruitless_wake_and_takes_one_back(gone: bool) -> None:
    stage = Stage(doubted(pool_of(1), 2, NOON - 2 * HOUR), pods=[shaped("p", 1000)])
    stage.pass_time(4 * MINUTE)
    assert stage.pods["uid-p"].node == "one-0"
    stage.end("uid-p", gone=gone)
    stage.pass_time(15 * MINUTE, every=10 * SECOND)
    assert stage.state("one-0") == "Off"
    [known] = status(stage.decisions["one"]).fruitless
    assert len(known.at) == 1


def test_what_somebody_else_woke_is_nobodys_fault() -> None:
    pool = remembered(pool_of(1), was("one-0", "Off", woken_at=NOON - HOUR, woken_for=("lab",)))
    stage = Stage(pool)
    stage._turn("one-0", ready=True)
    stage.pass_time(15 * MINUTE, every=10 * SECOND)
    assert stage.commands()[-1][1] == "sleep one-0"
    assert status(stage.decisions["one"]).fruitless == ()
