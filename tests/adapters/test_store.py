"""The port on a simulated API server: what the World shows, who is told of what, and that own writes are seen at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import errors, parse, paths
from headroom.adapters.kube.changes import MOST, PARTS, Subscriptions
from headroom.adapters.kube.sinks import ResourceSink, is_older
from headroom.adapters.kube.store import status_patch
from headroom.api.bandwidth import BandwidthStatus, LinksUsed, Reservation
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.resources import Condition
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Ref
from headroom.model.ports import Port
from headroom.model.resource_table import ResourceTable
from headroom.sim import faults as wrong
from tests.adapters.simulated import Cluster, virtual
from tests.builders import NOON, a_ref, a_resource, news_of

ALL = frozenset({*Topic, "GPUWorkloadBudget"})


def condition(status: Any = "True") -> Condition:
    return Condition(type="Ready", status=status, reason="R", message="m", last_transition_time="2026-11-15T12:00:00Z")


# --- the view ----------------------------------------------------------------------------------------------------------------


@virtual
async def test_the_world_shows_what_is_there() -> None:
    cluster = Cluster()
    cluster.pod("a", node="n1")
    cluster.node("n1")
    cluster.resource("PowerPool", "rack")
    async with cluster:
        cluster.pod("b")
        cluster.resource("GPUWorkloadBudget", "one")
        await cluster.settle()
        world = cluster.port.world(NOON)
        assert sorted(pod.key for pod in world.pods) == ["team-a/a", "team-a/b"]
        assert [node.name for node in world.nodes] == ["n1"]
        assert set(world.resources) == {Ref("PowerPool", "", "rack"), a_ref()}
        assert world.resources[a_ref()].spec.quota.window_hours == 24
        assert world.cluster == cluster.stored("Namespace", "", "kube-system")["metadata"]["uid"]
        assert (world.now, world.complete, world.stopped) == (NOON, True, False)
        assert cluster.port.problems() == []


@virtual
async def test_the_world_is_a_view_and_cannot_be_written() -> None:
    async with Cluster() as cluster:
        world = cluster.port.world(NOON)
        cluster.pod("late")
        cluster.resource()
        await cluster.settle()
        assert len(world.pods) == 1
        assert a_ref() in world.resources
        with pytest.raises(TypeError):
            world.resources[a_ref()] = a_resource()  # type: ignore[index]  # that it is refused is the point


@virtual
async def test_it_is_a_port() -> None:
    port: Port = Cluster().port
    assert port


@virtual
async def test_the_kill_switch() -> None:
    async with Cluster() as cluster:
        cluster.port.subscribe("budgets", frozenset({"pods"}))
        cluster.port.take_changes("budgets")
        words = {"true": True, "false": False, "True ": True, " No\n": False, "yes": True, "OFF": False, "ture": True}
        for value, stopped in {**words, "": False, "1": True, "0": False}.items():
            cluster.server.put(settings(value))
            await cluster.settle()
            assert cluster.port.world(NOON).stopped is stopped
            assert cluster.port.take_changes("budgets").facts.keys() == {Topic.SETTINGS}
        cluster.server.do("DELETE", paths.configmap("headroom-system", "headroom"))
        await cluster.settle()
        assert not cluster.port.world(NOON).stopped


def settings(stop: str) -> dict[str, Any]:
    metadata = {"name": "headroom", "namespace": "headroom-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"stop": stop}}


@virtual
async def test_a_view_that_is_silent_for_too_long_is_not_complete() -> None:
    cluster = Cluster()
    async with cluster:
        assert cluster.port.complete
        cluster.transport.kill()
        await cluster.clock.sleep(125)
        assert cluster.port.age_seconds() > 120
        assert not cluster.port.complete


@virtual
async def test_a_watch_that_ends_by_a_bug_is_named() -> None:
    async with Cluster() as cluster:
        cluster.port._reflectors[paths.pods()]._sink = None  # type: ignore[assignment]  # a bug of ours, as bad as any
        cluster.pod()
        await cluster.settle()
        assert not cluster.port.complete
        assert [text for text in cluster.port.problems() if "pods" in text and "a bug in Headroom" in text]


@virtual
async def test_a_watch_that_ends_by_a_bug_is_told_of_and_one_that_is_cancelled_is_not() -> None:
    failures: list[BaseException] = []
    cluster = Cluster(on_failure=failures.append)
    async with cluster:
        await cluster.settle()
        assert failures == []  # to have learnt the cluster's id is no failure
        cluster.port._reflectors[paths.pods()]._sink = None  # type: ignore[assignment]  # a bug of ours, as bad as any
        cluster.pod()
        await cluster.settle()
        assert [type(each) for each in failures] == [AttributeError]
    assert len(failures) == 1


@virtual
async def test_what_every_cluster_has_cannot_be_absent() -> None:
    async with Cluster() as cluster:
        cluster.pod()
        await cluster.settle()
        cluster.transport._faults.add(wrong.DroppedStream(path=paths.pods()))
        cluster.transport._faults.add(wrong.Refusal(status=404, path=paths.pods()))
        await cluster.settle(60)
        assert len(cluster.port.world(NOON).pods) == 1
        assert not cluster.port.complete


@virtual
async def test_a_missing_right_is_named_and_the_rest_is_seen() -> None:
    cluster = Cluster()
    cluster.transport._faults.add(wrong.Refusal(status=403, path=paths.nodes()))
    cluster.pod()
    await cluster.port.start()
    assert not await cluster.port.synced(5)
    assert len(cluster.port.world(NOON).pods) == 1
    assert any("nodes" in text for text in cluster.port.problems())
    await cluster.port.stop()


# --- who is told of what -----------------------------------------------------------------------------------------------------


async def told(cluster: Cluster, plan: str = "plan") -> Changes:
    await cluster.settle()
    return cluster.port.take_changes(plan)


@virtual
async def test_changes_of_pods() -> None:
    async with Cluster() as cluster:
        cluster.port.subscribe("plan", ALL)
        assert cluster.port.take_changes("plan").everything
        uid = cluster.pod()["metadata"]["uid"]
        assert await told(cluster) == Changes(pods={uid}, unbound=True)
        bind = {"metadata": {"name": "train-0"}, "target": {"kind": "Node", "name": "n1"}}
        cluster.server.do("POST", f"{paths.pod('team-a', 'train-0')}/binding", bind)
        assert await told(cluster) == Changes(pods={uid}, unbound=True, nodes={"n1"})
        cluster.server.do("PATCH", paths.pod("team-a", "train-0"), {"metadata": {"labels": {"a": "b"}}})
        assert await told(cluster) == Changes(pods={uid}, nodes={"n1"})
        cluster.server.do("PATCH", paths.pod("team-a", "train-0"), {"metadata": {"annotations": {"x": "of others"}}})
        assert await told(cluster) == Changes()
        cluster.server.do("DELETE", f"{paths.pod('team-a', 'train-0')}", {"gracePeriodSeconds": 0})
        assert await told(cluster) == Changes(pods={uid}, nodes={"n1"})


@virtual
async def test_changes_of_the_rest() -> None:
    async with Cluster() as cluster:
        cluster.port.subscribe("plan", ALL)
        cluster.port.take_changes("plan")
        cluster.node("n1")
        assert await told(cluster) == Changes(nodes={"n1"})
        cluster.resource()
        cluster.resource("PowerPool", "rack")
        assert await told(cluster) == Changes(resources={a_ref()})
        cluster.port.tell(Topic.OFFERS)
        assert await told(cluster) == news_of(Topic.OFFERS)
        cluster.server.do("DELETE", paths.resource("GPUWorkloadBudget", "team-a", "one"))
        cluster.server.do("DELETE", paths.node("n1"))
        assert await told(cluster) == Changes(nodes={"n1"}, resources={a_ref()})
        assert a_ref() not in cluster.port.world(NOON).resources


@virtual
async def test_changed_returns_only_for_news() -> None:
    async with Cluster() as cluster:
        cluster.port.subscribe("plan", frozenset({"nodes"}))
        await asyncio.wait_for(cluster.port.changed(), 1)
        cluster.port.take_changes("plan")
        waiting = asyncio.create_task(cluster.port.changed())
        cluster.pod()
        await cluster.settle()
        assert not waiting.done()
        cluster.node()
        await cluster.settle()
        assert waiting.done()
        cluster.port.take_changes("plan")
        again = asyncio.create_task(cluster.port.changed())
        await cluster.settle()
        assert not again.done()
        again.cancel()


@virtual
async def test_after_a_new_list_nothing_is_assumed() -> None:
    async with Cluster() as cluster:
        cluster.port.subscribe("plan", frozenset({"pods"}))
        cluster.port.subscribe("other", frozenset({"Spotpool"}))
        cluster.port.take_changes("plan")
        cluster.port.take_changes("other")
        cluster.port._changes.listed("pods", "unbound")
        assert cluster.port.take_changes("plan") == Changes(everything=True)
        assert cluster.port.take_changes("other") == Changes()


@virtual
async def test_a_plan_that_never_asks_costs_no_memory() -> None:
    changes = Subscriptions()
    changes.subscribe("slow", frozenset({"pods"}))
    changes.take("slow")
    for number in range(MOST + 10):
        changes.pod(str(number), unbound=False, nodes=())
    assert changes.take("slow") == Changes(everything=True)


@virtual
async def test_who_never_subscribed_hears_everything_and_who_errs_is_told() -> None:
    changes = Subscriptions()
    assert changes.take("new").everything
    changes.node("n1")
    assert changes.take("new") == Changes(nodes={"n1"})
    with pytest.raises(ValueError, match="asks for pod;"):
        changes.subscribe("wrong", frozenset({"pod"}))
    assert "LeftoverNodePool" in PARTS


# --- writing ---------------------------------------------------------------------------------------------------------------


@virtual
async def test_own_writes_are_seen_at_once() -> None:
    async with Cluster() as cluster:
        cluster.resource()
        await cluster.settle()
        resource = cluster.port.world(NOON).resources[a_ref()]
        await cluster.port.write_status(resource, GPUWorkloadBudgetStatus(consumed_gpu_hours="5", tracked_pods=2))
        seen = cluster.port.world(NOON).resources[a_ref()]
        assert (seen.status.consumed_gpu_hours, seen.status.tracked_pods) == ("5", 2)
        assert int(seen.resource_version) > int(resource.resource_version)
        await cluster.port.write_status(seen, GPUWorkloadBudgetStatus(tracked_pods=3, conditions=(condition(),)))
        assert cluster.stored("GPUWorkloadBudget", "team-a", "one")["status"]["trackedPods"] == 3
        assert "consumedGpuHours" not in cluster.stored("GPUWorkloadBudget", "team-a", "one")["status"]
        await cluster.settle()
        assert cluster.port.world(NOON).resources[a_ref()].status.conditions == (condition(),)


@virtual
async def test_a_status_is_not_written_on_another_object_or_version() -> None:
    async with Cluster() as cluster:
        old = cluster.resource()
        cluster.resource(paused=True)
        with pytest.raises(errors.Conflict):
            await cluster.port.write_status(old, GPUWorkloadBudgetStatus())
        gone = cluster.read("GPUWorkloadBudget", "team-a", "one")
        cluster.server.do("DELETE", paths.resource("GPUWorkloadBudget", "team-a", "one"))
        with pytest.raises(errors.NotFound):
            await cluster.port.write_status(gone, GPUWorkloadBudgetStatus())
        cluster.resource()
        with pytest.raises(errors.Conflict):
            await cluster.port.write_status(gone, GPUWorkloadBudgetStatus())


@virtual
async def test_a_lost_reply_is_told_and_harmless() -> None:
    cluster = Cluster()
    async with cluster:
        resource = cluster.resource()
        await cluster.settle()
        cluster.transport._faults.add(wrong.LostReply(verb="patch", times=1))
        with pytest.raises(Exception, match="PATCH"):
            await cluster.port.write_status(resource, GPUWorkloadBudgetStatus(tracked_pods=1))
        await cluster.settle()
        assert cluster.port.world(NOON).resources[a_ref()].status.tracked_pods == 1


def sink() -> tuple[ResourceSink, ResourceTable]:
    resources = ResourceTable()
    return ResourceSink("GPUWorkloadBudget", resources, Subscriptions()), resources


@virtual
async def test_an_answer_brings_nothing_back_that_is_gone() -> None:
    held, resources = sink()
    one = structs.replace(a_resource(), resource_version="5")
    held.put(one)
    held.remove(one.uid, None, 0)
    held.confirm(structs.replace(one, resource_version="6"))
    assert resources == {}


@virtual
async def test_what_is_older_changes_nothing() -> None:
    held, resources = sink()
    new, old = (
        structs.replace(a_resource(generation=int(version)), resource_version=version) for version in ("10", "9")
    )
    held.put(new)
    held.put(old)
    assert resources[a_ref()] is new
    reborn = structs.replace(old, uid="another")
    held.put(reborn)
    assert resources[a_ref()] is reborn
    assert set(held.keys()) == {"another"}
    held.remove(new.uid, None, 0)
    assert resources[a_ref()] is reborn


@virtual
async def test_what_is_listed_counts_however_old_it_looks() -> None:
    """A cluster that was restored from a backup has the same objects in lower versions."""
    async with Cluster() as cluster:
        held, resources = sink()
        new, old = (
            structs.replace(a_resource(generation=int(version)), resource_version=version) for version in ("10", "9")
        )
        held.put(new)
        held.put(old, listed=True)
        assert resources[a_ref()] is old
        document, switch = cluster.pod(), settings("true")
        cluster.node("n1")
        cluster.server.put(switch)
        await cluster.settle()
        now = cluster.port._settings.current
        assert now is not None
        for path, found in {
            paths.pods(): structs.replace(parse.pod(document), resource_version="1", phase="Failed"),
            paths.nodes(): structs.replace(parse.node(cluster.stored("Node", "", "n1")), resource_version="1"),
            paths.configmap("headroom-system", "headroom"): structs.replace(now, resource_version="1", data={}),
        }.items():
            cluster.port._reflectors[path]._sink.put(found, listed=True)
        world = cluster.port.world(NOON)
        assert not world.stopped
        assert [(pod.phase, pod.resource_version) for pod in world.pods] == [("Failed", "1")]
        assert [node.resource_version for node in world.nodes] == ["1"]


@pytest.mark.parametrize(
    ("new", "old", "older"),
    [("9", "10", True), ("10", "9", False), ("9", "9", False), ("", "9", False), ("a", "9", False), ("9", "b", False)],
)
def test_versions(new: str, old: str, older: bool) -> None:
    pods = [parse.pod({"metadata": {"uid": "u", "resourceVersion": version}}) for version in (new, old)]
    assert is_older(*pods) is older


def test_a_patch_removes_what_is_no_more() -> None:
    links, empty = LinksUsed(), LinksUsed()
    before = BandwidthStatus(used=links, error_reason="x", reservations=(Reservation(pod_uid="u"),))
    patch = status_patch(before, BandwidthStatus(status="Created", used=empty))
    assert patch["errorReason"] is None
    assert patch["capacity"] is None
    assert not patch["reservations"]
    assert patch["used"]["local"] == {"ulMbps": 0, "dlMbps": 0}
    assert set(patch) == set(BandwidthStatus().__struct_encode_fields__)
