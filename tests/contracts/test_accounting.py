"""What accounting stands on: nothing that happens to a pod is missed, claims and the index are seen, finalizers go cheaply."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.errors import Conflict, Rejected
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.store import KubePort
from headroom.api.budget_index import IndexEntry
from headroom.core.usage import finalizers
from headroom.model import actions
from headroom.model.facts import Pod
from headroom.model.times import MINUTE
from headroom.model.usage_table import UsageTable
from headroom.model.world import LedgerState, World
from tests.builders import a_resource
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, budget, pod, uid_of
from tests.contracts.outages import Severable

OURS = "headroom.dev/usage"
THEIRS = "example.com/theirs"
OTHER_UID = "00000000-0000-0000-0000-000000000000"


class Accounted:
    """A port with a recording that only notes what it is told, and a line that can be cut."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.line = cluster, Severable(cluster.transport())
        self.table = UsageTable()
        self.told: list[tuple[str, str, str]] = []
        """What happened, the pod's name and phase; only of the test's own namespace."""
        self.seen_until: dict[str, int] = {}
        kube = Kube(self.line, cluster.clock)
        self.port = KubePort(
            kube,
            Events(kube, cluster.clock),
            clock=cluster.clock,
            rng=random.Random(1),
            namespace=cluster.namespace,
            recording=self,
        )

    def pod(self, pod: Pod) -> None:
        if pod.namespace == self.cluster.namespace:
            self.told.append(("pod", pod.name, pod.phase))

    def gone(self, pod: Pod, seen_until: int) -> None:
        if pod.namespace == self.cluster.namespace:
            self.told.append(("gone", pod.name, pod.phase))
            self.seen_until[pod.name] = seen_until

    def state(self) -> LedgerState:
        return LedgerState()

    @property
    def world(self) -> World:
        return self.port.world(self.cluster.clock.now())

    async def until_told(self, *what: str) -> None:
        async def told() -> bool:
            return what in self.told

        await self.cluster.until(told, f"{what} is told, not only {self.told}")

    async def remove_finalizer(self, name: str) -> None:
        action = actions.RemoveFinalizer(object=f"Pod/{self.cluster.namespace}/{name}")
        await self.port.perform(action, a_resource())


@pytest.fixture
async def seen(cluster: Cluster) -> AsyncIterator[Accounted]:
    found = Accounted(cluster)
    await found.port.start()
    assert await found.port.synced(20), found.port.problems()
    yield found
    await found.port.stop()


async def remove(cluster: Cluster, made: Document) -> None:
    await cluster.delete(made, grace_seconds=0)


async def test_a_pod_that_ends_and_is_deleted_at_once_is_seen_to_do_both(cluster: Cluster, seen: Accounted) -> None:
    made = await cluster.create(pod("a"))
    await cluster.merge(made, {"status": {"phase": "Succeeded"}}, "status")
    await remove(cluster, made)
    await seen.until_told("gone", "a", "Succeeded")
    ended, going, gone = ("pod", "a", "Succeeded"), ("pod", "a", "Succeeded"), ("gone", "a", "Succeeded")
    assert seen.told == [("pod", "a", "Pending"), ended, going, gone]
    assert seen.seen_until["a"] <= cluster.clock.now()


async def test_a_pod_deleted_while_the_watch_is_down_was_not_seen_since(cluster: Cluster, seen: Accounted) -> None:
    made = await cluster.create(pod("a"))
    await seen.until_told("pod", "a", "Pending")

    async def silent() -> bool:
        return seen.line.streams == 0

    before = cluster.clock.now()
    seen.line.cut()
    await cluster.until(silent, "all streams are cut")
    await cluster.clock.sleep(0.5)
    await cluster.merge(made, {"status": {"phase": "Failed"}}, "status")
    await remove(cluster, made)
    assert seen.world.settled is not None
    assert seen.world.settled <= before
    seen.line.mend()
    await seen.until_told("gone", "a", "Failed")
    ended, going, gone = ("pod", "a", "Failed"), ("pod", "a", "Failed"), ("gone", "a", "Failed")
    assert seen.told == [("pod", "a", "Pending"), ended, going, gone]
    assert 0 < seen.seen_until["a"] <= before


async def test_what_is_settled_moves_on(cluster: Cluster, seen: Accounted) -> None:
    start = cluster.clock.now()

    async def settled() -> bool:
        return (seen.world.settled or 0) > start

    await cluster.until(settled, "the start is settled")
    assert seen.world.as_of < cluster.clock.now()


async def test_labels_of_namespaces_are_seen(cluster: Cluster, seen: Accounted) -> None:
    path = cluster.path("Namespace", cluster.namespace)
    await cluster.kube.merge_patch(path, {"metadata": {"labels": {"tier": "gold"}}})

    async def gold() -> bool:
        return ("tier", "gold") in seen.world.namespaces[cluster.namespace].labels

    await cluster.until(gold, "the label is seen")


def claim(name: str) -> Document:
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2}},
        {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "big.example.com"}]},
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    }


def device(request: str, number: int) -> Document:
    return {"request": request, "driver": "gpu.example.com", "pool": "node-1", "device": f"gpu-{number}"}


async def test_claims_are_seen_once_they_have_devices(cluster: Cluster, seen: Accounted) -> None:
    made, sharing = await cluster.create(claim("c")), await cluster.create(pod("a"))
    assert made["status"] == {}
    results = [device("gpu", 0), device("gpu", 1), device("any/big", 2)]
    status: dict[str, Any] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": uid_of(sharing)}],
    }
    await cluster.merge(made, {"status": status}, "status")
    key = f"{cluster.namespace}/c"

    async def has_devices() -> bool:
        return key in seen.world.claims and seen.world.claims[key].is_allocated

    await cluster.until(has_devices, "the claim is seen")
    found = seen.world.claims[key]
    classes = [each.device_class for each in found.allocated]
    assert classes == ["gpu.example.com", "gpu.example.com", "big.example.com"]
    assert found.reserved_for == (uid_of(sharing),)
    await cluster.merge(made, {"status": {"allocation": None, "reservedFor": None}}, "status")

    async def has_none() -> bool:
        return not seen.world.claims[key].is_allocated

    await cluster.until(has_none, "the devices are given back")


async def test_the_index_is_written_and_seen(cluster: Cluster, seen: Accounted) -> None:
    entry = IndexEntry(
        budget="lab/one", namespaces=("lab",), match_labels={"team": "lab"}, resources=("nvidia.com/gpu",), exact=True
    )
    versions = set()
    for wanted in ((entry,), (), (entry,)):
        for _ in range(2):
            await seen.port.perform(actions.ApplyBudgetIndex(budget="lab/one", budgets=wanted), a_resource())
            versions.add((await cluster.get("BudgetIndex", "headroom"))["metadata"]["resourceVersion"])

        async def is_seen(wanted: tuple[IndexEntry, ...] = wanted) -> bool:
            return seen.world.index == wanted

        await cluster.until(is_seen, f"the index says {wanted}")
    assert len(versions) == 3  # the second time there is nothing to write
    await cluster.kube.delete(cluster.path("BudgetIndex", "headroom"))

    async def is_gone() -> bool:
        return seen.world.index is None

    await cluster.until(is_gone, "there is no index")


async def test_our_finalizer_goes_from_a_pod_and_no_other(cluster: Cluster, seen: Accounted) -> None:
    made = await cluster.create(pod("a", finalizers=[OURS, THEIRS]))
    await remove(cluster, made)
    await seen.until_told("pod", "a", "Pending")
    await seen.remove_finalizer("a")
    assert (await cluster.get("Pod", "a"))["metadata"]["finalizers"] == [THEIRS]
    await seen.remove_finalizer("a")
    await seen.remove_finalizer("never")
    await cluster.merge(made, {"metadata": {"finalizers": None}})
    await seen.until_told("gone", "a", "Pending")


async def test_the_last_finalizer_lets_a_deleted_pod_go(cluster: Cluster, seen: Accounted) -> None:
    made = await cluster.create(pod("a", finalizers=[OURS]))
    await remove(cluster, made)
    await seen.until_told("pod", "a", "Pending")
    await seen.remove_finalizer("a")
    await seen.until_told("gone", "a", "Pending")
    assert not await cluster.exists(made)


async def test_a_strategic_patch_takes_from_lists_and_is_tied_to_a_uid(cluster: Cluster) -> None:
    made = await cluster.create(pod("a", finalizers=[OURS, THEIRS]))
    deletion = {"$deleteFromPrimitiveList/finalizers": [OURS]}
    with refused(Conflict, 422, "Invalid"):
        await cluster.strategic(made, {"metadata": {"uid": OTHER_UID, **deletion}})
    assert (await cluster.get("Pod", "a"))["metadata"]["finalizers"] == [OURS, THEIRS]
    written = await cluster.strategic(made, {"metadata": {"uid": uid_of(made), **deletion}})
    assert written["metadata"]["finalizers"] == [THEIRS]
    again = await cluster.strategic(made, {"metadata": {"uid": uid_of(made), **deletion}})
    assert again["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]
    more = await cluster.strategic(made, {"metadata": {"finalizers": [OURS], "labels": {"a": "b"}}})
    assert sorted(more["metadata"]["finalizers"]) == [THEIRS, OURS]
    assert more["metadata"]["labels"] == {"a": "b"}
    await cluster.merge(made, {"metadata": {"finalizers": None}})


async def test_custom_resources_take_no_strategic_patch(cluster: Cluster) -> None:
    made = await cluster.create(budget("a"))
    with refused(Rejected, 415, "UnsupportedMediaType"):
        await cluster.strategic(made, {"metadata": {"labels": {"a": "b"}}})


def devices(name: str) -> list[Document]:
    """A class, a template and a slice with a GPU and two partitions of it."""
    api = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": name}}
    selector = {"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}
    memory = {"memory": {"value": "80Gi"}}
    parts = [
        {
            "name": f"gpu-0-{number}",
            "attributes": {"productName": {"string": "H100"}, "gpu.nvidia.com/profile": {"string": "1g.10gb"}},
            "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}}],
        }
        for number in range(2)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    whole = {"name": "gpu-0", "capacity": memory, "consumesCounters": [{"counterSet": "gpu-0", "counters": memory}]}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "node-1", "pool": pool}
    counters = spec | {"sharedCounters": [{"name": "gpu-0", "counters": memory}]}
    return [
        api | {"kind": "DeviceClass", "spec": {"selectors": [selector], "extendedResourceName": f"example.com/{name}"}},
        api | {"kind": "ResourceClaimTemplate", "spec": {"spec": claim(name)["spec"]}},
        api | {"kind": "ResourceSlice", "spec": spec | {"devices": [whole, *parts]}},
        api | {"kind": "ResourceSlice", "metadata": {"name": f"{name}-counters"}, "spec": counters},
    ]


async def test_classes_templates_and_slices_of_devices_are_seen(cluster: Cluster, seen: Accounted) -> None:
    name, table = f"d-{cluster.namespace}", seen.world.devices
    for each in devices(name):
        await cluster.create(each)

    async def are_seen() -> bool:
        return name in table.classes and f"{name}-counters" in table.slices and name in table.slices

    await cluster.until(are_seen, "they are seen")
    assert table.by_extended_resource[f"example.com/{name}"].selectors == ('device.driver == "gpu.nvidia.com"',)
    [first, second] = table.templates[f"{cluster.namespace}/{name}"].requests
    assert [(each.device_class, each.count) for each in (*first.choices, *second.choices)] == [
        ("gpu.example.com", 2),
        ("big.example.com", 1),
    ]
    parts = [table.part("gpu.nvidia.com", name, device) for device in ("gpu-0", "gpu-0-0", "gpu-0-1", "gone")]
    assert parts == [10**9, 10**9 // 7, 10**9 // 7, 10**9]
    for each in devices(name):
        await cluster.delete(each)

    async def are_gone() -> bool:
        return not {name, f"{name}-counters"} & {*table.classes, *table.slices}

    await cluster.until(are_gone, "they are gone")


async def test_a_forced_deletion_ends_a_pod_whose_node_was_deleted(cluster: Cluster, seen: Accounted) -> None:
    node = await cluster.make_node()
    name = node["metadata"]["name"]
    made = await cluster.create(pod("a", spec={"nodeName": name}, finalizers=[OURS]))
    await cluster.merge(made, {"status": {"phase": "Running"}}, "status")
    await seen.until_told("pod", "a", "Running")
    await cluster.delete(node)
    await remove(cluster, made)

    async def is_lost() -> bool:
        found = seen.world.pods.get(uid_of(made))
        return name in seen.world.nodes.lost and found is not None and found.deleting is not None

    await cluster.until(is_lost, "the node is gone and the pod is being deleted")
    seen.table.kept.add(uid_of(made))
    world = seen.world
    assert finalizers.removals(world) == {}
    assert await cluster.exists(made)
    later = structs.replace(world, now=world.now + 3 * MINUTE, settled=world.now + 3 * MINUTE)
    for action in finalizers.removals(later)[None]:
        await seen.port.perform(action, a_resource())
    await cluster.until_gone(made)
    await seen.until_told("gone", "a", "Running")
