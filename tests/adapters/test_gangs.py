"""Gangs are evicted as a whole or not at all, on a simulated API server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import decode, errors, paths
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import Victim
from headroom.api.kinds import AnyResource
from headroom.model.errors import Refused
from headroom.model.facts import Pod
from headroom.sim import faults as wrong
from tests.adapters.doing import do, evict, told
from tests.adapters.simulated import Cluster, virtual

UNIT = "JobSet/team-a/train"
LABELS = {"app": "trainer"}
RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def guarded(cluster: Cluster, name: str, healthy: int, **labels: str) -> None:
    cluster.server.put(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "team-a"},
            "spec": {"minAvailable": healthy, "selector": {"matchLabels": labels or LABELS}},
        }
    )


def rank(cluster: Cluster, name: str, status: dict[str, Any] | None = None, **labels: str) -> dict[str, Any]:
    return cluster.pod(name, node="n1", metadata={"labels": LABELS | labels}, status=status or RUNNING)


async def stopping(cluster: Cluster, ranks: list[dict[str, Any]]) -> AnyResource:
    """A budget of which the view shows that these pods are being stopped."""
    victim = Victim(
        unit=UNIT,
        action="Evict",
        at="2026-11-15T12:00:00Z",
        uids=tuple(each["metadata"]["uid"] for each in ranks),
        pods=tuple(name_of(each) for each in ranks),
    )
    budget = cluster.resource()
    assert isinstance(budget.status, GPUWorkloadBudgetStatus)
    await cluster.port.write_status(budget, structs.replace(budget.status, victim=victim))
    await cluster.settle()
    return budget


def name_of(document: dict[str, Any]) -> str:
    return f"team-a/{document['metadata']['name']}"


async def go(cluster: Cluster, document: dict[str, Any], budget: AnyResource) -> None:
    await do(cluster, evict(document, pod=name_of(document)), budget)


def going(cluster: Cluster) -> list[str]:
    pods = [each["metadata"] for each in cluster.server.objects("Pod")]
    return sorted(each["name"] for each in pods if "deletionTimestamp" in each)


@virtual
async def test_no_rank_goes_if_a_disruption_budget_lets_only_some_go() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        guarded(cluster, "pdb", 2)
        ranks = [rank(cluster, f"train-{number}") for number in range(3)]
        budget = await stopping(cluster, ranks)
        for each in ranks:
            with pytest.raises(Refused) as caught:
                await go(cluster, each, budget)
            assert str(caught.value) == (
                f"evicting pod {name_of(each)}: its gang {UNIT} could not be evicted as a whole: "
                "PodDisruptionBudget pdb allows 1 of 3 now"
            )
        assert going(cluster) == []
        assert told(cluster) == []
        guarded(cluster, "pdb", 0)
        for each in ranks:
            await go(cluster, each, budget)
        assert going(cluster) == ["train-0", "train-1", "train-2"]


@virtual
async def test_once_the_first_rank_went_the_others_follow_though_the_view_does_not_show_it_yet() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        guarded(cluster, "pdb", 0)
        ranks = [rank(cluster, f"train-{number}") for number in range(3)]
        budget = await stopping(cluster, ranks)
        await cluster.port.stop()
        for each in ranks:
            await go(cluster, each, budget)
        assert going(cluster) == ["train-0", "train-1", "train-2"]


@virtual
async def test_what_another_operator_began_is_brought_to_its_end() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        guarded(cluster, "pdb", 1)
        ranks = [rank(cluster, f"train-{number}") for number in range(3)]
        budget = await stopping(cluster, ranks)
        cluster.server.do("DELETE", paths.pod("team-a", "train-0"))
        await cluster.settle()
        await go(cluster, ranks[1], budget)
        with pytest.raises(errors.DisruptionBlocked):
            await go(cluster, ranks[2], budget)
        assert going(cluster) == ["train-0", "train-1"]


@virtual
async def test_ranks_that_do_not_run_are_not_counted() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        ranks = [rank(cluster, "train-0"), rank(cluster, "train-1", {"phase": "Succeeded"}), rank(cluster, "train-2")]
        ranks.append(rank(cluster, "train-3", {"phase": "Pending"}))
        rank(cluster, "other")
        guarded(cluster, "pdb", 1)
        budget = await stopping(cluster, ranks)
        for each in (ranks[0], ranks[2], ranks[3]):
            await go(cluster, each, budget)
        assert "other" not in going(cluster)


@virtual
async def test_a_budget_over_one_rank_keeps_all_of_them() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        guarded(cluster, "leader", 1, role="leader")
        ranks = [rank(cluster, "train-0"), rank(cluster, "train-1", role="leader")]
        budget = await stopping(cluster, ranks)
        with pytest.raises(Refused, match="as a whole: PodDisruptionBudget leader allows 0 of 1 now"):
            await go(cluster, ranks[0], budget)


@virtual
async def test_a_rank_that_two_disruption_budgets_select_keeps_all_of_them() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        guarded(cluster, "pdb", 0)
        guarded(cluster, "leader", 0, role="leader")
        ranks = [rank(cluster, "train-0"), rank(cluster, "train-1", role="leader")]
        budget = await stopping(cluster, ranks)
        with pytest.raises(Refused, match="as a whole: more than one PodDisruptionBudget selects pod team-a/train-1"):
            await go(cluster, ranks[0], budget)
        assert going(cluster) == []


@virtual
async def test_single_pods_are_judged_by_the_api_server_alone() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        ranks = [rank(cluster, "train-0"), rank(cluster, "train-1")]
        budget = await stopping(cluster, ranks[:1])
        cluster.transport._faults.add(wrong.Refusal(status=403, path=paths.disruption_budgets("team-a")))
        for each in ranks:
            await go(cluster, each, budget)
        assert going(cluster) == ["train-0", "train-1"]


@virtual
async def test_without_a_look_at_disruption_budgets_no_gang_goes() -> None:
    async with Cluster() as cluster:
        cluster.node("n1")
        ranks = [rank(cluster, "train-0"), rank(cluster, "train-1")]
        budget = await stopping(cluster, ranks)
        cluster.transport._faults.add(wrong.Refusal(status=403, path=paths.disruption_budgets("team-a")))
        with pytest.raises(errors.Forbidden):
            await go(cluster, ranks[0], budget)
        assert going(cluster) == []


# --- disruption budgets as facts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({"matchLabels": {"app": "trainer"}}, True),
        ({"matchLabels": {"app": "trainer", "role": "leader"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "trainer"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["trainer"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist", "values": None}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Unheard"}]}, True),
        ({"matchLabels": None, "matchExpressions": None}, True),
        ({}, True),
        (None, False),
        ([], False),
    ],
)
def test_which_pods_a_disruption_budget_selects(selector: Any, selected: bool) -> None:
    item = {"metadata": {"name": "pdb", "resourceVersion": "5"}, "spec": {"selector": selector}}
    body = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [item]}).encode()
    [found] = decode.disruption_budgets().page(body).items
    assert (found.name, found.allowed) == ("pdb", 0)
    assert found.selects(Pod(uid="u", namespace="team-a", name="p", labels=(("app", "trainer"),))) is selected


@pytest.mark.parametrize(("status", "allowed"), [({"disruptionsAllowed": 3}, 3), ({}, 0), (None, 0), ([], 0)])
def test_what_a_disruption_budget_allows(status: Any, allowed: int) -> None:
    item = {"metadata": {"name": "pdb"}, "spec": None, "status": status}
    body = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [item]}).encode()
    assert [each.allowed for each in decode.disruption_budgets().page(body).items] == [allowed]
