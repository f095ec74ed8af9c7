"""Values of every field of a PowerPool: what it may hold and may not."""

from typing import Any

from tests.api.cases import BOOL, LABELS, LEFT_OUT, MEGABYTE, NOT_TEXT, At, Cases, manifest, number, object_name, whole

_MACHINE: dict[str, Any] = {
    "name": "gpu-worker-1",
    "gpuCount": 4,
    "scaleUpEndpoint": "http://power-api/gpu-worker-1/start",
    "scaleDownEndpoint": "http://power-api/gpu-worker-1/stop",
}
_BMC = {"address": "https://bmc-1.example.com"}


def _hardware() -> dict[str, Any]:
    """Made anew each time, as places that share one object would change together."""
    return {
        "resources": {"cpu": "64", "memory": "512Gi"},
        "labels": {"gpu": "h100"},
        "taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}],
        "idleWatts": 1500,
        "busyWatts": 6000,
    }


POOL = manifest(
    "PowerPool",
    "rack",
    {
        "paused": False,
        "machines": [
            _MACHINE | _hardware() | {"statusEndpoint": "http://power-api/gpu-worker-1"},
            {**_MACHINE, "name": "gpu-worker-2", "gpuCount": 8},
        ],
        "template": _hardware(),
        "webhook": {
            "headers": [{"name": "X-Site", "value": "b1", "secretKeyRef": None}],
            "tokenSecretRef": {"name": "power-api", "key": "token"},
            "body": '{"machine": "${machine}"}',
            "expectedStatus": [202],
            "timeoutSeconds": 3,
        },
        "policy": {
            "idleSeconds": 300,
            "bootTimeoutSeconds": 600,
            "minOn": 1,
            "minOnSeconds": 60,
            "minOffSeconds": 60,
            "togglesPerHour": 4,
            "maxConcurrentWakes": 2,
            "maxConcurrentSleeps": 1,
            "warmPercent": 10,
            "schedulers": ["gpu-binpack"],
            "protectedMachines": ["gpu-worker-1"],
            "keepOn": [{"days": ["Mon"], "begin": "08:00", "end": "18:00", "timeZone": "Europe/Berlin", "minOn": 1}],
            "prefer": "FewestWatts",
            "drain": "NonGpuPods",
            "priorityFloor": 0,
            "shareWithKarpenter": True,
            "wakeForExhaustedBudgets": True,
        },
        "gpuResourceName": "amd.com/gpu",
        "deviceClasses": ["gpu.amd.com"],
        "order": 1,
    },
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
        *NOT_TEXT,
    ),
)
OTHER_ENDPOINT = Cases(valid=(*_ENDPOINT.valid, None, LEFT_OUT), invalid=_ENDPOINT.invalid)
_UP, _DOWN = "spec.machines[].scaleUpEndpoint", "spec.machines[].scaleDownEndpoint"
_BY_BMC = {_UP: LEFT_OUT, _DOWN: LEFT_OUT, "spec.machines[].redfish": _BMC}
_BY_LAN = {_UP: LEFT_OUT, "spec.machines[].wakeOnLan": {"mac": "0a:1b:2c:3d:4e:5f"}}
_TIME = Cases(
    valid=("00:00", "08:30", "23:59"), invalid=("24:00", "8:00", "08:60", "", "08:00:00", "noon", "08:00\n", *NOT_TEXT)
)


def choice(*words: str) -> Cases:
    return Cases(valid=(*words, None, LEFT_OUT), invalid=("", words[0].lower(), "Sometimes", *NOT_TEXT))


def optional(cases: Cases) -> Cases:
    return Cases(valid=(*cases.valid, None, LEFT_OUT), invalid=cases.invalid, beside=cases.beside)


RESOURCES = Cases(
    valid=({"cpu": 64}, {"cpu": "500m", "memory": "1Ti", "example.com/nic": 2}, {}, None, LEFT_OUT),
    invalid=({"cpu": "many"}, {"cpu": True}, {"cpu": []}, {f"r{i}": 1 for i in range(17)}, "cpu", ["cpu"]),
)
TAINTS = Cases(
    valid=([], None, LEFT_OUT, [{"key": "a", "effect": "NoExecute"}], [{"key": "a", "effect": "NoSchedule"}] * 16),
    invalid=([{}], [None], [{"key": "a"}], [{"key": "a", "effect": "NoSchedule"}] * 17, "a", {"a": "b"}),
)
KEY = Cases(
    valid=("dedicated", "nvidia.com/gpu", "a" * 63),
    invalid=("", "a b", "/a", "a/", "-a", "ä", "a" * 64, "a" * 254 + "/b", MEGABYTE, *NOT_TEXT),
)
VALUE = Cases(
    valid=("", "ml", "a" * 63, None, LEFT_OUT), invalid=("a b", "-a", "a" * 64, "ä", "a\n", MEGABYTE, *NOT_TEXT)
)


def _hardware_fields(path: str) -> dict[str, Cases]:
    return {
        f"{path}.resources": RESOURCES,
        f"{path}.labels": optional(LABELS),
        f"{path}.taints": TAINTS,
        f"{path}.taints[].key": KEY,
        f"{path}.taints[].value": VALUE,
        f"{path}.taints[].effect": Cases(
            valid=("NoSchedule", "PreferNoSchedule", "NoExecute"),
            invalid=("", "noschedule", "Never", None, LEFT_OUT, *NOT_TEXT),
        ),
        f"{path}.idleWatts": optional(whole(0, 100_000)),
        f"{path}.busyWatts": optional(whole(0, 100_000)),
    }


SECRET_KEY = Cases(valid=("token", "a.b_c-D", None, LEFT_OUT), invalid=("", "a b", "ä", "a/b", "a" * 254, *NOT_TEXT))
_MACHINES = Cases(
    valid=(
        [_MACHINE, _MACHINE | {"name": "b"}],
        [{"name": "a", "gpuCount": 1, "redfish": _BMC}],
        [{**_MACHINE, "name": f"m{i}"} for i in range(512)],
    ),
    invalid=(
        [],
        None,
        LEFT_OUT,
        [_MACHINE, _MACHINE],
        [{**_MACHINE, "name": f"m{i}"} for i in range(513)],
        [{**_MACHINE, "redfish": _BMC}],
        [{"name": "a", "gpuCount": 1}],
        [{"name": "a", "gpuCount": 1, "scaleUpEndpoint": "http://a/b"}],
        [{"name": "a", "gpuCount": 1, "scaleDownEndpoint": "http://a/b"}],
        [{"name": "a", "gpuCount": 1, "wakeOnLan": {"mac": "0a:1b:2c:3d:4e:5f"}}],
        [{**_MACHINE, "wakeOnLan": {"mac": "0a:1b:2c:3d:4e:5f"}}],
        [{**_MACHINE, "scaleDownEndpoint": _MACHINE["scaleUpEndpoint"]}],
        [None],
        {"gpu-worker-1": _MACHINE},
        "gpu-worker-1",
    ),
)
_MAC = Cases(
    valid=("0a:1b:2c:3d:4e:5f", "0A:1B:2C:3D:4E:5F"),
    invalid=("", "0a-1b-2c-3d-4e-5f", "0a:1b:2c:3d:4e", "0a:1b:2c:3d:4e:5g", "0a:1b:2c:3d:4e:5f:60", None, *NOT_TEXT),
    beside=_BY_LAN,
)

_SWITCHES: dict[str, Cases] = {
    _UP: Cases(valid=_ENDPOINT.valid, invalid=(At(LEFT_OUT, "spec.machines[0]"), *_ENDPOINT.invalid)),
    _DOWN: Cases(valid=_ENDPOINT.valid, invalid=(At(LEFT_OUT, "spec.machines[0]"), *_ENDPOINT.invalid)),
    "spec.machines[].statusEndpoint": OTHER_ENDPOINT,
    "spec.machines[].redfish.address": Cases(valid=_ENDPOINT.valid, invalid=_ENDPOINT.invalid, beside=_BY_BMC),
    "spec.machines[].redfish.system": Cases(
        valid=("", "1", "System.Embedded.1", "a:b-c_d", None),
        invalid=("a b", "a/b", "..%2f", "a" * 257, "ä", *NOT_TEXT),
        beside=_BY_BMC,
    ),
    "spec.machines[].redfish.credentialsSecretRef.name": object_name("bmc", beside=_BY_BMC),
    "spec.machines[].redfish.certificateAuthority": Cases(
        valid=("", "PEM", "a" * 16384, None), invalid=("a" * 16385, MEGABYTE, *NOT_TEXT), beside=_BY_BMC
    ),
    "spec.machines[].redfish.insecure": Cases(valid=BOOL.valid, invalid=BOOL.invalid, beside=_BY_BMC),
    "spec.machines[].redfish.force": Cases(valid=BOOL.valid, invalid=BOOL.invalid, beside=_BY_BMC),
    "spec.machines[].wakeOnLan.mac": _MAC,
    "spec.machines[].wakeOnLan.address": Cases(
        valid=("255.255.255.255", "10.0.7.255", None),
        invalid=("", "power", "10.0.7", "10.0.7.255.1", "1000.0.0.1", "::1", *NOT_TEXT),
        beside=_BY_LAN,
    ),
    "spec.machines[].wakeOnLan.port": whole(1, 65535, beside=_BY_LAN),
}
WEBHOOK: dict[str, Cases] = {
    "spec.webhook.headers": Cases(
        valid=([], None, [{"name": "A", "value": "b"}], [{"name": f"A{i}"} for i in range(16)]),
        invalid=(
            [{"name": "A"}, {"name": "A"}],
            [{"name": f"A{i}"} for i in range(17)],
            [{}],
            [{"name": "A", "value": "b", "secretKeyRef": {"name": "c"}}],
            {"A": "b"},
            "A: b",
        ),
    ),
    "spec.webhook.headers[].name": Cases(
        valid=("X-Site", "a"),
        invalid=("", "a b", "a:", "a\n", "Host", "content-length", "Idempotency-Key", "a" * 129, None, *NOT_TEXT),
    ),
    "spec.webhook.headers[].value": Cases(
        valid=("", "b 1", "~" * 1024, None), invalid=("a\nb", "a\r", "ä", "a" * 1025, *NOT_TEXT)
    ),
    "spec.webhook.headers[].secretKeyRef.name": object_name("keys", beside={"spec.webhook.headers[].value": ""}),
    "spec.webhook.headers[].secretKeyRef.key": Cases(
        valid=SECRET_KEY.valid,
        invalid=SECRET_KEY.invalid,
        beside={"spec.webhook.headers[].value": "", "spec.webhook.headers[].secretKeyRef": {"name": "a", "key": "b"}},
    ),
    "spec.webhook.tokenSecretRef.name": object_name("power-api"),
    "spec.webhook.tokenSecretRef.key": SECRET_KEY,
    "spec.webhook.body": Cases(valid=("", "{}", "ä" * 4096, None), invalid=("a" * 4097, MEGABYTE, *NOT_TEXT)),
    "spec.webhook.expectedStatus": Cases(
        valid=([], [200, 202, 204], None), invalid=([199], [300], ["200"], [True], [200] * 17, 200, "200")
    ),
    "spec.webhook.timeoutSeconds": whole(1, 10),
}
_POLICY: dict[str, Cases] = {
    "spec.policy.idleSeconds": whole(0, 7 * 86400),
    "spec.policy.bootTimeoutSeconds": whole(1, 86400),
    "spec.policy.minOn": Cases(
        valid=(0, 2, None, LEFT_OUT),
        invalid=(3, -1, 10001, "1", True, [], 2**63, *map(number, ("1.0", "1.5", "1e400"))),
    ),
    "spec.policy.minOnSeconds": whole(0, 7 * 86400),
    "spec.policy.minOffSeconds": whole(0, 7 * 86400),
    "spec.policy.togglesPerHour": whole(1, 120),
    "spec.policy.maxConcurrentWakes": optional(whole(1, 512)),
    "spec.policy.maxConcurrentSleeps": optional(whole(1, 512)),
    "spec.policy.schedulers": Cases(
        valid=([], None, ["gpu-binpack", "a.b"], [f"s{i}" for i in range(16)]),
        invalid=([""], ["A"], ["a/b"], [3], ["x" * 254], [f"s{i}" for i in range(17)], "a", {"a": "b"}),
    ),
    "spec.policy.warmPercent": optional(whole(0, 100)),
    "spec.policy.protectedMachines": Cases(
        valid=([], None, ["a", "b"], [f"m{i}" for i in range(512)]),
        invalid=([""], ["A"], [3], [f"m{i}" for i in range(513)], "a", {"a": "b"}),
    ),
    "spec.policy.keepOn": Cases(
        valid=([], None, [{"begin": "22:00", "end": "06:00"}], [{"begin": "08:00", "end": "09:00"}] * 16),
        invalid=([{}], [None], [{"begin": "08:00"}], [{"begin": "08:00", "end": "09:00"}] * 17, "08:00", {}),
    ),
    "spec.policy.keepOn[].days": Cases(
        valid=([], None, ["Mon", "Sun"], ["Mon"] * 7), invalid=(["Monday"], ["mon"], [1], ["Mon"] * 8, "Mon", {})
    ),
    "spec.policy.keepOn[].begin": _TIME,
    "spec.policy.keepOn[].end": _TIME,
    "spec.policy.keepOn[].timeZone": Cases(
        valid=("UTC", "Europe/Berlin", "Etc/GMT+1", None),
        invalid=("", "../etc/passwd", "/UTC", "Europe Berlin", "Mars/Olympus", "Europe", "a" * 65, *NOT_TEXT),
    ),
    "spec.policy.keepOn[].minOn": optional(whole(1, 512)),
    "spec.policy.prefer": choice("FewestGPUs", "FewestWatts"),
    "spec.policy.drain": choice("Never", "NonGpuPods"),
    "spec.policy.priorityFloor": Cases(
        valid=(-(2**31), -10, 0, 2**31 - 1, None, LEFT_OUT),
        invalid=(-(2**31) - 1, 2**31, 2**63, "0", True, [], number("1.5"), number("1e400")),
    ),
    "spec.policy.shareWithKarpenter": BOOL,
    "spec.policy.wakeForExhaustedBudgets": BOOL,
}
POOL_FIELDS: dict[str, Cases] = {
    "spec.paused": BOOL,
    "spec.machines": _MACHINES,
    "spec.machines[].name": object_name("gpu-worker-1"),
    "spec.machines[].gpuCount": whole(1, 1024),
    **_hardware_fields("spec.machines[]"),
    **_SWITCHES,
    **_hardware_fields("spec.template"),
    **WEBHOOK,
    **_POLICY,
    "spec.gpuResourceName": Cases(
        valid=("nvidia.com/gpu", "gpu", None, LEFT_OUT),
        invalid=("", "nvidia.com/", "a b", "/gpu", "nvidia.com/gpu*", "a" * 400, *NOT_TEXT),
    ),
    "spec.deviceClasses": Cases(
        valid=([], None, ["gpu.nvidia.com", "mig"], [f"c{i}" for i in range(16)]),
        invalid=([""], ["A"], ["a/b"], [3], ["x" * 254], [f"c{i}" for i in range(17)], "a", {"a": "b"}),
    ),
    "spec.order": whole(-1000, 1000),
}
