"""The simulated Karpenter: weights, limits, what is sold out, drift, and nodes that go when they are empty."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

from headroom.sim.apiserver import ApiServer
from headroom.sim.catalog import POD
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.karpenter import BOOT_SECONDS, Karpenter
from headroom.sim.kubelet import PodLifecycle
from tests.builders import NOON
from tests.karpenter_stage import CLASS, GPU, a_gpu_pod, a_node_pool, an_offer

OFFERS = (
    an_offer("g5.xlarge", "us-east-1a", "0.5"),
    an_offer("g5.xlarge", "us-east-1b", "0.4"),
    an_offer("g6.xlarge", "us-east-1a", "0.6"),
)


class Played:
    """A cluster with a Karpenter."""

    def __init__(self, *documents: dict[str, Any], offers: tuple[dict[str, Any], ...] = OFFERS) -> None:
        self.clock = SimClock(NOON)
        self.server = ApiServer(self.clock, random.Random(1))
        self.cluster = PodLifecycle(self.server)
        self.karpenter = Karpenter(self.server, self.cluster)
        for document in (CLASS, *offers, *documents):
            self.server.put(document)
        self.karpenter.begin()
        self.cluster.start()

    def nodes(self) -> list[tuple[str, str, str]]:
        """NodePool, type and zone of every node."""
        found = [each["metadata"]["labels"] for each in self.server.objects("Node")]
        keys = ("karpenter.sh/nodepool", "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")
        return sorted((labels[keys[0]], labels[keys[1]], labels[keys[2]]) for labels in found)

    def phase(self, pod: str) -> str:
        body = self.server.object("Pod", "lab", pod)
        assert body is not None
        return str(body["status"]["phase"])

    async def wait(self, seconds: float = BOOT_SECONDS + 15) -> None:
        """Let time pass; long enough for a machine to join unless said otherwise."""
        await self.clock.sleep(seconds)


def play(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(work)


def test_a_pending_pod_gets_the_cheapest_machine_of_the_heaviest_pool_that_can() -> None:
    async def work() -> None:
        heavy, light = a_node_pool("heavy", ["g5.xlarge"], weight=10), a_node_pool("light", ["g6.xlarge"])
        played = Played(heavy, light, a_gpu_pod("one"))
        await played.wait()
        assert played.nodes() == [("heavy", "g5.xlarge", "us-east-1b")]
        assert played.phase("one") == "Running"
        [claim] = played.server.objects("NodeClaim")
        said = {each["type"]: each["status"] for each in claim["status"]["conditions"]}
        assert said == {"Launched": "True", "Registered": "True", "Initialized": "True"}
        pool = played.server.object("NodePool", "", "heavy")
        assert pool is not None
        assert pool["status"]["resources"][GPU] == "1"

    play(work)


def test_limits_hold_and_the_next_pool_serves_the_rest() -> None:
    async def work() -> None:
        heavy, light = a_node_pool("heavy", ["g5.xlarge"], weight=10, gpus=1), a_node_pool("light", ["g6.xlarge"])
        played = Played(heavy, light, a_gpu_pod("one"), a_gpu_pod("two"))
        await played.wait()
        assert [pool for pool, _, _ in played.nodes()] == ["heavy", "light"]
        played.server.put(a_gpu_pod("three"))
        await played.wait()
        assert [pool for pool, _, _ in played.nodes()] == ["heavy", "light", "light"]

    play(work)


def test_what_is_sold_out_fails_and_the_next_machine_is_tried() -> None:
    async def work() -> None:
        offers = (an_offer("g5.xlarge", "us-east-1b", "0.4", sold_out=True), *OFFERS[::2])
        heavy, light = a_node_pool("heavy", ["g5.xlarge"], weight=10), a_node_pool("light", ["g6.xlarge"])
        played = Played(heavy, light, a_gpu_pod("one"), offers=offers)
        await played.wait()
        assert played.nodes() == [("heavy", "g5.xlarge", "us-east-1a")]
        assert [(pool, machine.zone) for _, pool, machine in played.karpenter.sold_out] == [("heavy", "us-east-1b")]

    play(work)


def test_a_changed_template_replaces_nodes_and_a_changed_weight_does_not() -> None:
    async def work() -> None:
        played = Played(a_node_pool("pool", ["g5.xlarge"], weight=10), a_gpu_pod("one"))
        await played.wait()
        played.server.put(a_node_pool("pool", ["g5.xlarge"], weight=90, gpus=5))
        await played.wait(600)
        assert played.karpenter.ended == []
        played.server.put(a_node_pool("pool", ["g6.xlarge"], weight=90))
        await played.wait(30)
        [ended] = played.karpenter.ended
        assert (ended.why, ended.pods) == ("Drifted", ("lab/one",))

    play(work)


def test_an_empty_node_goes_and_the_nodes_of_a_deleted_pool_too() -> None:
    async def work() -> None:
        played = Played(a_node_pool("pool", ["g5.xlarge"]), a_gpu_pod("one", runs_for="5m"))
        await played.wait(300)
        assert len(played.nodes()) == 1
        await played.wait(300)
        assert [each.why for each in played.karpenter.ended] == ["Empty"]
        assert played.server.objects("NodeClaim") == []
        played.server.put(a_gpu_pod("two"))
        await played.wait()
        played.server.do("DELETE", "/apis/karpenter.sh/v1/nodepools/pool")
        await played.wait(30)
        assert played.karpenter.ended[-1].why == "Deleted"
        assert played.nodes() == []

    play(work)


def test_a_pod_that_no_pool_can_serve_brings_nothing_and_pods_share_a_machine() -> None:
    async def work() -> None:
        big = an_offer("g5.12xlarge", "us-east-1a", "2", gpus="4")
        pool = a_node_pool("pool", ["g5.12xlarge"], labels={"pool": "cheap"})
        pods = [a_gpu_pod(f"p{each}", nodeSelector={"pool": "cheap"}) for each in range(4)]
        elsewhere = a_gpu_pod("elsewhere", nodeSelector={"pool": "other"})
        played = Played(pool, *pods, elsewhere, a_gpu_pod("wide", gpus=8), offers=(big,))
        await played.wait()
        assert len(played.nodes()) == 1
        assert {played.phase(f"p{each}") for each in range(4)} == {"Running"}
        assert (played.phase("elsewhere"), played.phase("wide")) == ("Pending", "Pending")
        assert len(played.server.store.all(POD)) == 6

    play(work)


def test_a_pool_without_its_node_class_brings_nothing() -> None:
    async def work() -> None:
        played = Played(a_node_pool("pool", ["g5.xlarge"]), a_gpu_pod("one"))
        played.server.do("DELETE", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/gpu")
        await played.wait()
        assert played.nodes() == []

    play(work)
