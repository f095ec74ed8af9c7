"""What is written for bandwidth: the configuration of the policies, and the extended resources of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import paths
from headroom.adapters.kube.effects import Effects
from headroom.api import marks
from headroom.api.bandwidth import NODE_UID, BandwidthSpec, LinkQuantities
from headroom.api.bandwidth_config import BandwidthConfigSpec
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.sim import faults as wrong
from tests.adapters.simulated import Cluster, virtual
from tests.builders import a_resource

EGRESS, LOCAL = "headroom.dev/egress-mbps", "headroom.dev/local-egress-mbps"
OTHERS = {"cpu": "8", "nvidia.com/gpu": "4"}


async def do(cluster: Cluster, action: Action) -> None:
    await Effects(cluster.kube, cluster.events, clock=cluster.clock, view=cluster.port).perform(action, a_resource())


def node(cluster: Cluster, **status: Any) -> None:
    cluster.server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status})


def sizes(cluster: Cluster) -> tuple[dict[str, str], dict[str, str]]:
    status = cluster.stored("Node", "", "n1")["status"]
    return status["capacity"], status["allocatable"]


@virtual
async def test_capacity_and_allocatable_are_written_together_and_withdrawn_together() -> None:
    cluster = Cluster()
    node(cluster, capacity=dict(OTHERS), allocatable=OTHERS | {"cpu": "7"})
    published = actions.SetNodeResources(node="n1", resources={EGRESS: "1000", LOCAL: "20000"})
    await do(cluster, published)
    ours = {EGRESS: "1000", LOCAL: "20000"}
    assert sizes(cluster) == (OTHERS | ours, OTHERS | {"cpu": "7"} | ours)
    version = cluster.stored("Node", "", "n1")["metadata"]["resourceVersion"]
    await do(cluster, published)
    assert cluster.stored("Node", "", "n1")["metadata"]["resourceVersion"] == version
    await do(cluster, actions.SetNodeResources(node="n1", resources={LOCAL: "10000"}))
    assert sizes(cluster)[0] == OTHERS | {LOCAL: "10000"}
    await do(cluster, actions.SetNodeResources(node="n1", resources={}))
    assert sizes(cluster) == (OTHERS, OTHERS | {"cpu": "7"})


@virtual
async def test_what_a_restarted_kubelet_has_zeroed_is_written_anew() -> None:
    cluster = Cluster()
    node(cluster, capacity={EGRESS: "0"}, allocatable={EGRESS: "0"})
    await do(cluster, actions.SetNodeResources(node="n1", resources={EGRESS: "1000"}))
    assert sizes(cluster) == ({EGRESS: "1000"}, {EGRESS: "1000"})


@virtual
async def test_nothing_is_taken_from_pods_that_were_bound_since_it_was_decided() -> None:
    cluster = Cluster()
    node(cluster, capacity={EGRESS: "1k"}, allocatable={EGRESS: "1k"})
    amounts = {EGRESS: "600"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    cluster.pod("new", node="n1", spec={"containers": [container]})
    for less in ({EGRESS: "500"}, {}):
        with pytest.raises(Refused, match=r"less headroom.dev/egress-mbps on node n1: new pods request it"):
            await do(cluster, actions.SetNodeResources(node="n1", resources=less))
    assert sizes(cluster)[0] == {EGRESS: "1k"}
    await do(cluster, actions.SetNodeResources(node="n1", resources={EGRESS: "600"}))
    await do(cluster, actions.SetNodeResources(node="n1", resources={EGRESS: "700"}))
    cluster.pod("new", node="n1", spec={"containers": [container]}, status={"phase": "Succeeded"})
    await do(cluster, actions.SetNodeResources(node="n1", resources={}))
    assert sizes(cluster) == ({}, {})


@virtual
async def test_an_amount_in_other_words_is_the_same_amount() -> None:
    """The API server itself writes 1000 as 1k."""
    cluster = Cluster()
    node(cluster, capacity={EGRESS: "1k"}, allocatable={EGRESS: "1k"})
    await do(cluster, actions.SetNodeResources(node="n1", resources={EGRESS: "1000"}))
    assert sizes(cluster) == ({EGRESS: "1k"}, {EGRESS: "1k"})
    node(cluster, capacity={EGRESS: "0"}, allocatable={EGRESS: "0"})
    await do(cluster, actions.SetNodeResources(node="n1", resources={}))
    assert sizes(cluster) == ({}, {})


@virtual
async def test_another_node_of_the_same_name_is_left_alone() -> None:
    cluster = with_node()
    taint = "headroom.dev/bandwidth-unavailable:NoSchedule"
    with pytest.raises(Refused, match="it is gone"):
        await do(cluster, actions.SetNodeResources(node="n1", resources={EGRESS: "1"}, uid="uid-of-another"))
    with pytest.raises(Refused, match="it is gone"):
        await do(cluster, actions.TaintNode(node="n1", taint=taint, uid="uid-of-another"))
    await do(cluster, actions.TaintNode(node="n1", taint=taint, uid="uid-n1"))
    await do(cluster, actions.UntaintNode(node="n1", taint=taint, uid="uid-of-another"))
    ours = {"key": "headroom.dev/bandwidth-unavailable", "effect": "NoSchedule"}
    assert ours in cluster.stored("Node", "", "n1")["spec"]["taints"]
    assert EGRESS not in str(cluster.stored("Node", "", "n1"))
    await do(cluster, actions.UntaintNode(node="n1", taint=taint, uid="uid-n1"))
    assert ours not in cluster.stored("Node", "", "n1")["spec"]["taints"]


@virtual
async def test_nothing_but_bandwidth_is_published() -> None:
    cluster = Cluster()
    node(cluster, capacity=dict(OTHERS), allocatable=dict(OTHERS))
    with pytest.raises(Refused, match=r"nvidia[.]com/gpu on node n1: they are not Headroom's"):
        await do(cluster, actions.SetNodeResources(node="n1", resources={"nvidia.com/gpu": "8"}))
    assert sizes(cluster) == (OTHERS, OTHERS)


@virtual
async def test_a_node_that_is_gone_needs_no_withdrawal() -> None:
    with pytest.raises(Refused, match="node n1: it is gone"):
        await do(Cluster(), actions.SetNodeResources(node="n1", resources={EGRESS: "1"}))
    await do(Cluster(), actions.SetNodeResources(node="n1", resources={}))


@virtual
async def test_the_configuration_is_made_changed_and_left_alone() -> None:
    cluster = Cluster()
    native = BandwidthConfigSpec(mode="Native")
    for spec in (BandwidthConfigSpec(), native, native):
        await do(cluster, actions.ApplyBandwidthConfig(spec=spec))
    stored = cluster.stored("BandwidthConfig", "", "headroom")
    assert (stored["spec"]["mode"], stored["metadata"]["generation"]) == ("Native", 2)


@virtual
async def test_a_lost_reply_leaves_one_configuration() -> None:
    cluster = Cluster()
    cluster.transport._faults.add(wrong.LostReply(verb="create", times=1))
    action = actions.ApplyBandwidthConfig(spec=BandwidthConfigSpec(mode="Extender"))
    with pytest.raises(Unavailable):
        await do(cluster, action)
    await do(cluster, action)
    assert cluster.stored("BandwidthConfig", "", "headroom")["metadata"]["generation"] == 1


# --- one object for each node ------------------------------------------------------------------------------------------------------

MADE = actions.ApplyBandwidth(node="n1", spec=BandwidthSpec(capacity=LinkQuantities()), uid="uid-n1")


def with_node(uid: str = "uid-n1") -> Cluster:
    cluster = Cluster()
    cluster.server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": uid}})
    return cluster


@virtual
async def test_an_object_is_made_once_and_what_people_say_in_it_is_theirs() -> None:
    cluster = with_node()
    await do(cluster, MADE)
    made = cluster.stored("Bandwidth", "", "n1")
    assert made["metadata"]["annotations"] == {NODE_UID: "uid-n1"}
    capacity = {"network": {"ulMbps": 25000, "dlMbps": 25000}}
    await cluster.kube.merge_patch(paths.resource("Bandwidth", "", "n1"), {"spec": {"capacity": capacity}})
    await do(cluster, MADE)
    assert cluster.stored("Bandwidth", "", "n1")["spec"]["capacity"]["network"] == capacity["network"]


@pytest.mark.parametrize("uid", ["", "uid-of-another"])
@virtual
async def test_no_object_is_made_for_a_node_that_is_gone_or_another(uid: str) -> None:
    cluster = with_node(uid) if uid else Cluster()
    with pytest.raises(Refused, match="making the Bandwidth of node n1: the node is gone"):
        await do(cluster, MADE)
    assert not cluster.server.objects("Bandwidth")


@virtual
async def test_the_object_is_deleted_only_if_its_node_is_really_gone() -> None:
    cluster = with_node()
    await do(cluster, MADE)
    uid = cluster.stored("Bandwidth", "", "n1")["metadata"]["uid"]
    known = structs.replace(a_resource("Bandwidth", "n1"), uid=uid)
    effects = Effects(cluster.kube, cluster.events, clock=cluster.clock, view=cluster.port)
    gone = actions.DeleteBandwidth(node="n1")
    with pytest.raises(Refused, match="the node exists"):
        await effects.perform(gone, known)
    cluster.server.do("DELETE", paths.node("n1"))
    with pytest.raises(HeadroomError):
        await effects.perform(gone, structs.replace(known, uid="another"))
    assert cluster.server.objects("Bandwidth")
    await effects.perform(gone, known)
    await effects.perform(gone, known)
    assert not cluster.server.objects("Bandwidth")


# --- what Karpenter is told -----------------------------------------------------------------------------------------------------


def overlay(cluster: Cluster, **meta: Any) -> Any:
    document = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "spec": {"requirements": []}}
    return cluster.server.put(document | {"metadata": {"name": "rates"} | meta})


TOLD = actions.ApplyNodeOverlay(
    node_overlay="rates", spec={"requirements": [], "capacity": {EGRESS: "1000"}, "weight": 10}
)


@virtual
async def test_karpenter_is_told_and_told_no_more() -> None:
    cluster = Cluster()
    await do(cluster, TOLD)
    found = cluster.stored("NodeOverlay", "", "rates")
    assert found["spec"] == TOLD.spec
    assert found["metadata"]["labels"] == {marks.BANDWIDTH: "true"}
    await do(cluster, structs.replace(TOLD, spec=TOLD.spec | {"capacity": {LOCAL: "5"}}))
    assert cluster.stored("NodeOverlay", "", "rates")["spec"]["capacity"] == {LOCAL: "5"}
    await do(cluster, actions.DeleteNodeOverlay(node_overlay="rates", uid="another"))
    uid = cluster.stored("NodeOverlay", "", "rates")["metadata"]["uid"]
    for _ in range(2):
        await do(cluster, actions.DeleteNodeOverlay(node_overlay="rates", uid=uid))
        assert cluster.server.object("NodeOverlay", "", "rates") is None


@virtual
async def test_an_overlay_that_somebody_else_made_or_manages_is_left_alone() -> None:
    cluster = Cluster()
    overlay(cluster)
    uid = cluster.stored("NodeOverlay", "", "rates")["metadata"]["uid"]
    with pytest.raises(Refused, match="Headroom did not create it"):
        await do(cluster, TOLD)
    await do(cluster, actions.DeleteNodeOverlay(node_overlay="rates", uid=uid))
    assert cluster.stored("NodeOverlay", "", "rates")["spec"] == {"requirements": []}
