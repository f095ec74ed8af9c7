"""A view of a part of the cluster: nodes and the pods bound to them, with no right to anything else."""

from __future__ import annotations

import random

from headroom.adapters.kube import paths
from headroom.adapters.kube.viewing import Viewing
from headroom.adapters.kube.watching import NODES_AND_BOUND_PODS, WatchSelection
from tests.contracts.cluster import Cluster
from tests.contracts.objects import budget, pod, uid_of


def part_of(cluster: Cluster, part: WatchSelection) -> Viewing:
    return Viewing(cluster.kube, clock=cluster.clock, rng=random.Random(1), part=part)


async def test_nodes_and_bound_pods_are_all_that_is_watched(cluster: Cluster) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{cluster.namespace}-n"}}
    await cluster.create(node)
    await cluster.create(budget("one"))
    waits = await cluster.create(pod("waits"))
    bound = await cluster.create(pod("bound", spec={"nodeName": f"{cluster.namespace}-n"}))
    view = part_of(cluster, NODES_AND_BOUND_PODS)
    await view.start()
    try:
        assert await view.synced(20), view.problems()
        assert set(view.watched()) == {"pods", "nodes"}
        world = view.world(cluster.clock.now())
        assert world.complete
        assert not world.unseen
        assert world.nodes.get(f"{cluster.namespace}-n") is not None
        assert world.pods.get(uid_of(bound)) is not None
        assert world.pods.get(uid_of(waits)) is None
        assert not world.resources

        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "waits"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": f"{cluster.namespace}-n"},
        }
        await cluster.kube.create(f"{paths.pod(cluster.namespace, 'waits')}/binding", binding)

        async def is_bound() -> bool:
            return view.world(cluster.clock.now()).pods.get(uid_of(waits)) is not None

        await cluster.until(is_bound, "a pod that was bound is seen")
    finally:
        await view.stop()


async def test_a_part_without_pods_is_complete_without_them(cluster: Cluster) -> None:
    view = part_of(cluster, WatchSelection(frozenset({"nodes"})))
    await view.start()
    try:
        assert await view.synced(20), view.problems()
        assert set(view.watched()) == {"nodes"}
        assert view.world(cluster.clock.now()).complete
    finally:
        await view.stop()
