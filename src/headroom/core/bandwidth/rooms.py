"""Bandwidth as resources of a room: what pods ask for of the links of machines, and what machines have left or will have.

Native mode: pods request extended resources, and a room has them if its node shows them, or will since a label attests a device plugin.
Extender mode: pods with the marker ask by their annotations, and a room has what the accounting leaves. A pod that talks only to siblings
counts on the card too, as the first one on a machine does: so for a group that would share one, a machine may be woken that it turns out
not to need, but never is a pod left out for which one could do something. In no other mode, and for no other pods, are links looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from headroom.api.bandwidth import MARKER
from headroom.api.bandwidth_config import EXTENDED_RATES
from headroom.core import demand
from headroom.core.bandwidth import telling
from headroom.core.bandwidth.accounting import UNIT, AskedCache, account
from headroom.core.bandwidth.asks import ask_of
from headroom.core.bandwidth.capacity import MachineTypes, capacity_of
from headroom.core.bandwidth.holds import NOTHING, FourRates
from headroom.core.bandwidth.native import is_attested, shares
from headroom.core.demand import Room
from headroom.model.bandwidth import MEGABIT, Links, Rates, exact_mbps
from headroom.model.decisions import Ref
from headroom.model.facts import Amounts, Node, Pairs, Pod, Shape
from headroom.model.world import World

KIND: Final = "Bandwidth"
NO_DEVICE_PLUGIN: Final = "NoDevicePlugin"
TOO_LARGE: Final = "BandwidthTooLarge"
_OF_NODES: Final = (
    EXTENDED_RATES["egress"][1],
    EXTENDED_RATES["ingress"][1],
    EXTENDED_RATES["egress"][0],
    EXTENDED_RATES["ingress"][0],
)
"""What kube-scheduler counts in native mode, in the order of `FourRates`."""
_OF_LINKS: Final = (
    "Mbps of local egress",
    "Mbps of local ingress",
    "Mbps of network egress",
    "Mbps of network ingress",
)
"""The same where only the extender counts. Amounts are millionths, so those of both are bits per second."""
_SAID: Final = dict(zip(_OF_NODES, _OF_LINKS, strict=True)) | dict(zip(_OF_LINKS, _OF_LINKS, strict=True))


class RoomLinks:
    """The links of rooms in one world, each looked at once."""

    def __init__(self, world: World) -> None:
        self._world, self._rules = world, world.bandwidth
        self._is_native = world.bandwidth.mode == "Native"
        self._ordered = _OF_NODES if self._is_native else _OF_LINKS
        self._catalog, self._reading = MachineTypes(world), AskedCache(world.bandwidth)
        self._digest = telling.digest_of(world.bandwidth)
        self._asked: dict[tuple[Pairs, Amounts, bool], Amounts] = {}
        self._used: dict[str, FourRates] = {}
        self.names = frozenset(self._ordered)
        self.unneeded = frozenset({MARKER})

    def asked(self, pod: Pod) -> Amounts:
        """What the extender will ask of a node for it."""
        shape = pod.shape
        if self._is_native or not any(name == MARKER for name, _ in shape.requests):
            return ()
        key = pod.annotations, shape.requests, shape.host_network
        found = self._asked.get(key)
        if found is None:
            ask = ask_of(pod, self._rules)
            amounts = zip(_OF_LINKS, (ask.up, ask.down, ask.up, ask.down), strict=True)
            found = self._asked[key] = tuple((name, bits) for name, bits in amounts if bits)
        return found

    def furnish(self, room: Room, *, emptied: bool = False) -> Room:
        """A room with what its links have left; with all that they carry if it is described as empty."""
        free, node = dict(room.free), self._world.nodes.get(room.name)
        # What a node shows, or an administrator says of one to come, stands; what it shows as 0 is about to be there again.
        shown = free if node is None else dict(node.allocatable)
        missing = [name for name in self._ordered if not (shown.get(name) if self._is_native else name in free)]
        there = Node(name=room.name, labels=room.labels) if node is None else node
        if not missing or (self._is_native and not is_attested(there, self._rules)):
            return room
        is_empty = emptied or node is None
        left = dict(zip(self._ordered, self._left(there, is_empty=is_empty), strict=True))
        free |= {name: left[name] for name in missing}
        # kube-scheduler is given time to try what may have been made free there.
        freed = tuple((at, (*amounts, *left.items())) for at, amounts in room.freed)
        return structs.replace(room, free=tuple(sorted(free.items())), freed=freed)

    def told_by_overlay(self, shape: Shape) -> Amounts:
        """Karpenter compares whatever a pod requests, also the marker, which kube-scheduler ignores."""
        asked = tuple(each for each in shape.requests if each[0] in self.names and each[1])
        return asked if self._is_native or not asked else ((MARKER, UNIT),)

    def lacking(self, shape: Shape, rooms: Sequence[Room]) -> tuple[str, str] | None:
        """Why none of these holds such a pod, if it is only for want of bandwidth."""
        asked = {name: amount for name, amount in shape.requests if name in self.names and amount}
        bare = structs.replace(shape, requests=tuple(each for each in shape.requests if each[0] not in asked))
        able = [dict(room.free) for room in rooms if not demand.why_not(bare, room)] if asked else []
        if not able or any(all(free.get(name, 0) >= amount for name, amount in asked.items()) for free in able):
            return None
        if not any(name in free for free in able for name in asked):
            return NO_DEVICE_PLUGIN, self._unattested()
        return TOO_LARGE, _too_large(asked, able)

    def _unattested(self) -> str:
        labels = " or ".join(f"{key}={value}" for key, value in self._rules.device_plugin_labels)
        return (
            "It requests bandwidth, which only nodes with a device plugin offer, and none of the machines that could hold it "
            f"has a label that attests one ({labels})."
        )

    def _left(self, node: Node, *, is_empty: bool) -> FourRates:
        """Bits per second that its links have left; in native mode whole Mbps, as kube-scheduler counts."""
        resource = self._world.resources.get(Ref(KIND, "", node.name))
        spec = None if resource is None or resource.problems else resource.spec
        carried = _four(capacity_of(self._world, node, spec, self._catalog).links)
        used = NOTHING if is_empty else self._used_on(node.name)
        step = MEGABIT if self._is_native else 1
        a, b, c, d = (
            max(0, whole // step * step - -(-part // step) * step) for whole, part in zip(carried, used, strict=True)
        )
        return _four(shares(Links(Rates(a, b), Rates(c, d)))) if self._is_native else (a, b, c, d)

    def _used_on(self, node: str) -> FourRates:
        found = self._used.get(node)
        if found is None:
            resource = self._world.resources.get(Ref(KIND, "", node))
            known = {} if resource is None else telling.remembered(resource.status, self._digest)
            found = self._used[node] = _four(account(self._world, node, known, self._reading).used)
        return found


def _four(links: Links) -> FourRates:
    return links.local.up, links.local.down, links.network.up, links.network.down


def _too_large(asked: Mapping[str, int], able: Sequence[Mapping[str, int]]) -> str:
    most = {name: max(free.get(name, 0) for free in able) for name in asked}
    name = next((each for each in sorted(asked) if asked[each] > most[each]), "")
    if not name:
        return "None of the machines that could hold it has enough bandwidth in both directions and on both links."
    what = _SAID[name].removeprefix("Mbps of ")
    return (
        f"It requests {exact_mbps(asked[name])} Mbps of {what}; the machines that could hold it have at most "
        f"{exact_mbps(most[name])} Mbps."
    )
