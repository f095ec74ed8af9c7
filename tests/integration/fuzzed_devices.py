"""Pods that ask for devices in every way there is, and the claims, templates and classes that they name."""

from typing import Any

from headroom.api import marks
from tests.integration.fuzzed_pods import FOREIGN_GATES, KEYS, NAMESPACES, Fuzzer
from tests.integration.policed import Document

IMPLICIT = "deviceclass.resource.kubernetes.io/"
CLASSES: dict[str, tuple[str, str]] = {
    "gpu.nvidia.com": ("gpu.nvidia.com", ""),
    "mig.nvidia.com": ("gpu.nvidia.com", "nvidia.com/mig-1g.10gb"),
    "h100": ("gpu.nvidia.com", "example.com/h100"),
    "gpu.amd.com": ("gpu.amd.com", ""),
    "nic.example.com": ("nic.example.com", "example.com/nic"),
    "fpga.example.com": ("fpga.example.com", ""),
}
"""Each device class with its driver and its extended resource."""
NAMES = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "example.com/fpga", "example.com/other", "cpu")
EXTENDED = (*NAMES, *(name for _, name in CLASSES.values() if name), *(IMPLICIT + name for name in (*CLASSES, "gone")))
CLAIMS, TEMPLATES = 24, 12


def device_class(name: str) -> Document:
    """A class of the devices of one driver."""
    driver, extended = CLASSES[name]
    spec: Document = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
    spec |= {"extendedResourceName": extended} if extended else {}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


class DeviceFuzzer(Fuzzer):
    """Such pods from one seed; of all else about them, only what decides whether they are queued."""

    def claims(self) -> list[Document]:
        """Claims and templates, the same number of each in every namespace."""
        found: list[Document] = []
        for namespace in NAMESPACES:
            for number in range(CLAIMS):
                about: Document = {"name": f"c{number}", "namespace": namespace}
                if self.chance(0.3):  # a tenant's word, which means nothing
                    about |= {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}
                found.append(self._named("ResourceClaim", about, self._devices()))
            for number in range(TEMPLATES):
                about = {"name": f"t{number}", "namespace": namespace}
                found.append(self._named("ResourceClaimTemplate", about, {"spec": self._devices()}))
        return found

    def _named(self, kind: str, metadata: Document, spec: Document) -> Document:
        return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}

    def _devices(self) -> Document:
        return {"devices": {"requests": [self._request(number) for number in range(self.dice.choice((1, 1, 1, 2, 4)))]}}

    def _request(self, number: int) -> Document:
        if self.chance(0.3):
            several = [{"name": f"a{place}", **self._choice()} for place in range(self.dice.randint(1, 4))]
            return {"name": f"r{number}", "firstAvailable": several}
        return {"name": f"r{number}", "exactly": self._choice()}

    def _choice(self) -> Document:
        found: Document = {"deviceClassName": self.dice.choice((*CLASSES, "gone.example.com"))}
        if self.chance(0.2):
            return found | {"allocationMode": "All"}
        return found | self.dice.choice(({}, {"count": 2}, {"count": 8, "allocationMode": "ExactCount"}))

    def pod(self, name: str) -> Document:
        found = super().pod(name)
        metadata, spec = found["metadata"], found["spec"]
        for key in ("ownerReferences", "finalizers"):
            metadata.pop(key, None)
        kept = metadata.get("annotations") or {}
        odd = (marks.PROTECTED, marks.RELEASED_AT, marks.EXPECTED_DURATION, "kubernetes.io/config.mirror")
        metadata["annotations"] = {key: value for key, value in kept.items() if key not in odd}
        metadata["labels"] = {
            key: value for key, value in (metadata.get("labels") or {}).items() if key not in KEYS[3:]
        }
        gates = [
            each for each in spec.get("schedulingGates") or [] if each["name"] not in (*FOREIGN_GATES[1:], marks.GATE)
        ]
        spec |= {"schedulingGates": gates}
        spec.pop("nodeName", None)
        spec.pop("resourceClaims", None)
        return found | {"spec": spec | ({"resourceClaims": self._references()} if self.chance(0.5) else {})}

    def _references(self) -> list[Document]:
        return [{"name": f"n{number}", **self._reference()} for number in range(self.dice.choice((1, 1, 2, 5)))]

    def _reference(self) -> Document:
        if self.chance(0.5):
            return {"resourceClaimName": f"c{self.dice.randrange(CLAIMS + 2)}"}  # the last two are nowhere
        return {"resourceClaimTemplateName": f"t{self.dice.randrange(TEMPLATES + 1)}"}

    def resources(self) -> Any:
        amounts = {
            each: self.dice.choice(("1", "8"))
            for each in self.dice.sample(EXTENDED, k=self.dice.choice((0, 0, 0, 1, 2)))
        }
        return {"limits": amounts} if self.chance(0.5) else {"limits": amounts, "requests": amounts}
