"""What a node costs an hour, and what part of that a pod bears."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

from headroom.model.facts import UNREADABLE, Amounts, Node, Offer, Price

INSTANCE_TYPE: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ZONE: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
CAPACITY_TYPE: Final = (
    "karpenter.sh/capacity-type",
    "eks.amazonaws.com/capacityType",
    "node.kubernetes.io/capacity-type",
)
_SPOT: Final = (("cloud.google.com/gke-spot", "true"), ("kubernetes.azure.com/scalesetpriority", "spot"))
_MIG: Final = re.compile(r"nvidia\.com/mig-([0-9]{1,2})g\..*", re.ASCII)
_ACCELERATOR: Final = re.compile(r"(?:^|[./])(?:v?gpu|mig-|[tnx]pu|gaudi|neuron|dcu|mlu)", re.ASCII)
ANY: Final = ""
"""The resource name of rows that say how many GPUs they count and not of which kind."""
SLICES_OF_A_GPU: Final = 7
WHOLE: Final = 1_000_000_000
"""A weight of one, in billionths."""


def node_price(node: Node, book: Iterable[Price], offers: Mapping[str, Offer]) -> int | None:
    """Millionths of a dollar an hour: by the price book, whose most specific entry counts, else by the cheapest offer."""
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
        offer.price_per_hour
        for offer in offers.values()
        if kind
        and offer.instance_type == kind
        and offer.price_per_hour is not None
        and (not offer.zone or offer.zone == zone)
        and (not offer.capacity_type or _capacity(offer.capacity_type) == capacity)
    ]
    return min(found, default=None)


def pod_price(price: int | None, pod: Amounts, node: Node) -> int | None:
    """The node's price by the pod's part of its GPUs, or of its CPUs where the pod has no GPU."""
    if price is None:
        return None
    held, there = gpus(pod), gpus(node.allocatable)
    if not held:
        held, there = dict(pod).get("cpu", 0), dict(node.allocatable).get("cpu", 0)
    if not held or not there or held > there:
        return None
    return (2 * price * held + there) // (2 * there)


def gpus(amounts: Amounts) -> int:
    """Millionths of a GPU in all resources that are GPUs or the like, each with its usual weight; UNREADABLE if one is."""
    found = [(name, amount) for name, amount in amounts if is_gpu(name)]
    if any(amount >= UNREADABLE for _, amount in found):
        return UNREADABLE
    return sum(amount * usual_weight(name) // WHOLE for name, amount in found)


@lru_cache(maxsize=256)
def is_gpu(name: str) -> bool:
    """Whether a resource or a device class is a GPU or another accelerator: nvidia.com/gpu, gpu.intel.com/xe, google.com/tpu."""
    return name == ANY or bool(_ACCELERATOR.search(name))


@lru_cache(maxsize=256)
def usual_weight(name: str) -> int:
    """What one unit of a resource counts, in billionths of a GPU: a MIG profile its slices as sevenths, anything else one."""
    match = _MIG.fullmatch(name)
    part = Fraction(int(match[1]), SLICES_OF_A_GPU) if match else Fraction(1)
    return int(min(part, Fraction(1)) * WHOLE)


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
