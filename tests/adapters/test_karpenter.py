"""What is read of Karpenter's objects for cheapest capacity, and what is remembered of launches that failed."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters import documents
from headroom.adapters.kube import karpenter, paths, raw
from headroom.api import marks
from headroom.model.bandwidth_facts import NodeOverlay
from headroom.model.facts import NodeClaim, NodeClass, NodePool
from headroom.model.node_pool_specs import spec_digest, template_digest
from headroom.model.times import moment
from tests.adapters.simulated import Cluster, virtual

EARLIER, NOW = "2026-11-15T11:00:00Z", "2026-11-15T12:00:00Z"
TEMPLATE = {
    "spec": {
        "expireAfter": "Never",
        "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
    }
}
SPEC: dict[str, Any] = {
    "weight": 60,
    "limits": {"nvidia.com/gpu": "1000"},
    "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "budgets": [{"nodes": "10%"}]},
    "template": TEMPLATE,
}


def pool(spec: Any = SPEC, **more: Any) -> NodePool:
    metadata = {"name": "a", "labels": {marks.LEFTOVER: "one", "managed-by": "x", "team": "ml"}} | more.pop("meta", {})
    return karpenter.node_pool_of(raw.fitted({"metadata": metadata, "spec": spec} | more, karpenter.NodePoolWire))


def claim(*conditions: dict[str, str], **more: Any) -> NodeClaim:
    metadata = {"name": "a-1", "creationTimestamp": EARLIER, "labels": {"karpenter.sh/nodepool": "a"}}
    document = {
        "metadata": metadata | more.pop("meta", {}),
        "spec": more.pop("spec", {}),
        "status": {"conditions": [*conditions], **more},
    }
    return karpenter.node_claim_of(raw.fitted(document, karpenter.NodeClaimWire))


def test_of_a_node_pool_who_wrote_it_and_what_it_has() -> None:
    found = pool(status={"resources": {"nvidia.com/gpu": "8", "nodes": "2"}})
    assert (found.weight, found.deleting) == (60, False)
    assert found.marks == ((marks.LEFTOVER, "one"), ("managed-by", "x"))
    assert dict(found.used) == {"nodes": 2_000_000, "nvidia.com/gpu": 8_000_000}
    assert (found.digest, found.template) == (spec_digest(SPEC), template_digest(SPEC))
    assert pool(meta={"deletionTimestamp": NOW}).deleting
    theirs = pool(meta={"labels": {"team": "ml"}})
    assert (theirs.marks, theirs.digest, theirs.template) == ((), "", "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"limits": {"nvidia.com/gpu": 1000}}, {"limits": {"nvidia.com/gpu": "1k"}}),
        ({"limits": {}}, {}),
        ({"weight": 1, "limits": None}, {"weight": 1}),
        ({}, {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "10%"}]}}),
        ({"disruption": {"budgets": [{"reasons": ["Drifted"]}]}}, {"disruption": {"budgets": [{"nodes": "10%", "reasons": ["Drifted"]}]}}),
        ({"template": {"spec": {"taints": []}}}, {"template": {"spec": {"expireAfter": "720h"}}}),
    ],
)  # fmt: skip
def test_what_means_the_same_has_the_same_digest(one: Any, other: Any) -> None:
    assert spec_digest(one) == spec_digest(other)
    assert template_digest(one) == template_digest(other)


@pytest.mark.parametrize(
    "other",
    [
        SPEC | {"weight": 59},
        SPEC | {"limits": {"nvidia.com/gpu": "0"}},
        SPEC | {"limits": {}},
        SPEC | {"disruption": {"consolidationPolicy": "WhenEmpty"}},
        SPEC | {"template": {"spec": {"requirements": []}}},
    ],
)
def test_what_means_something_else_has_another_digest(other: Any) -> None:
    assert spec_digest(other) != spec_digest(SPEC)
    assert (template_digest(other) == template_digest(SPEC)) == (other["template"] is TEMPLATE)


@pytest.mark.parametrize("odd", [{"template": 3, "disruption": [], "limits": "x"}, {"disruption": {"budgets": 7}}])
def test_odd_specs_have_some_digest(odd: Any) -> None:
    assert len(spec_digest(odd)) == len(template_digest(odd)) == 16


def launched(status: str, reason: str) -> dict[str, str]:
    return {"type": "Launched", "status": status, "reason": reason, "lastTransitionTime": NOW}


def test_of_a_claim_whether_it_was_launched() -> None:
    assert claim().node_pool == "a"
    found = claim(launched("True", "Launched"), nodeName="n1")
    assert (found.launched, found.failure, found.failed_at, found.node) == (True, "", None, "n1")
    fresh = claim(launched("Unknown", "AwaitingReconciliation"))
    assert (fresh.launched, fresh.failure) == (False, "")
    for status in ("Unknown", "False"):
        failed = claim(launched(status, "LaunchFailed"))
        assert (failed.launched, failed.failure, failed.failed_at) == (False, "LaunchFailed", moment(NOW))


def test_of_a_claim_whether_karpenter_itself_ends_it() -> None:
    assert not claim(launched("True", "Launched")).disrupted
    assert claim({"type": "DisruptionReason", "status": "True", "reason": "Drifted"}).disrupted
    assert not claim({"type": "DisruptionReason", "status": "False"}).disrupted
    gone = {"deletionTimestamp": NOW}
    assert claim(meta=gone, spec={"expireAfter": "1h"}).disrupted
    assert not claim(meta=gone, spec={"expireAfter": "2h"}).disrupted
    assert not claim(meta=gone, spec={"expireAfter": "Never"}).disrupted


def node_class(status: Any = None, **meta: Any) -> NodeClass:
    document = {"metadata": {"name": "gpu"} | meta, "spec": {"role": "r", "tags": {"a": "b"}}, "status": status}
    return karpenter.node_class_of("EC2NodeClass", raw.fitted(document, karpenter.NodeClassWire))


def test_a_node_class() -> None:
    found = node_class(labels={"a": "b"})
    assert (found.key, found.ready, found.zones, found.labels) == ("EC2NodeClass/gpu", True, (), (("a", "b"),))
    assert found.spec == {"role": "r", "tags": {"a": "b"}}
    ready = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "subnets": [{"zone": "b"}, {"zone": "a"}, {"id": "x"}],
    }
    assert (node_class(ready).ready, node_class(ready).zones) == (True, ("a", "b"))
    for status in ("False", "Unknown"):
        assert not node_class({"conditions": [{"type": "Ready", "status": status}]}).ready
    assert not node_class(deletionTimestamp=NOW).ready


@pytest.mark.parametrize("odd", [{}, {"spec": 3}, {"status": {"subnets": [3]}}, [], None])
def test_odd_node_classes_never_raise(odd: Any) -> None:
    karpenter.node_class_of("EC2NodeClass", raw.fitted(odd, karpenter.NodeClassWire))


def test_a_document_of_a_node_class_is_read() -> None:
    text = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: gpu}\nspec: {role: r}\n"
    found = documents.read([("-", text.encode())]).world(0)
    assert found.node_classes["EC2NodeClass/gpu"].spec == {"role": "r"}


class Launches(Cluster):
    """A cluster whose NodeClaims come and go."""

    def claim(self, name: str, *conditions: dict[str, str]) -> None:
        metadata = {"name": name, "labels": {"karpenter.sh/nodepool": "a"}}
        self.server.put(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": metadata,
                "spec": {},
                "status": {"conditions": [*conditions]},
            }
        )

    def delete(self, name: str) -> None:
        self.server.do("DELETE", paths.karpenter("nodeclaims", name))

    def failures(self) -> dict[str, str]:
        found = self.port.world(self.clock.now()).launch_failures
        assert all(each.node_pool == "a" and each.claim == key for key, each in found.items())
        return {key: each.reason for key, each in found.items()}


@virtual
async def test_a_claim_that_vanishes_before_it_was_launched_is_remembered_for_an_hour() -> None:
    async with Launches() as cluster:
        cluster.claim("sold-out", launched("Unknown", "AwaitingReconciliation"))
        cluster.delete("sold-out")
        cluster.claim("fine", launched("True", "Launched"))
        await cluster.settle()
        cluster.delete("fine")
        await cluster.settle(1)
        assert cluster.failures() == {"sold-out": "NotLaunched"}
        await cluster.settle(3598)
        assert cluster.failures() == {"sold-out": "NotLaunched"}
        await cluster.settle(3)
        assert cluster.failures() == {}


@virtual
async def test_a_claim_that_shows_a_failure_is_remembered_with_its_reason() -> None:
    async with Launches() as cluster:
        cluster.claim("stuck", launched("Unknown", "LaunchFailed"))
        await cluster.settle()
        assert cluster.failures() == {"stuck": "LaunchFailed"}
        assert cluster.port.world(0).launch_failures["stuck"].at == moment(NOW)
        cluster.delete("stuck")
        await cluster.settle()
        assert cluster.failures() == {"stuck": "LaunchFailed"}


def test_of_an_overlay_what_it_tells_of_which_machines_and_whether_that_counts() -> None:
    def read(status: str = "", **meta: str) -> NodeOverlay:
        conditions = [{"type": "Ready", "status": status}] if status else []
        spec = {
            "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}],
            "capacity": {"headroom.dev/egress-mbps": "25k", "headroom.dev/ingress-mbps": 10},
        }
        document = {"metadata": {"name": "rates"} | meta, "spec": spec, "status": {"conditions": conditions}}
        return karpenter.node_overlay_of(raw.fitted(document, karpenter.NodeOverlayWire))

    found = read()
    assert [(each.key, each.values) for each in found.requirements] == [("karpenter.sh/nodepool", ("a",))]
    assert dict(found.capacity) == {
        "headroom.dev/egress-mbps": 25_000_000_000,
        "headroom.dev/ingress-mbps": 10_000_000,
    }
    assert (found.judged, found.ready) == (False, False), "where the gate is off nobody looks"
    assert [(each.judged, each.ready) for each in (read("True"), read("False"))] == [(True, True), (True, False)]
    assert not read("True", deletionTimestamp=NOW).ready
