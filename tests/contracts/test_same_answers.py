"""The same requests to both sides, one after the other: every answer must be the same but for uids, times and versions.

Of a success the whole document counts. Of a refusal the status, the reason, the fields at fault and what is wrong with each count,
not the words.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from headroom.adapters.kube.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Reply
from tests.contracts.cluster import Cluster
from tests.contracts.objects import Document, budget, config_map, pod
from tests.contracts.server import ServerCluster
from tests.contracts.simulated import SimulatedCluster
from tests.control_plane import ControlPlane

NAMESPACE = "contract-same"
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass(frozen=True)
class Ask:
    """One request."""

    method: str
    kind: str
    name: str = ""
    body: Any = None
    part: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    async def of(self, cluster: Cluster) -> Any:
        path = cluster.path(self.kind, self.name, self.part)
        return essence(await cluster.ask(self.method, path, self.body, **self.more))


def essence(reply: Reply) -> Any:
    document = json.loads(reply.body) if reply.body.startswith(b"{") else {}
    if reply.status >= 300:
        causes = document.get("details", {}).get("causes", [])
        faults = {(cause.get("field", ""), cause.get("reason", "")) for cause in causes}
        fields = sorted(each for each in faults if each[0] != "<nil>")
        return reply.status, document.get("reason"), fields
    return reply.status, masked(document)


def masked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        # An empty token is written for custom kinds and left out for others; nobody can tell them apart.
        return {name: masked(each, name) for name, each in value.items() if name != "managedFields" and each != ""}
    if isinstance(value, list):
        return [masked(each) for each in value]
    if isinstance(value, str):
        return "VERSION" if key == "resourceVersion" else UID.sub("UID", TIME.sub("TIME", value))
    return value


def create(document: Document, **more: Any) -> Ask:
    return Ask("POST", document["kind"], "", document, more=more)


def patch(kind: str, name: str, body: Any, content_type: str = MERGE_PATCH, part: str = "", **more: Any) -> Ask:
    return Ask("PATCH", kind, name, body, part, {"content_type": content_type, **more})


def listing(kind: str, **query: str) -> Ask:
    return Ask("GET", kind, more={"query": query})


def budget_with(**spec: Any) -> Document:
    made = budget("bad")
    return made | {"spec": made["spec"] | spec}


def gpu_pod(name: str, **resources: Document) -> Document:
    return pod(name, spec={"containers": [{"name": "main", "image": "none:1", "resources": resources}]})


MAP, BUDGET = "ConfigMap", "GPUWorkloadBudget"
TWO: dict[str, Any] = {"query": {"fieldManager": "two"}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}

CONVERSATIONS: dict[str, list[Ask]] = {
    "a ConfigMap from birth to death": [
        Ask("GET", MAP, "a"),
        create(config_map("a", {"x": "1"}, labels={"l": "1"})),
        create(config_map("a")),
        Ask("GET", MAP, "a"),
        listing(MAP),
        patch(MAP, "a", {"data": {"x": None}, "metadata": {"finalizers": ["e.com/x"]}}),
        Ask("DELETE", MAP, "a", {"preconditions": {"uid": "other"}}),
        Ask("DELETE", MAP, "a", {"preconditions": {"resourceVersion": "1"}}),
        Ask("DELETE", MAP, "a"),
        Ask("DELETE", MAP, "a"),
        patch(MAP, "a", {"metadata": {"finalizers": ["e.com/x", "e.com/y"]}}),
        patch(MAP, "a", {"metadata": {"finalizers": None}}),
        Ask("DELETE", MAP, "a"),
    ],
    "a ConfigMap that cannot be": [
        create(config_map("Bad_Name")),
        create({"apiVersion": "v1", "kind": MAP, "metadata": {}}),
        create(config_map("b", namespace="elsewhere")),
        Ask("POST", MAP, "", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}),
        Ask("POST", MAP, "", config_map("b") | {"apiVersion": "v2"}),
        create(config_map("b", {"x": 5})),  # type: ignore[dict-item]  # wrong on purpose
        create(config_map("b", annotations={"x": 5})),
        create(config_map("b", annotations={"x": "x" * 300_000})),
        create(config_map("b", labels={"bad key!": "x", "k": "bad value!"}, finalizers=["bad"])),
        create(config_map("b", annotations={"bad key!": "x"})),
    ],
    "wrong questions": [
        listing(MAP, labelSelector="l in x"),
        listing(MAP, fieldSelector="data.x=1"),
        listing(MAP, limit="x"),
        listing(MAP, limit="-1"),
        Ask("GET", MAP, more={"query": {"continue": "abc", "limit": "1"}}),
        listing(MAP, resourceVersion="abc"),
        listing(MAP, resourceVersionMatch="Exact"),
        listing(MAP, resourceVersionMatch="Exact", resourceVersion="0"),
        listing(MAP, resourceVersionMatch="Nearly", resourceVersion="5"),
    ],
    "wrong changes": [
        create(config_map("a", {"x": "1"})),
        Ask("PUT", MAP, "b", config_map("b")),
        Ask("PUT", MAP, "b", config_map("a")),
        Ask("PUT", MAP, "a", config_map("a", resourceVersion="1")),
        Ask("PUT", MAP, "a", config_map("a", uid="other")),
        patch(MAP, "a", {"data": {"x": 5}}),
        patch(MAP, "a", {"metadata": {"labels": {"x": True}}}),
        patch(MAP, "a", {"metadata": {"labels": {"bad key!": "x"}}}),
        patch(MAP, "a", {"metadata": {"labels": {"k": "bad value!"}}}),
        patch(MAP, "a", {"metadata": {"annotations": {"bad key!": "x"}}}),
        patch(MAP, "a", {"metadata": {"finalizers": ["bad"]}}),
        patch(MAP, "a", {"metadata": {"uid": "other"}}),
        patch(MAP, "a", {"metadata": {"resourceVersion": "1"}}),
        patch(MAP, "a", {"metadata": {"name": "b"}}),
        patch(MAP, "a", {"metadata": {"namespace": "b"}}),
        patch(MAP, "a", []),
        patch(MAP, "a", {}, JSON_PATCH),
        patch(MAP, "a", [{"op": "test", "path": "/data/x", "value": "9"}], JSON_PATCH),
        patch(MAP, "a", [{"op": "remove", "path": "/data/nothing"}], JSON_PATCH),
        patch(MAP, "a", [{"op": "bogus", "path": "/data/nothing"}], JSON_PATCH),
        patch(MAP, "a", {}, "text/plain"),
        Ask("GET", MAP, "a"),
    ],
    "server-side apply": [
        patch(MAP, "d", config_map("d", {"x": "1"}), APPLY_PATCH),
        patch(MAP, "d", config_map("d", {"x": "1", "y": "1"}), APPLY_PATCH, query={"fieldManager": "one"}),
        patch(MAP, "d", config_map("d", {"x": "2"}), APPLY_PATCH, **TWO),
        patch(MAP, "d", config_map("d", {"z": "2"}), APPLY_PATCH, **TWO),
        patch(MAP, "d", config_map("d", {}), APPLY_PATCH, query={"fieldManager": "one"}),
        patch(MAP, "d", {"metadata": {"name": "d"}}, APPLY_PATCH, **TWO),
        patch(MAP, "d", config_map("d", uid="other"), APPLY_PATCH, **TWO),
        patch(MAP, "d", config_map("d", resourceVersion="1"), APPLY_PATCH, **TWO),
        patch(MAP, "d", config_map("d", annotations={"x": 5}), APPLY_PATCH, **TWO),
        Ask("GET", MAP, "d"),
    ],
    "a budget from birth to death": [
        create(budget("a", gpu_hours=5)),
        Ask("PUT", BUDGET, "a", budget("a")),
        patch(BUDGET, "a", {"status": {"trackedPods": 2, "consumedGpuHours": "1.5"}}, part="status"),
        patch(BUDGET, "a", {"status": {"trackedPods": "x"}}, part="status"),
        patch(BUDGET, "a", {"status": {"bogus": 2}}, part="status"),
        patch(BUDGET, "a", {"spec": {"quota": {"windowHours": None}}}),
        patch(BUDGET, "a", {"metadata": {"annotations": {"a": "b"}}, "spec": {"paused": True}}),
        patch(BUDGET, "a", {"metadata": {"annotations": {"a": 5}}}),
        patch(BUDGET, "a", {"metadata": {"labels": {"bad key!": "x"}}}),
        patch(BUDGET, "a", {"metadata": {"namespace": "b"}}),
        patch(BUDGET, "a", {"kind": "Other"}),
        listing(BUDGET),
        Ask("GET", BUDGET, "b", part="status"),
        Ask("DELETE", BUDGET, "a"),
    ],
    "budgets that cannot be": [
        create(budget_with(quota={"gpuHours": "0", "windowHours": 24})),
        create(budget_with(quota={"gpuHours": "lots", "windowHours": 0})),
        create(budget_with(quota={"gpuHours": "1"})),
        create(budget_with(quota={"gpuHours": "1", "windowHours": "x"})),
        create(budget_with(quota=None)),
        create(budget_with(selector={})),
        create(budget_with(selector={"matchLabels": {"bad key!": "x"}})),
        create(budget_with(enforcement={"action": "No"})),
        create(budget_with(enforcement={"action": "Evict", "gracePeriodSeconds": -1})),
        create(budget_with(paused="yes")),
        create(budget_with(quota={"gpuHours": "1" * 65, "windowHours": 24})),
        create(budget_with(enforcement={"steps": [{"at": "80%", "action": "Hold"}, {"at": "80%", "action": "Evict"}]})),
        create(budget_with(enforcement={"steps": [{"at": f"{10 + n}%", "action": "Hold"} for n in range(60)]})),
        create(budget("bad") | {"spec": None}),
        create(budget("bad") | {"spec": "x"}),
        create(budget("bad", annotations={"x": 5})),
        create(budget_with(colour="red"), query={"fieldValidation": "Strict"}),
        create(budget_with(colour="red")),
    ],
    "a pod from birth to death": [
        create(pod("p")),
        Ask("POST", "Pod", "p", BINDING, "binding"),
        Ask("POST", "Pod", "p", BINDING, "binding"),
        Ask("POST", "Pod", "q", BINDING | {"metadata": {"name": "q"}}, "binding"),
        patch("Pod", "p", {"spec": {"nodeName": "x"}}),
        patch("Pod", "p", {"status": {"phase": "Running"}}, part="status"),
        Ask("GET", "Pod", "p"),
        Ask("POST", "Pod", "q", EVICTION | {"metadata": {"name": "q"}}, "eviction"),
        Ask("POST", "Pod", "p", EVICTION, "eviction"),
        Ask("GET", "Pod", "p"),
        Ask("DELETE", "Pod", "p", {"gracePeriodSeconds": 0}),
    ],
    "a gated pod": [
        create(pod("g", gates=("a.b/c",))),
        Ask("POST", "Pod", "g", BINDING | {"metadata": {"name": "g"}}, "binding"),
        patch("Pod", "g", {"spec": {"schedulingGates": [{"name": "a.b/c"}, {"name": "new"}]}}),
        patch("Pod", "g", {"spec": {"schedulingGates": []}}),
        Ask("GET", "Pod", "g"),
        Ask("DELETE", "Pod", "g"),
    ],
    "what pods may ask for": [
        create(gpu_pod("none")),
        create(gpu_pod("whole", limits={"nvidia.com/gpu": "1e3"})),
        create(gpu_pod("half", limits={"nvidia.com/gpu": "0.5"})),
        create(gpu_pod("negative", limits={"nvidia.com/gpu": "-1"})),
        create(gpu_pod("nonsense", limits={"nvidia.com/gpu": "NaN"})),
        create(gpu_pod("unlimited", requests={"nvidia.com/gpu": "1"})),
        create(gpu_pod("guaranteed", limits={"cpu": "1", "memory": "1Gi"})),
        create(gpu_pod("burstable", requests={"cpu": "1"})),
        create(pod("empty", spec={"containers": []})),
    ],
    "a job": [
        # One that no controller looks after, so that none writes its status in between.
        create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j"},
                "spec": {"managedBy": "example.com/nobody", "template": TEMPLATE},
            }
        ),
        patch("Job", "j", {"spec": {"suspend": True}}),
    ],
    "rights": [
        Ask("GET", MAP, more={"user": "nobody"}),
        Ask("GET", MAP, "x", more={"user": "nobody"}),
        Ask("GET", MAP, more={"user": "unknown"}),
        Ask("GET", MAP, more={"user": "expired"}),
        Ask("DELETE", MAP, more={"user": "nobody"}),
        create(budget("x"), user="nobody"),
    ],
}


@pytest.fixture
async def both(
    plane_with_kinds: ControlPlane, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Cluster, Cluster]]:
    # The names must be the same on both sides, and new for each test.
    namespace = f"{NAMESPACE}-{list(CONVERSATIONS).index(request.node.callspec.params['conversation'])}"
    async with SimulatedCluster(namespace) as simulated, ServerCluster(plane_with_kinds, namespace) as real:
        yield simulated, real


@pytest.mark.parametrize("conversation", CONVERSATIONS)
async def test_both_sides_say_the_same(both: tuple[Cluster, Cluster], conversation: str) -> None:
    simulated, real = both
    differences = []
    for ask in CONVERSATIONS[conversation]:
        said, true = await ask.of(simulated), await ask.of(real)
        if said != true:
            differences.append(f"{ask}\n  simulator: {said}\n  server:    {true}")
    assert not differences, "\n".join(differences)
