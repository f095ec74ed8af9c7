"""Every action on a simulated API server: what it does, that doing it twice does it once, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import effects, errors, parse, paths
from headroom.adapters.kube.effects import Effects
from headroom.api.budget_index import IndexEntry
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.changes import Topic
from headroom.model.errors import Refused, Unavailable
from headroom.model.tables import PodTable
from headroom.sim import faults as wrong
from tests.adapters.doing import BY, CHORES, do, do_twice, forget, notes
from tests.adapters.simulated import Cluster, virtual
from tests.builders import a_pod, a_resource

# --- nodes ---------------------------------------------------------------------------------------------------------------------


@virtual
async def test_cordon_and_uncordon() -> None:
    cluster = Cluster()
    cluster.node("n1")
    await do_twice(cluster, actions.CordonNode(node="n1"))
    assert cluster.stored("Node", "", "n1")["spec"]["unschedulable"] is True
    assert notes(cluster, "Node", "", "n1") == {"headroom.dev/cordoned-by": BY}
    await do_twice(cluster, actions.UncordonNode(node="n1"))
    assert not cluster.stored("Node", "", "n1")["spec"].get("unschedulable")
    assert notes(cluster, "Node", "", "n1") == {}


@virtual
async def test_what_others_cordoned_stays_cordoned() -> None:
    cluster = Cluster()
    cluster.node("n1", unschedulable=True)
    await do(cluster, actions.CordonNode(node="n1"))
    with pytest.raises(Refused, match="somebody else cordoned it"):
        await do(cluster, actions.UncordonNode(node="n1"))
    assert cluster.stored("Node", "", "n1")["spec"]["unschedulable"] is True
    assert cluster.writes() == 0


def taints(cluster: Cluster) -> list[dict[str, Any]]:
    """All but the one that the API server puts on every new node."""
    found = cluster.stored("Node", "", "n1")["spec"].get("taints") or []
    return [each for each in found if each["key"] != "node.kubernetes.io/not-ready"]


@virtual
async def test_taint_and_untaint() -> None:
    cluster = Cluster()
    theirs = {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-11-15T11:00:00Z"}
    cluster.node("n1", taints=[theirs])
    taint = "headroom.dev/asleep=yes:NoSchedule"
    ours = {"key": "headroom.dev/asleep", "value": "yes", "effect": "NoSchedule"}
    await do_twice(cluster, actions.TaintNode(node="n1", taint=taint))
    assert taints(cluster) == [theirs, ours]
    await do_twice(cluster, actions.TaintNode(node="n1", taint="headroom.dev/asleep=no:NoSchedule"))
    assert taints(cluster) == [theirs, ours | {"value": "no"}]
    await do(cluster, actions.UntaintNode(node="n1", taint=taint))
    await do_twice(cluster, actions.UntaintNode(node="n1", taint="headroom.dev/asleep=no:NoSchedule"))
    assert taints(cluster) == [theirs]
    await do(cluster, actions.UntaintNode(node="n1", taint="theirs:NoExecute"))
    assert taints(cluster) == []


@virtual
async def test_taints_that_are_refused() -> None:
    cluster = Cluster()
    cluster.node("n1", taints=[{"key": "theirs", "value": "a", "effect": "NoSchedule"}])
    with pytest.raises(Refused, match="another value"):
        await do(cluster, actions.TaintNode(node="n1", taint="theirs=b:NoSchedule"))
    for text in ("key", "key=value", "key=value:Never", "=v:NoSchedule"):
        with pytest.raises(Refused, match="must be written"):
            await do(cluster, actions.TaintNode(node="n1", taint=text))


@virtual
async def test_a_node_that_is_gone() -> None:
    cluster = Cluster()
    for action in (actions.CordonNode(node="n1"), actions.TaintNode(node="n1", taint="a=b:NoSchedule")):
        with pytest.raises(Refused, match="node n1: it is gone"):
            await do(cluster, action)
    await do(cluster, actions.UncordonNode(node="n1"))
    await do(cluster, actions.UntaintNode(node="n1", taint="a=b:NoSchedule"))


@virtual
async def test_a_change_is_worked_out_anew_when_others_were_faster() -> None:
    cluster = Cluster()
    cluster.node("n1")
    patch, busy = cluster.kube.merge_patch, [1, 2]

    async def meanwhile(path: str, body: Any) -> bytes:
        if busy:
            cluster.server.do("PATCH", path, {"metadata": {"labels": {"at": str(busy.pop())}}})
        return await patch(path, body)

    cluster.kube.merge_patch = meanwhile  # type: ignore[method-assign]  # the moment between reading and writing
    await do(cluster, actions.CordonNode(node="n1"))
    assert cluster.stored("Node", "", "n1")["spec"]["unschedulable"] is True
    busy += range(10)
    with pytest.raises(errors.Conflict):
        await do(cluster, actions.UncordonNode(node="n1"))


# --- finalizers, events --------------------------------------------------------------------------------------------------


@virtual
async def test_finalizers_of_ours_are_removed_and_no_others() -> None:
    async with Cluster() as cluster:
        cluster.pod(metadata={"finalizers": ["headroom.dev/usage", "theirs.example/x"]})
        await cluster.settle()
        action = actions.RemoveFinalizer(object="Pod/team-a/train-0")
        await do(cluster, action)
        await cluster.settle()
        assert cluster.stored("Pod", "team-a", "train-0")["metadata"]["finalizers"] == ["theirs.example/x"]
        assert cluster.writes() == 1
        await do(cluster, action)
        await do(cluster, actions.RemoveFinalizer(object="Pod/team-a/never"))
        assert cluster.writes() == 1
        await do(cluster, actions.RemoveFinalizer(object="PowerPool/never"))
        for text in ("Secret/team-a/x", "Pod", "Pod/a/b/c", "Pod//x"):
            with pytest.raises(Refused):
                await do(cluster, actions.RemoveFinalizer(object=text))


@virtual
async def test_a_finalizer_that_could_not_be_removed_now_is_told_of() -> None:
    async with Cluster() as cluster:
        cluster.pod(metadata={"finalizers": ["headroom.dev/usage"]})
        await cluster.settle()
        cluster.transport._faults.add(wrong.Refusal(verb="patch", status=409, reason="Conflict", times=1))
        with pytest.raises(errors.Conflict):
            await do(cluster, actions.RemoveFinalizer(object="Pod/team-a/train-0"))


@virtual
async def test_the_finalizer_of_another_pod_of_that_name_stays() -> None:
    async with Cluster() as cluster:
        held = {"finalizers": ["headroom.dev/usage"]}
        cluster.pod(metadata=held)
        await cluster.settle()
        cluster.transport._faults.add(wrong.StaleView(until="1h"))
        forget(cluster, paths.pod("team-a", "train-0"))
        cluster.server.do("PATCH", paths.pod("team-a", "train-0"), {"metadata": {"finalizers": None}})
        cluster.pod(metadata=held)
        await do(cluster, actions.RemoveFinalizer(object="Pod/team-a/train-0"))
        assert cluster.stored("Pod", "team-a", "train-0")["metadata"]["finalizers"] == ["headroom.dev/usage"]


@virtual
async def test_the_finalizer_of_a_resource_that_is_being_deleted() -> None:
    cluster = Cluster()
    old = cluster.resource()
    path = paths.resource("GPUWorkloadBudget", "team-a", "one")
    cluster.server.do("PATCH", path, {"metadata": {"finalizers": ["headroom.dev/usage"]}})
    await do(cluster, actions.RemoveFinalizer(object=BY), a_resource())  # another uid: that one is gone
    assert cluster.stored("GPUWorkloadBudget", "team-a", "one")["metadata"]["finalizers"]
    cluster.server.do("DELETE", path)
    await do_twice(cluster, actions.RemoveFinalizer(object=BY), old)
    assert cluster.server.object("GPUWorkloadBudget", "team-a", "one") is None


def event(about: str) -> actions.EmitEvent:
    return actions.EmitEvent(object=about, event_type="Warning", reason="QuotaExceeded", message="all is used")


@virtual
async def test_events_name_their_object() -> None:
    async with Cluster() as cluster:
        resource = cluster.resource()
        pod, node = cluster.pod(), cluster.node("n1")
        await cluster.settle()
        for about in (BY, "Pod/team-a/train-0", "Node/n1", "PowerPool/rack"):
            await do(cluster, event(about), resource)
            await do(cluster, event(about), resource)
        assert [each["count"] for each in cluster.server.objects("Event")] == [1, 1, 1, 1]
        with pytest.raises(Refused, match="knows no such kind"):
            await do(cluster, event("Secret/team-a/x"), resource)
        found = {each["involvedObject"]["kind"]: each["involvedObject"] for each in cluster.server.objects("Event")}
        assert len(cluster.server.objects("Event")) == 4
        assert found["GPUWorkloadBudget"]["uid"] == resource.uid
        assert found["GPUWorkloadBudget"]["apiVersion"] == "headroom.dev/v1alpha1"
        assert (found["Pod"]["uid"], found["Pod"]["apiVersion"]) == (pod["metadata"]["uid"], "v1")
        assert (found["Node"]["uid"], found["Node"].get("namespace")) == (node["metadata"]["uid"], None)
        assert "uid" not in found["PowerPool"]


@virtual
async def test_an_event_counts_once_for_each_turn() -> None:
    """However often it is asked for, and though the spec stays the same from turn to turn."""
    async with Cluster() as cluster:
        decided = cluster.resource()
        await cluster.settle()
        for minute in range(3):
            said = structs.replace(event(BY), since=f"2026-11-15T12:0{minute}:00Z")
            for _ in range(2):
                await do(cluster, said, decided)
            [found] = cluster.server.objects("Event")
            assert found["count"] == minute + 1


@virtual
async def test_an_index_that_cannot_be_written_is_told_to_the_view_until_it_is() -> None:
    async with Cluster() as cluster:
        await cluster.settle()
        index = actions.ApplyBudgetIndex(budget="team-a/one", budgets=(IndexEntry(budget="team-a/one"),))
        cluster.port.take_changes("budgets")
        cluster.transport._faults.add(wrong.Refusal(verb="create", status=403, path=paths.budget_index(), times=2))
        found = []
        for _ in range(2):
            with pytest.raises(Refused):
                await do(cluster, index, CHORES)
            found.append(cluster.port.world(cluster.clock.now()).index_problem)
        assert found[0] == "", "the first may pass by itself"
        assert "the simulated server refuses this" in found[1]
        assert Topic.INDEX in cluster.port.take_changes("budgets").facts
        await do(cluster, index, CHORES)
        assert cluster.port.world(cluster.clock.now()).index_problem == ""
        assert Topic.INDEX in cluster.port.take_changes("budgets").facts


def test_a_pod_is_found_by_name() -> None:
    table = PodTable()
    for namespace in ("team-a", "team-b"):
        table.put(a_pod("x", uid=namespace, namespace=namespace))
    found = effects.find_pod(table, "team-b", "x")
    assert found is not None
    assert found.uid == "team-b"
    assert effects.find_pod(table, "team-b", "y") is None
    assert effects.find_pod(table, "team-c", "x") is None


# --- all of them -----------------------------------------------------------------------------------------------------------------


class _Unknown(Action, frozen=True, kw_only=True):
    """An action that nobody carries out."""


@virtual
async def test_what_nobody_carries_out_is_refused() -> None:
    with pytest.raises(Refused, match="_Unknown: this version of Headroom cannot do that yet"):
        await do(Cluster(), _Unknown())


@virtual
async def test_a_lost_reply_leaves_one_effect() -> None:
    cluster = Cluster()
    cluster.node("n1")
    effect = Effects(cluster.kube, cluster.events, clock=cluster.clock, view=cluster.port)
    cluster.transport._faults.add(wrong.LostReply(verb="patch", times=1))
    action = actions.CordonNode(node="n1")
    with pytest.raises(Unavailable):
        await effect.perform(action, a_resource())
    await effect.perform(action, a_resource())
    assert cluster.writes() == 1
    assert parse.node(cluster.stored("Node", "", "n1")).unschedulable
