"""Evictions: what is done, what a disruption budget forbids, and what can never be."""

from __future__ import annotations

import json

from headroom.adapters.kube.errors import Conflict, DisruptionBlocked, EvictionImpossible, NotFound
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, disruption_budget, pod, uid_of, version_of

LABELS = {"app": "trainer"}


async def running(cluster: Cluster, name: str = "a") -> Document:
    return await cluster.run(await cluster.create(pod(name, labels=LABELS)), await cluster.node())


async def guarded(cluster: Cluster, *names: str, healthy: int = 1) -> None:
    """Disruption budgets that the disruption controller has taken note of."""
    for name in names:
        made = await cluster.create(disruption_budget(name, LABELS, healthy))

        async def counted(made: Document = made) -> bool:
            status = (await cluster.get(made["kind"], made["metadata"]["name"])).get("status", {})
            return bool(status.get("observedGeneration") and status.get("currentHealthy"))

        await cluster.until(counted, "the disruption budget is counted")


async def test_an_eviction_is_a_deletion_with_grace(cluster: Cluster) -> None:
    made = await running(cluster)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    reply = await cluster.ask("POST", cluster.path("Pod", "a", "eviction"), eviction)
    assert reply.status == 201
    assert json.loads(reply.body)["status"] == "Success"
    going = await cluster.get("Pod", "a")
    assert uid_of(going) == uid_of(made)
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    (target,) = [each for each in going["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_an_eviction_can_shorten_the_grace(cluster: Cluster) -> None:
    made = await running(cluster)
    await cluster.evict(made, grace_seconds=7)
    assert (await cluster.get("Pod", "a"))["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_what_is_not_there_cannot_be_evicted(cluster: Cluster) -> None:
    with refused(NotFound, 404, "NotFound"):
        await cluster.evict(pod("nothing"))


async def test_an_eviction_meant_for_another_uid_is_a_conflict(cluster: Cluster) -> None:
    old = await cluster.create(pod("a", labels=LABELS))
    await cluster.delete(old)
    new = await running(cluster)
    with refused(Conflict, 409, "Conflict"):
        await cluster.evict(old)
    assert "deletionTimestamp" not in (await cluster.get("Pod", "a"))["metadata"]
    await cluster.evict(new)
    assert "deletionTimestamp" in (await cluster.get("Pod", "a"))["metadata"]


async def test_an_eviction_meant_for_another_version_is_a_conflict(cluster: Cluster) -> None:
    made = await running(cluster)
    changed = await cluster.merge(made, {"metadata": {"labels": {"new": "yes"}}})
    with refused(Conflict, 409, "Conflict"):
        await cluster.evict(made, resource_version=version_of(made))
    assert "deletionTimestamp" not in (await cluster.get("Pod", "a"))["metadata"]
    await cluster.evict(made, resource_version=version_of(changed))


async def test_a_disruption_budget_blocks_an_eviction_for_now(cluster: Cluster) -> None:
    made = await running(cluster)
    await guarded(cluster, "pdb")
    with refused(DisruptionBlocked, 429, "TooManyRequests") as refusal:
        await cluster.evict(made)
    assert "disruption budget" in refusal.value.message
    assert "pdb" in refusal.value.message
    assert "deletionTimestamp" not in (await cluster.get("Pod", "a"))["metadata"]


async def test_a_disruption_budget_that_allows_one_allows_one(cluster: Cluster) -> None:
    one, two = await running(cluster, "one"), await running(cluster, "two")
    await guarded(cluster, "pdb")

    async def one_is_allowed() -> bool:
        return bool((await cluster.get("PodDisruptionBudget", "pdb"))["status"]["disruptionsAllowed"] == 1)

    await cluster.until(one_is_allowed, "both pods are counted")
    await cluster.evict(one)
    with refused(DisruptionBlocked, 429, "TooManyRequests"):
        await cluster.evict(two)


async def test_two_disruption_budgets_make_an_eviction_impossible(cluster: Cluster) -> None:
    made = await running(cluster)
    await guarded(cluster, "one", "two")
    with refused(EvictionImpossible, 500):
        await cluster.evict(made)


async def test_a_pending_pod_is_evicted_past_a_disruption_budget(cluster: Cluster) -> None:
    await running(cluster)
    await guarded(cluster, "pdb")
    waiting = await cluster.create(pod("waits", labels=LABELS))
    await cluster.evict(waiting)
    assert not await cluster.exists(waiting)


async def test_a_pod_that_is_going_already_is_evicted_past_a_disruption_budget(cluster: Cluster) -> None:
    made = await running(cluster)
    await guarded(cluster, "pdb")
    await cluster.delete(made)
    await cluster.evict(made)
