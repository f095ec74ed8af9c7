"""Values for every field of the five kinds, right and wrong ones, for `problems` and for a real API server to judge.

`FULL` has one manifest per kind in which every field stands; a case puts one value in place of one of its fields. In a path,
`[]` is the first item of a list.
"""

from typing import Any

from tests.api.budget_cases import BUDGET, BUDGET_FIELDS
from tests.api.cases import (
    BOOL,
    LABELS,
    LEFT_OUT,
    NOT_TEXT,
    At,
    Cases,
    free_text,
    manifest,
    number,
    object_name,
    whole,
)
from tests.api.power_cases import POOL, POOL_FIELDS, RESOURCES, choice
from tests.api.spot_cases import REGION, SPOTPOOL, SPOTPOOL_FIELDS


def _request() -> dict[str, Any]:
    """Made anew each time: a copy of a document would keep two places together that share one object."""
    rates = {"ulMbps": 5, "dlMbps": 7}
    return {"podUid": "u-1", "podName": "trainer", "namespace": "team", "linkLocal": True, "bandwidth": rates}


FULL: dict[str, dict[str, Any]] = {
    "GPUWorkloadBudget": BUDGET,
    "Spotpool": SPOTPOOL,
    "PowerPool": POOL,
    "Bandwidth": manifest(
        "Bandwidth",
        "node-1",
        {
            "paused": False,
            "node": "node-1",
            "capacity": {"local": {"ulMbps": 20000, "dlMbps": 20000}, "network": {"ulMbps": 1000, "dlMbps": 1000}},
            "requests": [_request()],
            "reservations": [_request()],
            "status": "Created",
        },
    ),
    "LeftoverNodePool": manifest(
        "LeftoverNodePool",
        "cheap",
        {
            "paused": False,
            "region": "us-east-1",
            "families": ["g4dn", "g5"],
            "nodeClassKind": "EC2NodeClass",
            "nodeClassName": "class",
            "nodeClassSelector": {},
            "architecture": "amd64",
            "gpuVendor": "nvidia",
            "minGPUs": 4,
            "targetCount": 2,
            "minSpotScore": 6,
            "maxInstanceTypes": 5,
            "maxZones": 2,
            "capacityType": "spot",
            "strategy": "CostAndRisk",
            "restartHours": "0.5",
            "switchThreshold": "5%",
            "switchAfter": "30m",
            "minDwell": "2h",
            "maxSwitchesPerDay": 6,
            "subnetSelectorTags": {"kubernetes.io/cluster/c": "owned"},
            "securityGroupSelectorTags": {"Name": "nodes"},
            "budgetsNodes": "10%",
            "consolidateAfter": "2m",
            "consolidationPolicy": "WhenEmpty",
            "expireAfter": "Never",
            "weights": {"min": 10, "max": 50},
            "limits": {"nvidia.com/gpu": "64"},
            "budgetRef": {"namespace": "team", "name": "gpu"},
            "rollout": "Keep",
            "deletionPolicy": "Retain",
            "credentialsSecretRef": {"name": "aws-keys"},
            "labels": {"pool": "cheap"},
            "taints": ["nvidia.com/gpu=true:NoSchedule"],
            "requeueMinutes": 7,
            "onDemandFallback": True,
        },
    ),
    "ReleaseRequest": manifest(
        "ReleaseRequest",
        "release-1",
        {
            "paused": False,
            "target": {"kind": "Job", "name": "train", "uid": "u-1"},
            "budget": "lab/team-a",
            "reason": "a deadline",
            "requestedBy": "admin",
        },
    ),
}

_TAGS = Cases(
    valid=({"Name": "ä" * 256}, {"k" * 128: ""}, {}, None),
    invalid=({"": "x"}, {"k" * 129: "x"}, {"a": "x" * 257}, {"a": 1}, ["a"], "a", {f"k{i}": "x" for i in range(51)}),
)


_LENGTH = Cases(
    valid=("30m", "2h", "1h30m", "90s", None),
    invalid=("", "0s", "0h0m", "2", "2d", "-1m", "1.5h", "2m ", "2m\n", "30m1h", *NOT_TEXT),
)


def _requests(path: str) -> dict[str, Cases]:
    return {
        path: Cases(
            valid=([], None, [{"podUid": "a"}, {"podUid": "b"}], [{"podUid": f"u{i}"} for i in range(1024)]),
            invalid=(
                [{"podUid": "a"}, {"podUid": "a"}],
                [{"podUid": "a"}, {"podUid": "b"}, {"podUid": "a", "bandwidth": {"ulMbps": -1}}],
                [{}, {}],
                [None, None],
                [3, 3],
                [{"podUid": f"u{i}"} for i in range(1025)],
                {"a": {}},
                "a",
            ),
        ),
        f"{path}[].podUid": free_text(128, "u-2", empty=False),
        f"{path}[].podName": free_text(253, "trainer"),
        f"{path}[].namespace": free_text(253, "team"),
        f"{path}[].linkLocal": BOOL,
        f"{path}[].bandwidth.ulMbps": whole(0, 10**9),
        f"{path}[].bandwidth.dlMbps": whole(0, 10**9),
    }


FIELDS: dict[str, dict[str, Cases]] = {
    "GPUWorkloadBudget": BUDGET_FIELDS,
    "Spotpool": SPOTPOOL_FIELDS,
    "PowerPool": POOL_FIELDS,
    "Bandwidth": {
        "spec.paused": BOOL,
        "spec.node": Cases(
            valid=("node-1", None, LEFT_OUT), invalid=("node-2", "NODE-1", "node-1\n", "", "a" * 254, *NOT_TEXT)
        ),
        "spec.capacity.local.ulMbps": whole(0, 10**9),
        "spec.capacity.local.dlMbps": whole(0, 10**9),
        "spec.capacity.network.ulMbps": whole(0, 10**9),
        "spec.capacity.network.dlMbps": whole(0, 10**9),
        **_requests("spec.requests"),
        **_requests("spec.reservations"),
        "spec.status": Cases(
            valid=("None", "Creating", "Created", "Error", "Deleting", "Deleted", None),
            invalid=("", "none", "Ready", *NOT_TEXT),
        ),
    },
    "LeftoverNodePool": {
        "spec.paused": BOOL,
        "spec.region": REGION,
        "spec.families": Cases(
            valid=([], None, ["g5"], ["p4d", "p4d"], ["g"] * 64),
            invalid=(
                "g5",
                [""],
                ["G5"],
                ["g5.xlarge"],
                ["g 5"],
                ["g5\n"],
                [None],
                [5],
                ["g"] * 65,
                ["g" * 65],
                {"g5": 1},
            ),
        ),
        "spec.nodeClassKind": choice("EC2NodeClass", "KWOKNodeClass"),
        "spec.architecture": Cases(valid=("amd64", "arm64", None), invalid=("", "AMD64", "x86_64", *NOT_TEXT)),
        "spec.gpuVendor": Cases(valid=("nvidia", "amd", None), invalid=("", "NVIDIA", "intel", *NOT_TEXT)),
        "spec.strategy": choice("CostAndRisk", "CheapestAboveScore"),
        "spec.consolidationPolicy": choice("WhenEmpty", "WhenEmptyOrUnderutilized"),
        "spec.rollout": choice("Keep", "Replace"),
        "spec.deletionPolicy": choice("Retain", "Delete"),
        "spec.restartHours": Cases(
            valid=(1, "1.5", "500m", 168, "168", None),
            invalid=("", "soon", "0", 0, -1, "-1", 169, "1h", True, [], {}, number("0.5")),
        ),
        "spec.switchThreshold": Cases(
            valid=("0%", "5%", "99.99%", "0.5%", None),
            invalid=("", "5", "%", "100%", "-1%", "5.123%", "5 %", "５%", "5%\n", *NOT_TEXT),
        ),
        "spec.switchAfter": _LENGTH,
        "spec.minDwell": _LENGTH,
        "spec.maxSwitchesPerDay": whole(1, 1000),
        "spec.expireAfter": Cases(
            valid=("Never", "720h", "1h30m", None),
            invalid=("", "never", "2d", "-1m", "1.5h", "2m\n", "1" * 32 + "h", *NOT_TEXT),
        ),
        "spec.weights.min": Cases(
            valid=(1, 49, None),
            invalid=(0, At(50, "spec.weights.max"), 101, "10", True, [], {}, number("10.5"), number("1.0")),
        ),
        "spec.weights.max": Cases(
            valid=(11, 100, None),
            invalid=(At(10, "spec.weights.max"), 101, "50", True, [], {}, number("50.5")),
        ),
        "spec.limits": RESOURCES,
        "spec.budgetRef.namespace": object_name("team"),
        "spec.budgetRef.name": object_name("gpu"),
        "spec.credentialsSecretRef.name": object_name("aws-keys"),
        "spec.nodeClassName": object_name("class"),
        "spec.nodeClassSelector": Cases(
            valid=LABELS.valid,
            invalid=(
                *LABELS.invalid,
                At({}, "spec.nodeClassName"),
                At(None, "spec.nodeClassName"),
                At({"a": None}, "spec.nodeClassName"),
            ),
            beside={"spec.nodeClassName": LEFT_OUT},
        ),
        "spec.minGPUs": whole(1, 64),
        "spec.targetCount": whole(1, 2000),
        "spec.minSpotScore": whole(0, 10),
        "spec.maxInstanceTypes": whole(1, 60),
        "spec.maxZones": whole(1, 20),
        "spec.capacityType": Cases(
            valid=("spot", None), invalid=("", "Spot", "reserved", At("on-demand", "spec.onDemandFallback"), *NOT_TEXT)
        ),
        "spec.subnetSelectorTags": _TAGS,
        "spec.securityGroupSelectorTags": _TAGS,
        "spec.budgetsNodes": Cases(
            valid=("0", "0%", "10%", "100%", "999999", None),
            invalid=("", "101%", "999%", "%", "-1", "1.5%", "10 %", "１0%", "10%\n", "1234567", *NOT_TEXT),
        ),
        "spec.consolidateAfter": Cases(
            valid=("0s", "2m", "1h30m", "Never", None),
            invalid=("", "2", "2d", "-1m", "never", "1.5h", "2m ", "2m\n", "1" * 32 + "h", *NOT_TEXT),
        ),
        "spec.labels": LABELS,
        "spec.taints": Cases(
            valid=([], None, ["a:NoSchedule"], ["a=:NoExecute", "example.com/b=c:PreferNoSchedule"]),
            invalid=(
                "a:NoSchedule",
                [""],
                ["a"],
                ["a=b"],
                ["=b:NoSchedule"],
                ["a:Never"],
                ["a b:NoSchedule"],
                ["a=b c:NoSchedule"],
                ["a=" + "b" * 64 + ":NoSchedule"],
                ["a" * 254 + "/b:NoSchedule"],
                ["a:NoSchedule\n"],
                [None],
                [3],
                ["a:NoSchedule"] * 33,
            ),
        ),
        "spec.requeueMinutes": whole(1, 1440),
        "spec.onDemandFallback": Cases(valid=(True, False, None, LEFT_OUT), invalid=BOOL.invalid),
    },
    "ReleaseRequest": {
        "spec.paused": BOOL,
        "spec.target.kind": Cases(
            valid=("Pod", "JobSet", "A", "B" * 63),
            invalid=("", "pod", "job", "A b", "A/b", "A\n", "Ä", "A" * 64, *NOT_TEXT),
        ),
        "spec.target.name": Cases(
            valid=("train-0", "A.b_c-D", "a" * 253),
            invalid=("", "-a", "a-", "a b", "a/b", "../a", "a\n", "ä", "a" * 254, *NOT_TEXT),
        ),
        "spec.target.uid": free_text(128, "u-2"),
        "spec.target.generation": whole(1, 1_000_000_000),
        "spec.budget": Cases(
            valid=("a/b", "lab/team.a-1", None, LEFT_OUT),
            invalid=("", "lab", "lab/", "/a", "a/b/c", "a.b/c", "A/b", "a/b\n", "a/" + "b" * 316, *NOT_TEXT),
        ),
        "spec.reason": Cases(
            valid=("", "ä" * 256, "a deadline; see #7", None, LEFT_OUT),
            invalid=("a" * 257, "a\nb", "a\n", "\t", "\x1b[2J", "\x7f", "a\rb", *NOT_TEXT),
        ),
        "spec.requestedBy": free_text(1024, "system:serviceaccount:lab:ci", "alice@example.com"),
    },
}
