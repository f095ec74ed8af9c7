"""Bandwidth as numbers: whole bits per second, up (egress) and down (ingress), of a node's two links; and an administrator's rules for it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from headroom.api.bandwidth_config import Mode, Unit
from headroom.model.facts import Pairs, Pod

MEGABIT: Final = 1_000_000
GIGABIT: Final = 1_000_000_000
LEAST_BITS: Final = 1_000
MOST_BITS: Final = 10**15
"""The range that the kubelet and the CNI plugins take: 1k to 1P bits per second."""

ENDED: Final = ("Succeeded", "Failed")
"""The phases of pods that send nothing any more."""


class Rates(Struct, frozen=True, gc=False):
    """Both directions of one link, in bits per second."""

    up: int = 0
    down: int = 0

    def __add__(self, other: Rates) -> Rates:
        return Rates(self.up + other.up, self.down + other.down)

    def __sub__(self, other: Rates) -> Rates:
        return Rates(self.up - other.up, self.down - other.down)

    def __bool__(self) -> bool:
        return bool(self.up or self.down)


class Links(Struct, frozen=True, gc=False):
    """Both links of a node: the virtual switch inside it, and its card to all others."""

    local: Rates = Rates()
    network: Rates = Rates()

    def __add__(self, other: Links) -> Links:
        return Links(self.local + other.local, self.network + other.network)

    def __sub__(self, other: Links) -> Links:
        return Links(self.local - other.local, self.network - other.network)

    def __bool__(self) -> bool:
        return bool(self.local or self.network)


def mbps(bits: int) -> int:
    """Whole megabits per second, rounded up."""
    return -(-bits // MEGABIT)


def exact_mbps(bits: int) -> str:
    """Megabits per second, with as many digits as it takes."""
    whole, rest = divmod(bits, MEGABIT)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else f"{whole}"


class AnnotationKey(Struct, frozen=True):
    """An annotation by which pods ask for bandwidth."""

    name: str
    unit: Unit = "bits"


class BandwidthRules(Struct, frozen=True, kw_only=True):
    """What an administrator says of bandwidth."""

    mode: Mode = "Off"
    egress: tuple[AnnotationKey, ...] = (
        AnnotationKey("kubernetes.io/egress-bandwidth"),
        AnnotationKey("ovn.kubernetes.io/egress_rate", "Mbps"),
    )
    """The first of these that a pod has counts."""
    ingress: tuple[AnnotationKey, ...] = (
        AnnotationKey("kubernetes.io/ingress-bandwidth"),
        AnnotationKey("ovn.kubernetes.io/ingress_rate", "Mbps"),
    )
    defaults: Rates | None = None
    """What pods hold that ask for nothing; None: they hold nothing."""
    default_capacity: Links = Links(Rates(20 * GIGABIT, 20 * GIGABIT), Rates(GIGABIT, GIGABIT))
    """Of nodes of which nothing else is known."""
    siblings: bool = False
    """All pods talk only to their siblings on the same node, whether they say so or not."""
    device_plugin_labels: Pairs = (
        ("headroom.dev/device-plugin", "true"),
        ("nvidia.com/gpu.deploy.device-plugin", "true"),
    )
    """A node with one of these labels has a device plugin, whose checkpoint keeps native resources over a restart of the kubelet."""

    @property
    def keys(self) -> tuple[AnnotationKey, ...]:
        """All annotations by which pods ask."""
        return (*self.egress, *self.ingress)

    @property
    def fallback(self) -> Rates:
        """What a value counts as that nobody can read; never nothing."""
        return self.defaults or MALFORMED_COUNTS


MALFORMED_COUNTS: Final = Rates(20 * MEGABIT, 20 * MEGABIT)


def is_counted(pod: Pod) -> bool:
    """Whether a pod is on a node and has not finished; one that is being deleted still sends."""
    return bool(pod.node) and pod.phase not in ENDED


def group_of(pod: Pod) -> str:
    """The pods that belong together: those of one controller in one namespace. A pod without one is a group of its own.

    ReplicaSets of one Deployment are one group, so that a rolling update does not tear it apart: their name is that of the Deployment
    and the pod-template-hash.
    """
    owner = pod.owner
    if owner is None:
        return f"{pod.namespace}/Pod/{pod.name}/{pod.uid}"
    if owner.kind == "ReplicaSet" and owner.group == "apps":
        suffix = f"-{dict(pod.labels).get('pod-template-hash', '')}"
        if len(suffix) > 1 and owner.name.endswith(suffix) and len(owner.name) > len(suffix):
            return f"{pod.namespace}/Deployment.apps/{owner.name[: -len(suffix)]}"
    return f"{pod.namespace}/{owner.kind}.{owner.group}/{owner.name}"
