"""Native mode: what a node publishes of its links as extended resources, so that kube-scheduler itself refuses what does not fit.

Only nodes with a device plugin, by their labels, publish anything: a kubelet that restarts without the checkpoint of one sets all
extended resources to nothing, and then fails running pods that request them. What bound pods request is never taken away from under them.

All that a pod asks for passes the virtual switch, whether it leaves the node or not. So what the card can carry of it is set aside for pods
that request the card, and they request nothing else: each resource that a pod requests costs kube-scheduler time on every node. The rest
of the virtual switch is for pods that request only that.

Before a node publishes less, its pods are looked at once more. One race remains: pods that kube-scheduler binds by the old amounts between
that look and the write. The kubelet refuses those that it had not admitted before it saw the new amounts; those that it had are an excess,
which is published and told, and the taint keeps others away until it is gone. A pod that names its node itself passes kube-scheduler, but not the kubelet: so one that
nobody admitted yet keeps what is published from sinking, and never makes it rise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from headroom.api.bandwidth import EGRESS_MBPS, INGRESS_MBPS, LOCAL_EGRESS_MBPS, LOCAL_INGRESS_MBPS
from headroom.api.bandwidth_config import EXTENDED, EXTENDED_RATES, NATIVE
from headroom.api.marks import BANDWIDTH_UNAVAILABLE
from headroom.core.bandwidth.accounting import UNIT, NodeAccount
from headroom.model.actions import Action, SetNodeResources, TaintNode, UntaintNode
from headroom.model.bandwidth import MEGABIT, BandwidthRules, Links, Rates, is_counted
from headroom.model.facts import Amounts, Node, Pod, Taint
from headroom.model.world import World

TAINT: Final = Taint(BANDWIDTH_UNAVAILABLE, "", "NoSchedule")
_TAINT: Final = f"{TAINT.key}:{TAINT.effect}"
MOST_MBPS: Final = 10**12
"""More is published for nobody, whatever a pod requests: kube-scheduler must be able to add it up."""

Reason = Literal["", "Published", "CapacityExceeded", "NoDevicePlugin", "DevicePluginLost", "Leaving"]


class NodeOffer(Struct, frozen=True):
    """What a node should publish, in whole Mbps by the names of the resources, and why."""

    reason: Reason = ""
    """Empty where native mode has nothing to do with the node."""
    mbps: Mapping[str, int] = {}
    excess: Mapping[str, int] = {}
    """What bound pods request beyond what there is for them."""

    @property
    def tainted(self) -> bool:
        """Whether new pods are kept away."""
        return self.reason in ("CapacityExceeded", "DevicePluginLost")


class Attestation(Struct, frozen=True):
    """On how many nodes pods that ask for bandwidth may run in native mode."""

    attested: int
    unattested: int


def is_attested(node: Node, rules: BandwidthRules) -> bool:
    """Whether a label says that the node has a device plugin."""
    return not set(rules.device_plugin_labels).isdisjoint(node.labels)


def attestation(world: World) -> Attestation:
    """How many nodes have a device plugin, and how many have none."""
    attested = sum(is_attested(node, world.bandwidth) for node in world.nodes)
    return Attestation(attested, len(world.nodes) - attested)


def shares(links: Links) -> Links:
    """The links as native mode gives them out: of the virtual switch only what traffic over the card can never take."""
    local, network = links.local, links.network
    card = Rates(max(0, min(network.up, local.up)), max(0, min(network.down, local.down)))
    return Links(local=Rates(max(0, local.up - card.up), max(0, local.down - card.down)), network=card)


def offer_of(world: World, node: Node, capacity: Links, found: NodeAccount) -> NodeOffer:
    """What a node should publish, by what its links carry and who holds what of them."""
    published = dict(node.published) | dict(node.published_capacity)
    is_native = world.bandwidth.mode == NATIVE
    if not (is_native or published):
        return NodeOffer()
    needed = _needed(world, node)
    if is_native and is_attested(node, world.bandwidth):
        room = _room(capacity, found)
        # What pods request beyond the card passes the virtual switch as well.
        for card, rest in EXTENDED_RATES.values():
            room[rest] = max(0, room[rest] - max(0, needed[card] - room[card]))
        excess = {name: needed[name] - room[name] for name in EXTENDED if needed[name] > room[name]}
        mbps = {name: most for name in EXTENDED if (most := max(room[name], needed[name]))}
        return NodeOffer("CapacityExceeded" if excess else "Published", mbps, excess)
    # What is not there was not ours to begin with; what a kubelet has set to nothing is there.
    kept = {name: needed[name] for name in EXTENDED if name in published and needed[name]}
    if is_native:
        return NodeOffer("DevicePluginLost" if kept else "NoDevicePlugin", kept)
    return NodeOffer("Leaving" if kept else "", kept)


def due(node: Node, offer: NodeOffer) -> Iterator[Action]:
    """What is to be done for a node to publish that: new pods are kept away before it has less to give, and let in once that is seen."""
    is_tainted = TAINT in node.taints
    if offer.tainted and not is_tainted:
        yield TaintNode(node=node.name, taint=_TAINT, uid=node.uid)
    wanted: Amounts = tuple(sorted((name, mbps * UNIT) for name, mbps in offer.mbps.items()))
    if (node.published, node.published_capacity) != (wanted, wanted):
        resources = {name: str(mbps) for name, mbps in sorted(offer.mbps.items())}
        yield SetNodeResources(node=node.name, resources=resources, uid=node.uid)
    elif is_tainted and not offer.tainted:
        yield UntaintNode(node=node.name, taint=_TAINT, uid=node.uid)


def _needed(world: World, node: Node) -> Counter[str]:
    """What bound pods request; of those that no kubelet has admitted yet, no more than they were given by what is published."""
    admitted, bound = Counter[str](), Counter[str]()
    for uid in world.pods.by_node[node.name]:
        pod = world.pods.get(uid)
        if pod is None or not is_counted(pod):
            continue
        for name, amount in pod.shape.requests:
            if name in EXTENDED:
                mbps = -(-amount // UNIT)
                bound[name] += mbps
                admitted[name] += mbps if _is_admitted(pod) else 0
    given = dict(node.published)
    most = {name: max(admitted[name], min(mbps, given.get(name, 0) // UNIT)) for name, mbps in bound.items()}
    return Counter({name: min(mbps, MOST_MBPS) for name, mbps in most.items()})


def _is_admitted(pod: Pod) -> bool:
    """Whether its kubelet has let it run: only a kubelet writes that."""
    return pod.phase != "Pending" or pod.started is not None


def _room(capacity: Links, found: NodeAccount) -> dict[str, int]:
    """What there is for pods that request it: what the links carry, less what others hold, such as those from before this mode."""
    others = (each.links for each in found.held if not _requests(each.pod))
    left = shares(capacity - sum(others, start=Links()))
    bits = {
        EGRESS_MBPS: left.network.up,
        INGRESS_MBPS: left.network.down,
        LOCAL_EGRESS_MBPS: left.local.up,
        LOCAL_INGRESS_MBPS: left.local.down,
    }
    return {name: min(each // MEGABIT, MOST_MBPS) for name, each in bits.items()}


def _requests(pod: Pod) -> bool:
    return any(name in EXTENDED and amount for name, amount in pod.shape.requests)
