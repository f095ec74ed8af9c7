"""The port that the loop stands on: what it sees, and that it writes only to what was decided on."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from headroom.adapters.kube.errors import Conflict, DisruptionBlocked, NotFound
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.store import KubePort
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.decisions import Ref
from headroom.model.errors import Refused
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, budget, config_map, disruption_budget, pod, uid_of, version_of

GATE = "headroom.dev/budget"


class Seen:
    """A port and what it shows of the test's own namespace."""

    def __init__(self, cluster: Cluster, namespace: str = "headroom-system") -> None:
        """Nothing is evicted in the operator's own `namespace`."""
        self.cluster = cluster
        events = Events(cluster.kube, cluster.clock)
        self.port = KubePort(cluster.kube, events, clock=cluster.clock, rng=random.Random(1), namespace=namespace)

    def resource(self, name: str) -> AnyResource | None:
        world = self.port.world(self.cluster.clock.now())
        return world.resources.get(Ref("GPUWorkloadBudget", self.cluster.namespace, name))

    async def known(self, document: Document) -> AnyResource:
        """The resource, once the port has seen this very version of it."""

        async def seen() -> AnyResource | None:
            found = self.resource(document["metadata"]["name"])
            return found if found and found.resource_version == version_of(document) else None

        found = await self.cluster.until(seen, "the resource is seen")
        assert found is not None
        return found

    def on_pod(self, document: Document) -> dict[str, str]:
        return {"pod": f"{self.cluster.namespace}/{document['metadata']['name']}", "uid": uid_of(document)}


@asynccontextmanager
async def looking(found: Seen) -> AsyncIterator[Seen]:
    await found.port.start()
    assert await found.port.synced(20), found.port.problems()
    yield found
    await found.port.stop()


@pytest.fixture
async def seen(cluster: Cluster) -> AsyncIterator[Seen]:
    async with looking(Seen(cluster)) as found:
        yield found


@pytest.fixture
async def at_home(cluster: Cluster) -> AsyncIterator[Seen]:
    """The test's own namespace is the operator's."""
    async with looking(Seen(cluster, cluster.namespace)) as found:
        yield found


def status(pods: int) -> GPUWorkloadBudgetStatus:
    return GPUWorkloadBudgetStatus(tracked_pods=pods, consumed_gpu_hours="1.5")


async def test_pods_nodes_and_resources_are_seen(cluster: Cluster, seen: Seen) -> None:
    node = await cluster.node()
    made = await cluster.run(await cluster.create(pod("a", labels={"team": "blue"})), node)
    resource = await seen.known(await cluster.create(budget("a")))
    assert resource.spec.quota.window_hours == 24

    async def running() -> bool:
        world = seen.port.world(cluster.clock.now())
        found = world.pods.get(uid_of(made))
        return (
            found is not None and (found.phase, found.node) == ("Running", node) and world.nodes.get(node) is not None
        )

    await cluster.until(running, "the pod is seen running")
    world = seen.port.world(cluster.clock.now())
    assert world.complete
    assert world.cluster == uid_of(await cluster.do("GET", "/api/v1/namespaces/kube-system"))
    assert not world.stopped


async def test_our_own_write_is_seen_at_once(cluster: Cluster, seen: Seen) -> None:
    resource = await seen.known(await cluster.create(budget("a")))
    await seen.port.write_status(resource, status(3))
    found = seen.resource("a")
    assert found is not None
    assert found.status.tracked_pods == 3
    assert int(found.resource_version) > int(resource.resource_version)
    await seen.port.write_status(found, status(4))
    written = await cluster.get("GPUWorkloadBudget", "a")
    assert written["status"]["trackedPods"] == 4
    assert written["metadata"]["generation"] == 1


async def test_a_status_decided_on_an_old_version_is_refused(cluster: Cluster, seen: Seen) -> None:
    made = await cluster.create(budget("a"))
    old = await seen.known(made)
    await seen.known(await cluster.merge(made, {"spec": {"paused": True}}))
    with refused(Conflict, 409, "Conflict"):
        await seen.port.write_status(old, status(3))
    assert "trackedPods" not in (await cluster.get("GPUWorkloadBudget", "a")).get("status", {})


@pytest.mark.parametrize("version_is_known", [True, False])
async def test_a_status_of_a_resource_that_was_made_anew_is_refused(
    cluster: Cluster, seen: Seen, *, version_is_known: bool
) -> None:
    made = await cluster.create(budget("a"))
    old = await seen.known(made)
    await cluster.delete(made)
    await seen.known(await cluster.create(budget("a")))
    decided = old if version_is_known else structs.replace(old, resource_version="")
    with refused(Conflict, 409, "Conflict"):
        await seen.port.write_status(decided, status(3))
    found = seen.resource("a")
    assert found is not None
    assert found.status.tracked_pods is None


async def test_a_status_of_a_resource_that_is_gone_is_refused(cluster: Cluster, seen: Seen) -> None:
    made = await cluster.create(budget("a"))
    old = await seen.known(made)
    await cluster.delete(made)
    with refused(NotFound, 404, "NotFound"):
        await seen.port.write_status(old, status(3))


async def test_the_kill_switch_is_seen(cluster: Cluster, at_home: Seen) -> None:
    seen = at_home
    switch = await cluster.create(config_map("headroom", {"stop": "true"}))

    async def stopped() -> bool:
        return seen.port.world(cluster.clock.now()).stopped

    async def running() -> bool:
        return not seen.port.world(cluster.clock.now()).stopped

    await cluster.until(stopped, "the switch is seen")
    await cluster.delete(switch)
    await cluster.until(running, "it is seen that the switch is gone")


async def test_an_eviction_meets_only_the_pod_that_was_decided_on(cluster: Cluster, seen: Seen) -> None:
    resource = await seen.known(await cluster.create(budget("a")))
    old = await cluster.create(pod("p"))
    await cluster.delete(old)
    new = await cluster.run(await cluster.create(pod("p")), await cluster.node())
    evict = actions.EvictPod(**seen.on_pod(old), resource_version="", grace_seconds=5)
    await seen.port.perform(evict, resource)  # that one is gone, so nothing is left to do
    assert "deletionTimestamp" not in (await cluster.get("Pod", "p"))["metadata"]
    await seen.port.perform(structs.replace(evict, uid=uid_of(new)), resource)
    assert (await cluster.get("Pod", "p"))["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_nothing_is_evicted_in_the_operators_own_namespace(cluster: Cluster, at_home: Seen) -> None:
    resource = await at_home.known(await cluster.create(budget("a")))
    made = await cluster.run(await cluster.create(pod("p")), await cluster.node())
    evict = actions.EvictPod(**at_home.on_pod(made), resource_version="", grace_seconds=5)
    with pytest.raises(Refused, match="it is in Headroom's own namespace"):
        await at_home.port.perform(evict, resource)


async def test_a_deletion_that_takes_years_is_cut_short_by_an_eviction(cluster: Cluster, seen: Seen) -> None:
    resource = await seen.known(await cluster.create(budget("a")))
    made = await cluster.run(await cluster.create(pod("p")), await cluster.node())
    path = cluster.path("Pod", "p")
    assert (await cluster.ask("DELETE", path, {"gracePeriodSeconds": 31_536_000})).status == 200
    evict = actions.EvictPod(**seen.on_pod(made), resource_version="", grace_seconds=5)
    await seen.port.perform(evict, resource)
    assert (await cluster.get("Pod", "p"))["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_an_eviction_respects_a_disruption_budget(cluster: Cluster, seen: Seen) -> None:
    resource = await seen.known(await cluster.create(budget("a")))
    labels = {"app": "trainer"}
    made = await cluster.run(await cluster.create(pod("p", labels=labels)), await cluster.node())
    guard = await cluster.create(disruption_budget("pdb", labels, 1))

    async def counted() -> bool:
        return bool((await cluster.get(guard["kind"], "pdb")).get("status", {}).get("currentHealthy"))

    await cluster.until(counted, "the disruption budget is counted")
    evict = actions.EvictPod(**seen.on_pod(made), resource_version="", grace_seconds=5)
    with refused(DisruptionBlocked, 429) as refusal:
        await seen.port.perform(evict, resource)
    assert (
        f"evicting pod {cluster.namespace}/p: its PodDisruptionBudget allows no eviction now" in refusal.value.message
    )
    assert "pdb" in refusal.value.message


async def test_a_release_lifts_our_gate_and_no_other(cluster: Cluster, seen: Seen) -> None:
    resource = await seen.known(await cluster.create(budget("a")))
    made = await cluster.create(pod("p", gates=("example.com/theirs", GATE)))
    for _ in range(2):
        await seen.port.perform(actions.ReleasePod(**seen.on_pod(made)), resource)
    released = await cluster.get("Pod", "p")
    assert released["spec"]["schedulingGates"] == [{"name": "example.com/theirs"}]
    assert list(released["metadata"]["annotations"]) == ["headroom.dev/released-at"]
    other = await cluster.create(pod("q", gates=(GATE,), annotations={"theirs": "stays"}))
    await seen.port.perform(actions.ReleasePod(**seen.on_pod(other)), resource)
    released = await cluster.get("Pod", "q")
    assert "schedulingGates" not in released["spec"]
    assert set(released["metadata"]["annotations"]) == {"theirs", "headroom.dev/released-at"}


async def test_a_pause_is_an_annotation_and_can_be_undone(cluster: Cluster, seen: Seen) -> None:
    resource = await seen.known(await cluster.create(budget("a")))
    made = await cluster.create(pod("p"))
    await seen.port.perform(actions.PausePod(**seen.on_pod(made)), resource)
    paused = await cluster.get("Pod", "p")
    assert set(paused["metadata"]["annotations"]) == {"headroom.dev/paused-at", "headroom.dev/paused-by"}
    await seen.port.perform(actions.PausePod(**seen.on_pod(made)), resource)
    assert version_of(await cluster.get("Pod", "p")) == version_of(paused)
    await seen.port.perform(actions.ResumePod(**seen.on_pod(made)), resource)
    assert "annotations" not in (await cluster.get("Pod", "p"))["metadata"]


async def test_a_finalizer_of_ours_is_removed_and_no_other(cluster: Cluster, seen: Seen) -> None:
    made = await cluster.create(budget("a", finalizers=["headroom.dev/ours", "example.com/theirs"]))
    resource = await seen.known(made)
    name = f"GPUWorkloadBudget/{cluster.namespace}/a"
    await seen.port.perform(actions.RemoveFinalizer(object=name), resource)
    assert (await cluster.get("GPUWorkloadBudget", "a"))["metadata"]["finalizers"] == ["example.com/theirs"]
    await cluster.merge(made, {"metadata": {"finalizers": None}})
