"""Pods that are valid but odd, and changes of them: what an API server accepts although nobody would write it so."""

import random
from typing import Any

from headroom.api import marks
from tests.integration.policed import Document

NAMESPACES = ("hold-a", "hold-b", "hold-required")
KEYS, VALUES = ("team", "tier", "example.com/x", "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/podset"), ("a", "b", "")
RESOURCES = (
    "nvidia.com/gpu",
    "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    "nvidia.com/mig-1g.5gb",
    "amd.com/gpu",
    "example.com/fpga",
    "cpu",
    "memory",
)
LENGTHS = ("90s", "1h30m", "2h", "00001h", "99999h999999m9999999s", "1s")
NO_LENGTHS = ("", "0s", "0h0m", "1 hour", "-1s", "1h\n", "1d", "１h", "1h" * 9, "h", "9" * 30 + "s", "ü" * 300)
ODD_TEXTS = ("", "x", "ünïcødé ☃ 𝒜", "a\nb\tc", "'\"\\{}", "null", "{{pod}}", "x" * 300, "\u202eabc", "' + object + '")
FOREIGN_GATES = ("example.com/wait", "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
OWNERS: tuple[Document, ...] = (
    {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True},
    {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2"},
    {"apiVersion": "v1", "kind": "ReplicationController", "name": "r", "uid": "3", "controller": False},
    {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "r", "uid": "4", "controller": True},
)


class Fuzzer:
    """Odd pods from one seed."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def pod(self, name: str) -> Document:
        """A new pod."""
        metadata: Document = {"namespace": self.dice.choice(NAMESPACES)}
        metadata |= {"generateName": name} if self.chance(0.1) else {"name": name}
        metadata |= self.some("labels", self.labels) | self.some("annotations", self.annotations)
        metadata |= self.some("finalizers", lambda: self.dice.sample(["example.com/f", "headroom.dev/usage"], k=1), 0.1)
        metadata |= self.some("ownerReferences", self.owners, 0.25)
        spec = self.spec()
        if self.chance(0.03):
            spec |= {"nodeName": "n", "schedulingGates": []}
            metadata["annotations"] = (metadata.get("annotations") or {}) | {"kubernetes.io/config.mirror": "x"}
            spec.pop("resourceClaims", None)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def some(self, field: str, make: Any, share: float = 0.8) -> Document:
        """The field with something in it, or empty, or null, or not at all."""
        if self.chance(share):
            return {field: make()}
        empty: Any = {} if field in ("labels", "annotations") else []
        return self.dice.choice([{}, {field: None}, {field: empty}])

    def labels(self) -> dict[str, str]:
        found = {key: self.dice.choice(VALUES) for key in KEYS[:3] if self.chance(0.5)}
        found |= {key: "q" for key in KEYS[3:] if self.chance(0.12)}
        return found | {f"l{i}": str(i) for i in range(self.dice.choice((*[0] * 10, 3, 40)))}

    def annotations(self) -> dict[str, str]:
        found = {f"example.com/a{i}": self.dice.choice(ODD_TEXTS) for i in range(self.dice.randint(0, 3))}
        if self.chance(0.25):
            found[marks.EXPECTED_DURATION] = self.dice.choice(LENGTHS if self.chance(0.6) else NO_LENGTHS)
        for key in (marks.PROTECTED, marks.RELEASED_AT, marks.HELD_BY, marks.HELD_BECAUSE, "kueue.x-k8s.io/workload"):
            if self.chance(0.05):
                found[key] = self.dice.choice((*ODD_TEXTS, "hold-a/b", "!", "zz/zz"))
        return found

    def owners(self) -> list[Document]:
        chosen = self.dice.sample(OWNERS, k=self.dice.randint(1, 3))
        rest = [each for each in chosen if not each.get("controller")]
        return [*rest, *[each for each in chosen if each.get("controller")][:1]]

    def spec(self) -> Document:
        spec: Document = {
            "containers": [self.container(f"c{i}") for i in range(self.dice.choice((*[1] * 16, 2, 3, 3, 25)))]
        }
        spec |= self.some("initContainers", self.init_containers, 0.2)
        spec |= self.some("schedulingGates", self.gates, 0.25)
        spec |= self.some("tolerations", lambda: [{"operator": "Exists"}], 0.1)
        if self.chance(0.1):
            spec |= self.dice.choice(
                (
                    {"resourceClaims": []},
                    {"resourceClaims": None},
                    {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]},
                )
            )
        if not spec.get("schedulingGates") and self.chance(0.1):
            spec["nodeName"] = self.dice.choice(("", "n"))
        if self.chance(0.15):
            spec["activeDeadlineSeconds"] = self.dice.choice((1, 60, 5400, 2**31 - 1))
        if self.chance(0.2):
            spec |= self.dice.choice(
                (
                    {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0},
                    {"hostPID": True, "nodeSelector": {"ü".encode().hex(): "x"}},
                    {"volumes": [{"name": "v", "emptyDir": {}}], "imagePullSecrets": [{"name": "a"}, {"name": "a"}]},
                    {"affinity": {}, "securityContext": {"runAsUser": 0}, "hostAliases": None},
                    {"overhead": None, "readinessGates": [{"conditionType": "example.com/ready"}]},
                )
            )
        return spec

    def gates(self) -> list[Document]:
        names = self.dice.sample([*FOREIGN_GATES, marks.GATE], k=self.dice.randint(1, 2))
        return [{"name": each} for each in names]

    def init_containers(self) -> list[Document]:
        sidecar = {"restartPolicy": "Always"} if self.chance(0.3) else {}
        return [self.container(f"i{i}") | sidecar for i in range(self.dice.randint(1, 3))]

    def container(self, name: str) -> Document:
        found: Document = {"name": name, "image": self.dice.choice(("none", "none:1", "x/y@sha256:" + "0" * 64))}
        if self.chance(0.75):
            found["resources"] = self.resources()
        if self.chance(0.1):  # the same variable twice is allowed
            found["env"] = [{"name": "A", "value": self.dice.choice(ODD_TEXTS)} for _ in range(2)]
        if self.chance(0.05):
            found["ports"] = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
        return found

    def resources(self) -> Document | None:
        amounts = {
            each: self.dice.choice(("0", "1", "8", "1e3"))
            for each in self.dice.sample(RESOURCES, k=self.dice.randint(0, 2))
        }
        return self.dice.choice(
            (
                None,
                {},
                {"limits": None},
                {"limits": {}, "requests": None},
                {"limits": amounts},
                {"limits": amounts, "requests": amounts},
            )
        )

    # --- changes ----------------------------------------------------------------------------------------------------------

    def change(self, pod: Document) -> Document:
        """The pod with something else about it that an update may bring."""
        metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
        for _ in range(self.dice.randint(1, 2)):
            match self.dice.randint(0, 6):
                case 0 | 1:
                    metadata |= self.some("labels", self.labels)
                case 2:
                    metadata |= self.some("annotations", self.annotations)
                case 3:
                    kept = metadata.get("annotations") or {}
                    key = self.dice.choice(
                        (marks.EXPECTED_DURATION, marks.PROTECTED, marks.RELEASED_AT, "example.com/a0")
                    )
                    metadata["annotations"] = {each: value for each, value in kept.items() if each != key}
                case 4:
                    gates = spec.get("schedulingGates") or []
                    spec["schedulingGates"] = [each for each in gates if self.chance(0.3)]
                case 5:
                    metadata["finalizers"] = [each for each in metadata.get("finalizers") or [] if self.chance(0.5)]
                case 6:
                    spec["containers"] = [each | {"image": "other"} for each in spec["containers"]]
        return pod | {
            "metadata": {key: value for key, value in metadata.items() if key != "resourceVersion"},
            "spec": spec,
        }
