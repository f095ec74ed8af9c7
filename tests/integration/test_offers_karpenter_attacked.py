"""Attacks on the ladder, and a Karpenter or an operator that is not there: on the real control plane, with the real Karpenter."""

import json

from headroom.api.marks import LEFTOVER_FINALIZER
from tests.integration.accounts import Document
from tests.integration.enforced import wait_for
from tests.integration.fenced import Fenced
from tests.integration.karpented import (
    LEFTOVERS,
    NODE_POOLS,
    OWNER,
    A,
    B,
    Karpented,
    Ladder,
    gpu_limits,
    harm_to,
)
from tests.integration.test_rights import OF_OTHERS, assert_allowed, assert_fenced
from tests.karpenter_lab import REGION

KEPT = ("example.com/keep", "headroom.dev/usage")


# --- others' objects --------------------------------------------------------------------------------------------------------------


def test_of_two_that_want_the_same_weights_the_later_writes_nothing_until_there_are_some(karpented: Karpented) -> None:
    karpented.market.put("x1.xlarge", A, 1.0)
    karpented.market.put("x2.xlarge", B, 1.2)
    first = karpented.ladder("fight-a", 1, 10, families=["x1", "x2"])
    first.wait_for_rungs("x1.xlarge", "x2.xlarge")
    second = karpented.ladder("fight-b", 9, 20, families=["x1", "x2"])
    wait_for(lambda: second.says()[:2] == ("False", "WeightsOverlap"), "the later one says so")
    assert "fight-a" in second.says()[2]
    assert second.node_pools() == []
    assert first.says()[0] == "True"
    first.edit(weights={"min": 1, "max": 8})
    second.wait_for_rungs("x1.xlarge", "x2.xlarge")
    wait_for(lambda: {each["weight"] for each in first.rungs()} == {8, 7}, "the first one has made room")
    wait_for(lambda: [each["spec"]["weight"] for each in first.node_pools()] == [8, 7], "so have its NodePools")
    assert [each["spec"]["weight"] for each in second.node_pools()] == [20, 19]
    for each in (first, second):
        each.edit(deletionPolicy="Delete")
        wait_for(lambda each=each: bool(each.found()["metadata"].get("finalizers")), "it is held")  # type: ignore[misc]  # mypy cannot tell the type of a lambda with a default
        each.remove()
        wait_for(lambda each=each: each.document() is None, "it is gone")  # type: ignore[misc]  # the same


def test_a_node_pool_with_the_name_of_a_rung_is_never_taken_and_never_deleted(karpented: Karpented) -> None:
    karpented.market.put("y1.xlarge", A, 1.0)
    ladder = karpented.ladder("named", 11, 20, families=["y1", "y2"], deletionPolicy="Delete")
    ladder.wait_for_rungs("y1.xlarge")
    [made] = ladder.node_pools()
    ladder.remove()
    wait_for(lambda: ladder.document() is None and ladder.node_pools() == [], "it is gone")
    theirs = Ladder(karpented, "theirs", (1, 1))
    spec = json.loads(json.dumps(made["spec"]).replace('"named"', '"theirs"'))
    name = made["metadata"]["name"]
    metadata = {"name": name, "labels": {OWNER: "named"}}
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": spec}
    stranger = karpented.api.send("POST", NODE_POOLS, body)["metadata"]
    assert theirs.serve("train") == ["y1.xlarge"]
    pods = theirs.running("train")
    ladder.create(families=["y1", "y2"], deletionPolicy="Delete")
    wait_for(lambda: ladder.says()[:2] == ("False", "ApplyNodePoolError"), "it is told of")
    assert f"{name} exists but was not created by Headroom" in ladder.says()[2]
    karpented.market.put("y2.xlarge", B, 2.0)
    wait_for(lambda: ladder.by_weight() == ["y2.xlarge"], "the other rung is written all the same")
    ladder.remove()
    wait_for(lambda: ladder.document() is None, "it is gone")
    found = karpented.node_pool(name)
    assert found is not None
    assert (found["metadata"]["uid"], found["spec"]) == (stranger["uid"], spec)
    assert theirs.running("train") == pods
    karpented.api.send("DELETE", f"{NODE_POOLS}/{name}")


def test_what_somebody_edits_is_told_of_and_left_to_them(karpented: Karpented) -> None:
    karpented.market.put("z1.xlarge", A, 1.0)
    ladder = karpented.ladder("edited", 21, 30, families=["z1"])
    ladder.wait_for_rungs("z1.xlarge")
    assert ladder.serve("train") == ["z1.xlarge"]
    pods = ladder.running("train")
    [made] = ladder.node_pools()
    path = f"{NODE_POOLS}/{made['metadata']['name']}"

    def edit(patch: Document, manager: str = "editor") -> None:
        karpented.api.send("PATCH", f"{path}?fieldManager={manager}", patch, "merge")

    edit({"spec": {"limits": made["spec"]["limits"] | {"nvidia.com/gpu": "3"}}})
    wait_for(lambda: ladder.says()[:2] == ("False", "ApplyNodePoolError"), "it is told of")
    assert "editor" in ladder.says()[2]
    assert gpu_limits(ladder.node_pools()[0]) == "3"
    edit({"spec": {"limits": made["spec"]["limits"]}})
    wait_for(lambda: ladder.says()[0] == "True", "it is as it should be")
    edit({"metadata": {"labels": {OWNER: None}}})
    wait_for(lambda: ladder.says()[:2] == ("False", "ApplyNodePoolError"), "what has not our label is not ours")
    edit({"metadata": {"labels": {OWNER: "edited"}}})
    wait_for(lambda: ladder.says()[0] == "True", "it is ours again")
    assert [each["metadata"]["uid"] for each in ladder.node_pools()] == [made["metadata"]["uid"]]
    assert ladder.running("train") == pods
    assert harm_to(karpented, "edited") == []
    ladder.scale("train", 0)
    ladder.remove()


def test_the_operator_may_change_nothing_of_a_leftovernodepool_but_its_finalizer(karpented: Karpented) -> None:
    spec = {"region": REGION, "nodeClassName": "none", "weights": {"min": 98, "max": 99}, "paused": True}
    metadata = {"name": "fenced", "labels": {"team": "a"}, "annotations": {"theirs": "1"}, "finalizers": [*KEPT]}
    body = {"apiVersion": "headroom.dev/v1alpha1", "kind": "LeftoverNodePool", "metadata": metadata, "spec": spec}
    karpented.api.send("POST", LEFTOVERS, body)
    path, ours = f"{LEFTOVERS}/fenced", {"metadata": {"finalizers": [*KEPT, LEFTOVER_FINALIZER]}}
    fenced = Fenced(karpented.plane)
    others: list[Document] = [{"metadata": {"finalizers": each}} for each in (None, [LEFTOVER_FINALIZER])]
    for change in (*OF_OTHERS, *others, {"spec": {"paused": False}}, ours | {"spec": {"deletionPolicy": "Delete"}}):
        assert_fenced(fenced, path, change)
    assert_allowed(fenced, path, ours)
    assert_allowed(fenced, path, {"metadata": {"finalizers": [*KEPT]}})
    fenced.close()
    karpented.api.send("PATCH", path, {"metadata": {"finalizers": None}}, "merge")
    karpented.api.send("DELETE", path)


# --- who is not there -------------------------------------------------------------------------------------------------------------


def test_a_karpenter_that_is_down_or_slow_is_waited_for(karpented: Karpented) -> None:
    karpented.market.put("w1.xlarge", A, 1.0)
    karpented.market.put("w2.xlarge", B, 2.0)
    karpented.karpenter.kill()
    ladder = karpented.ladder("late", 31, 40, families=["w1", "w2"])
    ladder.wait_for_rungs("w1.xlarge", "w2.xlarge")
    ladder.work("train")
    karpented.market.change("w2.xlarge", B, dollars=0.2, mode="slow", seconds=4)
    ladder.wait_for_rungs("w2.xlarge", "w1.xlarge")
    karpented.karpenter.start()
    wait_for(lambda: list(ladder.running("train").values()) == ["w2.xlarge"], "the slow machine has come")
    assert ladder.rested() == set()
    ladder.remove()


def test_killed_at_any_moment_the_operator_leaves_one_ladder_and_every_node(karpented: Karpented) -> None:
    kinds = ("v1.xlarge", "v2.xlarge", "v3.xlarge")
    for place, kind in enumerate(kinds):
        karpented.market.put(kind, A, 1.0 + place)
    ladder = karpented.ladder("killed", 41, 50, families=["v1", "v2", "v3"])
    ladder.wait_for_rungs(*kinds)
    assert ladder.serve("train") == ["v1.xlarge"]
    pods, uids = ladder.running("train"), {each["metadata"]["uid"] for each in ladder.node_pools()}
    karpented.market.change("v3.xlarge", A, dollars=0.3)
    wait_for(lambda: ladder.kinds()[0] == "v3.xlarge", "the status says so")
    karpented.operator.kill()
    karpented.market.change("v2.xlarge", A, dollars=0.1)
    karpented.operator.start()
    ladder.wait_for_rungs("v2.xlarge", "v3.xlarge", "v1.xlarge")
    karpented.market.put("v4.xlarge", A, 0.01)
    ladder.edit(families=["v1", "v2", "v3", "v4"])
    wait_for(lambda: len(ladder.rungs()) == 4, "the status knows of a new rung")
    karpented.operator.kill()
    karpented.operator.start()
    ladder.wait_for_rungs("v4.xlarge", "v2.xlarge", "v3.xlarge", "v1.xlarge")
    assert uids < {each["metadata"]["uid"] for each in ladder.node_pools()}
    assert ladder.running("train") == pods
    assert harm_to(karpented, "killed") == []
    ladder.remove()
