"""What a Bandwidth says to the extender: the links of its node, and what pods asked for when they were bound that were edited since.

Thousands of these objects hold a hundred reservations each, so the rest is not even decoded.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from headroom.adapters.kube import decode, raw
from headroom.api.bandwidth import Bandwidth, BandwidthSpec, LinkQuantities, RateQuantities
from headroom.api.resources import API_VERSION

MOST_MBPS: Final = 10**9
OFFER: Final = "Offer"


class _Rates(raw.RawPart):
    ul_mbps: int | None = None
    dl_mbps: int | None = None


class _Links(raw.RawPart):
    local: _Rates | None = None
    network: _Rates | None = None


class _Spec(raw.RawPart):
    capacity: _Links | None = None


class _Reservation(raw.RawPart):
    pod_uid: str | None = None
    up_bits: int | None = None
    down_bits: int | None = None
    siblings: bool | None = None
    edited: bool | None = None


class _Status(raw.RawPart):
    capacity: _Links | None = None
    network_from: str | None = None
    reservations: list[_Reservation] | None = None


class LinksWire(raw.Object):
    spec: _Spec | None = None
    status: _Status | None = None


class Edited(Struct, frozen=True, gc=False):
    """What a pod asked for when it was bound; it says something else by now."""

    pod_uid: str
    up: int
    """Bits per second."""
    down: int
    siblings: bool


class NodeLinks(Struct, frozen=True, kw_only=True):
    """One Bandwidth."""

    name: str
    uid: str = ""
    resource_version: str = ""
    spec: BandwidthSpec
    offered: RateQuantities | None = None
    """What the operator knows of the card by the offers of clouds, which it alone reads."""
    edited: tuple[Edited, ...] = ()


def links_of(wire: LinksWire) -> NodeLinks:
    """The object as a fact."""
    meta, status = wire.metadata or raw.RawObjectMeta(), wire.status or _Status()
    name = meta.name or ""
    said = status.capacity if status.network_from == OFFER else None
    return NodeLinks(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        spec=BandwidthSpec(capacity=_links(wire.spec.capacity if wire.spec else None)),
        offered=_rates(said.network) if said is not None else None,
        edited=tuple(
            Edited(each.pod_uid or "", max(each.up_bits or 0, 0), max(each.down_bits or 0, 0), bool(each.siblings))
            for each in status.reservations or ()
            if each.edited
        ),
    )


def _links(found: _Links | None) -> LinkQuantities:
    return (
        LinkQuantities() if found is None else LinkQuantities(local=_rates(found.local), network=_rates(found.network))
    )


def _rates(found: _Rates | None) -> RateQuantities:
    if found is None:
        return RateQuantities()
    return RateQuantities(ul_mbps=_mbps(found.ul_mbps), dl_mbps=_mbps(found.dl_mbps))


def _mbps(value: int | None) -> int:
    return min(max(value or 0, 0), MOST_MBPS)


def decoder() -> decode.FactDecoder[LinksWire, NodeLinks]:
    """Reads Bandwidths."""
    return decode.of(LinksWire, links_of, API_VERSION, Bandwidth.kind.name)
