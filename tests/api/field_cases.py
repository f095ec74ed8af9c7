"""Values for every field of the five kinds, right and wrong ones, for `problems` and for a real API server to judge.

`FULL` has one manifest per kind in which every field stands; a case puts one value in place of one of its fields. In a path,
`[]` is the first item of a list. A number is given as `number("24.0")` where the way it is written matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

API_VERSION = "headroom.dev/v1alpha1"
LEFT_OUT = "@left out"
MEGABYTE = "9" * 2**20


def number(text: str) -> str:
    """A JSON number written exactly so; `documents.as_json` puts it in place."""
    return f"@number:{text}"


@dataclass(frozen=True)
class At:
    """A value of one field that makes another field wrong."""

    value: Any
    field: str


@dataclass(frozen=True)
class Cases:
    """What one field may hold and may not; `beside` are other fields that must change with it."""

    valid: Sequence[Any]
    invalid: Sequence[Any]
    beside: dict[str, Any] = field(default_factory=dict)


def manifest(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def _request() -> dict[str, Any]:
    """Made anew each time: a copy of a document would keep two places together that share one object."""
    rates = {"ulMbps": 5, "dlMbps": 7}
    return {"podUid": "u-1", "podName": "trainer", "namespace": "team", "linkLocal": True, "bandwidth": rates}


_MACHINE = {
    "name": "gpu-worker-1",
    "gpuCount": 4,
    "scaleUpEndpoint": "http://power-api/gpu-worker-1/start",
    "scaleDownEndpoint": "http://power-api/gpu-worker-1/stop",
}

FULL: dict[str, dict[str, Any]] = {
    "GPUWorkloadBudget": manifest(
        "GPUWorkloadBudget",
        "team-a",
        {
            "paused": False,
            "selector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x", "y"]}],
            },
            "quota": {"gpuHours": "100", "windowHours": 24},
            "enforcement": {"action": "AlertOnly", "gracePeriodSeconds": 60},
            "gpuResourceName": "nvidia.com/gpu",
        },
    ),
    "Spotpool": manifest(
        "Spotpool",
        "pool",
        {
            "paused": True,
            "region": "ap-singapore",
            "availabilityZone": "ap-singapore-2",
            "instanceType": "GN7.2XLARGE32",
            "minimum": 2,
            "maximum": 4,
            "subnetId": "DEFAULT",
            "vpcId": "DEFAULT",
            "securityGroupIds": ["sg-1"],
            "imageId": "img-1",
            "instanceChargeType": "SPOTPAID",
            "credentialsSecretRef": {"name": "cloud-keys"},
            "secretId": "",
            "secretKey": "",
        },
    ),
    "PowerPool": manifest(
        "PowerPool",
        "rack",
        {
            "paused": False,
            "machines": [_MACHINE, {**_MACHINE, "name": "gpu-worker-2", "gpuCount": 8}],
            "policy": {"idleSeconds": 300, "bootTimeoutSeconds": 600, "minOn": 1},
        },
    ),
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
            "nodeClassName": "class",
            "nodeClassSelector": {},
            "minGPUs": 4,
            "targetCount": 2,
            "minSpotScore": 6,
            "maxInstanceTypes": 5,
            "maxZones": 2,
            "capacityType": "spot",
            "subnetSelectorTags": {"kubernetes.io/cluster/c": "owned"},
            "securityGroupSelectorTags": {"Name": "nodes"},
            "budgetsNodes": "10%",
            "consolidateAfter": "2m",
            "labels": {"pool": "cheap"},
            "taints": ["nvidia.com/gpu=true:NoSchedule"],
            "requeueMinutes": 7,
            "onDemandFallback": True,
        },
    ),
}

_NOT_TEXT = (3, True, ["a"], {"a": "b"}, number("1.5"))
_BOOL = Cases(valid=(True, False, None), invalid=("true", "", 0, 1, [], {}, number("1.0")))


def _whole(least: int, most: int, **more: Any) -> Cases:
    valid = (least, most, number(f"{least}.0"), number(f"{most}.0"), number("1e0"), number("10e-1"))
    absurd = (2**63, -(2**63) - 1, number("1e400"), number("1.5"), number(f"{least}.00000001"))
    return Cases(valid=valid, invalid=(least - 1, most + 1, f"{least}", "", True, [], {}, *absurd), **more)


def _word(longest: int, *valid: str) -> Cases:
    """An id of a cloud."""
    bad = ("", " ", "a b", "-a", "a\n", "ä", "ａ", "a/b", "a" * (longest + 1), MEGABYTE)
    return Cases(valid=(*valid, "a" * longest, "A.b_c-D"), invalid=(*bad, *_NOT_TEXT))


def _object_name(*valid: str, **more: Any) -> Cases:
    bad = ("", "A", "a_b", "a..b", "-a", "a-", "a.", "a b", "a\n", "ä", "a" * 254)
    return Cases(valid=(*valid, "a" * 253, "a.b-c.9"), invalid=(*bad, *_NOT_TEXT), **more)


def _free_text(longest: int, *valid: str, empty: bool = True) -> Cases:
    # The API server counts characters, not bytes.
    return Cases(
        valid=(*valid, "ä" * longest, "𝒜" * longest, *([""] if empty else [])),
        invalid=("a" * (longest + 1), "ä" * (longest + 1), MEGABYTE, *([] if empty else [""]), *_NOT_TEXT),
    )


_LABELS = Cases(
    valid=(
        {"team": "a"},
        {"example.com/team": ""},
        {"a" * 63: "b" * 63},
        {"a" * 253 + "/" + "b" * 63: "x"},
        {"a": "b", "none": None},
        {f"k{i}": "x" for i in range(32)},
    ),
    invalid=(
        {"a b": "x"},
        {"": "x"},
        {"/a": "x"},
        {"a/": "x"},
        {"a/b/c": "x"},
        {"A.com/b": "x"},
        {"a\n": "x"},
        {"ä": "x"},
        {"a" * 64: "x"},
        {"a" * 254 + "/b": "x"},
        {"a" * 400 + "/b": "x"},
        {"a": "x y"},
        {"a": "x\n"},
        {"a": "-x"},
        {"a": "ä"},
        {"a": "b" * 64},
        {"a": 1},
        {"a": True},
        {"a": ["b"]},
        {"a": {"b": "c"}},
        {f"k{i}": "x" for i in range(33)},
        ["a"],
        "a=b",
    ),
)
_TAGS = Cases(
    valid=({"Name": "ä" * 256}, {"k" * 128: ""}, {}, None),
    invalid=({"": "x"}, {"k" * 129: "x"}, {"a": "x" * 257}, {"a": 1}, ["a"], "a", {f"k{i}": "x" for i in range(51)}),
)
_ENDPOINT = Cases(
    valid=(
        "http://power-api/start",
        "https://power.example.com:8443/v1?machine=1&x=%20",
        "http://10.0.0.7",
        "http://[fd00::1]:80/x",
        "https://a" + "/b" * 1000,
    ),
    invalid=(
        "",
        "power-api/start",
        "ftp://a/b",
        "HTTP://a/b",
        "http://",
        "http:///b",
        "http://user:password@a/b",
        "http://a b/c",
        "http://a/b c",
        "http://a/ä",
        "http://a/b\n",
        "http://a:123456/",
        "http://a" + "/b" * 1024,
        *_NOT_TEXT,
    ),
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
        f"{path}[].podUid": _free_text(128, "u-2", empty=False),
        f"{path}[].podName": _free_text(253, "trainer"),
        f"{path}[].namespace": _free_text(253, "team"),
        f"{path}[].linkLocal": _BOOL,
        f"{path}[].bandwidth.ulMbps": _whole(0, 10**9),
        f"{path}[].bandwidth.dlMbps": _whole(0, 10**9),
    }


FIELDS: dict[str, dict[str, Cases]] = {
    "GPUWorkloadBudget": {
        "spec.paused": _BOOL,
        "spec.selector.matchLabels": _LABELS,
        "spec.selector.matchExpressions": Cases(
            valid=([], None, [{"key": "a", "operator": "Exists"}] * 16),
            invalid=(
                [{"key": "a", "operator": "Exists"}] * 17,
                [{"operator": "Exists"}],
                [{"key": "a"}],
                [None],
                ["a in (b)"],
                {"key": "a", "operator": "Exists"},
                "a",
            ),
        ),
        "spec.selector.matchExpressions[].key": Cases(
            valid=("a", "example.com/team", "a" * 253 + "/" + "b" * 63),
            invalid=("", "a b", "/a", "a/", "ä", "a\n", "a" * 64, "a" * 254 + "/b", "a" * 318, *_NOT_TEXT),
        ),
        "spec.selector.matchExpressions[].operator": Cases(
            valid=("In", "NotIn"),
            invalid=(
                "",
                "in",
                "Like",
                At("Exists", "spec.selector.matchExpressions[0].values"),
                At("DoesNotExist", "spec.selector.matchExpressions[0].values"),
                *_NOT_TEXT,
            ),
        ),
        "spec.selector.matchExpressions[].values": Cases(
            valid=(["x"], [""], ["x", "x"], ["x"] * 64),
            invalid=([], None, LEFT_OUT, ["x y"], ["x\n"], ["b" * 64], ["ä"], [None], [3], ["x"] * 65, "x", {"a": "b"}),
        ),
        "spec.quota.gpuHours": Cases(
            valid=(
                *(1, 100, 10**9, "100", "2.5", ".5", "5.", "+5", "500m", "1n", "0.1n", "1k", "1Ki", "1e3", "1E3"),
                *("1e9", "1e-999", "0.0000000001", "0" * 63 + "1", "1e-7", "0.001M"),
            ),
            invalid=(
                *(0, -1, 10**9 + 1, 2**63, -(2**63), True, [], {}, {"a": 1}, [{"a": 1}]),
                *("", "0", "-5M", "1e10", "1e309", "1e999", "1e1000", "1e1000000000000", "1E", "1Ei", "1e", "1Kib"),
                *("１", "1_0", " 1", "1 ", "1\n", "0x10", "NaN", "inf", "1,5", "--1", "1.2.3", ".", "-", "1mm", "1K"),
                *("1000000000.0000000001", "9" * 64, "0" * 64 + "1", MEGABYTE, "ä" * 65, "-0", "-1n", "0e9"),
                *map(number, ("1.5", "100.0", "1e2", "1e400", "9223372036854775808", "1e30")),
            ),
        ),
        "spec.quota.windowHours": _whole(1, 24 * 366),
        "spec.enforcement.action": Cases(
            valid=("AlertOnly", "Pause", "Evict"), invalid=("", "evict", "Delete", "Evict ", None, LEFT_OUT, *_NOT_TEXT)
        ),
        "spec.enforcement.gracePeriodSeconds": _whole(0, 7 * 86400),
        "spec.gpuResourceName": Cases(
            valid=("nvidia.com/gpu", "cpu", "nvidia.com/mig-1g.5gb", "a" * 253 + "/" + "b" * 63, None, LEFT_OUT),
            invalid=(
                "",
                "nvidia com/gpu",
                "/gpu",
                "nvidia.com/",
                "ｇpu",
                "gpu\n",
                "a" * 64,
                "a" * 254 + "/b",
                *_NOT_TEXT,
            ),
        ),
    },
    "Spotpool": {
        "spec.paused": _BOOL,
        "spec.region": _word(128, "ap-singapore"),
        "spec.availabilityZone": _word(128, "ap-singapore-2"),
        "spec.instanceType": _word(128, "GN7.2XLARGE32"),
        "spec.minimum": Cases(
            valid=(0, 1, 4, None, LEFT_OUT),
            invalid=(
                -1,
                1001,
                At(5, "spec.maximum"),
                "2",
                True,
                [],
                2**63,
                *map(number, ("1.0", "1e0", "1.5", "1e400")),
            ),
        ),
        "spec.maximum": Cases(
            valid=(2, 1000),
            invalid=(1, -1, 1001, None, LEFT_OUT, "4", False, {}, 2**63, *map(number, ("4.0", "4.5", "1e400"))),
        ),
        "spec.subnetId": _word(128, "DEFAULT", "subnet-1"),
        "spec.vpcId": _word(128, "DEFAULT", "vpc-1"),
        "spec.securityGroupIds": Cases(
            valid=([], None, ["sg-1", "sg-1"], ["sg"] * 16),
            invalid=("sg-1", [""], ["a b"], [None], [3], ["sg"] * 17, {"a": "b"}, [["sg"]]),
        ),
        "spec.imageId": _word(128, "img-1"),
        "spec.instanceChargeType": Cases(
            valid=("SPOTPAID", "POSTPAID_BY_HOUR", "PREPAID", "CDHPAID", "CDCPAID", None),
            invalid=("", "spotpaid", "FREE", *_NOT_TEXT),
        ),
        "spec.credentialsSecretRef.name": _object_name("cloud-keys"),
        "spec.secretId": Cases(valid=("", None, LEFT_OUT), invalid=("AKID", " ", "a" * 257, *_NOT_TEXT)),
        "spec.secretKey": Cases(valid=("", None, LEFT_OUT), invalid=("key", "0", "ä" * 300, *_NOT_TEXT)),
    },
    "PowerPool": {
        "spec.paused": _BOOL,
        "spec.machines": Cases(
            valid=([_MACHINE], [{**_MACHINE, "name": f"m{i}"} for i in range(512)]),
            invalid=(
                [],
                None,
                LEFT_OUT,
                [_MACHINE, _MACHINE],
                [{**_MACHINE, "name": f"m{i}"} for i in range(513)],
                [{**_MACHINE, "redfish": {}}],
                [None],
                {"gpu-worker-1": _MACHINE},
                "gpu-worker-1",
            ),
        ),
        "spec.machines[].name": _object_name("gpu-worker-1"),
        "spec.machines[].gpuCount": _whole(1, 1024),
        "spec.machines[].scaleUpEndpoint": _ENDPOINT,
        "spec.machines[].scaleDownEndpoint": _ENDPOINT,
        "spec.policy.idleSeconds": _whole(0, 7 * 86400),
        "spec.policy.bootTimeoutSeconds": _whole(1, 86400),
        "spec.policy.minOn": Cases(
            valid=(0, 2, None, LEFT_OUT),
            invalid=(3, -1, 10001, "1", True, [], 2**63, *map(number, ("1.0", "1.5", "1e400"))),
        ),
    },
    "Bandwidth": {
        "spec.paused": _BOOL,
        "spec.node": Cases(
            valid=("node-1", None, LEFT_OUT), invalid=("node-2", "NODE-1", "node-1\n", "", "a" * 254, *_NOT_TEXT)
        ),
        "spec.capacity.local.ulMbps": _whole(0, 10**9),
        "spec.capacity.local.dlMbps": _whole(0, 10**9),
        "spec.capacity.network.ulMbps": _whole(0, 10**9),
        "spec.capacity.network.dlMbps": _whole(0, 10**9),
        **_requests("spec.requests"),
        **_requests("spec.reservations"),
        "spec.status": Cases(
            valid=("None", "Creating", "Created", "Error", "Deleting", "Deleted", None),
            invalid=("", "none", "Ready", *_NOT_TEXT),
        ),
    },
    "LeftoverNodePool": {
        "spec.paused": _BOOL,
        "spec.region": _free_text(64, "us-east-1", empty=False),
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
        "spec.nodeClassName": _object_name("class"),
        "spec.nodeClassSelector": Cases(
            valid=_LABELS.valid,
            invalid=(
                *_LABELS.invalid,
                At({}, "spec.nodeClassName"),
                At(None, "spec.nodeClassName"),
                At({"a": None}, "spec.nodeClassName"),
            ),
            beside={"spec.nodeClassName": LEFT_OUT},
        ),
        "spec.minGPUs": _whole(1, 64),
        "spec.targetCount": _whole(1, 2000),
        "spec.minSpotScore": _whole(0, 10),
        "spec.maxInstanceTypes": _whole(1, 60),
        "spec.maxZones": _whole(1, 20),
        "spec.capacityType": Cases(
            valid=("spot", None), invalid=("", "Spot", "reserved", At("on-demand", "spec.onDemandFallback"), *_NOT_TEXT)
        ),
        "spec.subnetSelectorTags": _TAGS,
        "spec.securityGroupSelectorTags": _TAGS,
        "spec.budgetsNodes": Cases(
            valid=("0", "0%", "10%", "100%", "999999", None),
            invalid=("", "101%", "999%", "%", "-1", "1.5%", "10 %", "１0%", "10%\n", "1234567", *_NOT_TEXT),
        ),
        "spec.consolidateAfter": Cases(
            valid=("0s", "2m", "1h30m", "Never", None),
            invalid=("", "2", "2d", "-1m", "never", "1.5h", "2m ", "2m\n", "1" * 32 + "h", *_NOT_TEXT),
        ),
        "spec.labels": _LABELS,
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
        "spec.requeueMinutes": _whole(1, 1440),
        "spec.onDemandFallback": Cases(valid=(True, False, None, LEFT_OUT), invalid=_BOOL.invalid),
    },
}
