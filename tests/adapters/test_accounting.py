"""What the port brings for accounting: everything that happens to pods, how far that is known, and what prices and shares need."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.sinks import PodSink
from headroom.adapters.kube.store import KubePort
from headroom.api.budget_index import IndexEntry
from headroom.model import actions
from headroom.model.changes import Topic
from headroom.model.facts import Pod, Price
from headroom.model.ports import SETTLE_MS
from headroom.model.usage_table import UsageTable
from headroom.model.world import LedgerState, World
from headroom.sim import faults as wrong
from tests.adapters.simulated import Cluster, virtual
from tests.builders import NOON, a_resource

INDEX = paths.budget_index("headroom")


class Recorded:
    """A recording that only notes what it is told."""

    def __init__(self) -> None:
        self.table = UsageTable()
        self.told: list[tuple[str, str, int]] = []
        """What happened, the pod's phase, and until when it was seen."""

    def pod(self, pod: Pod) -> None:
        self.told.append((f"pod {pod.name}", pod.phase, 0))

    def gone(self, pod: Pod, seen_until: int) -> None:
        self.told.append((f"gone {pod.name}", pod.phase, seen_until))

    def state(self) -> LedgerState:
        return LedgerState(problem="full")


class Accounted(Cluster):
    """A cluster whose port has a recording, and what the index should say."""

    def __init__(self, **transport: Any) -> None:
        super().__init__(**transport)
        self.recorded = Recorded()
        self.wanted: tuple[IndexEntry, ...] = ()
        self.port = KubePort(
            self.kube,
            self.events,
            clock=self.clock,
            rng=random.Random(2),
            recording=self.recorded,
        )

    @property
    def action(self) -> actions.ApplyBudgetIndex:
        return actions.ApplyBudgetIndex(budget="team-a/one", budgets=self.wanted)

    def delete(self, name: str) -> None:
        self.server.do("DELETE", paths.pod("team-a", name), {"gracePeriodSeconds": 0})

    @property
    def world(self) -> World:
        return self.port.world(self.clock.now())


# --- pods ----------------------------------------------------------------------------------------------------------------------


@virtual
async def test_everything_that_happens_to_a_pod_is_recorded() -> None:
    cluster = Accounted()
    cluster.pod("a")
    async with cluster:
        assert cluster.recorded.told == [("pod a", "Pending", 0)]
        cluster.recorded.told.clear()
        await cluster.settle(60)
        # Within one batch of events.
        cluster.pod("b")
        cluster.pod("b", status={"phase": "Succeeded"})
        cluster.delete("b")
        cluster.delete("a")
        now = cluster.clock.now()
        await cluster.settle()
        assert cluster.recorded.told == [
            ("pod b", "Pending", 0),
            ("pod b", "Succeeded", 0),
            ("pod b", "Succeeded", 0),  # it is going
            ("gone b", "Succeeded", now),
            ("pod a", "Pending", 0),
            ("gone a", "Pending", now),
        ]
        assert cluster.world.usage is cluster.recorded.table
        assert cluster.world.ledger.problem == "full"


@virtual
async def test_a_version_alone_is_nothing_to_record() -> None:
    async with Accounted() as cluster:
        cluster.pod("a")
        await cluster.settle()
        cluster.recorded.told.clear()
        cluster.pod("a", metadata={"annotations": {"theirs.example/x": "1"}})
        await cluster.settle()
        assert cluster.recorded.told == []


@virtual
async def test_the_last_state_counts_though_it_was_never_seen_before() -> None:
    """Its end and its deletion may come as one: the last event shows both."""
    cluster = Accounted()
    sink: PodSink = cluster.port._pod_sink
    sink.put(Pod(uid="u", namespace="n", name="p", phase="Running"))
    sink.remove("u", Pod(uid="u", namespace="n", name="p", phase="Failed"), 7)
    sink.remove("v", Pod(uid="v", namespace="n", name="q", phase="Succeeded"), 8)
    sink.remove("w", None, 9)
    assert cluster.recorded.told == [("pod p", "Running", 0), ("gone p", "Failed", 7), ("gone q", "Succeeded", 8)]


@pytest.mark.parametrize("forgets", [False, True])
@virtual
async def test_a_pod_deleted_while_the_watch_is_down_was_seen_until_the_watch_broke(forgets: bool) -> None:
    async with Accounted() as cluster:
        cluster.pod("a")
        await cluster.settle(30)
        cluster.pod("b")
        broke = cluster.clock.now()
        await cluster.settle()
        cluster.recorded.told.clear()
        cluster.transport._faults.add(wrong.Outage(until="2m"))
        await cluster.settle(1)
        cluster.delete("a")
        if forgets:
            cluster.server.compact()
        await cluster.settle(150)
        assert cluster.recorded.told == [("gone a", "Pending", broke)]


# --- how far the view reaches ---------------------------------------------------------------------------------------------------


@virtual
async def test_what_is_settled_follows_the_clock_while_the_watch_holds_and_stands_still_while_not() -> None:
    cluster = Accounted()
    assert cluster.port.settled(NOON) == 0  # nothing is known
    async with cluster:
        await cluster.settle(10)
        assert cluster.port.settled(cluster.clock.now()) == cluster.clock.now() - SETTLE_MS == cluster.world.settled
        before = cluster.clock.now()
        cluster.transport._faults.add(wrong.Outage(until="1m"))
        await cluster.settle(30)
        assert cluster.port.settled(cluster.clock.now()) <= before
        stood = cluster.port.settled(cluster.clock.now())
        await cluster.settle(20)
        assert cluster.port.settled(cluster.clock.now()) == stood == cluster.world.as_of
        await cluster.settle(100)
        assert cluster.port.settled(cluster.clock.now()) == cluster.clock.now() - SETTLE_MS


@virtual
async def test_what_is_settled_goes_back_with_the_clock_only() -> None:
    async with Accounted() as cluster:
        await cluster.settle(10)
        now = cluster.clock.now()
        assert cluster.port.settled(now) == now - SETTLE_MS
        assert cluster.port.settled(now + 3_600_000) == now + 3_600_000 - SETTLE_MS
        assert cluster.port.settled(now) == now - SETTLE_MS


# --- namespaces, claims, prices ------------------------------------------------------------------------------------------------


async def news(cluster: Cluster) -> set[str]:
    await cluster.settle()
    return set(cluster.port.take_changes("budgets").facts)


@virtual
async def test_namespaces_and_their_labels() -> None:
    async with Accounted() as cluster:
        cluster.port.subscribe("budgets", frozenset(Topic))
        await news(cluster)
        assert "team-a" in cluster.world.namespaces
        path = paths.namespace("team-a")
        cluster.server.do("PATCH", path, {"metadata": {"labels": {"tier": "gold"}}})
        assert await news(cluster) == {"namespaces"}
        assert ("tier", "gold") in cluster.world.namespaces["team-a"].labels
        cluster.server.do("PATCH", path, {"metadata": {"annotations": {"a": "b"}}})
        assert await news(cluster) == set()
        cluster.server.do("DELETE", path)
        assert await news(cluster) == {"namespaces"}
        assert "team-a" not in cluster.world.namespaces


def claim(*pods: str, devices: int = 1) -> dict[str, Any]:
    results = [{"request": "gpu", "driver": "d", "pool": "p", "device": f"gpu-{number}"} for number in range(devices)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "team-a"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
        },
    }


@virtual
async def test_claims_and_the_pods_that_share_them() -> None:
    async with Accounted() as cluster:
        uids = [cluster.pod(name)["metadata"]["uid"] for name in ("a", "b")]
        cluster.port.subscribe("budgets", frozenset(Topic))
        await news(cluster)
        cluster.recorded.told.clear()
        cluster.server.put(claim(uids[0], "not here yet"))
        await cluster.settle()
        changes = cluster.port.take_changes("budgets")
        assert (set(changes.facts), changes.pods) == ({Topic.CLAIMS}, {uids[0]})
        assert cluster.recorded.told == [("pod a", "Pending", 0)]
        assert [each.device_class for each in cluster.world.claims["team-a/c"].allocated] == ["gpu.example.com"]
        cluster.server.put(claim(*uids))
        await cluster.settle()
        assert cluster.port.take_changes("budgets").pods == set(uids)
        cluster.server.put(claim(devices=0))
        await cluster.settle()
        assert cluster.port.take_changes("budgets").pods == set(uids)
        assert cluster.world.claims["team-a/c"].allocated == ()


def prices(text: str) -> dict[str, Any]:
    metadata = {"name": "headroom-prices", "namespace": "headroom-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"book": text}}


@virtual
async def test_the_price_book() -> None:
    async with Accounted() as cluster:
        cluster.port.subscribe("budgets", frozenset(set(Topic) - {Topic.PODS, Topic.NODES, Topic.UNBOUND}))
        await news(cluster)
        assert not cluster.world.prices
        cluster.server.put(prices("[{node: n1, pricePerHour: 2}, seven]"))
        assert await news(cluster) == {"prices"}
        assert cluster.world.prices == (Price(price_per_hour=2_000_000, node="n1"),)
        assert cluster.port.price_problems == [
            "reading the price book, key book: entry 2 is left out: it is not a mapping"
        ]
        cluster.server.put(prices("[{node: n1, pricePerHour: 2.0}]"))
        assert await news(cluster) == set()
        assert cluster.port.price_problems == []
        cluster.server.do("DELETE", paths.configmap("headroom-system", "headroom-prices"))
        assert await news(cluster) == {"prices"}
        assert not cluster.world.prices
        assert not cluster.world.stopped


@virtual
async def test_a_server_without_claims_has_none_and_the_view_is_complete() -> None:
    cluster = Accounted()
    cluster.transport._faults.add(wrong.Refusal(path="*resource.k8s.io*", status=404, reason="NotFound"))
    async with cluster:
        assert cluster.port.complete
        assert cluster.world.claims == {}


@virtual
async def test_without_our_index_the_view_is_not_complete() -> None:
    """Preflight found it, so it is not absent but cannot be seen."""
    cluster = Accounted()
    cluster.transport._faults.add(wrong.Refusal(path=f"*{paths.budget_index()}*", status=404, reason="NotFound"))
    await cluster.port.start()
    assert not await cluster.port.synced(600)
    [problem] = cluster.port.problems()
    assert "budgetindexes" in problem
    await cluster.port.stop()


# --- the index -------------------------------------------------------------------------------------------------------------------


@virtual
async def test_the_index_is_made_changed_and_otherwise_left_alone() -> None:
    async with Accounted() as cluster:
        cluster.port.subscribe("budgets", frozenset(set(Topic) - {Topic.PODS, Topic.NODES, Topic.UNBOUND}))
        await news(cluster)
        assert cluster.world.index is None
        for wanted in ((), (IndexEntry(budget="team-a/one", namespaces=("team-a",), exact=True),)):
            cluster.wanted = wanted
            writes = cluster.writes()
            for _ in range(3):
                await cluster.port.perform(cluster.action, a_resource())
            assert cluster.writes() == writes + 1
            assert await news(cluster) == {"index"}
            assert cluster.world.index == wanted
        cluster.server.do("DELETE", INDEX)
        assert await news(cluster) == {"index"}
        assert cluster.world.index is None


@virtual
async def test_an_index_that_somebody_else_writes_at_the_same_moment_is_read_anew() -> None:
    async with Accounted() as cluster:
        await cluster.port.perform(cluster.action, a_resource())
        cluster.wanted = (IndexEntry(budget="team-a/one"),)
        cluster.transport._faults.add(wrong.Refusal(verb="update", status=409, reason="Conflict", times=1))
        await cluster.port.perform(cluster.action, a_resource())
        assert cluster.stored("BudgetIndex", "", "headroom")["spec"]["budgets"][0]["budget"] == "team-a/one"
        cluster.wanted = ()
        cluster.transport._faults.add(wrong.Refusal(verb="update", status=409, reason="Conflict"))
        with pytest.raises(errors.Conflict):
            await cluster.port.perform(cluster.action, a_resource())
