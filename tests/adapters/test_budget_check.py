"""The last look at a budget before a pod is evicted or an owner suspended for it, and what tells of an eviction afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headroom.adapters.kube import parse, paths
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.errors import Unavailable
from headroom.model.times import moment
from tests.adapters import owners
from tests.adapters.doing import do, evict, forget
from tests.adapters.simulated import Cluster, virtual

BUDGET = paths.resource("GPUWorkloadBudget", "team-a", "one")
Change = Callable[[Cluster], Any]


def deleted(cluster: Cluster) -> None:
    forget(cluster, BUDGET)


def made_anew(cluster: Cluster) -> None:
    forget(cluster, BUDGET)
    cluster.resource()


CHANGES: dict[str, Change] = {
    "paused": lambda cluster: cluster.resource(paused=True),
    "quota raised": lambda cluster: cluster.resource(quota={"gpuHours": "100000", "windowHours": 24}),
    "selector": lambda cluster: cluster.resource(selector={"matchLabels": {"team": "b"}}),
    "alerts only": lambda cluster: cluster.resource(enforcement={"action": "AlertOnly"}),
    "deleted": deleted,
    "made anew": made_anew,
}


class Late(Cluster):
    """A cluster in which a budget has changed, and the operator has not heard of it yet."""

    def __init__(self) -> None:
        super().__init__()
        self.node("n1")
        for each in owners.definitions():
            self.server.put(each)
        self.server.put(owners.owner("Job"))
        self.victim = self.pod(node="n1")
        self.budget = self.resource(enforcement={"action": "Evict"})

    async def heard(self, change: Change | None) -> AnyResource:
        decided_on = self.port.world(self.clock.now()).resources
        (budget,) = decided_on.values()
        if change is not None:
            change(self)
        return budget

    def is_suspended(self) -> bool:
        return bool(self.stored("Job", "team-a", "train")["spec"].get("suspend"))

    def is_evicted(self) -> bool:
        return "deletionTimestamp" in self.stored("Pod", "team-a", "train-0")["metadata"]


@pytest.mark.parametrize("name", CHANGES)
@virtual
async def test_nothing_is_stopped_for_a_budget_that_is_another_one_by_now(name: str) -> None:
    async with Late() as cluster:
        assert isinstance(cluster, Late)
        budget = await cluster.heard(CHANGES[name])
        with pytest.raises(Unavailable, match=r"budget team-a/one has (changed|been deleted)"):
            await do(cluster, evict(cluster.victim), budget)
        with pytest.raises(Unavailable, match=r"budget team-a/one has (changed|been deleted)"):
            await do(cluster, actions.SuspendOwner(kind="Job", object="team-a/train"), budget)
        assert not cluster.is_evicted()
        assert not cluster.is_suspended()


@virtual
async def test_one_that_is_the_same_is_obeyed() -> None:
    async with Late() as cluster:
        assert isinstance(cluster, Late)
        budget = await cluster.heard(None)
        await do(cluster, evict(cluster.victim), budget)
        await do(cluster, actions.SuspendOwner(kind="Job", object="team-a/train"), budget)
        assert cluster.is_evicted()
        assert cluster.is_suspended()


@virtual
async def test_what_only_its_status_tells_changes_nothing() -> None:
    async with Late() as cluster:
        assert isinstance(cluster, Late)
        budget = await cluster.heard(None)
        document = cluster.stored("GPUWorkloadBudget", "team-a", "one") | {"status": {"consumedGpuHours": "5"}}
        cluster.server.do("PUT", paths.status("GPUWorkloadBudget", "team-a", "one"), document)
        await do(cluster, evict(cluster.victim), budget)
        assert cluster.is_evicted()


# --- evidence of an eviction ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "status", "evicted"),
    [
        ("EvictionByEvictionAPI", "True", "11:00:00"),
        ("EvictionByEvictionAPI", "False", None),
        ("PreemptionByScheduler", "True", None),
        ("DeletionByTaintManager", "True", None),
        (None, "True", None),
    ],
)
def test_only_the_eviction_api_says_that_a_pod_was_evicted(
    reason: str | None, status: str, evicted: str | None
) -> None:
    other = {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": "2026-11-15T12:00:00Z"}
    target = {
        "type": "DisruptionTarget",
        "status": status,
        "reason": reason,
        "lastTransitionTime": "2026-11-15T11:00:00Z",
    }
    found = parse.pod({"metadata": {"name": "p", "uid": "u"}, "status": {"conditions": [other, target]}})
    assert found.evicted == (moment(f"2026-11-15T{evicted}Z") if evicted else None)
