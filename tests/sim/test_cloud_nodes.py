"""Machines of Spotpools in a simulated cluster: they join as nodes, are taken back, and leave."""

from __future__ import annotations

import random
from typing import Any

from headroom.api.marks import CLUSTER_TAG, OWNER_TAG
from headroom.model import times
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.cloud import Cloud, RequestedLaunch
from headroom.sim.cloud_nodes import NOTICE_MS, CloudNodes
from headroom.sim.clouds import Regions
from headroom.sim.kubelet import PodLifecycle
from tests.builders import NOON, a_document

OFFER = {"provider": "aws", "region": "us-east-1", "zone": "us-east-1a", "instanceType": "g6.12xlarge"}
TEMPLATE = {"gpuCount": 4, "labels": {"pool": "burst"}}


class Played:
    """A cluster with a pool beside a cloud."""

    def __init__(self, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        self.clock = SimClock(NOON)
        self.server = ApiServer(self.clock, random.Random(1))
        self.cluster = PodLifecycle(self.server)
        self.outside = CloudNodes(self.server, self.cluster)
        document = a_document("Spotpool", "burst", region="us-east-1", template=TEMPLATE, **spec)
        document["metadata"]["annotations"] = annotations or {}
        self.server.put({"apiVersion": "sim.headroom.dev/v1", "kind": "Offer", "metadata": {"name": "o"}, "spec": OFFER | {"pricePerHour": "2"}})  # fmt: skip
        self.server.put(document)
        self.outside.begin()
        self.cluster.start()

    @property
    def cloud(self) -> Cloud:
        found: Regions = self.server.beside[Regions]
        return found["us-east-1"]

    def launch(self) -> str:
        [pool] = self.server.objects("Spotpool")
        tags = {CLUSTER_TAG: "c", OWNER_TAG: pool["metadata"]["uid"]}
        return self.cloud.add(RequestedLaunch(token="t0", instance_type="g6.12xlarge", zone="us-east-1a", tags=tags)).id

    def nodes(self) -> list[dict[str, Any]]:
        return self.server.objects("Node")


def test_offers_are_the_prices_and_the_stock_of_the_cloud() -> None:
    async def play() -> None:
        played = Played()
        key = "g6.12xlarge", "us-east-1a"
        assert (played.cloud.provider, played.cloud.prices[key]) == ("aws", 2_000_000)
        gone = OFFER | {"pricePerHour": "2", "available": False}
        played.server.put({"apiVersion": "sim.headroom.dev/v1", "kind": "Offer", "metadata": {"name": "gone"}, "spec": gone})  # fmt: skip
        assert played.cloud.stock[key] == 0

    run_virtual(play)


def test_a_machine_that_runs_joins_and_one_that_ended_leaves() -> None:
    async def play() -> None:
        played = Played()
        machine = played.launch()
        await played.clock.sleep(30)
        assert played.nodes() == [], "it boots"
        await played.clock.sleep(60)
        [node] = played.nodes()
        assert node["spec"]["providerID"] == f"aws:///us-east-1a/{machine}"
        assert node["metadata"]["labels"]["pool"] == "burst"
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        taints = [(each["key"], each["value"]) for each in node["spec"]["taints"]]
        assert ("headroom.dev/spotpool", "team-a") in taints
        played.cloud.terminate(machine)
        await played.clock.sleep(60)
        assert played.nodes() == []

    run_virtual(play)


def test_a_machine_of_a_pool_that_joins_nothing_is_no_node() -> None:
    async def play() -> None:
        played = Played(join=False)
        played.launch()
        await played.clock.sleep(300)
        assert played.nodes() == []

    run_virtual(play)


def test_the_cloud_takes_machines_back_after_the_time_that_the_pool_says() -> None:
    async def play() -> None:
        played = Played({"sim.headroom.dev/reclaims-after": "40m"})
        machine = played.launch()
        await played.clock.sleep(41 * 60)
        reclaim = played.cloud.machines[machine].reclaim
        assert reclaim is not None
        assert reclaim[1] - reclaim[0] == NOTICE_MS
        assert 0 <= reclaim[0] - NOON - 40 * times.MINUTE <= 10 * times.SECOND
        await played.clock.sleep(3 * 60)
        assert played.nodes() == []

    run_virtual(play)
