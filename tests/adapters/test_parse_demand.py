"""What demand needs of pods, nodes and Karpenter's objects, as it is read and as the world shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters import documents
from headroom.adapters.kube import karpenter, parse, raw
from headroom.model import gangs
from headroom.model.facts import Requirement, Taint
from headroom.model.times import moment
from tests.adapters.simulated import Cluster, virtual

NOW = "2026-11-15T12:00:00Z"
EARLIER = "2026-11-15T11:00:00Z"
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": EARLIER,
    "message": "0/3 nodes are available",
}


def a_pod(status: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "lab", "name": "a"},
        "spec": {"containers": [{"name": "c"}]} | spec,
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, ""),
        ([], ""),
        ([{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}], ""),
        ([{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}], '[{"maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]'),
        ("nonsense", ""),
        ([3], ""),
    ],
)
def test_only_a_spread_that_forbids_is_kept(given: Any, kept: str) -> None:
    assert parse.pod(a_pod(topologySpreadConstraints=given)).shape.spread == kept


@pytest.mark.parametrize(
    ("status", "ready", "unready"), [("True", NOW, None), ("False", None, NOW), ("Unknown", None, NOW)]
)
def test_since_when_a_node_is_ready_or_not(status: str, ready: str | None, unready: str | None) -> None:
    turned = {"type": "Ready", "status": status, "lastTransitionTime": NOW}
    node = parse.node({"metadata": {"name": "n"}, "status": {"conditions": [turned]}})
    assert (node.ready, node.ready_since, node.unready_since) == (
        status == "True",
        ready and moment(ready),
        unready and moment(unready),
    )


def test_a_node_of_which_nobody_said_anything_is_not_ready() -> None:
    node = parse.node({"metadata": {"name": "n"}})
    assert (node.ready, node.ready_since, node.unready_since) == (False, None, None)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("Unschedulable", True),
        ("Undetermined", True),  # Volcano did not look at it, since another pod of its group finds no place
        ("Schedulable", True),  # Volcano would place it, if the rest of its gang had a place
        ("SchedulingGated", False),
        ("SchedulerError", False),
    ],
)
def test_by_which_words_a_scheduler_says_that_a_pod_waits_for_a_place(reason: str, told: bool) -> None:
    pod = parse.pod(a_pod({"conditions": [UNSCHEDULABLE | {"reason": reason}]}, schedulerName="volcano"))
    assert pod.unschedulable_since == (moment(EARLIER) if told else None)
    assert pod.unschedulable_message == ("0/3 nodes are available" if told else "")


@pytest.mark.parametrize(
    ("message", "itself"),
    [
        (
            '0/3 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/3 nodes are available: 3 No.',
            True,
        ),
        ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", True),
        ("0/12 nodes are available: waiting for resource controller to create the resourceclaim.", True),
        ('persistentvolumeclaim "data" not found', True),
        ('0/3 nodes are available: 3 no persistentvolumeclaim "data".', False),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 No.", False),
        ("0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.", False),
        ("no nodes available to schedule pods", False),
        ("all nodes are unavailable: 3 Insufficient nvidia.com/gpu", False),
        ("", False),
    ],
)
def test_a_refusal_of_the_pod_itself_counts_no_nodes(message: str, itself: bool) -> None:
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pod = parse.pod({"metadata": {"name": "p"}, "status": {"conditions": [told]}})
    assert pod.refused_itself is itself


def test_what_says_of_a_pod_how_large_its_gang_is_is_read() -> None:
    notes = {
        "kueue.x-k8s.io/pod-group-fast-admission": "false",
        "kueue.x-k8s.io/pod-group-total-count": "4",
        "of/others": "not",
    }
    pod = a_pod()
    pod["metadata"] |= {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "annotations": notes}
    found = parse.pod(pod)
    assert (gangs.gang_of(found), gangs.size_of(found)) == ("PodGroup/lab/g", 4)


POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "spot", "uid": "p"},
    "spec": {
        "limits": {"nvidia.com/gpu": 16, "cpu": "1k"},
        "template": {
            "metadata": {"labels": {"team": "ml"}},
            "spec": {
                "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
            },
        },
    },
}
CLAIM = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {"name": "spot-1", "labels": {"karpenter.sh/nodepool": "spot"}, "creationTimestamp": EARLIER},
    "spec": {
        "requirements": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g5.xlarge", "g6.xlarge"]},
        ],
        "resources": {"requests": {"cpu": "4", "nvidia.com/gpu": "1"}},
    },
}


def test_a_node_pool() -> None:
    found = karpenter.node_pool_of(raw.fitted(POOL, karpenter.NodePoolWire))
    assert (found.name, found.uid, found.ready) == ("spot", "p", True)
    assert found.labels == (("team", "ml"),)
    assert found.taints == (Taint("gpu", "yes", "NoSchedule"),)
    assert found.requirements == (Requirement(key="karpenter.sh/capacity-type", operator="In", values=("spot",)),)
    assert dict(found.limits) == {"nvidia.com/gpu": 16_000_000, "cpu": 1_000_000_000}
    used = POOL | {"status": {"resources": {"nvidia.com/gpu": 16}}}
    left = dict(karpenter.node_pool_of(raw.fitted(used, karpenter.NodePoolWire)).limits)
    assert left == {"nvidia.com/gpu": 0, "cpu": 1_000_000_000}
    going = POOL | {"metadata": {"name": "spot", "deletionTimestamp": NOW}}
    assert not karpenter.node_pool_of(raw.fitted(going, karpenter.NodePoolWire)).ready
    unready = POOL | {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert not karpenter.node_pool_of(raw.fitted(unready, karpenter.NodePoolWire)).ready


def test_a_node_claim_promises_what_was_asked_for_until_karpenter_knows_better() -> None:
    found = karpenter.node_claim_of(raw.fitted(CLAIM, karpenter.NodeClaimWire))
    assert dict(found.labels) == {"karpenter.sh/nodepool": "spot", "topology.kubernetes.io/zone": "a"}
    assert dict(found.allocatable) == {"cpu": 4_000_000, "nvidia.com/gpu": 1_000_000}
    assert not found.registered
    registered = {"type": "Registered", "status": "True"}

    def with_conditions(*more: dict[str, str]) -> Any:
        status = {"allocatable": {"cpu": "3920m"}, "conditions": [registered, *more]}
        return karpenter.node_claim_of(raw.fitted(CLAIM | {"status": status}, karpenter.NodeClaimWire))

    assert (dict(with_conditions().allocatable), with_conditions().registered) == ({"cpu": 3_920_000}, True)
    # Its GPUs are not there before it is initialized.
    assert not with_conditions({"type": "Initialized", "status": "Unknown"}).registered
    assert with_conditions({"type": "Initialized", "status": "True"}).registered


@pytest.mark.parametrize("odd", [{}, {"spec": 3}, {"spec": {"template": []}}, {"metadata": {"name": 7}}, [], None])
def test_odd_objects_of_karpenter_never_raise(odd: Any) -> None:
    karpenter.node_pool_of(raw.fitted(odd, karpenter.NodePoolWire))
    karpenter.node_claim_of(raw.fitted(odd, karpenter.NodeClaimWire))


@virtual
async def test_the_world_shows_what_karpenter_has() -> None:
    async with Cluster() as cluster:
        cluster.server.put(POOL)
        cluster.server.put(CLAIM)
        await cluster.settle()
        world = cluster.port.world(cluster.clock.now())
        assert list(world.node_pools) == ["spot"]
        assert list(world.node_claims) == ["spot-1"]


@virtual
async def test_a_nomination_counts_from_when_it_was_first_seen() -> None:
    async with Cluster() as cluster:
        cluster.pod("a")
        await cluster.settle()

        async def nominated(node: str) -> int | None:
            status = {"nominatedNodeName": node, "conditions": [UNSCHEDULABLE]}
            cluster.server.do("PATCH", "/api/v1/namespaces/team-a/pods/a/status", {"status": status})
            await cluster.settle(30)
            (pod,) = cluster.port.world(cluster.clock.now()).pods
            return pod.nominated_since

        first = await nominated("n1")
        assert first is not None
        assert first > (moment(EARLIER) or 0)
        assert await nominated("n1") == first
        assert (await nominated("n2") or 0) > first


def in_a_world(pod: dict[str, Any]) -> Any:
    now = moment(NOW)
    assert now is not None
    return next(iter(documents.read([("a", json.dumps(pod).encode())]).world(now).pods))


def test_a_manifest_counts_as_seen_by_the_scheduler() -> None:
    assert in_a_world(a_pod()).unschedulable_since == moment(NOW)
    assert in_a_world(a_pod({"conditions": [UNSCHEDULABLE]})).unschedulable_since == moment(EARLIER)
    assert in_a_world(a_pod(schedulerName="volcano")).unschedulable_since == moment(NOW)
    for other in (
        {"nodeName": "n1"},
        {"schedulingGates": [{"name": "g"}]},
    ):
        assert in_a_world(a_pod(**other)).unschedulable_since is None
    assert in_a_world(a_pod({"phase": "Succeeded"})).unschedulable_since is None


def test_a_nomination_in_a_manifest_is_as_old_as_the_verdict() -> None:
    old = in_a_world(a_pod({"conditions": [UNSCHEDULABLE], "nominatedNodeName": "n1"}))
    assert old.nominated_since == moment(EARLIER)
    assert in_a_world(a_pod({"nominatedNodeName": "n1"})).nominated_since == moment(NOW)
    assert structs.asdict(in_a_world(a_pod()))["nominated_since"] is None


@virtual
async def test_what_a_deleted_pod_held_is_remembered_for_a_while() -> None:
    async with Cluster() as cluster:
        cluster.pod("a", node="n1")
        cluster.pod("b")
        await cluster.settle()
        for name in ("a", "b"):
            cluster.server.do("DELETE", f"/api/v1/namespaces/team-a/pods/{name}", {"gracePeriodSeconds": 0})
        await cluster.settle()
        pods = cluster.port.world(cluster.clock.now()).pods
        assert [(node, dict(held)) for _, node, held in pods.departed] == [("n1", {"nvidia.com/gpu": 1_000_000})]
        cluster.pod("c", node="n2")
        await cluster.settle(300)
        cluster.server.do("DELETE", "/api/v1/namespaces/team-a/pods/c", {"gracePeriodSeconds": 0})
        await cluster.settle()
        assert [node for _, node, _ in pods.departed] == ["n2"]


SHAPED = {
    "containers": [{"resources": {"requests": {"cpu": "1"}}}],
    "nodeSelector": {"zone": "a"},
    "affinity": {"zone": "a"},
    "tolerations": [{"key": "zone"}],
    "topologySpreadConstraints": [{"topologyKey": "zone"}],
    "schedulerName": "mine",
    "hostNetwork": True,
}


@pytest.mark.parametrize("name", SHAPED)
@pytest.mark.parametrize("filler", ["", "x" * 4096], ids=["short", "long"])
def test_pods_that_differ_in_one_part_have_two_shapes(name: str, filler: str) -> None:
    spec = {**SHAPED, "affinity": {"zone": "a" + filler}}
    whole, part = (parse.pod({"spec": each}).shape for each in (spec, {**spec, name: None}))
    assert whole != part
    assert whole == parse.pod({"spec": spec}).shape
    assert (whole is parse.pod({"spec": spec}).shape) == (not filler), "what is short is worked out once"
