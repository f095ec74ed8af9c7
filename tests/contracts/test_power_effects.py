"""What switching a machine off stands on: cordons, lists of the pods on a node, evictions, and Secrets."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.secrets import Secrets
from headroom.adapters.kube.store import KubePort
from headroom.api.kinds import AnyResource
from headroom.api.marks import USABLE_BY
from headroom.core import CAPACITY
from headroom.model import actions
from headroom.model.decisions import Ref
from headroom.model.errors import Refused, Unavailable
from headroom.model.ports import Beside
from tests.adapters.doing import CHORES
from tests.adapters.power.stage import Noting
from tests.builders import a_document
from tests.contracts.cluster import Cluster
from tests.contracts.objects import Document, config_map, disruption_budget, owner, pod

PLAIN = {"containers": [{"name": "main", "image": "none"}]}


class Room:
    """A pool of one machine, whose node is there and ready for pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.switches, self.node = cluster, Noting(), ""
        self.port = KubePort(
            cluster.kube,
            Events(cluster.kube, cluster.clock),
            clock=cluster.clock,
            rng=random.Random(1),
            beside=Beside(switches=self.switches),
        )

    @property
    def pool(self) -> AnyResource:
        return self.port.world(self.cluster.clock.now()).resources[Ref("PowerPool", "", self.cluster.namespace)]

    async def open(self) -> None:
        self.node = await self.cluster.node()
        machine = {
            "name": self.node,
            "gpuCount": 8,
            "scaleUpEndpoint": "http://power/up",
            "scaleDownEndpoint": "http://power/down",
        }
        self.document = await self.cluster.create(a_document("PowerPool", self.cluster.namespace, machines=[machine]))
        await self.port.start()
        assert await self.port.synced(20), self.port.problems()
        status = {"machines": [{"name": self.node, "state": "Sleeping"}]}
        await self.cluster.merge(self.document, {"status": status}, "status")

        async def seen() -> bool:
            return bool(self.pool.status.machines)

        await self.cluster.until(seen, "the status is seen")

    async def do(self, kind: str) -> None:
        action: Any = {
            "cordon": actions.CordonNode(node=self.node),
            "uncordon": actions.UncordonNode(node=self.node),
            "drain": actions.DrainNode(node=self.node),
            "sleep": actions.SleepMachine(pool=self.pool.name, machine=self.node),
        }[kind]
        await self.port.perform(action, self.pool)

    async def running(self, name: str, **metadata: Any) -> Document:
        return await self.cluster.run(await self.cluster.create(pod(name, spec=PLAIN, **metadata)), self.node)


@pytest.fixture
async def room(cluster: Cluster) -> AsyncIterator[Room]:
    made = Room(cluster)
    await made.open()
    yield made
    await made.port.stop()
    await cluster.delete(made.document)


async def test_a_machine_is_switched_off_only_if_its_node_is_ours_and_empty(room: Room) -> None:
    with pytest.raises(Refused, match="its node is not cordoned"):
        await room.do("sleep")
    await room.do("cordon")
    late = await room.running("late")
    with pytest.raises(Refused, match=f"pod {room.cluster.namespace}/late is there"):
        await room.do("sleep")
    assert not [each for each in room.switches.told if each.startswith("sleep")]
    await room.cluster.delete(late, grace_seconds=0)
    await room.cluster.until_gone(late)
    await room.do("sleep")
    assert room.switches.told[-1] == f"sleep {room.node}"
    await room.do("uncordon")
    assert "unschedulable" not in (await room.cluster.get("Node", room.node))["spec"]


async def test_a_drain_evicts_what_its_disruption_budget_lets_go(room: Room) -> None:
    made = await room.cluster.create(config_map("controller"))
    by = [owner(made) | {"controller": True}]
    await room.running("free", ownerReferences=by)
    await room.running("guarded", ownerReferences=by, labels={"app": "guarded"})
    budget = await room.cluster.create(disruption_budget("one", {"app": "guarded"}, 1))

    async def counted() -> bool:
        status = (await room.cluster.get(budget["kind"], "one")).get("status", {})
        return bool(status.get("observedGeneration") and status.get("currentHealthy"))

    await room.cluster.until(counted, "the disruption budget is counted")
    with pytest.raises(Refused, match="its node is not cordoned"):
        await room.do("drain")
    await room.do("cordon")
    with pytest.raises(Unavailable, match=f"refuses the eviction of pod {room.cluster.namespace}/guarded now"):
        await room.do("drain")
    going = {
        name: "deletionTimestamp" in (await room.cluster.get("Pod", name))["metadata"] for name in ("free", "guarded")
    }
    assert going == {"free": True, "guarded": False}


async def test_one_pod_without_a_controller_keeps_all_others(room: Room) -> None:
    made = await room.cluster.create(config_map("controller"))
    await room.running("owned", ownerReferences=[owner(made) | {"controller": True}])
    await room.running("bare")
    await room.do("cordon")
    with pytest.raises(Refused, match="/bare stays: no controller would recreate it"):
        await room.do("drain")
    assert "deletionTimestamp" not in (await room.cluster.get("Pod", "owned"))["metadata"]


async def test_the_cordon_of_a_pool_that_no_longer_has_the_machine_is_lifted(room: Room) -> None:
    await room.do("cordon")
    mine = actions.UncordonNode(node=room.node, by=f"PowerPool/{room.pool.name}")

    async def cordoned() -> bool:
        node = room.port.world(room.cluster.kube.clock.now()).nodes.get(room.node)
        return node is not None and node.unschedulable

    await room.cluster.until(cordoned, "the cordon is seen")
    assert mine not in CAPACITY.chores(room.port.world(room.cluster.kube.clock.now()))
    with pytest.raises(Refused, match="cordoned it"):
        await room.port.perform(actions.UncordonNode(node=room.node, by="PowerPool/another"), CHORES)
    machine = dict(room.document["spec"]["machines"][0]) | {"name": "another"}
    await room.cluster.merge(room.document, {"spec": {"machines": [machine]}})

    async def seen() -> bool:
        return bool(room.pool.spec.machines[0].name == "another")

    await room.cluster.until(seen, "the new spec is seen")
    [due] = [each for each in CAPACITY.chores(room.port.world(room.cluster.kube.clock.now())) if each == mine]
    await room.port.perform(due, CHORES)
    node = await room.cluster.get("Node", room.node)
    assert "unschedulable" not in node["spec"]
    assert "headroom.dev/cordoned-by" not in (node["metadata"].get("annotations") or {})


async def test_a_secret_of_our_own_namespace(cluster: Cluster) -> None:
    data = {"token": base64.b64encode(b"word").decode()}
    metadata = {"name": "power", "annotations": {USABLE_BY: "PowerPool/rack@bmc.example.com"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    await cluster.do("POST", paths.of("", "v1", "secrets", cluster.namespace), secret)
    secrets = Secrets(cluster.kube, cluster.namespace)
    found = await secrets.read("power")
    assert (found, found.usable_by) == ({"token": "word"}, "PowerPool/rack@bmc.example.com")
    with pytest.raises(Refused, match="not found"):
        await secrets.read("missing")
    with pytest.raises(Refused):
        await Secrets(cluster.client("nobody"), cluster.namespace).read("power")
