"""Which machines a NodePool of the simulated Karpenter can have, cheapest first, and the node that one becomes."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from headroom.adapters import outside
from headroom.adapters.kube import karpenter, parse
from headroom.model import facts
from headroom.model.cloud_facts import Offer
from headroom.sim.answers import Body
from headroom.sim.apiserver import ApiServer
from headroom.sim.market import KIND, is_sold_out

TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
CAPACITY: Final = "karpenter.sh/capacity-type"
SPOT: Final = "spot"
_WHOLE: Final = 1_000_000
_GPU: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}


class InstanceOffering(Struct, frozen=True, kw_only=True):
    """A machine type in a zone, as it can be launched."""

    kind: str
    zone: str
    capacity_type: str
    region: str = ""
    arch: str = "amd64"
    price: int = 0
    sold_out: bool = False
    amounts: dict[str, int] = {}
    """What its node offers, in millionths."""


def in_order(server: ApiServer, pool: facts.NodePool) -> list[InstanceOffering]:
    """The machines that a NodePool can have, cheapest first. An offer that is told to be sold out is no machine."""
    found = [_machine(body) for body in server.objects(KIND)]
    fits = [each for each in found if each is not None and _fits(each, pool)]
    return sorted(fits, key=lambda each: (each.price, each.kind, each.zone))


def _machine(body: Body) -> InstanceOffering | None:
    offer: Offer = outside.fact(KIND, body)[0]
    if offer.available is False or not offer.gpus:
        return None
    gpus = -(-offer.gpus // _WHOLE)
    amounts = {"cpu": 12 * gpus, "memory": 48 * 2**30 * gpus, "pods": 110, _GPU.get(offer.vendor, _GPU["nvidia"]): gpus}
    return InstanceOffering(
        kind=offer.instance_type,
        zone=offer.zone,
        region=offer.region,
        capacity_type=offer.capacity_type or SPOT,
        arch=offer.arch or "amd64",
        price=offer.price_per_hour or 0,
        sold_out=is_sold_out(body),
        amounts={name: amount * _WHOLE for name, amount in amounts.items()},
    )


def _fits(machine: InstanceOffering, pool: facts.NodePool) -> bool:
    labels = _labels(machine)
    return all(
        labels.get(each.key, "") in each.values
        for each in pool.requirements
        if each.operator == "In" and each.key in labels
    )


def _labels(machine: InstanceOffering) -> dict[str, str]:
    return {
        TYPE: machine.kind,
        ZONE: machine.zone,
        CAPACITY: machine.capacity_type,
        "kubernetes.io/arch": machine.arch,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": machine.region,
    }


def quantities(amounts: dict[str, int]) -> dict[str, str]:
    """Whole amounts as Kubernetes writes them."""
    return {name: str(amount // _WHOLE) for name, amount in sorted(amounts.items())}


def node_of(name: str, pool: str, machine: InstanceOffering, body: Body) -> Body:
    """The node that a machine of a NodePool becomes."""
    template: dict[str, Any] = (body.get("spec") or {}).get("template") or {}
    given = (template.get("metadata") or {}).get("labels") or {}
    labels = given | _labels(machine) | {karpenter.NODE_POOL: pool, "kubernetes.io/hostname": name}
    room = quantities(machine.amounts)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "taints": (template.get("spec") or {}).get("taints") or [],
            "providerID": f"aws:///{machine.zone}/{name}",
        },
        "status": {"capacity": room, "allocatable": room},
    }


def promised(pool: str, machine: InstanceOffering, body: Body) -> facts.Node:
    """The same as a fact, before it is there."""
    return parse.node(node_of("", pool, machine, body))
