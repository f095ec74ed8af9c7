"""Whole documents to judge: the seeds' own samples, rules over several fields, metadata, and what is no document at all."""

from typing import Any

from tests.api.cases import API_VERSION, LEFT_OUT, MEGABYTE, manifest, number
from tests.api.documents import put
from tests.api.field_cases import FULL

SEED_SAMPLES: dict[str, dict[str, Any]] = {
    "GPUWorkloadBudget": manifest(
        "GPUWorkloadBudget",
        "team-a",
        {
            "selector": {"matchLabels": {"team": "a"}},
            "quota": {"gpuHours": "100", "windowHours": 24},
            "enforcement": {"action": "AlertOnly", "gracePeriodSeconds": 60},
        },
        namespace="default",
    ),
    "Spotpool": manifest(
        "Spotpool",
        "spotpool-sample",
        {
            "region": "ap-singapore",
            "availabilityZone": "ap-singapore-2",
            "instanceType": "GN7.2XLARGE32",
            "minimum": 2,
            "maximum": 2,
            "subnetId": "DEFAULT",
            "vpcId": "DEFAULT",
            "securityGroupIds": ["sg-xxx"],
            "imageId": "img-xxx",
            "instanceChargeType": "SPOTPAID",
        },
    ),
    "PowerPool": manifest(
        "PowerPool",
        "gpu-workers",
        {
            "machines": [
                {
                    "name": f"gpu-worker-{index}",
                    "gpuCount": gpus,
                    "scaleUpEndpoint": f"http://power-api/gpu-worker-{index}/start",
                    "scaleDownEndpoint": f"http://power-api/gpu-worker-{index}/stop",
                }
                for index, gpus in ((1, 4), (2, 8))
            ]
        },
    ),
    "Bandwidth": manifest(
        "Bandwidth",
        "node-name",
        {
            "capacity": {"local": {"ulMbps": 20000, "dlMbps": 20000}, "network": {"ulMbps": 1000, "dlMbps": 1000}},
            "reservations": [],
        },
    ),
    "LeftoverNodePool": manifest(
        "LeftoverNodePool",
        "quick-test",
        {
            "region": "us-east-1",
            "nodeClassName": "karpenter-quick-test",
            "families": ["g4dn", "g4ad", "g5"],
            "minGPUs": 4,
            "minSpotScore": 6,
            "targetCount": 2,
            "requeueMinutes": 7,
            "capacityType": "spot",
        },
    ),
    "ReleaseRequest": manifest(
        "ReleaseRequest", "job-train", {"target": {"kind": "Job", "name": "train"}}, namespace="default"
    ),
}

_BUDGET, _POOL, _RACK = FULL["GPUWorkloadBudget"], FULL["Spotpool"], FULL["PowerPool"]
_NODE, _OFFERS = FULL["Bandwidth"], FULL["LeftoverNodePool"]


def _named(document: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return document | {"metadata": document["metadata"] | metadata}


def _spec(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return document | {"spec": document["spec"] | fields}


def _acting(action: str, home: str = "fleet-eu") -> dict[str, Any]:
    """The budget with one action instead of steps."""
    return _spec(_BUDGET, homeCluster=home, enforcement={"action": action})


def _stepping(*actions: str, home: str = "fleet-eu") -> dict[str, Any]:
    """The budget with these actions at 10 %, 20 % and so on."""
    steps = [{"at": f"{10 * number}%", "action": action} for number, action in enumerate(actions, start=1)]
    return _spec(_BUDGET, homeCluster=home, enforcement={"steps": steps})


_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}

ACCEPTED: dict[str, dict[str, Any]] = {
    "no defaults written": manifest("Bandwidth", "n", {"capacity": {}}),
    "nulls for defaults": manifest("Bandwidth", "n", {"capacity": {"local": None}, "paused": None, "requests": None}),
    "selector by expressions only": put(_BUDGET, "spec.selector.matchLabels", LEFT_OUT),
    "a quota of hours alone": put(_BUDGET, "spec.quota", {"gpuHours": 1, "windowHours": 1}),
    "a quota of dollars alone": put(_BUDGET, "spec.quota", {"gpuHours": None, "usd": "1.5", "windowHours": 1}),
    "hold over several clusters": _acting("Hold"),
    "evict in this cluster alone": _acting("Evict", home=""),
    "steps over several clusters": _stepping("AlertOnly", "Hold"),
    "every step in this cluster alone": _stepping("AlertOnly", "Pause", "Hold", "Suspend", "Evict", home=""),
    "an action beside no steps": _spec(_BUDGET, enforcement={"action": "Hold", "steps": []}),
    "an action beside null steps": _spec(_BUDGET, enforcement={"action": "Hold", "steps": None}),
    "on-demand without fallback": _spec(_OFFERS, capacityType="on-demand", onDemandFallback=False),
    "on-demand, fallback not mentioned": _spec(_OFFERS, capacityType="on-demand", onDemandFallback=None),
    "node class by labels": _spec(_OFFERS, nodeClassName=None, nodeClassSelector={"a": "b"}),
    "every machine stays on": put(_RACK, "spec.policy.minOn", 2),
    "types and zones to choose from": _spec(
        _POOL, instanceType=None, instanceTypes=["a", "b"], availabilityZone=None, zones=["x", "y"]
    ),
    "a number of machines that are no nodes": _spec(_POOL, desired=3, join=False, template={}),
    "machines of whoever answers": _spec(_POOL, provider="webhook", endpoint="http://cloud/v1"),
    "longest name for a label": _named(_OFFERS, name="a" * 45),
    "longest name": _named(_NODE, name="a" * 253) | {"spec": {"capacity": {}}},
    "generated name": _named(_BUDGET, name="", generateName="team-"),
    "namespace of a cluster-wide kind is not looked at": _named(_RACK, namespace="default"),
    "labels": _named(_BUDGET, labels={"team": "a", "example.com/x": "", "none": None}),
    "annotations": _named(_BUDGET, annotations={"Example.com/Any": "ä b\n" * 100, "a": None}),
    "finalizers": _named(_BUDGET, finalizers=["headroom.dev/cleanup"]),
    "owner": _named(_BUDGET, ownerReferences=[_OWNER | {"controller": True, "blockOwnerDeletion": None}]),
    "as printed by kubectl": _named(
        _BUDGET, uid="u", generation=3, selfLink="", creationTimestamp="2026-01-31T12:00:00Z", managedFields=[]
    ),
    "no creation time": _named(_BUDGET, creationTimestamp=None),
    "wrong status is dropped": _BUDGET | {"status": {"trackedPods": "many", "conditions": [3]}},
    "status of a wrong type is dropped": _BUDGET | {"status": 3},
    "status null": _BUDGET | {"status": None},
}

REFUSED: dict[str, dict[str, Any]] = {
    "empty selector": _spec(_BUDGET, selector={}),
    "selector of nulls": _spec(_BUDGET, selector={"matchLabels": {"a": None}, "matchExpressions": None}),
    "In without values": _spec(_BUDGET, selector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
    "empty namespace selector": _spec(_BUDGET, namespaceSelector={}),
    "a quota of nothing": put(_BUDGET, "spec.quota", {"windowHours": 1}),
    "a quota of nulls": put(_BUDGET, "spec.quota", {"gpuHours": None, "usd": None, "windowHours": 1}),
    "evict over several clusters": _acting("Evict"),
    "pause over several clusters": _acting("Pause"),
    "suspend over several clusters": _acting("Suspend"),
    "a step that pauses over several clusters": _stepping("AlertOnly", "Pause", "Hold"),
    "a step that suspends over several clusters": _stepping("Hold", "Suspend"),
    "a step that evicts over several clusters": _stepping("AlertOnly", "Hold", "Evict"),
    "an action and steps": put(_BUDGET, "spec.enforcement.action", "Hold"),
    "neither action nor steps": _spec(_BUDGET, enforcement={"gracePeriodSeconds": 0}),
    "steps out of order, and not all of them readable": _spec(
        _BUDGET, enforcement={"steps": [{"at": "100%", "action": "Hold"}, {"at": "80", "action": "AlertOnly"}]}
    ),
    "steps out of order, and an action": _spec(
        _BUDGET,
        enforcement={
            "action": "Evict",
            "steps": [{"at": "100%", "action": "Evict"}, {"at": "80%", "action": "AlertOnly"}],
        },
    ),
    "minimum above maximum": _spec(_POOL, minimum=3, maximum=2),
    "minimum above maximum, both beyond": _spec(_POOL, minimum=2000, maximum=1001),
    "default minimum is fine, maximum below it is not": _spec(_POOL, minimum=None, maximum=-1),
    "one type and several": _spec(_POOL, instanceTypes=["a"]),
    "no type at all": _spec(_POOL, instanceType=None),
    "one zone and several": _spec(_POOL, zones=["a"]),
    "demand without GPUs": _spec(_POOL, template={}),
    "demand for machines that are no nodes": _spec(_POOL, join=False),
    "an endpoint beside another provider": _spec(_POOL, endpoint="http://cloud/v1"),
    "paid in advance": _spec(_POOL, instanceChargeType="PREPAID"),
    "plain keys": _spec(_POOL, secretId="AKID", secretKey="key"),
    "more on than there are": _spec(_RACK, policy={"minOn": 3}),
    "more on than there are, of none": _spec(_RACK, policy={"minOn": 3}, machines=[]),
    "other node": _spec(_NODE, node="node-2"),
    "node of a generated name": _named(_NODE, name=None, generateName="node-"),
    "node without a name": _named(_NODE, name=""),
    "two node classes": _spec(_OFFERS, nodeClassSelector={"a": "b"}),
    "no node class": _spec(_OFFERS, nodeClassName=None),
    "on-demand with fallback to it": _spec(_OFFERS, capacityType="on-demand", onDemandFallback=True),
    "everything wrong": manifest(
        "Spotpool",
        "A b",
        {"region": "", "minimum": -1, "maximum": 5000, "instanceChargeType": "x", "securityGroupIds": [3, "a b"]},
        labels={"a b": "c d"},
    ),
    "everything wrong, and unknown": manifest("PowerPool", "", {"machines": [{"x": 1}, 3], "y": {"z": 1}}) | {"w": 1},
    "floats that are compared": _spec(_POOL, minimum=number("2.0"), maximum=number("4.0")),
    "no spec": {key: value for key, value in _BUDGET.items() if key != "spec"},
    "spec null": _BUDGET | {"spec": None},
    "spec a list": _BUDGET | {"spec": [{"a": 1}]},
    "no metadata": _BUDGET | {"metadata": None},
    "metadata a list": _BUDGET | {"metadata": []},
    "metadata text": _BUDGET | {"metadata": "team-a"},
    "no name": _BUDGET | {"metadata": {}},
    "name empty": _named(_BUDGET, name=""),
    "name a number": _named(_BUDGET, name=3),
    "name with capitals": _named(_BUDGET, name="Team-A"),
    "name with two dots": _named(_BUDGET, name="a..b"),
    "name with a newline": _named(_BUDGET, name="a\n"),
    "name not ASCII": _named(_BUDGET, name="ä"),
    "name too long": _named(_BUDGET, name="a" * 254),
    "name too long for a label": _named(_OFFERS, name="a" * 46),
    "generated name too long for a label": _named(_OFFERS, name="", generateName="a" * 60),
    "generated name with capitals": _named(_BUDGET, name="", generateName="Team-"),
    "generateName a number": _named(_BUDGET, generateName=3),
    "namespace of no such shape": _named(_BUDGET, namespace="A b"),
    "namespace a number": _named(_BUDGET, namespace=3),
    "label key": _named(_BUDGET, labels={"a b": None}),
    "label value": _named(_BUDGET, labels={"a": "b c"}),
    "label too long": _named(_BUDGET, labels={"a": "b" * 64}),
    "label a number": _named(_BUDGET, labels={"a": 1}),
    "labels a list": _named(_BUDGET, labels=["a"]),
    "annotation key": _named(_BUDGET, annotations={"a b": "c"}),
    "annotation true": _named(_BUDGET, annotations={"a": True}),
    "annotations too large": _named(_BUDGET, annotations={"a": MEGABYTE}),
    "finalizer": _named(_BUDGET, finalizers=["a b"]),
    "finalizers text": _named(_BUDGET, finalizers="a"),
    "owner of nothing": _named(_BUDGET, ownerReferences=[{}]),
    "owner with more": _named(_BUDGET, ownerReferences=[_OWNER | {"more": 1}]),
    "two controllers": _named(_BUDGET, ownerReferences=[_OWNER | {"controller": True, "uid": uid} for uid in "ab"]),
    "unknown metadata": _named(_BUDGET, Name="a", labelz={}),
    "generation text": _named(_BUDGET, generation="5"),
    "creation time": _named(_BUDGET, creationTimestamp="yesterday"),
    "creation on no day": _named(_BUDGET, creationTimestamp="2026-02-30T12:00:00Z"),
    "managed fields a number": _named(_BUDGET, managedFields=3),
    "unknown at the root": _BUDGET | {"data": {}},
    "unknown in status": _BUDGET | {"status": {"forecasts": {}, "conditions": [{"type": "Ready", "why": "x"}]}},
    "unknown in status of a wrong type": _BUDGET | {"status": [{"a": 1}]},
    "other version": _BUDGET | {"apiVersion": "headroom.dev/v1"},
    "version of the seed": _BUDGET | {"apiVersion": "budget.zxuhan.dev/v1alpha1"},
    "no version": {key: value for key, value in _BUDGET.items() if key != "apiVersion"},
    "version a number": _BUDGET | {"apiVersion": 1},
}

_NO_KINDS: tuple[Any, ...] = (None, 3, [], {}, "", "spotpool", "Pod", "List")
NO_DOCUMENTS: tuple[Any, ...] = (
    *(None, True, 3, 1.5, "text", [], {}, [{"kind": "Spotpool"}]),
    *({"kind": kind, "apiVersion": API_VERSION} for kind in _NO_KINDS),
)
"""What names no kind of ours; the API server has no address for it."""
