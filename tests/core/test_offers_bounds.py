"""How far cheapest capacity goes: limits, budgets, weights, other people's NodePools, node classes, and the end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.resources import Condition
from headroom.model.actions import AddFinalizer, ApplyNodeClass, ApplyNodePool, DeleteNodePool, EmitEvent
from headroom.model.cloud_facts import OfferFeed
from headroom.model.decisions import Decision
from headroom.model.facts import NodePool
from tests.builders import a_resource
from tests.core.offer_stage import GPU, Stage, a_class, a_leftover, an_offer


def ready(decision: Decision) -> Condition:
    return next(each for each in decision.status.conditions if each.type == "Ready")


def templates(stage: Stage) -> dict[str, str]:
    return {name: pool.template for name, pool in stage.pools.items()}


DISRUPTED = a_leftover(budgetsNodes="3").spec
TWO = (an_offer("g5.xlarge", "us-east-1a", 0.4), an_offer("g6.xlarge", "us-east-1b", 0.6))


# --- limits, budgets, weights ------------------------------------------------------------------------------------------------------


def gpu_limits(stage: Stage) -> list[int]:
    """Of the NodePools that can add nodes, heaviest first."""
    return [int(stage.specs[name]["limits"][GPU]) for name in stage.by_weight()]


def test_all_rungs_together_stay_within_the_limits() -> None:
    """What is left is given away once: a burst of pods fills all rungs at the same moment."""
    stage = Stage(a_leftover(limits={GPU: 10}), offers=TWO)
    stage.settle()
    assert gpu_limits(stage) == [8, 1, 1]
    second = stage.by_weight()[1]
    stage.launch(second, "node-2", gpus=4)
    stage.tick(1)
    assert gpu_limits(stage) == [5, 5, 1], "six are left: five, one, and one on credit"
    stage.launch(stage.by_weight()[0], "node-1", gpus=5)
    stage.launch(second, "node-3", gpus=1)
    stage.tick(1)
    assert gpu_limits(stage) == [5, 5, 0]


def test_rungs_below_the_first_may_add_a_little_and_always_one_machine_that_fits() -> None:
    """Pods that only one of them can serve must not wait for ever."""
    big = an_offer("p4d.24xlarge", "us-east-1b", 9.0, gpus=8)
    stage = Stage(a_leftover(limits={GPU: 160}, onDemandFallback=False), offers=[*TWO, big])
    stage.settle()
    assert gpu_limits(stage) == [142, 10, 8]
    small = Stage(a_leftover(limits={GPU: 8}, onDemandFallback=False), offers=[*TWO, big])
    small.settle()
    assert gpu_limits(small) == [7, 1, 8]
    least = Stage(a_leftover(limits={GPU: 7}, onDemandFallback=False), offers=[*TWO, big])
    least.settle()
    assert gpu_limits(least) == [6, 1, 0], "a machine of eight does not fit"


def test_limits_are_always_there() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    assert {each["limits"][GPU] for each in stage.specs.values()} == {"1000"}


def test_a_budget_over_quota_adds_no_nodes() -> None:
    budget = a_resource("GPUWorkloadBudget", "team")
    over = Condition(type="QuotaExceeded", status="True", reason="x", message="", last_transition_time="")
    over_it = structs.replace(budget, status=structs.replace(budget.status, conditions=(over,)))
    stage = Stage(a_leftover(budgetRef={"namespace": "team-a", "name": "team"}), over_it, offers=TWO)
    stage.settle()
    stage.launch(stage.by_weight()[0], gpus=2)
    decision = stage.tick(1)[0]
    assert [each["limits"][GPU] for _, each in sorted(stage.specs.items(), key=lambda it: -it[1]["weight"])][:2] == [
        "2",
        "0",
    ]
    assert decision.reason == "OverQuota"
    stage.resources = {ref: budget if ref.kind == "GPUWorkloadBudget" else it for ref, it in stage.resources.items()}
    stage.tick(1)
    assert stage.specs[stage.by_weight()[0]]["limits"][GPU] == "1000"


def test_a_budget_that_is_not_there_limits_nothing_and_is_told() -> None:
    """A slip in its name would leave the pool without a bound, and nobody would know."""
    stage = Stage(a_leftover(budgetRef={"namespace": "team-a", "name": "taem"}), offers=TWO)
    decision = stage.settle()
    assert decision.reason == "BudgetNotFound"
    assert "team-a/taem" in ready(decision).message
    assert ready(decision).status == "True"
    assert gpu_limits(stage) == [1000, 1000, 1000]


def test_of_two_with_the_same_weights_the_later_is_not_ready() -> None:
    stage = Stage(a_leftover("a"), a_leftover("b"), offers=TWO)
    decisions = stage.decide()
    assert [ready(each).reason for each in decisions] == ["Reconciled", "WeightsOverlap"]
    assert all(name.startswith("leftover-a-") for name in stage.pools)


def test_two_with_weights_of_their_own_are_both_ready() -> None:
    stage = Stage(
        a_leftover("a", weights={"min": 1, "max": 50}), a_leftover("b", weights={"min": 51, "max": 100}), offers=TWO
    )
    assert [ready(each).reason for each in stage.decide()] == ["Reconciled", "Reconciled"]
    weights = [pool.weight for pool in stage.pools.values()]
    assert len(weights) == len(set(weights))


def test_names_that_begin_alike_do_not_meet() -> None:
    stage = Stage(
        a_leftover("a", weights={"min": 1, "max": 50}), a_leftover("a-b", weights={"min": 51, "max": 100}), offers=TWO
    )
    stage.settle()
    for each in stage.resources.values():
        assert {rung.state for rung in each.status.rungs} == {"Active"}


# --- whose NodePool it is ----------------------------------------------------------------------------------------------------------


def test_a_strangers_node_pool_with_the_name_of_a_rung_is_left_alone() -> None:
    stage = Stage(offers=TWO)
    name = next(each.node_pool for each in stage.decide()[0].actions if isinstance(each, ApplyNodePool))
    stranger = NodePool(name=name, uid="theirs", marks=((marks.LEFTOVER, "cheap"),), digest="x", template="y")
    stage.pools = {name: stranger}
    stage.specs, stage.performed = {}, []
    stage.resources = {ref: a_leftover() for ref in stage.resources}
    decision = stage.decide()[0]
    assert name not in {each.node_pool for each in stage.performed if isinstance(each, ApplyNodePool | DeleteNodePool)}
    assert (ready(decision).status, ready(decision).reason) == ("False", "ApplyNodePoolError")


def test_a_node_pool_with_our_label_that_is_not_known_is_left_alone_and_told() -> None:
    """As one that was rolled, and then restored from a backup with a new uid: its name does not tell what it says now."""
    stage = Stage(a_leftover(rollout="Replace"), offers=TWO)
    stage.settle()
    stage.resources = {
        ref: structs.replace(a_leftover(rollout="Replace", labels={"a": "b"}), status=each.status)
        for ref, each in stage.resources.items()
    }
    stage.settle()
    rolled = [name for name, pool in stage.pools.items() if not name.endswith(pool.template[:8])]
    assert rolled
    stage.writes.clear()
    stage.pools |= {name: structs.replace(stage.pools[name], uid=f"restored-{name}") for name in rolled}
    before = len(stage.performed)
    decision = stage.decide()[0]
    assert decision.reason == "UnknownNodePool"
    assert rolled[0] in ready(decision).message
    assert not [each for each in stage.performed[before:] if getattr(each, "node_pool", "") in rolled]


def test_a_write_that_fails_is_tried_again_and_told_until_it_succeeds() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    first = stage.by_weight()[0]
    stage.refuse(first)
    stage.resources = {ref: structs.replace(it, spec=DISRUPTED) for ref, it in stage.resources.items()}
    for _ in range(20):
        assert ApplyNodePool in {type(each) for each in stage.tick(7)[0].actions}
    decision = stage.decide()[0]
    assert (ready(decision).status, ready(decision).reason) == ("False", "ApplyNodePoolError")
    assert "somebody else manages its weight" in ready(decision).message
    del stage.refused[first]
    stage.settle()
    assert ready(stage.tick(1)[0]).status == "True"
    assert stage.specs[first]["disruption"]["budgets"] == [{"nodes": "3"}]


def test_a_write_that_failed_and_is_not_due_any_more_is_not_told() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    stage.refuse(stage.by_weight()[0])
    before = dict(stage.resources)
    stage.resources = {ref: structs.replace(it, spec=DISRUPTED) for ref, it in stage.resources.items()}
    stage.settle()
    assert ready(stage.decide()[0]).status == "False"
    now = stage.resources
    stage.resources = {ref: structs.replace(it, spec=before[ref].spec) for ref, it in now.items()}
    assert ready(stage.tick(1)[0]).status == "True"


def test_rungs_that_were_retained_are_taken_up_again() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    stage.launch(stage.by_weight()[0])
    before = {name: pool.uid for name, pool in stage.pools.items()}
    stage.resources = {ref: a_leftover() for ref in stage.resources}
    stage.settle()
    assert {name: pool.uid for name, pool in stage.pools.items()} == before


def test_the_originals_pool_is_limited_and_deleted_once_empty() -> None:
    stage = Stage(offers=TWO)
    stage.pools["leftover-cheap"] = NodePool(
        name="leftover-cheap", uid="old", marks=(("managed-by", "leftover"),), used=((GPU, 2_000_000),)
    )
    stage.specs["leftover-cheap"] = {"weight": 0, "limits": {}, "template": {"spec": {"requirements": []}}}
    decision = stage.decide()[0]
    written = next(a for a in decision.actions if isinstance(a, ApplyNodePool) and a.node_pool == "leftover-cheap")
    assert written.only == ("limits",)
    assert written.spec == {"limits": {"cpu": "0", GPU: "2"}}


# --- node classes ------------------------------------------------------------------------------------------------------------------


def test_a_node_class_must_exist() -> None:
    stage = Stage(offers=TWO, classes=[])
    decision = stage.decide()[0]
    assert (ready(decision).reason, stage.pools) == ("NodeClassNotFound", {})
    assert "gpu" in ready(decision).message


def test_a_selector_must_match_one_node_class() -> None:
    labelled = (("team", "a"),)
    pool = a_resource("LeftoverNodePool", "cheap", nodeClassName=None, nodeClassSelector={"team": "a"})
    none = Stage(pool, offers=TWO).decide()[0]
    one = Stage(pool, offers=TWO, classes=[a_class(labels=labelled), a_class("other")])
    two = Stage(pool, offers=TWO, classes=[a_class(labels=labelled), a_class("b", labels=labelled)]).decide()[0]
    assert (ready(none).reason, ready(one.decide()[0]).reason) == ("NodeClassNotFound", "Reconciled")
    assert "b, gpu" in ready(two).message


def test_subnets_of_its_own_need_a_copy_of_the_node_class() -> None:
    stage = Stage(a_leftover(subnetSelectorTags={"team": "a"}), offers=TWO)
    decision = stage.decide()[0]
    assert isinstance(decision.actions[0], ApplyNodeClass), "it stands before the first NodePool"
    copy = decision.actions[0]
    assert copy.spec["subnetSelectorTerms"] == [{"tags": {"team": "a"}}]
    assert copy.spec["securityGroupSelectorTerms"] == [{"id": "sg"}]
    classes = {each["template"]["spec"]["nodeClassRef"]["name"] for each in stage.specs.values()}
    assert classes == {copy.node_class} == {stage.status().node_class}
    before = len(stage.performed)
    stage.settle()
    assert stage.performed[before:] == []


def test_a_node_class_that_only_carries_our_label_stays() -> None:
    """As one that somebody made from a copy of ours, labels and all."""
    ours = ((marks.LEFTOVER, "cheap"),)
    classes = [a_class(labels=ours), a_class("leftover-cheap-of-mine", labels=ours)]
    stage = Stage(a_leftover(subnetSelectorTags={"team": "a"}, deletionPolicy="Delete"), offers=TWO, classes=classes)
    stage.settle()
    deleting(stage)
    stage.settle()
    assert sorted(each.name for each in stage.classes.values()) == ["gpu", "leftover-cheap-of-mine"]


# --- the end, and being held -------------------------------------------------------------------------------------------------------


def deleting(stage: Stage) -> None:
    stage.resources = {ref: structs.replace(each, deleting=True) for ref, each in stage.resources.items()}


def test_deleted_with_retain_nothing_is_touched() -> None:
    stage = Stage(offers=TWO)
    stage.settle()
    before, done = dict(stage.pools), len(stage.performed)
    deleting(stage)
    stage.decide()
    assert (stage.pools, stage.performed[done:]) == (before, [])


def test_deleted_with_delete_everything_goes() -> None:
    stage = Stage(a_leftover(deletionPolicy="Delete"), offers=TWO)
    decision = stage.decide()[0]
    assert isinstance(decision.actions[0], AddFinalizer)
    stage.settle()
    deleting(stage)
    stage.decide()
    assert not stage.pools


@pytest.mark.parametrize("how", ["paused", "stopped"])
def test_what_is_held_does_nothing(how: str) -> None:
    pool = a_leftover(paused=True) if how == "paused" else a_leftover()
    stage = Stage(pool, offers=TWO, **({"stopped": True} if how == "stopped" else {}))
    decision = stage.decide()[0]
    assert (decision.actions, stage.status().rungs) == ((), ())
    assert ready(decision).reason.lower() == how


def test_nothing_is_decided_on_a_part() -> None:
    for blind in ({"complete": False}, {"unseen": {"nodepools.karpenter.sh": "gone"}}):
        stage = Stage(offers=TWO, **blind)
        decision = stage.decide()[0]
        assert decision.actions == () or all(isinstance(each, EmitEvent) for each in decision.actions)
        assert ready(decision).status == "False"


def test_node_classes_that_cannot_be_read_are_not_taken_for_missing_ones() -> None:
    """Or of two that match, the one that is known would be chosen, and every rung would get another template."""
    classes = {"ec2nodeclasses.karpenter.k8s.aws": "the operator may not list them"}
    decision = Stage(offers=TWO, classes=[], unseen=classes).decide()[0]
    assert (ready(decision).status, ready(decision).reason) == ("False", "KarpenterUnseen")
    assert "ec2nodeclasses" in ready(decision).message
    others = {"kwoknodeclasses.karpenter.kwok.sh": "the operator may not list them"}
    assert ready(Stage(offers=TWO, unseen=others).decide()[0]).reason == "Reconciled"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("Credentials", "AWSClientError"),
        ("Types", "ListTypesError"),
        ("Prices", "SpotPriceError"),
        ("Scores", "ScorerError"),
    ],
)
def test_a_feed_that_fails_says_so_in_the_seeds_words(problem: Any, reason: str) -> None:
    feed = OfferFeed(pool="cheap", problem=problem, message="AWS answered AuthFailure")
    stage = Stage(instances_given=False, offer_feeds={"cheap": feed})
    assert ready(stage.decide()[0]).reason == reason


def test_scores_that_are_unknown_keep_nobody_from_ranking() -> None:
    feed = OfferFeed(pool="cheap", at=Stage().now, problem="Scores", message="throttled")
    stage = Stage(offers=TWO, instances_given=False, offer_feeds={"cheap": feed})
    assert ready(stage.decide()[0]).reason == "Reconciled"
