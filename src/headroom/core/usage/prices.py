"""What a node costs an hour, and what part of that a pod bears."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from headroom.core.usage.names import DRIVERS, CountedResource, parsed
from headroom.model.cloud_facts import Offer
from headroom.model.devices import WHOLE, DeviceTable, profile_part
from headroom.model.facts import UNREADABLE, Amounts, Node, Price
from headroom.model.gpus import is_gpu

INSTANCE_TYPE: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ZONE: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
CAPACITY_TYPE: Final = (
    "karpenter.sh/capacity-type",
    "eks.amazonaws.com/capacityType",
    "node.kubernetes.io/capacity-type",
    "headroom.dev/capacity-type",
)
_SPOT: Final = (("cloud.google.com/gke-spot", "true"), ("kubernetes.azure.com/scalesetpriority", "spot"))
_MIG: Final = re.compile(r"nvidia\.com/mig-(([0-9]{1,2})g\..*)", re.ASCII)
SLICES_OF_A_GPU: Final = 7
MIG: Final = "nvidia.com/mig-"
PRODUCT: Final = "nvidia.com/gpu.product"
"""The label by which a node tells its GPU's model."""


def node_price(node: Node, book: Iterable[Price], offers: Mapping[str, Offer]) -> int | None:
    """Millionths of a dollar an hour: by the price book, whose most specific entry counts, else by the newest offer, of several the cheapest."""
    labels = dict(node.labels)
    kind, zone, capacity = _label(labels, INSTANCE_TYPE), _label(labels, ZONE), capacity_type(labels)
    best: tuple[tuple[bool, int], int] | None = None
    for entry in book:
        wanted = [(entry.node, node.name), (entry.instance_type, kind), (entry.zone, zone)]
        wanted.append((_capacity(entry.capacity_type), capacity))
        if any(want and want != has for want, has in wanted) or not set(entry.labels) <= set(node.labels):
            continue
        specific = bool(entry.node), sum(bool(want) for want, _ in wanted) + len(entry.labels)
        if best is None or specific > best[0]:
            best = specific, entry.price_per_hour
    if best is not None:
        return best[1]
    found = [
        (-(offer.at or 0), offer.price_per_hour)
        for offer in offers.values()
        if kind
        and offer.instance_type == kind
        and offer.price_per_hour is not None
        and not offer.endpoint  # a tenant chooses who answers there: that is no price for anybody's budget
        and (not offer.zone or offer.zone == zone)
        and (not offer.capacity_type or _capacity(offer.capacity_type) == capacity)
    ]
    return min(found)[1] if found else None


def by_type(offers: Mapping[str, Offer]) -> dict[str, dict[str, Offer]]:
    """Offers by the type of machine: a region has thousands, and each node looks for its own."""
    found: dict[str, dict[str, Offer]] = {}
    for name, each in offers.items():
        found.setdefault(each.instance_type, {})[name] = each
    return found


def type_of(node: Node) -> str:
    """The type of machine that a node is; empty where it does not say."""
    return _label(dict(node.labels), INSTANCE_TYPE)


def pod_price(price: int | None, pod: Amounts, node: Node, devices: DeviceTable | None = None) -> int | None:
    """The node's price by the pod's part of its GPUs, or of its CPUs where the pod has no GPU.

    What several pods share is priced as a whole for each of them; how much of that each bears is for a budget to say.
    """
    if price is None:
        return None
    held, there = gpus(pod, divided=False), gpus_on(node, devices)
    if not held:
        held, there = dict(pod).get("cpu", 0), dict(node.allocatable).get("cpu", 0)
    if not held or not there or held > there:
        return None
    return (2 * price * held + there) // (2 * there)


def gpus_on(node: Node, devices: DeviceTable | None = None) -> int:
    """Millionths of a GPU that a node has: those that its kubelet offers, and those that drivers publish in ResourceSlices."""
    found = gpus(node.allocatable, product=dict(node.labels).get(PRODUCT, ""))
    if devices is None:
        return found
    return found + sum(devices.on_nodes(driver).get(node.name, 0) for driver in DRIVERS)


def gpus(amounts: Amounts, *, divided: bool = True, product: str = "") -> int:
    """Millionths of a GPU in all resources that are GPUs or the like, each with its usual weight; UNREADABLE if one is.

    What pods share is `divided` equally among them. The `product` is the GPU's model, where that is known.
    """
    total = 0
    for name, amount in amounts:
        resource = parsed(name)
        if not any(map(is_gpu, (resource.name, *resource.aliases))):
            continue
        if amount >= UNREADABLE:
            return UNREADABLE
        counted = amount * weight_of(resource, product) // WHOLE
        total += share_of(counted, resource, resource.shared_by) if divided else counted
    return total


def plain_amounts(amounts: Amounts) -> Amounts:
    """The same as resources only: of parts their size, of what is shared the pod's part."""
    found: dict[str, int] = {}
    for name, amount in amounts:
        resource = parsed(name)
        is_part = resource.part and not resource.name.startswith(MIG)
        whole = amount * resource.part // WHOLE if is_part else amount
        found[resource.name] = found.get(resource.name, 0) + share_of(whole, resource, resource.shared_by)
    return tuple(sorted(found.items()))


def share_of(amount: int, resource: CountedResource, shared_by: int) -> int:
    """What one of so many pods bears of what they hold together; millionths that are left over go to the first."""
    each, left = divmod(amount, shared_by)
    return each + (left if resource.is_first else 0)


def weight_of(resource: CountedResource, product: str = "") -> int:
    """What one unit counts where no budget says otherwise, in billionths of a GPU."""
    return resource.part or usual_weight(resource.name, product)


@lru_cache(maxsize=1024)
def usual_weight(name: str, product: str = "") -> int:
    """What one unit of a resource counts, in billionths of a GPU: a MIG profile its slices of its GPU's, anything else one."""
    match = _MIG.fullmatch(name)
    if match is None:
        return WHOLE
    return profile_part(match[1], product) or min(int(match[2]) * WHOLE // SLICES_OF_A_GPU, WHOLE)


def capacity_type(labels: Mapping[str, str]) -> str:
    """`spot` or `on-demand`; what says neither is on demand."""
    if any(labels.get(key) == value for key, value in _SPOT):
        return "spot"
    return _capacity(_label(labels, CAPACITY_TYPE)) or "on-demand"


def _capacity(word: str) -> str:
    plain = word.lower().replace("_", "-")
    return "on-demand" if plain in ("on-demand", "ondemand") else plain


def _label(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if key in labels), "")
