"""Trials: one machine for pods that kube-scheduler does not place where they would fit, and no second one before the outcome shows."""

from typing import Any

from msgspec import structs

from tests.builders import NOON, a_node
from tests.core.power_stage import running
from tests.core.spot_stage import HOUR, MINUTE, SECOND, a_machine, after, decide, its_node, launches, outcome, status_of
from tests.core.test_spot_demand import on_demand, pending

FREE = a_node("free", gpus=2, ready_since=NOON - HOUR)
"""Here they would fit, as far as we understand."""


def test_one_machine_is_tried_and_then_its_outcome_is_awaited() -> None:
    pods = [pending(f"p{number}", since=NOON - 5 * MINUTE) for number in range(4)]
    world: dict[str, Any] = {"nodes": [FREE], "pods": pods}
    pool = after(on_demand(), first := decide(on_demand(), **world))
    [launch] = launches(first)
    [trial] = status_of(first).trials
    assert trial.machine == launch.token, "known by the token of its launch, whatever its room is called later"
    again = decide(pool, **world, now=NOON + MINUTE)
    assert [each.token for each in launches(again)] == [launch.token]
    assert status_of(again).trials == status_of(first).trials


def test_a_machine_that_was_no_help_is_not_followed_by_another_at_once() -> None:
    pods = [pending("p", since=NOON - 5 * MINUTE)]
    pool = after(on_demand(), first := decide(on_demand(), nodes=[FREE], pods=pods))
    [slot] = status_of(first).slots
    machine, node = a_machine(0, launched_at=NOON), its_node(0, 2, ready_since=NOON + MINUTE)
    accepted = [outcome(slot, "Accepted", "ins-0")]
    there: dict[str, Any] = {"nodes": [FREE, node], "pods": pods, "machines": [machine]}
    pool = after(pool, decide(pool, **there, launches=accepted, now=NOON + MINUTE))
    judged = decide(pool, **there, now=NOON + 10 * MINUTE)
    [trial] = status_of(judged).trials
    assert (trial.in_vain, bool(trial.until)) == (1, True)
    pool = after(pool, judged)
    assert launches(decide(pool, **there, now=NOON + 11 * MINUTE)) == []


def test_a_machine_that_helped_ends_the_trial() -> None:
    pods = [pending("p", since=NOON - 5 * MINUTE)]
    pool = after(on_demand(), first := decide(on_demand(), nodes=[FREE], pods=pods))
    [slot] = status_of(first).slots
    node = its_node(0, 2, ready_since=NOON + MINUTE)
    placed = structs.replace(
        running("p", "node-0", created=pods[0].created, started=NOON + 2 * MINUTE), shape=pods[0].shape
    )
    more: dict[str, Any] = {"nodes": [FREE, node], "machines": [a_machine(0, launched_at=NOON)]}
    came = decide(pool, **more, pods=pods, launches=[outcome(slot, "Accepted", "ins-0")], now=NOON + MINUTE)
    pool = after(pool, came)
    assert status_of(decide(pool, **more, pods=[placed], now=NOON + 2 * MINUTE + SECOND)).trials == ()
