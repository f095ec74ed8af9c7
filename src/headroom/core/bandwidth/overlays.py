"""Karpenter and bandwidth: it compares every resource that a pod requests, and knows none of these unless a NodeOverlay tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from headroom.api.bandwidth import MARKER
from headroom.api.bandwidth_config import EXTENDED, EXTENDED_RATES, NATIVE
from headroom.core.bandwidth.accounting import UNIT
from headroom.core.bandwidth.capacity import INSTANCE_TYPE_LABELS, MachineTypes, capacity_of
from headroom.core.bandwidth.ec2 import NETWORK_MBPS
from headroom.core.bandwidth.native import is_attested, shares
from headroom.model.actions import Action, ApplyNodeOverlay, DeleteNodeOverlay
from headroom.model.bandwidth import MEGABIT, Links
from headroom.model.bandwidth_facts import NodeOverlay
from headroom.model.facts import Node, Pod
from headroom.model.sight import NODE_OVERLAYS, sees
from headroom.model.world import World

GATE: Final = "NodeOverlay"
"""Karpenter's feature gate."""
NAME: Final = "headroom-bandwidth"
"""Of the overlay that tells what machines carry by the settings; the others say after it how many Mbps their cards do."""
WEIGHTS: Final = (20, 10)
"""Of those for machine types that are known, and of the one for all others."""
POOL_LABEL: Final = "karpenter.sh/nodepool"
_EC2: Final = "EC2NodeClass/"


def due(world: World) -> Iterator[Action]:
    """Tell Karpenter what the nodes of NodePools with a device plugin will publish. In extender mode nothing is told.

    There it would have to be told of the marker, which no node ever shows: and a node that lacks what was requested when it was bought
    counts as not initialized for ever, so Karpenter would never take it away again.
    """
    if not world.node_overlays_served or not sees(world, NODE_OVERLAYS, "nodepools.karpenter.sh"):
        return
    wanted = _wanted(world)
    for name, spec in sorted(wanted.items()):
        found = world.node_overlays.get(name)
        if found is None or (found.ours and not _says(found, spec)):
            yield ApplyNodeOverlay(node_overlay=name, spec=spec)
    for name, found in sorted(world.node_overlays.items()):
        if found.ours and name not in wanted:
            yield DeleteNodeOverlay(node_overlay=name, uid=found.uid)


def _wanted(world: World) -> dict[str, dict[str, Any]]:
    """The overlays by name: one for each amount that the cards of known machine types carry, and one for all other types."""
    rules = world.bandwidth
    pools = sorted(
        pool.name
        for pool in world.node_pools.values()
        if rules.mode == NATIVE and not pool.deleting and is_attested(Node(name="", labels=pool.labels), rules)
    )
    if not pools:
        return {}
    catalog = MachineTypes(world)
    types: dict[Links, list[str]] = {}
    for each in sorted(_types(world)):
        machine = Node(name="", labels=((INSTANCE_TYPE_LABELS[0], each),))
        types.setdefault(capacity_of(world, machine, None, catalog).links, []).append(each)
    types.pop(rules.default_capacity, None)
    found = {NAME: _overlay(pools, [], rules.default_capacity)}
    for links, names in types.items():
        found[f"{NAME}-{links.network.up // MEGABIT}"] = _overlay(pools, names, links)
    return found


def _types(world: World) -> set[str]:
    """Machine types of which something is known and that Karpenter may make."""
    known = {each.instance_type for each in world.offers.values() if each.instance_type and each.network_mbps > 0}
    return known | (set(NETWORK_MBPS) if any(name.startswith(_EC2) for name in world.node_classes) else set())


def _overlay(pools: list[str], types: list[str], links: Links) -> dict[str, Any]:
    requirements = [{"key": POOL_LABEL, "operator": "In", "values": pools}]
    if types:
        requirements.append({"key": INSTANCE_TYPE_LABELS[0], "operator": "In", "values": types})
    given = shares(links)
    bits = {"egress": (given.network.up, given.local.up), "ingress": (given.network.down, given.local.down)}
    capacity = {
        name: str(carried // MEGABIT)
        for way, names in EXTENDED_RATES.items()
        for name, carried in zip(names, bits[way], strict=True)
    }
    return {"requirements": requirements, "capacity": capacity, "weight": WEIGHTS[0 if types else 1]}


def _says(found: NodeOverlay, spec: Mapping[str, Any]) -> bool:
    requirements = [{"key": one.key, "operator": one.operator, "values": [*one.values]} for one in found.requirements]
    capacity = {name: int(mbps) * UNIT for name, mbps in spec["capacity"].items()}
    return (requirements, dict(found.capacity), found.weight) == (spec["requirements"], capacity, spec["weight"])


def karpenter_note(world: World, pod: Pod) -> str:
    """Why Karpenter brings no node for a pod that asks for bandwidth, as a clause; empty if nothing is known to keep it from that."""
    named = {name for name, amount in pod.shape.requests if amount and name in (*EXTENDED, MARKER)}
    if pod.node or not named or not world.node_pools or not sees(world, NODE_OVERLAYS):
        return ""
    telling = [each for _, each in sorted(world.node_overlays.items()) if named <= {name for name, _ in each.capacity}]
    if any(each.ready for each in telling):
        return ""
    lacks = f"Karpenter brings no node for it: no NodeOverlay in effect provides {min(named)}"
    if not telling:
        return f"{lacks} on machines"
    name = telling[0].name
    if telling[0].judged:
        return f"{lacks}, since Karpenter refuses NodeOverlay {name}; its conditions say why"
    return f"{lacks}, since Karpenter has not looked at NodeOverlay {name}: its feature gate {GATE} may be off"
