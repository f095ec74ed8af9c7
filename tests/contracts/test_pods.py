"""Pods and nodes: gates, binding, and what a kubelet may say."""

from __future__ import annotations

import pytest

from headroom.adapters.kube.errors import Conflict, Invalid, NotFound, Rejected
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, pod, uid_of, version_of

GATE = "headroom.dev/budget"


def condition(document: Document, type_: str) -> Document:
    found: list[Document] = [each for each in document["status"].get("conditions", []) if each["type"] == type_]
    return found[0] if found else {}


async def test_a_new_pod_is_pending_with_defaults(cluster: Cluster) -> None:
    made = await cluster.create(pod("a"))
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    spec = made["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert spec["containers"][0]["resources"] == {
        "limits": {"nvidia.com/gpu": "1"},
        "requests": {"nvidia.com/gpu": "1"},
    }
    assert "nodeName" not in spec


async def test_a_gated_pod_says_so_and_cannot_be_bound(cluster: Cluster) -> None:
    made = await cluster.create(pod("a", gates=(GATE,)))
    gated = condition(made, "PodScheduled")
    assert (gated["status"], gated["reason"]) == ("False", "SchedulingGated")
    with refused(Conflict, 409, "Conflict") as refusal:
        await cluster.bind(made, "anywhere")
    assert "scheduling gates" in refusal.value.message.lower().replace("schedulinggates", "scheduling gates")


async def test_a_gate_can_be_lifted_and_then_the_pod_bound(cluster: Cluster) -> None:
    node = await cluster.node()
    made = await cluster.create(pod("a", gates=(GATE,)))
    free = await cluster.json_patch(
        made,
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    )
    assert "schedulingGates" not in free["spec"]
    await cluster.bind(made, node)
    assert (await cluster.get("Pod", "a"))["spec"]["nodeName"] == node


async def test_a_gate_cannot_be_added_later(cluster: Cluster) -> None:
    made = await cluster.create(pod("a", gates=(GATE,)))
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.merge(made, {"spec": {"schedulingGates": [{"name": GATE}, {"name": "example.com/late"}]}})
    assert refusal.value.causes[0][0].startswith("spec.schedulingGates")
    free = await cluster.merge(made, {"spec": {"schedulingGates": None}})
    with refused(Invalid, 422, "Invalid"):
        await cluster.merge(free, {"spec": {"schedulingGates": [{"name": GATE}]}})


async def test_a_gate_and_a_node_name_do_not_go_together(cluster: Cluster) -> None:
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create(pod("a", gates=(GATE,), spec={"nodeName": "somewhere"}))
    assert "spec.nodeName" in [field for field, _ in refusal.value.causes]


async def test_binding_names_the_node_and_schedules_the_pod(cluster: Cluster) -> None:
    node = await cluster.node()
    made = await cluster.create(pod("a"))
    answer = await cluster.bind(made, node)
    assert answer["status"] == "Success"
    bound = await cluster.get("Pod", "a")
    assert bound["spec"]["nodeName"] == node
    assert condition(bound, "PodScheduled")["status"] == "True"
    assert bound["status"]["phase"] == "Pending"


async def test_a_pod_is_bound_only_once(cluster: Cluster) -> None:
    node = await cluster.node()
    made = await cluster.create(pod("a"))
    await cluster.bind(made, node)
    with refused(Conflict, 409, "Conflict") as refusal:
        await cluster.bind(made, "elsewhere")
    assert f'already assigned to node "{node}"' in refusal.value.message
    with refused(NotFound, 404, "NotFound"):
        await cluster.bind(pod("nothing"), node)


async def test_a_node_name_cannot_be_patched_in(cluster: Cluster) -> None:
    made = await cluster.create(pod("a"))
    with refused(Invalid, 422, "Invalid"):
        await cluster.merge(made, {"spec": {"nodeName": "somewhere"}})


async def test_a_kubelet_writes_the_status_and_the_spec_stays(cluster: Cluster) -> None:
    node = await cluster.node()
    made = await cluster.create(pod("a"))
    running = await cluster.run(made, node)
    assert running["status"]["phase"] == "Running"
    assert running["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] == "2026-01-01T00:00:00Z"
    ignored = await cluster.merge(made, {"spec": {"terminationGracePeriodSeconds": 5}, "status": {}}, "status")
    assert ignored["spec"]["terminationGracePeriodSeconds"] == 30
    assert version_of(ignored) == version_of(running)


async def test_labels_and_annotations_of_a_running_pod_can_change(cluster: Cluster) -> None:
    made = await cluster.run(await cluster.create(pod("a")), await cluster.node())
    written = await cluster.merge(made, {"metadata": {"annotations": {"headroom.dev/paused-at": "now"}}})
    assert written["metadata"]["annotations"] == {"headroom.dev/paused-at": "now"}
    assert written["status"]["phase"] == "Running"
    assert uid_of(written) == uid_of(made)


@pytest.mark.parametrize("amount", ["1", "8", "1e3", "9223372036854775808"])
async def test_whole_gpus_are_taken(cluster: Cluster, amount: str) -> None:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": amount}}}
    assert await cluster.create(pod("a", spec={"containers": [container]}))


@pytest.mark.parametrize("amount", ["0.5", "1m", "-1"])
async def test_parts_of_a_gpu_are_invalid(cluster: Cluster, amount: str) -> None:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": amount}}}
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create(pod("a", spec={"containers": [container]}))
    assert refusal.value.causes[0][0] == "spec.containers[0].resources.limits[nvidia.com/gpu]"


@pytest.mark.parametrize("amount", ["NaN", "0x10", "1_000", "lots"])
async def test_what_is_no_quantity_is_a_bad_request(cluster: Cluster, amount: str) -> None:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": amount}}}
    with refused(Rejected, 400, "BadRequest"):
        await cluster.create(pod("a", spec={"containers": [container]}))


async def test_a_node_keeps_the_status_it_is_made_with(cluster: Cluster) -> None:
    made = await cluster.make_node()
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    taints = [taint["key"] for taint in made["spec"]["taints"]]
    assert "node.kubernetes.io/not-ready" in taints


async def test_a_node_is_cordoned_and_uncordoned(cluster: Cluster) -> None:
    made = await cluster.get("Node", await cluster.node())
    cordoned = await cluster.merge(made, {"spec": {"unschedulable": True}})
    assert cordoned["spec"]["unschedulable"] is True
    free = await cluster.merge(made, {"spec": {"unschedulable": None}})
    assert "unschedulable" not in free["spec"]


async def test_a_taint_cannot_stand_twice(cluster: Cluster) -> None:
    made = await cluster.get("Node", await cluster.node())
    taint = {"key": "headroom.dev/drain", "effect": "NoSchedule"}
    written = await cluster.merge(made, {"spec": {"taints": [taint]}})
    assert written["spec"]["taints"] == [taint]
    with refused(Invalid, 422, "Invalid"):
        await cluster.merge(made, {"spec": {"taints": [taint, taint]}})
