"""The machines of all clouds in one round: whose each is, and which node it became. Read once, since there may be many."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from headroom.api import marks
from headroom.api.spot_pools_status import Slot
from headroom.core.demand import Presence
from headroom.core.spot_pools.places import GONE, KIND, NOT_FOUND, TAINT, PoolSlot, cordoned_by, when
from headroom.model.cloud_facts import Instance, Offer
from headroom.model.decisions import Ref
from headroom.model.facts import Node
from headroom.model.world import World

WEBHOOK: Final = "webhook"


def is_alive(instance: Instance) -> bool:
    """Whether a machine exists. Words of a cloud that nobody knows count as alive."""
    return instance.state not in GONE and instance.state != NOT_FOUND


class SpotFleet:
    """Machines by owner, nodes by machine, offers by place."""

    def __init__(self, world: World) -> None:
        self.world = world

    @cached_property
    def by_owner(self) -> dict[str, list[Instance]]:
        """Machines that carry this cluster's tag, by the uid of the pool that launched them."""
        found: dict[str, list[Instance]] = {}
        cluster = self.world.cluster
        for each in self.world.instances.values():
            tags = each.tags
            if tags.get(marks.CLUSTER_TAG) == cluster and (owner := tags.get(marks.OWNER_TAG)):
                found.setdefault(owner, []).append(each)
        return found

    @cached_property
    def uids(self) -> frozenset[str]:
        """Of every Spotpool that exists, readable or not."""
        return frozenset(each.uid for _, each in self.world.of_kind(KIND) if each.uid)

    @cached_property
    def strangers(self) -> frozenset[str]:
        """Owners of machines that are no Spotpool, or none any more."""
        return frozenset(self.by_owner.keys() - self.uids)

    @cached_property
    def reporters(self) -> dict[tuple[str, str], str]:
        """The uid of the pool that reports orphans, by provider and region: the first one by name."""
        found: dict[tuple[str, str], str] = {}
        for _, each in self.world.of_kind(KIND):
            if each.spec is not None:
                found.setdefault((each.spec.provider, each.spec.region), each.uid)
        return found

    @cached_property
    def presence(self) -> Presence:
        """Which of the pods that were announced are there."""
        return Presence(self.world)

    @cached_property
    def offers(self) -> dict[tuple[str, str], list[Offer]]:
        """What is offered, by provider and region."""
        found: dict[tuple[str, str], list[Offer]] = {}
        for _, each in sorted(self.world.offers.items()):
            found.setdefault((each.provider, each.region), []).append(each)
        return found

    # --- nodes ------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _by_provider(self) -> dict[str, Node]:
        return {tail: node for node in self._sorted if (tail := _tail(node))}

    @cached_property
    def _by_label(self) -> dict[str, Node]:
        return {name: node for node in self._sorted if (name := _label(node))}

    @cached_property
    def _by_address(self) -> dict[str, Node]:
        return {address: node for node in self._sorted for address in node.addresses}

    @cached_property
    def _sorted(self) -> list[Node]:
        """The last of several that claim a machine counts, so the first by name comes last."""
        return sorted(self.world.nodes, key=lambda node: node.name, reverse=True)

    def node_of(self, place: PoolSlot, namespace: str) -> Node | None:
        """The node that a machine of a namespace became: by providerID, by label, by address; documents may name it."""
        instance = place.instance
        if instance is None:  # a list that lags says nothing of it, but its node may be known
            return self._by_provider.get(place.slot.instance_id) if place.slot.instance_id else None
        nodes, known = self.world.nodes, instance.node or place.slot.node
        if (
            known
            and (node := nodes.get(known)) is not None
            and (instance.node or self._is_of(node, place, instance, namespace))
        ):
            return node
        found = self._by_provider.get(instance.name)
        if found is None:
            labelled = self._by_label.get(instance.name)
            found = labelled if labelled is not None and _may_be(labelled, instance) else None
        if found is None and instance.private_ip:
            there = self._by_address.get(instance.private_ip)
            found = there if there is not None and _may_be(there, instance) and not _label(there) else None
        return found if found is not None and self._is_of(found, place, instance, namespace) else None

    def closing(self, owner: str, ref: Ref) -> list[Node]:
        """The nodes that a pool has cordoned and that still look ready, although their machines have ended or are about to."""
        gone = (each for each in self.by_owner.get(owner, ()) if each.state in GONE)
        places = (PoolSlot(slot=Slot(slot=0, state="Ending", instance_id=each.name), instance=each) for each in gone)
        nodes = (self.node_of(each, ref.namespace) for each in places)
        return [node for node in nodes if node is not None and node.ready and cordoned_by(node, ref)]

    def _is_of(self, node: Node, place: PoolSlot, instance: Instance, namespace: str) -> bool:
        """Whether a node that looks like a machine's is it.

        Whoever runs a service behind a webhook may say any id and any address, and private addresses are given more than once: so
        there a node must say itself that it is the pool's, or, for an address, have come after the launch. Else a tenant could have
        any node drained.
        """
        says_so = _label(node) == instance.name
        if not (_tail(node) == instance.name if node.provider_id else says_so or instance.private_ip in node.addresses):
            return False
        if says_so or any(each.key == TAINT and each.value == namespace for each in node.taints):
            return True
        if node.provider_id or instance.provider == WEBHOOK:
            return instance.provider != WEBHOOK
        begun = when(place.slot.launched_at, self.world.now)
        # Every node of an API server says when it was made; in documents that may be left out.
        return begun is None or not node.created or max(node.created, node.ready_since or 0) >= begun


def _tail(node: Node) -> str:
    """The machine's id as the cloud's own controller wrote it: what stands after the last slash of providerID."""
    return node.provider_id.rpartition("/")[2]


def _label(node: Node) -> str:
    return next((value for key, value in node.labels if key == marks.INSTANCE), "") if node.labels else ""


def _may_be(node: Node, instance: Instance) -> bool:
    """Whether a node does not say that it is another machine: a label or an address alone proves little."""
    return not node.provider_id or _tail(node) == instance.name
