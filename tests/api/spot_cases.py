"""Values of every field of a Spotpool: what it may hold and may not."""

from typing import Any

from tests.api.cases import (
    BOOL,
    LABELS,
    LEFT_OUT,
    MEGABYTE,
    NOT_TEXT,
    At,
    Cases,
    manifest,
    number,
    object_name,
    whole,
    word,
)
from tests.api.power_cases import KEY, OTHER_ENDPOINT, RESOURCES, SECRET_KEY, TAINTS, VALUE, WEBHOOK, choice, optional

SPOTPOOL: dict[str, Any] = manifest(
    "Spotpool",
    "pool",
    {
        "paused": True,
        "provider": "tencent",
        "region": "ap-singapore",
        "availabilityZone": "ap-singapore-2",
        "zones": [],
        "instanceType": "GN7.2XLARGE32",
        "instanceTypes": [],
        "allocation": "LowestPrice",
        "minimum": 2,
        "maximum": 4,
        "desired": "Demand",
        "maxSurge": 2,
        "maxPricePerHour": "1.5",
        "maxPurchasesPerHour": 20,
        "order": 7,
        "join": True,
        "joinTimeoutSeconds": 600,
        "idleSeconds": 300,
        "drainSeconds": 120,
        "deletionPolicy": "Retain",
        "template": {
            "gpuCount": 1,
            "gpuResourceName": "nvidia.com/gpu",
            "resources": {"cpu": "8", "memory": "32Gi"},
            "labels": {"gpu": "t4"},
            "taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}],
        },
        "subnetId": "DEFAULT",
        "subnetIds": {"ap-singapore-2": "subnet-2"},
        "vpcId": "DEFAULT",
        "securityGroupIds": ["sg-1"],
        "imageId": "img-1",
        "instanceChargeType": "SPOTPAID",
        "systemDisk": {"type": "CLOUD_SSD", "sizeGiB": 200},
        "publicIp": True,
        "keyIds": ["skey-1"],
        "userDataSecretRef": {"name": "boot", "key": "cloud-init"},
        "credentialsSecretRef": {"name": "cloud-keys"},
        "secretId": "",
        "secretKey": "",
        "webhook": {
            "headers": [{"name": "X-Site", "value": "b1", "secretKeyRef": None}],
            "tokenSecretRef": {"name": "cloud-api", "key": "token"},
            "body": "{}",
            "expectedStatus": [200],
            "timeoutSeconds": 3,
        },
        "gateway": {
            "adminUrl": "http://kong:8001",
            "upstream": "llama2-upstream",
            "port": 8080,
            "path": "/api/chat",
            "route": "/ollama-chat",
            "tokenSecretRef": {"name": "kong", "key": "token"},
        },
    },
)

REGION = Cases(
    valid=("ap-singapore", "us-east-1", "a", "7", "a" * 63),
    invalid=(
        "",
        " ",
        "US-EAST-1",
        "a.b",
        "a_b",
        "-a",
        "a-",
        "a/b",
        "a@b",
        "a:1",
        "a\n",
        "ä",
        "a" * 64,
        MEGABYTE,
        *NOT_TEXT,
    ),
)
_ONE_TYPE = At(LEFT_OUT, "spec.instanceType")
_PATH = ("a", "/a b", "/ä", "/a\n", "/" + "a" * 512, *NOT_TEXT)


def _several(single: str, where: str) -> Cases:
    """A list of ids that stands instead of a single one."""
    return Cases(
        valid=(["a"], ["a", "b"], ["a"] * 16),
        invalid=([""], ["a b"], [3], [None], ["a"] * 17, "a", {"a": "b"}, *([] if where == "" else [At([], where)])),
        beside={single: LEFT_OUT},
    )


SPOTPOOL_FIELDS: dict[str, Cases] = {
    "spec.paused": BOOL,
    "spec.provider": Cases(
        valid=("tencent", "aws", None), invalid=("", "Tencent", "gcp", At("webhook", "spec.endpoint"), *NOT_TEXT)
    ),
    "spec.region": REGION,
    "spec.availabilityZone": optional(word(128, "ap-singapore-2")),
    "spec.zones": _several("spec.availabilityZone", ""),
    "spec.instanceType": Cases(
        valid=word(128, "GN7.2XLARGE32").valid, invalid=(_ONE_TYPE, *word(128, "GN7.2XLARGE32").invalid)
    ),
    "spec.instanceTypes": _several("spec.instanceType", "spec.instanceType"),
    "spec.allocation": choice("Ordered", "LowestPrice"),
    "spec.minimum": Cases(
        valid=(0, 1, 4, None, LEFT_OUT),
        invalid=(-1, 1001, At(5, "spec.maximum"), "2", True, [], 2**63, *map(number, ("1.0", "1e0", "1.5", "1e400"))),
    ),
    "spec.maximum": Cases(
        valid=(2, 1000),
        invalid=(1, -1, 1001, None, LEFT_OUT, "4", False, {}, 2**63, *map(number, ("4.0", "4.5", "1e400"))),
    ),
    "spec.desired": Cases(
        valid=("Demand", 0, 3, 1000, number("3.0"), None, LEFT_OUT),
        invalid=("demand", "", "3", "Demand\n", -1, 1001, 2**63, True, [], {}, number("1.5"), number("1e400")),
    ),
    "spec.maxSurge": whole(0, 100),
    "spec.maxPricePerHour": Cases(
        valid=(1, "1.5", "350m", "1e-3", None, LEFT_OUT),
        invalid=("", "cheap", "0", 0, -1, "-1.5", "1.5$", True, [], {}, number("1.5")),
    ),
    "spec.maxPurchasesPerHour": optional(whole(1, 10_000)),
    "spec.order": whole(-1000, 1000),
    "spec.join": Cases(valid=(True, None), invalid=(At(False, "spec.desired"), *BOOL.invalid)),
    "spec.joinTimeoutSeconds": Cases(
        valid=(60, 86400, number("900.0"), None), invalid=(59, 86401, "900", True, [], {}, number("60.5"))
    ),
    "spec.idleSeconds": whole(0, 86400),
    "spec.drainSeconds": whole(0, 86400),
    "spec.deletionPolicy": choice("Terminate", "Retain"),
    "spec.template.gpuCount": Cases(
        valid=(1, 1024),
        invalid=(At(LEFT_OUT, "spec.desired"), number("1.0"), number("8e0"), *whole(1, 1024).invalid),
    ),
    "spec.template.gpuResourceName": Cases(
        valid=("nvidia.com/gpu", "gpu", None, LEFT_OUT),
        invalid=("", "nvidia.com/", "a b", "/gpu", "nvidia.com/gpu*", "a" * 400, *NOT_TEXT),
    ),
    "spec.template.resources": RESOURCES,
    "spec.template.labels": optional(LABELS),
    "spec.template.taints": TAINTS,
    "spec.template.taints[].key": KEY,
    "spec.template.taints[].value": VALUE,
    "spec.template.taints[].effect": Cases(
        valid=("NoSchedule", "PreferNoSchedule", "NoExecute"),
        invalid=("", "noschedule", "Never", None, LEFT_OUT, *NOT_TEXT),
    ),
    "spec.subnetId": optional(word(128, "DEFAULT", "subnet-1")),
    "spec.subnetIds": Cases(
        valid=({}, None, LEFT_OUT, {"a": "subnet-1", "b": "DEFAULT"}, {f"z{i}": "s" for i in range(16)}),
        invalid=({"a": ""}, {"a": "b c"}, {"a": 3}, {f"z{i}": "s" for i in range(17)}, ["a"], "a"),
    ),
    "spec.vpcId": optional(word(128, "DEFAULT", "vpc-1")),
    "spec.securityGroupIds": Cases(
        valid=([], None, ["sg-1", "sg-1"], ["sg"] * 16),
        invalid=("sg-1", [""], ["a b"], [None], [3], ["sg"] * 17, {"a": "b"}, [["sg"]]),
    ),
    "spec.imageId": optional(word(128, "img-1")),
    "spec.instanceChargeType": Cases(
        valid=("SPOTPAID", "POSTPAID_BY_HOUR", None),
        invalid=("PREPAID", "CDHPAID", "CDCPAID", "", "spotpaid", "FREE", *NOT_TEXT),
    ),
    "spec.systemDisk.type": word(128, "CLOUD_BSSD", "gp3"),
    "spec.systemDisk.sizeGiB": whole(1, 65536),
    "spec.publicIp": BOOL,
    "spec.keyIds": Cases(
        valid=([], None, ["skey-1"], ["k"] * 16), invalid=("skey-1", [""], ["a b"], [None], [3], ["k"] * 17, {"a": "b"})
    ),
    "spec.userDataSecretRef.name": object_name("boot"),
    "spec.userDataSecretRef.key": SECRET_KEY,
    "spec.credentialsSecretRef.name": object_name("cloud-keys"),
    "spec.secretId": Cases(valid=("", None, LEFT_OUT), invalid=("AKID", " ", "a" * 257, *NOT_TEXT)),
    "spec.secretKey": Cases(valid=("", None, LEFT_OUT), invalid=("key", "0", "ä" * 300, *NOT_TEXT)),
    "spec.endpoint": Cases(
        valid=[each for each in OTHER_ENDPOINT.valid if each not in (None, LEFT_OUT)],
        invalid=(LEFT_OUT, None, *OTHER_ENDPOINT.invalid),
        beside={"spec.provider": "webhook"},
    ),
    **WEBHOOK,
    "spec.gateway.adminUrl": Cases(
        valid=[each for each in OTHER_ENDPOINT.valid if each not in (None, LEFT_OUT)], invalid=OTHER_ENDPOINT.invalid
    ),
    "spec.gateway.upstream": word(128, "llama2-upstream"),
    "spec.gateway.port": whole(1, 65535),
    "spec.gateway.path": Cases(valid=("/", "/api/chat", None), invalid=("", *_PATH)),
    "spec.gateway.route": Cases(valid=("", "/ollama-chat", None), invalid=_PATH),
    "spec.gateway.tokenSecretRef.name": object_name("kong"),
    "spec.gateway.tokenSecretRef.key": SECRET_KEY,
}
