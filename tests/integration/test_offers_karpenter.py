"""Cheapest capacity beside the real Karpenter: prices move and machines sell out, and no node that runs is touched.

The tests share one operator and go on from one another.
"""

import pytest

from tests.integration.accounts import Document
from tests.integration.enforced import is_running, wait_for
from tests.integration.karpented import (
    NODE_POOLS,
    A,
    B,
    C,
    Karpented,
    Ladder,
    gpu_limits,
    harm_to,
    written_by,
)

G4, G5, G6 = "g4dn.xlarge", "g5.xlarge", "g6.xlarge"


@pytest.fixture(scope="module")
def ladder(karpented: Karpented) -> Ladder:
    """Three rungs, each of one machine type."""
    for kind, zone, dollars in ((G5, A, 0.4), (G6, B, 0.6), (G4, C, 0.8)):
        karpented.market.put(kind, zone, dollars)
    return karpented.ladder("ladder", 81, 100, families=["g4dn", "g5", "g6"])


def pool_of(ladder: Ladder, kind: str) -> Document:
    """The NodePool with that machine type."""
    return next(each for each in ladder.node_pools() if kind in str(each["spec"]["template"]))


# --- the ladder -------------------------------------------------------------------------------------------------------------------


def test_pending_pods_get_nodes_from_the_top_rung(ladder: Ladder) -> None:
    ladder.wait_for_rungs(G5, G6, G4)
    assert [each["spec"]["weight"] for each in ladder.node_pools()] == [100, 99, 98]
    assert ladder.serve("steady", 2) == [G5, G5]
    ladder.steady = ladder.running("steady")
    wait_for(lambda: [each["nodes"] for each in ladder.rungs()] == [2, 0, 0], "the status counts the nodes")


def test_once_the_top_rung_is_sold_out_the_next_one_serves(ladder: Ladder) -> None:
    ladder.market.change(G5, A, mode="soldOut")
    assert ladder.serve("more") == [G6]
    assert ladder.rested() == {pool_of(ladder, G5)["metadata"]["name"]}
    wait_for(lambda: ladder.by_weight()[0] == G5, "it has rested, and is the cheapest still")
    ladder.market.change(G5, A, mode="")


def test_when_prices_move_weights_move_and_no_template(ladder: Ladder) -> None:
    before = {each["metadata"]["uid"]: each["spec"]["template"] for each in ladder.node_pools()}
    ladder.market.change(G4, C, dollars=0.1)
    ladder.wait_for_rungs(G4, G5, G6)
    assert {each["metadata"]["uid"]: each["spec"]["template"] for each in ladder.node_pools()} == before
    assert ladder.serve("cheaper") == [G4]


def test_a_rung_that_leaves_the_ranking_keeps_its_nodes_until_it_is_empty(ladder: Ladder) -> None:
    before, name = ladder.running("more"), pool_of(ladder, G6)["metadata"]["name"]
    ladder.market.change(G6, B, told=False)
    wait_for(lambda: ladder.kinds("Leaving") == [G6], "the rung leaves")
    wait_for(lambda: gpu_limits(pool_of(ladder, G6)) == "1", "it adds no nodes")
    # By then it would be gone if it were empty.
    assert ladder.serve("meanwhile") == [G4]
    assert ladder.running("more") == before
    assert ladder.all.node_pool(name) is not None
    ladder.scale("more", 0)


def test_a_claim_that_is_stuck_takes_its_rung_out_and_its_pods_go_on(karpented: Karpented) -> None:
    stuck, next_best = "p3.2xlarge", "p4.2xlarge"
    karpented.market.put(stuck, A, 1.0, mode="fails")
    karpented.market.put(next_best, B, 2.0)
    ladder = karpented.ladder("stuck", 61, 70, families=["p3", "p4"])
    ladder.wait_for_rungs(stuck, next_best)
    ladder.work("train")
    wait_for(lambda: ladder.kinds("Resting") == [stuck], "the rung rests")
    assert "a launch failed" in ladder.says()[2]
    wait_for(lambda: list(ladder.running("train").values()) == [next_best], "the pod has found another machine")
    ladder.remove()


def test_once_it_is_empty_a_rung_that_left_is_gone(ladder: Ladder) -> None:
    wait_for(lambda: G6 not in str(ladder.node_pools()), "its NodePool is gone")
    wait_for(lambda: ladder.kinds("Leaving") == [], "the status knows")
    assert sorted(set(ladder.running().values())) == [G4, G5]


# --- the reason for all this ------------------------------------------------------------------------------------------------------

SEED = f"{NODE_POOLS}/leftover-seed"


def seeds_spec(kind: str) -> Document:
    """One NodePool with the one machine type that is the cheapest now."""
    requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [kind]}]
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    inner = {"nodeClassRef": node_class, "requirements": requirements}
    return {"template": {"metadata": {"labels": {"pool": "seed"}}, "spec": inner}}


@pytest.fixture(scope="module")
def seed(karpented: Karpented) -> Ladder:
    """A namespace whose pods choose the nodes of that one NodePool; nothing of Headroom."""
    karpented.market.put("g5.2xlarge", A, 1.0, told=False)
    karpented.market.put("g6.2xlarge", B, 0.9, told=False)
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "leftover-seed"}}
    karpented.api.send("POST", NODE_POOLS, pool | {"spec": seeds_spec("g5.2xlarge")})
    return Ladder(karpented, "seed", (1, 1))


def test_the_seeds_rewrite_of_one_node_pool_makes_its_nodes_drift(karpented: Karpented, seed: Ladder) -> None:
    assert seed.serve("train") == ["g5.2xlarge"]
    seed.steady = seed.running("train")
    karpented.api.send("PATCH", SEED, {"spec": seeds_spec("g6.2xlarge")}, "merge")
    wait_for(lambda: any("Drifted" in each for each in harm_to(karpented, "seed")), "its node has drifted")


# --- what bounds it ---------------------------------------------------------------------------------------------------------------


def test_while_a_budget_is_over_quota_karpenter_adds_no_nodes_and_a_sleeping_machine_wakes(
    karpented: Karpented,
) -> None:
    payer = karpented.cluster.team("payer")
    payer.budget(quota={"gpuHours": "0.01", "windowHours": 24})
    payer.pod("heavy", 100)
    wait_for(lambda: payer.is_so("QuotaExceeded"), "the budget is used up")
    karpented.market.put("p5.4xlarge", A, 1.0, gpus=4)
    # Of its own label, or the pods of other tests would be served too.
    named = {"budgetRef": {"namespace": "payer", "name": "team"}, "labels": {"pool": "beside"}}
    ladder = karpented.ladder("frozen", 51, 60, families=["p5"], minGPUs=4, **named)
    wait_for(lambda: [gpu_limits(each) for each in ladder.node_pools()] == ["0"], "its limits are what there is")
    pool = karpented.site.pool("beside", 4, 4)
    pool.create()
    pool.work("first", 4)
    wait_for(lambda: pool.runs("first"), "a machine was woken for it")
    assert pool.commands() == [("beside-1", "start")]
    assert ladder.node_claims() == []
    payer.raise_quota()
    wait_for(lambda: [gpu_limits(each) for each in ladder.node_pools()] == ["1000"], "Karpenter may add nodes again")
    pool.work("second", 4)
    wait_for(lambda: pool.names(is_running) == {"first", "second"}, "Karpenter has brought a machine")
    assert len(ladder.node_claims()) == 1
    assert pool.commands() == [("beside-1", "start")]
    ladder.remove()
    pool.remove()
    payer.close()


def test_node_pools_are_retained_or_deleted_as_it_is_said(karpented: Karpented) -> None:
    karpented.market.put("g6e.xlarge", A, 1.0)
    ladder = karpented.ladder("kept", 41, 50, families=["g6e"])
    ladder.wait_for_rungs("g6e.xlarge")
    assert ladder.serve("train") == ["g6e.xlarge"]
    [before], pods = ladder.node_pools(), ladder.running("train")
    ladder.remove()
    wait_for(lambda: ladder.document() is None, "the object is gone")
    ladder.create(families=["g6e"], deletionPolicy="Delete")
    wait_for(lambda: [each["nodes"] for each in ladder.rungs()] == [1], "its NodePool is taken up again")
    assert [each["metadata"]["uid"] for each in ladder.node_pools()] == [before["metadata"]["uid"]]
    assert ladder.running("train") == pods
    ladder.scale("train", 0)
    ladder.remove()
    wait_for(lambda: ladder.document() is None, "the object is gone")
    assert ladder.node_pools() == []
    wait_for(lambda: ladder.node_claims() == [], "so are its machines")


def test_a_field_that_somebody_else_manages_is_told_of_and_not_taken(karpented: Karpented) -> None:
    karpented.market.put("g7.xlarge", A, 1.0)
    ladder = karpented.ladder("contested", 31, 40, families=["g7"])
    ladder.wait_for_rungs("g7.xlarge")
    [made] = ladder.node_pools()
    theirs = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": made["metadata"]["name"]}}
    karpented.apply_as("somebody", theirs | {"spec": {"weight": 7}})
    wait_for(lambda: ladder.says()[1] == "ApplyNodePoolError", "it is told of")
    assert "somebody" in ladder.says()[2]
    [found] = ladder.node_pools()
    assert found["spec"]["weight"] == 7
    assert "weight" not in str(written_by("headroom", found))
    karpented.apply_as("somebody", theirs)
    wait_for(lambda: ladder.node_pools()[0]["spec"].get("weight") == 40, "what nobody manages any more is ours again")
    wait_for(lambda: ladder.says()[0] == "True", "all is well")
    ladder.remove()


# --- what became of all these nodes -----------------------------------------------------------------------------------------------


def test_a_node_that_has_drifted_is_replaced_under_its_pod(karpented: Karpented, seed: Ladder) -> None:
    wait_for(lambda: list(seed.running("train").values()) == ["g6.2xlarge"], "its pod was moved to a new machine")
    assert not seed.steady.keys() & seed.running("train").keys()
    karpented.api.send("DELETE", SEED)


def test_in_all_this_no_running_node_of_a_ladder_was_touched(karpented: Karpented, ladder: Ladder) -> None:
    assert ladder.running("steady") == ladder.steady
    pods = [each for each in ladder.pods() if is_running(each)]
    assert len(pods) == 4
    for each in ("ladder", "stuck", "frozen", "kept", "contested"):
        assert harm_to(karpented, each) == []
