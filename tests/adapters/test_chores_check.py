"""Chores let nothing go for a budget that is only missing from the first list: an operator that has just started is not fooled by it."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.errors import Unavailable
from headroom.sim import faults as wrong
from tests.adapters import owners
from tests.adapters.doing import BY, CHORES, do, forget, on
from tests.adapters.simulated import Cluster, virtual

BUDGETS = paths.collection("GPUWorkloadBudget")
BUDGET = paths.resource("GPUWorkloadBudget", "team-a", "one")
GATE = {"schedulingGates": [{"name": "headroom.dev/budget"}]}
MARKS = {"headroom.dev/held-by": "team-a/one", "headroom.dev/paused-by": BY, "headroom.dev/paused-at": "then"}


class Fooled(Cluster):
    """A cluster with a budget, and what it holds, whose first list of budgets is empty."""

    def __init__(self) -> None:
        super().__init__()
        for each in owners.definitions():
            self.server.put(each)
        marks: dict[str, Any] = {
            "annotations": {"headroom.dev/suspended-by": BY},
            "labels": {"headroom.dev/suspended": "true"},
        }
        self.server.put(owners.owner("Job", spec={"suspend": True}, **marks))
        self.held = self.pod(spec=GATE, metadata={"annotations": MARKS, "finalizers": ["headroom.dev/usage"]})
        self.resource(enforcement={"action": "Hold"})
        hold = {"budget": "team-a/one", "namespaces": ["team-a"], "because": "a test"}
        kind = {"apiVersion": "headroom.dev/v1alpha1", "kind": "BudgetHold"}
        self.server.put({**kind, "metadata": {"name": "team-a.one"}, "spec": hold})
        index = {"budgets": [{"budget": "team-a/one", "namespaces": ["team-a"], "exact": True}]}
        self.server.put({**kind, "kind": "BudgetIndex", "metadata": {"name": "headroom"}, "spec": index})
        self.transport._faults.add(wrong.EmptyList(path=BUDGETS))

    def chores(self) -> dict[str, Action]:
        """What an operator that believes the list would do."""
        return {
            "hold": actions.DeleteBudgetHold(budget="team-a/one"),
            "gate": on(actions.ReleasePod, self.held),
            "pause": on(actions.ResumePod, self.held),
            "owner": actions.ResumeOwner(kind="Job", object="team-a/train"),
            "index": actions.ApplyBudgetIndex(budget="team-a/one", budgets=()),
            "finalizer": actions.RemoveFinalizer(object="Pod/team-a/train-0"),
        }

    def state(self) -> list[Any]:
        return [
            self.stored("Pod", "team-a", "train-0"),
            self.stored("Job", "team-a", "train"),
            self.server.object("BudgetHold", "", "team-a.one"),
            self.server.object("BudgetIndex", "", "headroom"),
        ]


@pytest.mark.parametrize("name", ["hold", "gate", "pause", "owner", "index", "finalizer"])
@virtual
async def test_what_a_budget_holds_stays_while_the_budget_exists(name: str) -> None:
    async with Fooled() as cluster:
        assert isinstance(cluster, Fooled)
        assert not cluster.port.world(cluster.clock.now()).resources
        before = cluster.state()
        with pytest.raises(
            Unavailable, match="team-a/one, which cannot be seen: it still exists, so nothing is released"
        ):
            await do(cluster, cluster.chores()[name], CHORES)
        assert cluster.state() == before


@pytest.mark.parametrize("name", ["hold", "gate", "pause", "owner", "index", "finalizer"])
@virtual
async def test_it_is_let_go_once_the_api_server_says_that_the_budget_is_gone(name: str) -> None:
    async with Fooled() as cluster:
        assert isinstance(cluster, Fooled)
        forget(cluster, BUDGET)
        before = cluster.state()
        await do(cluster, cluster.chores()[name], CHORES)
        assert cluster.state() != before


@virtual
async def test_a_404_that_is_not_the_api_servers_word_proves_nothing() -> None:
    async with Fooled() as cluster:
        assert isinstance(cluster, Fooled)
        forget(cluster, BUDGET)
        cluster.transport._faults.add(wrong.Refusal(status=404, path=BUDGET))
        with pytest.raises(Unavailable, match="that does not say that it was deleted"):
            await do(cluster, cluster.chores()["gate"], CHORES)


@pytest.mark.parametrize("exists", [True, False])
@virtual
async def test_a_node_stays_cordoned_while_its_pool_exists(exists: bool) -> None:
    cluster = Cluster()
    cluster.resource("PowerPool", "rack")
    marks = {"headroom.dev/cordoned-by": "PowerPool/rack"}
    metadata = {"name": "n1", "annotations": marks}
    cluster.server.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}})
    cluster.transport._faults.add(wrong.EmptyList(path=paths.collection("PowerPool")))
    async with cluster:
        if exists:
            with pytest.raises(Unavailable, match="PowerPool/rack, which cannot be seen: it still exists"):
                await do(cluster, actions.UncordonNode(node="n1", by="PowerPool/rack"), CHORES)
        else:
            forget(cluster, paths.resource("PowerPool", "", "rack"))
            await do(cluster, actions.UncordonNode(node="n1", by="PowerPool/rack"), CHORES)
        assert bool(cluster.stored("Node", "", "n1")["spec"].get("unschedulable")) == exists
