"""What is read of Kubernetes objects: each rule by a table, and no object, however odd, stops the reading."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.adapters.kube import decode, parse
from headroom.api.budgets import GPUWorkloadBudgetSpec
from headroom.model.errors import Unavailable
from headroom.model.facts import UNREADABLE, Owner, Pod, Taint
from headroom.model.tables import PodTable
from headroom.model.times import moment
from tests.builders import a_document

GPU = "nvidia.com/gpu"
MILLION = 1_000_000


def at(clock: str) -> int:
    found = moment(f"2026-11-15T{clock}Z")
    assert found is not None
    return found


def stamp(clock: str) -> str:
    return f"2026-11-15T{clock}Z"


def manifest(*, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "lab", "uid": "u-1"} | metadata,
        "spec": spec or {},
        "status": status or {},
    }


def container(always: bool = False, limits: Any = None, **requests: Any) -> dict[str, Any]:
    named = {GPU if name == "gpu" else name: value for name, value in requests.items()}
    resources = {"requests": named} | ({"limits": limits} if limits else {})
    return {"name": "c", "resources": resources} | ({"restartPolicy": "Always"} if always else {})


# --- what a pod reserves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"containers": None, "initContainers": None, "overhead": None}, {}),
        ({"containers": [{"name": "c", "resources": None}, {"name": "d"}]}, {}),
        ({"containers": [container(gpu="8")]}, {GPU: 8}),
        ({"containers": [container(gpu="1"), container(gpu="2", cpu="500m")]}, {GPU: 3, "cpu": 0.5}),
        # an init container that is larger than all that runs later
        ({"containers": [container(gpu="1")], "initContainers": [container(gpu="4")]}, {GPU: 4}),
        ({"containers": [container(gpu="4")], "initContainers": [container(gpu="1")]}, {GPU: 4}),
        # init containers run one after another, so they are not added up
        ({"containers": [container(gpu="1")], "initContainers": [container(gpu="3"), container(gpu="3")]}, {GPU: 3}),
        # a sidecar runs beside the main containers
        ({"containers": [container(gpu="1")], "initContainers": [container(True, gpu="1")]}, {GPU: 2}),
        # an init container runs beside the sidecars before it, not beside those after it
        (
            {"containers": [container(cpu="1")], "initContainers": [container(True, cpu="2"), container(cpu="5")]},
            {"cpu": 7},
        ),
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="5"), container(True, cpu="2")]},
            {"cpu": 5},
        ),
        # each resource for itself
        (
            {"containers": [container(cpu="1", gpu="1")], "initContainers": [container(cpu="9")]},
            {"cpu": 9, GPU: 1},
        ),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1.25}),
        ({"containers": [container(limits={GPU: "8"})]}, {GPU: 8}),
        ({"containers": [container(limits={"cpu": "4"}, cpu="1")]}, {"cpu": 1}),
        ({"containers": [container(limits={"cpu": "4"}, cpu="0")]}, {}),
        ({"containers": [container(cpu="0", gpu=0)]}, {}),
        ({"containers": [container(cpu=2, memory=0.5)]}, {"cpu": 2, "memory": 0.5}),
        ({"containers": [container(memory="1Ki")]}, {"memory": 1024}),
        ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "3"}}}, {"cpu": 3}),
    ],
)
def test_requests(spec: dict[str, Any], expected: dict[str, float]) -> None:
    found = dict(parse.pod(manifest(spec=spec)).shape.requests)
    assert found == {name: int(amount * MILLION) for name, amount in expected.items()}


@pytest.mark.parametrize(
    "amount", ["1e309", "-5M", "x", "٣", "9" * 100, "1" * 1_000_000, True, [1], {}, math.inf, 10**30]
)
def test_an_amount_that_nobody_can_read_fits_nowhere(amount: Any) -> None:
    pod = parse.pod(manifest(spec={"containers": [container(gpu=amount, cpu="1")]}))
    assert dict(pod.shape.requests) == {GPU: UNREADABLE, "cpu": MILLION}


def test_two_unreadable_amounts_are_no_more_than_one() -> None:
    pod = parse.pod(manifest(spec={"containers": [container(cpu="x"), container(cpu="y")]}))
    assert dict(pod.shape.requests) == {"cpu": UNREADABLE}


def test_amounts_below_a_millionth_are_rounded_up_once() -> None:
    pod = parse.pod(manifest(spec={"containers": [container(cpu="1n"), container(cpu="1n")]}))
    assert dict(pod.shape.requests) == {"cpu": 1}


def test_equal_pods_share_their_shape_in_a_table() -> None:
    table = PodTable()
    spec = {"containers": [container(gpu="8")], "nodeSelector": {"zone": "a"}}
    for number in range(2):
        table.put(parse.pod(manifest(spec=spec, uid=str(number), labels={"team": "a"})))
    one, two = table
    assert one.shape is two.shape
    assert one.labels is two.labels


# --- when it started and ended -----------------------------------------------------------------------------------------------


def running(since: str) -> dict[str, Any]:
    return {"state": {"running": {"startedAt": stamp(since)}}, "lastState": {}}


def finished(since: str | None, until: str | None, key: str = "state") -> dict[str, Any]:
    moments = {"startedAt": stamp(since) if since else None, "finishedAt": stamp(until) if until else None}
    return {key: {"terminated": moments | {"exitCode": 1}}}


@pytest.mark.parametrize(
    ("status", "started"),
    [
        ({}, None),
        ({"startTime": stamp("10:00:00")}, None),
        ({"containerStatuses": None, "initContainerStatuses": None}, None),
        ({"containerStatuses": [{"state": None, "lastState": None}]}, None),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}, None),
        ({"containerStatuses": [running("10:02:00"), running("10:01:00")]}, "10:01:00"),
        (
            {"containerStatuses": [running("10:05:00")], "initContainerStatuses": [finished("10:03:00", "10:04:00")]},
            "10:03:00",
        ),
        ({"containerStatuses": [running("10:05:00") | finished("10:02:00", "10:04:00", "lastState")]}, "10:02:00"),
        ({"containerStatuses": [{"state": {"running": {"startedAt": "0001-01-01T00:00:00Z"}}}]}, None),
        ({"containerStatuses": [{"state": {"running": {"startedAt": "yesterday"}}}]}, None),
    ],
)
def test_start(status: dict[str, Any], started: str | None) -> None:
    assert parse.pod(manifest(status=status)).started == (at(started) if started else None)


LOST = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": stamp("11:00:00")}
READY = {"type": "Ready", "status": "False", "lastTransitionTime": stamp("10:30:00")}


@pytest.mark.parametrize(
    ("phase", "statuses", "conditions", "ended", "by"),
    [
        ("Running", [finished("10:00:00", "10:10:00")], [READY], None, ""),
        (
            "Succeeded",
            [finished("10:00:00", "10:10:00"), finished("10:00:00", "10:20:00")],
            [READY],
            "10:20:00",
            "ContainerFinish",
        ),
        ("Failed", [finished("10:00:00", "10:10:00")], [LOST], "10:10:00", "ContainerFinish"),
        # evicted before anything ran
        ("Failed", [], [READY, LOST], "11:00:00", "FailureKnown"),
        ("Failed", None, None, None, ""),
        # what it finished last is known although it is waiting now
        (
            "Failed",
            [{"state": {"waiting": {}}} | finished("10:00:00", "10:10:00", "lastState")],
            [LOST],
            "10:10:00",
            "ContainerFinish",
        ),
        # the node is lost: the status says running for ever
        ("Failed", [running("10:00:00"), finished("10:00:00", "10:05:00")], [LOST], "11:00:00", "FailureKnown"),
        ("Failed", [finished("10:00:00", None)], [LOST], "11:00:00", "FailureKnown"),
        ("Succeeded", [], [READY], None, ""),
    ],
)
def test_end(phase: str, statuses: Any, conditions: Any, ended: str | None, by: str) -> None:
    pod = parse.pod(manifest(status={"phase": phase, "containerStatuses": statuses, "conditions": conditions}))
    assert (pod.ended, pod.ended_by) == (at(ended) if ended else None, by)


# --- the rest of a pod -------------------------------------------------------------------------------------------------------


WHOLE = manifest(
    resourceVersion="7",
    creationTimestamp=stamp("09:00:00"),
    deletionTimestamp=stamp("12:00:00"),
    labels={"team": "a", "app": "train", "pod-group.scheduling.sigs.k8s.io": "g"},
    annotations={
        "headroom.dev/protected": "true",
        "kubernetes.io/egress-bandwidth": "1M",
        "kubernetes.io/ingress-bandwidth": "2M",
        "ovn.kubernetes.io/egress_rate": "3",
        "ovn.kubernetes.io/ingress_rate": "4",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    },
    ownerReferences=[
        {"kind": "X", "name": "x", "uid": "x"},
        {"kind": "Job", "name": "j", "uid": "o", "controller": True},
    ],
    finalizers=["batch.kubernetes.io/job-tracking", "headroom.dev/usage"],
    spec={
        "nodeName": "n1",
        "priority": 100,
        "hostNetwork": True,
        "schedulerName": "mine",
        "nodeSelector": {"zone": "a"},
        "affinity": {"nodeAffinity": {"x": [1]}},
        "schedulingGates": [{"name": "headroom.dev/budget"}, {"name": "other"}],
        "resourceClaims": [
            {"name": "a", "resourceClaimName": "shared"},
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "c"},
        ],
    },
    status={
        "phase": "Running",
        "nominatedNodeName": "n2",
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "train-0-b-x7"}],
    },
)


def test_a_whole_pod() -> None:
    pod = parse.pod(WHOLE)
    assert pod.key == "lab/train-0"
    assert (pod.uid, pod.resource_version, pod.node, pod.phase, pod.priority) == ("u-1", "7", "n1", "Running", 100)
    assert (pod.created, pod.deleting) == (at("09:00:00"), at("12:00:00"))
    assert pod.labels == (("app", "train"), ("pod-group.scheduling.sigs.k8s.io", "g"), ("team", "a"))
    assert dict(pod.annotations) == {
        "headroom.dev/protected": "true",
        "kubernetes.io/egress-bandwidth": "1M",
        "kubernetes.io/ingress-bandwidth": "2M",
        "ovn.kubernetes.io/egress_rate": "3",
        "ovn.kubernetes.io/ingress_rate": "4",
    }
    assert pod.owner == Owner("Job", "j", "o")
    assert pod.finalizers == ("headroom.dev/usage",)
    assert pod.gates == ("headroom.dev/budget", "other")
    assert pod.claims == ("shared", "train-0-b-x7")
    assert pod.nominated_node == "n2"
    assert (pod.shape.host_network, pod.shape.scheduler) == (True, "mine")
    assert pod.shape.node_selector == (("zone", "a"),)
    assert json.loads(pod.shape.affinity) == {"nodeAffinity": {"x": [1]}}


def test_a_pod_of_next_to_nothing() -> None:
    assert parse.pod({"metadata": {"name": "a"}}) == Pod(uid="default/a", namespace="default", name="a")


@pytest.mark.parametrize(
    ("condition", "since", "message"),
    [
        ({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}, "10:00:00", "0/3"),
        ({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "0/3"}, None, ""),
        ({"type": "PodScheduled", "status": "True", "reason": "Unschedulable"}, None, ""),
        ({"type": "Ready", "status": "False", "reason": "Unschedulable"}, None, ""),
        ({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": None}, "10:00:00", ""),
    ],
)
def test_unschedulable(condition: dict[str, Any], since: str | None, message: str) -> None:
    pod = parse.pod(manifest(status={"conditions": [condition | {"lastTransitionTime": stamp("10:00:00")}]}))
    assert (pod.unschedulable_since, pod.unschedulable_message) == (at(since) if since else None, message)


def test_tolerations_that_every_pod_has_are_dropped() -> None:
    usual = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    own = {"key": GPU, "operator": "Exists"}
    assert parse.pod(manifest(spec={"tolerations": usual})).shape.tolerations == ""
    assert json.loads(parse.pod(manifest(spec={"tolerations": [own, *usual]})).shape.tolerations) == [own]
    longer = [usual[0] | {"tolerationSeconds": 900}]
    assert json.loads(parse.pod(manifest(spec={"tolerations": longer})).shape.tolerations) == longer


def test_one_wrong_field_costs_only_itself() -> None:
    document = manifest(
        labels={"team": "a", "bad": 1},
        spec={"nodeName": 7, "priority": "5", "hostNetwork": "x", "containers": [3, container(gpu="2")]},
    )
    pod = parse.pod(document)
    assert (pod.name, pod.node, pod.priority, pod.labels) == ("train-0", "", 5, (("team", "a"),))
    assert dict(pod.shape.requests) == {GPU: 2 * MILLION}


# --- nodes, settings and resources -------------------------------------------------------------------------------------------


def test_a_whole_node() -> None:
    node = parse.node(
        {
            "metadata": {
                "name": "n1",
                "uid": "u",
                "resourceVersion": "3",
                "labels": {"zone": "a"},
                "annotations": {"headroom.dev/cordoned-by": "x", "other": "y"},
            },
            "spec": {
                "unschedulable": True,
                "providerID": "aws:///i-1",
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            },
            "status": {
                "capacity": {"cpu": "64"},
                "allocatable": {"cpu": "63500m", GPU: "8", "strange": "1e309"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": stamp("10:00:00")}],
            },
        }
    )
    assert (node.name, node.uid, node.resource_version, node.provider_id) == ("n1", "u", "3", "aws:///i-1")
    assert (node.labels, node.annotations) == ((("zone", "a"),), (("headroom.dev/cordoned-by", "x"),))
    assert node.taints == (Taint("gpu", "", "NoSchedule"),)
    assert (node.unschedulable, node.ready, node.ready_since) == (True, True, at("10:00:00"))
    assert dict(node.allocatable) == {"cpu": 63_500_000, GPU: 8 * MILLION}


def test_what_a_node_publishes_of_bandwidth_is_known_nothing_and_nonsense_included() -> None:
    egress, local = "headroom.dev/egress-mbps", "headroom.dev/local-egress-mbps"
    status = {"capacity": {egress: "25k", local: "0", "cpu": "1"}, "allocatable": {egress: "0", local: "x"}}
    node = parse.node({"metadata": {"name": "n1"}, "status": status})
    assert node.published_capacity == ((egress, 25_000 * MILLION), (local, 0))
    assert node.published == ((egress, 0), (local, UNREADABLE))
    assert parse.node({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1"}}}).published == ()


def test_a_node_without_allocatable_offers_all_it_has() -> None:
    node = parse.node({"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "2"}}})
    assert (node.uid, node.ready, dict(node.allocatable)) == ("n1", False, {"cpu": 2 * MILLION})


def test_a_resource() -> None:
    document = a_document("GPUWorkloadBudget")
    document["metadata"] |= {
        "generation": 4,
        "resourceVersion": "9",
        "finalizers": ["x"],
        "annotations": {"headroom.dev/a": "b", "c": "d"},
    }
    document["status"] = {"consumedGpuHours": "1.5", "fromTheFuture": {}}
    found = parse.resource(document)
    assert (found.kind, found.namespace, found.name, found.uid) == ("GPUWorkloadBudget", "team-a", "one", "team-a/one")
    assert (found.generation, found.resource_version, found.deleting) == (4, "9", False)
    assert (found.finalizers, found.annotations) == (("x",), {"headroom.dev/a": "b"})
    assert isinstance(found.spec, GPUWorkloadBudgetSpec)
    assert found.status.consumed_gpu_hours == "1.5"
    assert found.problems == ()


def test_a_resource_with_problems_has_no_spec() -> None:
    found = parse.resource(a_document("PowerPool", machines=[]) | {"status": {"machines": 5}})
    assert found.spec is None
    assert [each.field for each in found.problems] == ["spec.machines"]
    assert (found.uid, found.namespace, found.status.machines) == ("one", "", ())


def test_a_null_where_there_is_a_default_is_the_default() -> None:
    found = parse.resource(a_document("PowerPool", policy={"minOn": None}))
    assert (found.problems, found.spec.policy.min_on) == ((), 0)


# --- pages and lines -----------------------------------------------------------------------------------------------------------


def line(type_: str, document: object) -> bytes:
    return json.dumps({"type": type_, "object": document}).encode()


def test_a_page() -> None:
    items = [manifest(uid="a"), manifest(uid="b", name=7)]
    body = {"kind": "PodList", "metadata": {"resourceVersion": "12", "continue": "next"}, "items": items}
    page = decode.pods().page(json.dumps(body).encode())
    assert ([pod.uid for pod in page.items], page.version, page.cont) == (["a", "b"], "12", "next")
    nothing = decode.pods().page(b'{"metadata":{"resourceVersion":"1","continue":null},"items":null}')
    assert (nothing.items, nothing.cont) == ([], "")


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b"<html>", b'{"items":[]}', b'{"metadata":{"resourceVersion":""}}']
)
def test_what_is_no_list_never_passes_for_an_empty_one(body: bytes) -> None:
    with pytest.raises(Unavailable):
        decode.pods().page(body)


@pytest.mark.parametrize("decoder", [decode.pods(), decode.nodes(), decode.settings(), decode.resources("PowerPool")])
def test_bookmarks_and_errors(decoder: Any) -> None:
    bookmark: dict[str, Any] = {
        "metadata": {"resourceVersion": "5", "creationTimestamp": None},
        "spec": {"containers": None},
        "status": {},
    }
    found = decoder.event(line("BOOKMARK", bookmark))
    assert (found.type, found.fact, found.version, found.initial_end) == ("BOOKMARK", None, "5", False)
    bookmark["metadata"] |= {"annotations": {"k8s.io/initial-events-end": "true"}}
    assert decoder.event(line("BOOKMARK", bookmark)).initial_end
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    found = decoder.event(line("ERROR", gone))
    assert (found.type, found.fact, found.status_code, found.message) == ("ERROR", None, 410, "too old")


def test_events_carry_their_fact_and_version() -> None:
    found = decode.pods().event(line("ADDED", manifest(resourceVersion="8")))
    assert found.fact is not None
    assert (found.type, found.version, found.fact.name) == ("ADDED", "8", "train-0")
    resource = decode.resources("Bandwidth").event(line("DELETED", {"metadata": {"name": "n1", "uid": "u"}, "spec": 5}))
    assert resource.fact is not None
    assert (resource.fact.kind, resource.fact.name, resource.fact.spec) == ("Bandwidth", "n1", None)
    settings = decode.settings().event(line("MODIFIED", {"metadata": {"name": "headroom"}, "data": {"stop": "true"}}))
    assert settings.fact is not None
    assert settings.fact.data == {"stop": "true"}


@pytest.mark.parametrize(
    "cut",
    [b"", b'{"type":"ADDED","object":{"meta', b"{}", b"[1]", b'{"type":"ADDED"}x', b'{"type":"ADDED","object":"\xff"}'],
)
def test_a_line_that_was_cut_ends_the_stream(cut: bytes) -> None:
    with pytest.raises(Unavailable):
        decode.pods().event(cut)


# --- anything at all -----------------------------------------------------------------------------------------------------------

WORDS = (
    "metadata spec status name uid labels annotations ownerReferences finalizers containers initContainers resources requests "
    "limits cpu overhead restartPolicy tolerations affinity nodeSelector priority hostNetwork schedulingGates phase conditions "
    "containerStatuses state running terminated startedAt finishedAt lastTransitionTime taints allocatable data kind"
)
KEYS = st.sampled_from(WORDS.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1", "1e309", "-1", "Failed", "Always", "PodScheduled", "False", stamp("10:00:00"), "PowerPool"])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
PARTS = st.dictionaries(KEYS, JSON, max_size=6)
OBJECTS = st.fixed_dictionaries({"metadata": PARTS | JSON, "spec": PARTS | JSON, "status": PARTS | JSON}) | JSON


@given(OBJECTS)
def test_no_object_stops_the_reading(document: Any) -> None:
    pod = parse.pod(document)
    assert all(0 < amount <= UNREADABLE for _, amount in pod.shape.requests)
    PodTable().put(pod)
    parse.node(document)
    parse.resource(document)


@given(OBJECTS)
def test_no_line_stops_the_watch(document: Any) -> None:
    text = json.dumps({"type": "MODIFIED", "object": document}).encode()
    for decoder in (decode.pods(), decode.nodes(), decode.settings(), decode.resources("PowerPool")):
        try:
            fact = decoder.event(text).fact
        except Unavailable:
            assert document is None or document["kind"], "only of another kind"
        else:
            assert fact is not None


@given(OBJECTS)
def test_manifest_and_wire_say_the_same(document: Any) -> None:
    if isinstance(document, dict):
        document.pop("kind", None)  # another one would be refused
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    if document is not None:
        assert decode.pods().event(b'{"type":"ADDED","object":' + text + b"}").fact == parse.pod(document)
