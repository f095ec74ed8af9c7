"""What a node's links carry: said by its Bandwidth, else by the node, else by its machine type, else by the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from headroom.api import bandwidth as api
from headroom.api.quantities import InvalidQuantity
from headroom.core.bandwidth.ec2 import NETWORK_MBPS
from headroom.core.bandwidth.rates import Malformed, parse_pair
from headroom.model.bandwidth import MEGABIT, Links, Rates
from headroom.model.facts import Node
from headroom.model.world import World

Source = Literal["Object", "Annotation", "InstanceType", "Offer", "Settings"]
INSTANCE_TYPE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
PAIR_EXAMPLE: Final = "25G/10G"

Found = tuple[Source, Rates]


class Capacity(Struct, frozen=True, gc=False):
    """What the links of a node carry, and who says so."""

    links: Links
    network_from: Source = "Settings"
    local_from: Source = "Settings"
    malformed: tuple[Malformed, ...] = ()
    """Annotations of the node that cannot be read; they count as not said."""


class MachineTypes:
    """What machine types carry, by the offers of clouds, read when it is first asked for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._offered: Mapping[str, int] | None = None

    def network(self, node: Node) -> Found | None:
        """What is known of the card of a node by its machine type."""
        labels = dict(node.labels)
        type_ = next((labels[key] for key in INSTANCE_TYPE_LABELS if labels.get(key)), "")
        if not type_:
            return None
        if offered := self._by_offers().get(type_):
            return "Offer", _both(offered)
        known = NETWORK_MBPS.get(type_)
        return ("InstanceType", _both(known)) if known else None

    def _by_offers(self) -> Mapping[str, int]:
        """The least that any offer of a type says."""
        if self._offered is None:
            found: dict[str, int] = {}
            for each in self._world.offers.values():
                if each.instance_type and each.network_mbps > 0:
                    found[each.instance_type] = min(each.network_mbps, found.get(each.instance_type, each.network_mbps))
            self._offered = found
        return self._offered


def capacity_of(world: World, node: Node, spec: api.BandwidthSpec | None, catalog: MachineTypes) -> Capacity:
    """What the links of a node carry. Each direction that the object leaves at 0 is not said there."""
    said = spec.capacity if spec is not None else api.LinkQuantities()
    noted = {key: value for key, value in node.annotations if key in (api.NETWORK_BANDWIDTH, api.LOCAL_BANDWIDTH)}
    malformed: list[Malformed] = []
    default = world.bandwidth.default_capacity
    network = [*_noted(noted, api.NETWORK_BANDWIDTH, malformed), catalog.network(node), ("Settings", default.network)]
    local = [*_noted(noted, api.LOCAL_BANDWIDTH, malformed), ("Settings", default.local)]
    card, card_from = _first(said.network, network)
    switch, switch_from = _first(said.local, local)
    return Capacity(Links(switch, card), card_from, switch_from, tuple(malformed))


def unreadable_annotations(node: Node) -> tuple[Malformed, ...]:
    """What a node says of its links that cannot be read."""
    noted, found = dict(node.annotations), list[Malformed]()
    for key in (api.NETWORK_BANDWIDTH, api.LOCAL_BANDWIDTH):
        for _ in _noted(noted, key, found):
            pass
    return tuple(found)


def _noted(noted: Mapping[str, str], key: str, malformed: list[Malformed]) -> Iterator[Found]:
    text = noted.get(key)
    if text is None:
        return
    found = parse_pair(text)
    if isinstance(found, InvalidQuantity):
        malformed.append(Malformed(key, text[:64], PAIR_EXAMPLE, found.reason))
    else:
        yield "Annotation", found


def _first(said: api.RateQuantities, others: Iterable[Found | None]) -> tuple[Rates, Source]:
    """What the object says, completed by the first who says something."""
    source, known = next(each for each in others if each is not None)
    if not (said.ul_mbps or said.dl_mbps):
        return known, source
    return Rates(said.ul_mbps * MEGABIT or known.up, said.dl_mbps * MEGABIT or known.down), "Object"


def _both(mbps: int) -> Rates:
    return Rates(mbps * MEGABIT, mbps * MEGABIT)
