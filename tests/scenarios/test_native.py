"""Native mode in the simulator: whatever goes wrong, bound pods keep what they were given, and in the end all is as it should be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.api.bandwidth_config import EXTENDED
from headroom.model.bandwidth import BandwidthRules
from headroom.sim import faults as wrong
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Change
from headroom.sim.catalog import NODE, POD
from headroom.sim.clock import SimClock
from headroom.sim.faults import Fault, Faults
from headroom.sim.kubelet import PodLifecycle
from headroom.sim.operators import SimulatedProcess
from tests.adapters.simulated import virtual
from tests.builders import NOON

EGRESS = "headroom.dev/egress-mbps"
TAINT = {"key": "headroom.dev/bandwidth-unavailable", "effect": "NoSchedule"}
NODES = ("lowered", "restarted", "unlabelled", "bare")
LABEL = {"headroom.dev/device-plugin": "true"}


class Stage:
    """Nodes, pods that request bandwidth, and the operator; what harm was done is noted as it happens."""

    def __init__(self, *mishaps: Fault) -> None:
        self.clock = SimClock(NOON)
        self.server = ApiServer(self.clock, random.Random(1))
        self.harm: list[str] = []
        self._mishaps, self._count = mishaps, 0
        self.cluster = PodLifecycle(self.server)
        self.cluster.start()
        self.server.store.subscribe(self._watch)

    def _watch(self, change: Change) -> None:
        """Nobody but a kubelet makes a node publish less than its bound pods request."""
        if change.type != NODE or change.after is None or change.before is None:
            return
        name = change.after.key[1]
        before, after = (_published(each.body) for each in (change.before, change.after))
        if after < before and not self.zeroing and after < self.bound(name):
            self.harm.append(f"{name} publishes {after} for {self.bound(name)}")

    zeroing = False

    def bound(self, node: str) -> int:
        """What its bound pods request."""
        pods = [each.body for each in self.server.store.all(POD) if each.body["spec"].get("nodeName") == node]
        return sum(int(each["spec"]["containers"][0]["resources"]["requests"][EGRESS]) for each in pods)

    def node(self, name: str, *, attested: bool = True) -> None:
        size = {"cpu": "64", "pods": "110"}
        metadata = {"name": name, "labels": {"pool": name, **(LABEL if attested else {})}}
        status = {"capacity": size, "allocatable": size}
        self.server.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})

    def pods(self, pool: str, *mbps: int) -> None:
        for number, each in enumerate(mbps):
            amounts = {EGRESS: str(each)}
            container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
            spec = {"containers": [container], "nodeSelector": {"pool": pool}}
            metadata = {"name": f"{pool}-{number}", "namespace": "default"}
            self.server.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def patch(self, path: str, body: dict[str, Any]) -> None:
        self.server.do("PATCH", path, body)

    def zero(self, node: str) -> None:
        """Its kubelet starts without a device plugin's checkpoint."""
        nothing = dict.fromkeys(EXTENDED, "0")
        self.zeroing = True
        self.patch(paths.node(node) + "/status", {"status": {"capacity": nothing, "allocatable": nothing}})
        self.zeroing = False

    def published(self, node: str) -> int:
        return _published(self.body(node))

    def body(self, node: str) -> dict[str, Any]:
        found = self.server.object("Node", "", node)
        assert found is not None
        return found

    def is_tainted(self, node: str) -> bool:
        return TAINT in (self.body(node).get("spec", {}).get("taints") or [])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it; where every fifth request fails, an effect of several may take minutes."""
        for _ in range(900):
            if condition():
                return
            await self.clock.sleep(1)
        raise AssertionError({name: (self.published(name), self.is_tainted(name)) for name in NODES})

    def publish(self, **mbps: int) -> Callable[[], bool]:
        """Whether these nodes publish that."""
        return lambda: {name: self.published(name) for name in mbps} == mbps

    def operate(self) -> asyncio.Task[None]:
        """An operator that leads once no other does."""
        self._count += 1
        name, rng = f"operator-{self._count}", random.Random(self._count)
        faults = Faults(self.clock, self.clock.now(), self._count, self._mishaps)
        process = SimulatedProcess(self.server.transport(name, faults=faults), self.clock, rng, name)
        process.port.regulate(BandwidthRules(mode="Native"))
        return asyncio.create_task(process.run())


def _published(node: dict[str, Any]) -> int:
    """The less of both, as kube-scheduler sees it now or in ten seconds."""
    status = node.get("status") or {}
    return min(int((status.get(part) or {}).get(EGRESS, "0")) for part in ("capacity", "allocatable"))


WRITES: dict[str, Any] = {"verb": "patch", "path": "/api/v1/nodes/*"}
MISHAPS: dict[str, list[Fault]] = {
    "none": [],
    "lost replies": [wrong.LostReply(**WRITES, probability=0.5)],
    "refusals": [wrong.Refusal(**WRITES, status=409, reason="Conflict", probability=0.5)],
    "errors": [wrong.Refusal(status=503, probability=0.2)],
    "killed": [],
}


@pytest.mark.parametrize("what", MISHAPS)
@virtual
async def test_bound_pods_keep_what_they_were_given_whatever_happens(what: str) -> None:
    stage = Stage(*MISHAPS[what])
    for name in NODES:
        stage.node(name, attested=name != "bare")
    running = stage.operate()

    async def go_on(condition: Callable[[], bool]) -> None:
        nonlocal running
        await stage.clock.sleep(1.0)
        if what == "killed":
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            running = stage.operate()
        await stage.until(condition)

    await go_on(stage.publish(lowered=1000, restarted=1000, unlabelled=1000, bare=0))
    for name in NODES:
        stage.pods(name, 300, 300, 300, 300)
    await go_on(lambda: [stage.bound(name) for name in NODES] == [900, 900, 900, 0])
    capacity = {"network": {"ulMbps": 500, "dlMbps": 500}}
    stage.patch(paths.resource("Bandwidth", "", "lowered"), {"spec": {"capacity": capacity}})
    stage.zero("restarted")
    stage.patch(paths.node("unlabelled"), {"metadata": {"labels": {"headroom.dev/device-plugin": None}}})
    await go_on(stage.publish(lowered=900, restarted=1000, unlabelled=900))
    await stage.until(lambda: [*map(stage.is_tainted, NODES)] == [True, False, True, False])
    stage.zero("unlabelled")
    for name in ("lowered", "unlabelled"):
        stage.server.do("DELETE", paths.pod("default", f"{name}-0"))
    await go_on(stage.publish(lowered=600, unlabelled=600))
    for name in ("lowered", "unlabelled"):
        for number in (1, 2):
            stage.server.do("DELETE", paths.pod("default", f"{name}-{number}"))
    await go_on(stage.publish(lowered=500, unlabelled=0, bare=0))
    await stage.until(lambda: not any(map(stage.is_tainted, NODES)))
    await stage.until(lambda: stage.bound("lowered") == 300)  # whoever waited has come
    assert EGRESS not in str(stage.body("unlabelled")["status"])
    assert stage.harm == []
    await stage.clock.sleep(60)
    before = len(stage.server.trace.writes)
    await stage.clock.sleep(600)
    later = [each.path for each in stage.server.trace.writes[before:] if each.path.startswith("/api/v1/nodes")]
    assert later == [], "and then all is quiet"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@virtual
async def test_pods_of_which_nobody_has_heard_yet_keep_what_they_were_given() -> None:
    stage = Stage(wrong.WatchDelay(path="/api/v1/pods*", ms=20_000))
    stage.node("lowered")
    running = stage.operate()
    await stage.clock.sleep(60)
    stage.pods("lowered", 300, 300, 300)
    await stage.clock.sleep(2)
    assert stage.bound("lowered") == 900
    capacity = {"network": {"ulMbps": 500, "dlMbps": 500}}
    stage.patch(paths.resource("Bandwidth", "", "lowered"), {"spec": {"capacity": capacity}})
    await stage.clock.sleep(60)
    assert stage.harm == []
    assert (stage.published("lowered"), stage.is_tainted("lowered")) == (900, True)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@virtual
async def test_a_label_that_flaps_and_a_party_that_fights_cost_few_writes() -> None:
    stage = Stage()
    for name in ("flapping", "fought-over"):
        stage.node(name)
    running = stage.operate()
    await stage.clock.sleep(60)
    stage.pods("flapping", 300)
    before = len(stage.server.trace.writes)
    for second in range(300):
        await stage.clock.sleep(1)
        attested = {"headroom.dev/device-plugin": "true" if second % 4 < 2 else None}
        stage.patch(paths.node("flapping"), {"metadata": {"labels": attested}})
        stage.zero("fought-over")
    written = [each for each in stage.server.trace.writes[before:] if each.actor == "operator-1"]
    nodes = [each.path for each in written if each.path.startswith("/api/v1/nodes")]
    # Each amount once in ten seconds, the taint and its end once in thirty.
    assert sum("/flapping" in path for path in nodes) <= 2 * 300 // 10 + 2 * 300 // 30 + 4
    assert sum("/fought-over" in path for path in nodes) <= 300 // 10 + 1
    await stage.clock.sleep(60)
    assert [stage.published(name) for name in ("flapping", "fought-over")] == [300, 1000]
    assert (stage.is_tainted("flapping"), stage.is_tainted("fought-over")) == (True, False)
    assert stage.harm == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
