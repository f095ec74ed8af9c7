"""What moves when prices do or launches fail, and what never happens to a running node."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.resources import Condition
from headroom.core.offers import PLAN
from headroom.model.action_names import occurrence_of
from headroom.model.actions import ApplyNodePool, DeleteNodePool, EmitEvent
from headroom.model.changes import EVERYTHING, Changes, Topic
from headroom.model.decisions import Decision
from tests.builders import a_resource
from tests.core.offer_stage import GPU, Stage, a_leftover, an_offer, on_demand


def ready(decision: Decision) -> Condition:
    return next(each for each in decision.status.conditions if each.type == "Ready")


def templates(stage: Stage) -> dict[str, str]:
    return {name: pool.template for name, pool in stage.pools.items()}


TWO = (an_offer("g5.xlarge", "us-east-1a", 0.4), an_offer("g6.xlarge", "us-east-1b", 0.6))


# --- what changes, and what does not -----------------------------------------------------------------------------------------------


def test_prices_that_move_change_weights_and_no_template() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    for name in stage.by_weight():
        stage.launch(name, f"node-{name}")
    stage.settle()
    before, first = templates(stage), stage.by_weight()[0]
    stage.price("g5.xlarge-us-east-1a-spot", 0.9)
    for _ in range(20):
        stage.tick(15)
    assert stage.by_weight()[0] != first
    assert templates(stage) == before
    assert not [each for each in stage.performed if isinstance(each, DeleteNodePool)]
    assert any(isinstance(each, EmitEvent) and each.reason == "Switched" for each in stage.performed)
    assert stage.status().switches == 1


def test_rungs_below_the_first_keep_their_order_while_prices_wobble() -> None:
    stage = Stage(offers=[*TWO, an_offer("g4dn.xlarge", "us-east-1b", 0.61)])
    stage.settle()
    order = stage.by_weight()
    assert all(each.zone_ids == ("use1-az1",) for each in stage.rungs()[1:3])
    for dollars in (0.59, 0.61, 0.58):
        stage.price("g4dn.xlarge-us-east-1b-spot", dollars)
        stage.tick(7)
        assert stage.by_weight() == order
    stage.price("g4dn.xlarge-us-east-1b-spot", 0.5)
    stage.tick(7)
    assert stage.by_weight() == [order[0], order[2], order[1], order[3]]


def test_equal_prices_never_flap() -> None:
    kinds = ("g5.xlarge", "g6.xlarge", "g4dn.xlarge")
    stage = Stage(offers=[an_offer(kind, zone, 0.5) for kind in kinds for zone in ("us-east-1b", "us-east-1a")])
    stage.settle()
    chosen, before = stage.status().chosen, len(stage.performed)
    assert chosen is not None
    for _ in range(1000):
        stage.offers = dict(reversed(stage.offers.items()))
        stage.tick(7)
        now = stage.status().chosen
        assert now is not None
        assert now.offer == chosen.offer
    assert stage.performed[before:] == []


def test_a_rung_that_leaves_keeps_its_nodes_until_it_is_empty() -> None:
    stage = Stage(a_leftover(families=["g5", "g6"]), offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.launch(first, "node-1", gpus=1)
    del stage.offers["g5.xlarge-us-east-1a-spot"]
    stage.tick(1)
    assert [each.name for each in stage.rungs("Leaving")] == [first]
    assert stage.specs[first]["limits"][GPU] == "1", "what it has, and no more"
    stage.tick(60)
    assert first in stage.pools
    stage.end("node-1")
    stage.tick(1)
    assert first not in stage.pools
    stage.tick(1)
    assert first not in {each.name for each in stage.status().rungs}


def test_an_offer_that_is_missing_for_a_moment_costs_nothing() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    names, kept = set(stage.pools), stage.offers.pop("g6.xlarge-us-east-1b-spot")
    stage.tick(1)
    stage.offers[kept.name] = kept
    stage.tick(1)
    assert set(stage.pools) == names
    assert not [each for each in stage.performed if isinstance(each, DeleteNodePool)]


@pytest.mark.parametrize("change", [{"labels": {"a": "b"}}, {"taints": ["x:NoSchedule"]}, {"expireAfter": "720h"}])
def test_another_template_is_another_rung(change: dict[str, Any]) -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.launch(first)
    before = stage.pools[first].template
    ref = next(iter(stage.resources))
    changed = a_leftover(**change)
    stage.resources[ref] = structs.replace(changed, status=stage.resources[ref].status)
    stage.tick(1)
    assert stage.pools[first].template == before
    rung = next(each for each in stage.status().rungs if each.name == first)
    assert (rung.state, rung.cause) == ("Leaving", "TemplateChanged")
    assert stage.specs[first]["limits"][GPU] == "1"
    assert first not in stage.by_weight()


def test_a_roll_that_is_asked_for_rewrites_the_rung() -> None:
    stage = Stage(a_leftover(rollout="Replace"), offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.launch(first)
    ref = next(iter(stage.resources))
    changed = a_leftover(rollout="Replace", labels={"a": "b"})
    stage.resources[ref] = structs.replace(changed, status=stage.resources[ref].status)
    stage.tick(1)
    assert stage.specs[first]["template"]["metadata"] == {"labels": {"a": "b"}}
    before = len(stage.performed)
    stage.settle()
    assert stage.performed[before:] == [], "it is ours still, by its uid"


def test_disruption_and_limits_change_in_place() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    before = templates(stage)
    ref = next(iter(stage.resources))
    changed = a_leftover(budgetsNodes="1", limits={GPU: 8})
    stage.resources[ref] = structs.replace(changed, status=stage.resources[ref].status)
    stage.tick(1)
    assert templates(stage) == before
    assert {each["disruption"]["budgets"][0]["nodes"] for each in stage.specs.values()} == {"1"}
    assert sorted(each["limits"][GPU] for each in stage.specs.values()) == ["1", "1", "6"]


def test_somebodys_edit_is_undone() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.pools[first] = structs.replace(stage.pools[first], weight=1, digest="edited")
    before = len(stage.performed)
    stage.settle()
    assert [type(each) for each in stage.performed[before:]] == [ApplyNodePool]


def test_what_was_just_written_is_another_write_over_something_else() -> None:
    """The same write is not repeated for half a minute, whatever came between."""
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    writes = []
    for edited in ("once", "twice"):
        stage.pools[first] = structs.replace(stage.pools[first], digest=edited)
        writes += [each for each in stage.decide()[0].actions if isinstance(each, ApplyNodePool)]
    one, other = writes
    assert one.spec == other.spec
    assert occurrence_of(one) != occurrence_of(other)


def test_a_karpenter_that_drops_a_field_is_written_to_once() -> None:
    stage = Stage(offers=TWO)
    stage.keeps = lambda spec: {part: value for part, value in spec.items() if part != "disruption"}
    stage.settle()
    before = len(stage.performed)
    for _ in range(10):
        stage.tick(7)
    assert len(stage.performed) == before
    # What it knows goes on being kept.
    first, second = stage.by_weight()[:2]
    stage.price("g6.xlarge-us-east-1b-spot", 0.01)
    stage.tick(7)
    stage.tick(60)
    assert stage.by_weight()[:2] == [second, first]
    stage.pools[first] = structs.replace(stage.pools[first], weight=1, digest="edited")
    before = len(stage.performed)
    stage.settle()
    assert [type(each) for each in stage.performed[before:]] == [ApplyNodePool]


def test_another_process_writes_once_what_karpenter_drops() -> None:
    stage = Stage(offers=TWO[:1])
    stage.keeps = lambda spec: {part: value for part, value in spec.items() if part != "disruption"}
    stage.settle()
    stage.writes.clear()
    before = len(stage.performed)
    for _ in range(10):
        stage.tick(7)
    assert [getattr(each, "node_pool", "") for each in stage.performed[before:]] == list(stage.pools)


# --- failures ----------------------------------------------------------------------------------------------------------------------


def test_a_rung_whose_launch_fails_rests_and_is_left_at_once() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first, second = stage.by_weight()[:2]
    stage.fail(first)
    stage.tick(0.1)
    assert [each.name for each in stage.rungs("Resting")] == [first]
    assert stage.specs[first]["limits"][GPU] == "0"
    assert stage.by_weight()[0] == second
    assert any(isinstance(each, EmitEvent) and each.reason == "LaunchFailed" for each in stage.performed)


def test_a_rung_that_rested_is_tried_again_and_rests_longer_each_time() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    rests = []
    for _ in range(5):
        stage.fail(first)
        stage.tick(0.01)
        waited = 0
        while any(each.name == first for each in stage.rungs("Resting")):
            stage.tick(1)
            waited += 1
        rests.append(waited)
    assert rests == [5, 10, 20, 40, 60]


def test_launches_that_fail_one_after_another_are_one_failure() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    for _ in range(5):
        stage.fail(first)
        stage.tick(0.01)
    [rung] = stage.rungs("Resting")
    assert (rung.name, rung.failures) == (first, 1)
    stage.tick(5)
    assert stage.rungs("Resting") == []


def test_a_launch_that_succeeds_forgets_the_failures() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.fail(first)
    stage.tick(1)
    stage.tick(10)
    stage.launch(first)
    stage.tick(1)
    assert next(each for each in stage.status().rungs if each.name == first).failures == 0


def test_a_claim_that_is_stuck_takes_its_rung_out() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.launch(first, launched=False, registered=False, failure="LaunchFailed", failed_at=stage.now)
    stage.tick(0.1)
    assert [each.name for each in stage.rungs("Resting")] == [first]
    # Karpenter gives it up after five minutes, and looks for another place for its pods.
    stage.tick(4.9)
    stage.end("node-1")
    stage.tick(0.1)
    assert first not in stage.by_weight()
    stage.tick(2)
    assert first in stage.by_weight()


# --- numbers -----------------------------------------------------------------------------------------------------------------------


def test_what_is_saved_against_on_demand() -> None:
    stage = Stage(offers=(an_offer("g5.xlarge", dollars=0.4), on_demand("g5.xlarge", 1.0)))
    stage.settle()
    stage.launch(stage.by_weight()[0])
    stage.tick(0)
    saved = stage.status().savings
    assert saved is not None
    assert saved.usd_per_hour == "0.6"
    stage.tick(30)
    saved = stage.status().savings
    assert saved is not None
    assert saved.usd == "0.3"


def test_the_runner_up_and_what_it_would_need() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    runner = stage.status().runner_up
    assert runner is not None
    assert (runner.offer, runner.saving_needed) == ("g6.xlarge/use1-az1/spot", "5%")
    assert runner.saving.startswith("-")


def test_every_pool_ranks_its_own_region_and_what_names_none() -> None:
    here, there = TWO[0], structs.replace(TWO[1], region="eu-west-1", zone="eu-west-1a", zone_id="euw1-az1")
    anywhere = structs.replace(an_offer("g4dn.xlarge", "", 0.9), region="", zone_id="")
    stage = Stage(
        a_leftover("a", weights={"min": 1, "max": 50}),
        a_leftover("b", region="eu-west-1", weights={"min": 51, "max": 100}),
        offers=(here, there, anywhere),
    )
    stage.settle()
    assert stage.status("a").selected_instance_types == ("g5.xlarge", "g4dn.xlarge")
    assert stage.status("b").selected_instance_types == ("g6.xlarge", "g4dn.xlarge")


# --- the law -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["offers", "karpenter", "resource"])
def test_a_small_pass_decides_as_a_full_one(what: str) -> None:
    stage = Stage(
        a_leftover("a", weights={"min": 1, "max": 50}), a_leftover("b", weights={"min": 51, "max": 100}), offers=TWO
    )
    stage.settle()
    stage.tick(5)
    if what == "offers":
        stage.price("g5.xlarge-us-east-1a-spot", 0.2)
        changes = Changes(facts={Topic.OFFERS: {"g5.xlarge-us-east-1a-spot"}})
    elif what == "karpenter":
        name = next(name for name in stage.pools if name.startswith("leftover-b"))
        stage.fail(name)
        changes = Changes(facts={Topic.KARPENTER: {next(iter(stage.failures))}})
    else:
        ref = next(iter(stage.resources))
        stage.resources[ref] = structs.replace(
            a_leftover("a", weights={"min": 1, "max": 60}), status=stage.resources[ref].status
        )
        changes = Changes(resources={ref})
    world = stage.world()
    small = {each.resource: each for each in PLAN.decide(world, changes)}
    for each in PLAN.decide(world, EVERYTHING):
        known = small.get(each.resource)
        if known is None:
            assert not each.actions
        else:
            assert known == each


@pytest.mark.parametrize("how", ["moved", "broken", "deleting"])
def test_who_was_in_the_way_frees_the_others_at_once(how: str) -> None:
    """Its new spec does not tell whom it was in the way of."""
    stage = Stage(a_leftover("a"), a_leftover("b", weights={"min": 51, "max": 100}), offers=TWO)
    first, second = stage.resources
    assert {each.resource: ready(each).reason for each in stage.tick()}[second] == "WeightsOverlap"
    stage.resources[first] = {
        "moved": a_leftover("a", weights={"min": 1, "max": 50}),
        "broken": a_resource("LeftoverNodePool", "a", minSpotScore=11),
        "deleting": structs.replace(a_leftover("a"), deleting=stage.now),
    }[how]
    found = {each.resource: ready(each).reason for each in PLAN.decide(stage.world(), Changes(resources={first}))}
    assert found[second] == "Reconciled"
