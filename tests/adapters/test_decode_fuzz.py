"""Whatever an API server sends: a decoder reads it or says that it cannot, and nothing else ever comes out of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.adapters.kube import decode
from headroom.adapters.kube.decode import FactDecoder
from headroom.adapters.kube.sources import of
from headroom.api.kinds import KINDS
from headroom.model.errors import HeadroomError
from tests.builders import a_document

Document = dict[str, Any]

AT = "2026-01-01T00:00:00Z"
CONDITIONS = [{"type": "Ready", "status": "True", "lastTransitionTime": AT}]
METADATA: Document = {
    "name": "x",
    "namespace": "n",
    "uid": "u",
    "resourceVersion": "5",
    "generation": 2,
    "creationTimestamp": AT,
    "deletionTimestamp": AT,
    "labels": {"team": "a"},
    "annotations": {"headroom.dev/expected-duration": "3h", "headroom.dev/suspended-by": "GPUWorkloadBudget/n/b"},
    "ownerReferences": [{"kind": "Job", "name": "j", "uid": "1", "controller": True}],
    "finalizers": ["headroom.dev/usage"],
}
GPU = {"requests": {"nvidia.com/gpu": "1", "cpu": "100m"}, "limits": {"nvidia.com/gpu": "1"}}
POD_SPEC: Document = {
    "nodeName": "n",
    "containers": [{"name": "a", "resources": GPU}],
    "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": GPU}],
    "overhead": {"cpu": "1"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a"}],
    "priority": 3,
    "schedulingGates": [{"name": "g"}],
    "resourceClaims": [{"name": "c", "resourceClaimName": "d"}],
    "activeDeadlineSeconds": 60,
    "terminationGracePeriodSeconds": 30,
}
RUN = {"restartCount": 1, "state": {"running": {"startedAt": AT}}, "lastState": {"terminated": {"finishedAt": AT}}}
POD_STATUS = {"phase": "Running", "startTime": AT, "conditions": CONDITIONS, "containerStatuses": [RUN]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
JOB: Document = {
    "spec": {"suspend": True, "parallelism": 3, "template": TEMPLATE},
    "status": {"conditions": CONDITIONS},
}
POOL: Document = {
    "spec": {
        "weight": 1,
        "limits": {"cpu": "1"},
        "template": {"spec": {"requirements": [{"key": "k", "operator": "In"}]}},
    },
    "status": {"nodeName": "n", "capacity": {"cpu": "1"}, "conditions": CONDITIONS},
}
ENTRY = {
    "budget": "n/b",
    "namespaces": ["n"],
    "matchLabels": {"a": "b"},
    "resources": ["nvidia.com/gpu"],
    "exact": True,
}
REQUEST = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
CLAIM: Document = {
    "spec": {"devices": {"requests": [REQUEST]}},
    "status": {
        "allocation": {"devices": {"results": [{"request": "r", "driver": "gpu.nvidia.com", "adminAccess": False}]}},
        "reservedFor": [{"resource": "pods", "uid": "u"}],
    },
}
PDB = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": "50%"}, "status": {"disruptionsAllowed": 0}}
OTHERS: dict[str, tuple[FactDecoder[Any, Any], Document]] = {
    "Pod": (decode.pods(), {"spec": POD_SPEC, "status": POD_STATUS}),
    "Node": (
        decode.nodes(),
        {"spec": {"taints": [{"key": "a"}]}, "status": {"allocatable": {"cpu": "1"}, "conditions": CONDITIONS}},
    ),
    "Namespace": (of("Namespace").decoder(), {}),
    "ConfigMap": (decode.settings(), {"data": {"stop": "no"}}),
    "ResourceClaim": (of("ResourceClaim").decoder(), CLAIM),
    "Job": (of("Job").decoder(), JOB),
    "JobSet": (
        of("JobSet").decoder(),
        {"spec": {"suspend": True, "replicatedJobs": [{"replicas": 2, "template": JOB}]}},
    ),
    "Workload": (of("Workload").decoder(), {"spec": {"active": True, "podSets": [{"count": 3, "template": TEMPLATE}]}}),
    "NodePool": (of("NodePool").decoder(), POOL),
    "NodeClaim": (of("NodeClaim").decoder(), POOL),
    "PodDisruptionBudget": (decode.disruption_budgets(), PDB),
    "MutatingAdmissionPolicy": (decode.policies(), {}),
    "BudgetIndex": (decode.indexes(), {"spec": {"budgets": [ENTRY]}}),
    "BudgetHold": (decode.holds(), {"spec": ENTRY | {"because": "of that"}}),
}
OURS: dict[str, tuple[FactDecoder[Any, Any], Document]] = {
    kind: (decode.resources(kind), {"spec": a_document(kind)["spec"], "status": {"conditions": CONDITIONS}})
    for kind in KINDS
}
DECODERS = OTHERS | OURS

ODD: list[Any] = [
    *(None, True, False, 0, -1, 2**63, 10**400, 1e308, -0.0, float("inf"), float("nan")),
    *("", "x", "null", "\ud800", "a\udfffb", "9" * 5000, "1e999999999", "1E", "0.5", "-3", "\x00"),
    *(AT, "0000-00-00T00:00:00Z", "9999-12-31T23:59:60Z", "2026-02-30T25:00:00Z", "10000-01-01T00:00:00Z"),
    *([], {}, [None], [[]], [{}], {"a": None}, {"": ""}, {"\ud800": "\ud800"}, {"nvidia.com/gpu": "1e9999"}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document but its root."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in members for place in ((*path, key), *places(each, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn, document: Document) -> Document:
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 4))):
        *above, last = draw(st.sampled_from(places(found) or [("metadata",)]))
        at: Any = found
        for key in above:
            at = at[key]
        at[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return found


def document_of(kind: str) -> Document:
    return {"metadata": METADATA, **copy.deepcopy(DECODERS[kind][1])}


@pytest.mark.parametrize("kind", DECODERS)
@settings(max_examples=60)
@given(data=st.data())
def test_nothing_but_our_own_errors_comes_out_of_a_decoder(kind: str, data: st.DataObject) -> None:
    decoder, changed = DECODERS[kind][0], data.draw(mutated(document_of(kind)))
    line = json.dumps(
        {"type": data.draw(st.sampled_from(("ADDED", "MODIFIED", "DELETED"))), "object": changed}
    ).encode()
    page = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [changed, document_of(kind)]}).encode()
    if data.draw(st.booleans()):
        spot = data.draw(st.integers(0, len(line) - 1))
        line = line[:spot] + data.draw(st.sampled_from((b"\xff", b"\xc3\x28", b"\x00", b""))) + line[spot + 1 :]
    for read, body in ((decoder.event, line), (decoder.page, page)):
        try:
            found = read(body)
        except (HeadroomError, msgspec.MsgspecError):
            continue
        msgspec.json.encode(found)  # what was read can also be written, kept and shown


@pytest.mark.parametrize("kind", DECODERS)
def test_an_object_with_a_text_that_is_none_is_read_all_the_same(kind: str) -> None:
    document = document_of(kind)
    document["metadata"] = METADATA | {"labels": {"team": "\ud800"}, "annotations": {"a": "\udc00\ud800"}}
    event = DECODERS[kind][0].event(json.dumps({"type": "ADDED", "object": document}).encode())
    assert event.fact is not None
    assert event.fact.resource_version == "5"


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("other", ["Secret", "Status", "List"])
def test_an_object_of_another_kind_is_refused_wherever_it_stands(kind: str, other: str) -> None:
    decoder = DECODERS[kind][0]
    foreign = document_of(kind) | {"apiVersion": "v1", "kind": other}
    for change in ("ADDED", "DELETED", "BOOKMARK"):
        with pytest.raises(HeadroomError, match=f"the API server sent {other} of v1"):
            decoder.event(json.dumps({"type": change, "object": foreign}).encode())
    head = {"metadata": {"resourceVersion": "7"}}
    with pytest.raises(HeadroomError, match=f"the API server sent {other} of v1"):
        decoder.page(json.dumps(head | {"items": [document_of(kind), foreign]}).encode())
    with pytest.raises(HeadroomError, match=f"the API server sent {other}List of v1"):
        decoder.page(json.dumps(head | {"apiVersion": "v1", "kind": f"{other}List", "items": []}).encode())


def test_the_same_kind_of_another_group_is_another_kind() -> None:
    foreign = {
        "type": "ADDED",
        "object": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": METADATA},
    }
    with pytest.raises(HeadroomError, match=r"sent Job of batch\.volcano\.sh/v1alpha1"):
        of("Job").decoder().event(json.dumps(foreign).encode())


def test_a_change_that_there_is_not_is_no_event() -> None:
    for word in ("CREATED", "", "added", None):
        with pytest.raises(HeadroomError, match="not an event"):
            decode.pods().event(json.dumps({"type": word, "object": {"metadata": METADATA}}).encode())
