"""An account as it stands in the status of a Bandwidth, in whole Mbps, and its sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from headroom.api import bandwidth as api
from headroom.api.marks import BANDWIDTH_UNAVAILABLE
from headroom.core.bandwidth.accounting import HeldRates, NodeAccount
from headroom.core.bandwidth.capacity import Capacity
from headroom.core.bandwidth.native import NodeOffer
from headroom.core.bandwidth.rates import Malformed
from headroom.model.actions import EmitEvent
from headroom.model.bandwidth import BandwidthRules, Links, Rates, group_of, mbps
from headroom.model.facts import Node, Pod

MALFORMED: Final = "MalformedBandwidth"
EDITED: Final = "BandwidthEdited"


def digest_of(rules: BandwidthRules) -> str:
    """What tells whether reservations were read by these settings."""
    read_by = (rules.egress, rules.ingress, rules.defaults)
    return hashlib.blake2s(msgspec.json.encode(read_by), digest_size=6).hexdigest()


def remembered(status: api.BandwidthStatus, rules: str) -> dict[str, api.Reservation]:
    """The reservations by uid, if they were read by the settings of this digest: what others made of annotations says nothing now."""
    return {each.pod_uid: each for each in status.reservations} if status.read_by == rules else {}


def wire(links: Links) -> api.LinkQuantities:
    """Whole Mbps, rounded up."""
    return api.LinkQuantities(local=_rates(links.local), network=_rates(links.network))


def _rates(rates: Rates) -> api.RateQuantities:
    return api.RateQuantities(ul_mbps=mbps(rates.up), dl_mbps=mbps(rates.down))


_few_wired: Final = lru_cache(maxsize=4096)(wire)
"""Pods of one template hold the same."""


def _used(rates: Rates) -> api.RatesUsed:
    return api.RatesUsed(ul_mbps=mbps(rates.up), dl_mbps=mbps(rates.down))


def _left(capacity: api.RateQuantities, used: api.RatesUsed) -> api.RatesLeft:
    return api.RatesLeft(ul_mbps=capacity.ul_mbps - used.ul_mbps, dl_mbps=capacity.dl_mbps - used.dl_mbps)


def reservation(held: HeldRates) -> api.Reservation:
    """What one pod holds."""
    pod = held.pod
    kind, name, uid = workload_of(pod)
    return api.Reservation(
        pod_uid=pod.uid,
        pod_name=pod.name,
        namespace=pod.namespace,
        deployment_type=kind,
        deployment_name=name,
        deployment_uid=uid,
        bandwidth=_few_wired(held.links),
        link_local=held.link_local,
        siblings=held.siblings,
        up_bits=held.asked.up,
        down_bits=held.asked.down,
        edited=held.edited,
        malformed=held.was_malformed,
    )


class PodWorkload(NamedTuple):
    """Whose pod it is."""

    kind: str
    name: str
    uid: str


def workload_of(pod: Pod) -> PodWorkload:
    """The Deployment behind a ReplicaSet, whose uid no pod tells; else the controller; else the pod itself."""
    if pod.owner is None:
        return PodWorkload("Pod", pod.name, pod.uid)
    if pod.owner.kind != "ReplicaSet":
        return PodWorkload(pod.owner.kind, pod.owner.name, pod.owner.uid)
    _, kind, name = group_of(pod).split("/", 2)
    if kind == "Deployment.apps":
        return PodWorkload("Deployment", name, "")
    return PodWorkload(pod.owner.kind, pod.owner.name, pod.owner.uid)


def status_of(
    before: api.BandwidthStatus, node: Node, capacity: Capacity, found: NodeAccount, rules: str
) -> api.BandwidthStatus:
    """The status with these numbers, and the conditions that it had."""
    size = wire(capacity.links)
    used = api.LinksUsed(local=_used(found.used.local), network=_used(found.used.network))
    return api.BandwidthStatus(
        observed_generation=before.observed_generation,
        conditions=before.conditions,
        status="Created",
        capacity=size,
        used=used,
        remaining=api.LinksLeft(local=_left(size.local, used.local), network=_left(size.network, used.network)),
        reservations=tuple(reservation(each) for each in found.held[: api.MOST_LISTED]),
        pods=found.pods,
        host_network_pods=found.host_network,
        edited_pods=sum(each.edited for each in found.held),
        malformed_pods=sum(each.was_malformed for each in found.held),
        network_from=capacity.network_from,
        local_from=capacity.local_from,
        node_uid=node.uid,
        read_by=rules,
        updated_at=before.updated_at,
    )


# --- sentences -------------------------------------------------------------------------------------------------------------------


def summary(status: api.BandwidthStatus, offer: NodeOffer, rules: BandwidthRules) -> str:
    """What a node's links carry, in a sentence, and another one where native mode does not work as it should."""
    carried = _carried(status)
    return carried if offer.reason in ("", "Published") else f"{carried} {placed(offer, rules)[2]}"


def _carried(status: api.BandwidthStatus) -> str:
    capacity, used = status.capacity or api.LinkQuantities(), status.used or api.LinksUsed()
    card = f"{amounts(used.network)} of {amounts(capacity.network)} Mbps up/down"
    switch = f"{amounts(used.local)} of {amounts(capacity.local)}"
    if not status.pods:
        carries = f"{amounts(capacity.network)} Mbps up/down, the virtual switch {amounts(capacity.local)}"
        return f"No bandwidth is reserved; the network card carries {carries}."
    pods = "1 pod has reserved" if status.pods == 1 else f"{status.pods} pods have reserved"
    return f"{pods} {card} of the network card and {switch} of the virtual switch."


def overcommitted(status: api.BandwidthStatus, offer: NodeOffer) -> tuple[bool, str, str]:
    """Whether more was given than there is, the reason, and a sentence."""
    over = list(_over(status))
    if over:
        listed = ", ".join(over)
        return (
            True,
            "CapacityExceeded",
            f"More bandwidth is reserved than the node has: {listed}. Running pods are left alone.",
        )
    if offer.excess:
        return True, "RequestsExceeded", f"{_excess(offer)} Running pods are left alone."
    return False, "WithinCapacity", "No link is overcommitted."


def placed(offer: NodeOffer, rules: BandwidthRules) -> tuple[bool, str, str]:
    """Whether kube-scheduler places pods here by their bandwidth, the reason, and a sentence."""
    says = {
        "Published": f"Kube-scheduler counts the bandwidth here: {_offered(offer)}.",
        "CapacityExceeded": f"{_excess(offer)} {_KEPT_AWAY} until that ends.",
        "NoDevicePlugin": f"{_unattested(rules)} Pods that request bandwidth are not placed here.",
        "DevicePluginLost": f"{_unattested(rules)} The requests of bound pods stay reserved: {_offered(offer)}. {_KEPT_AWAY}.",
        "Leaving": f"Placement is no longer native. The requests of bound pods stay reserved until they end: {_offered(offer)}.",
    }
    return offer.reason in ("Published", "CapacityExceeded"), offer.reason, says[offer.reason]


_KEPT_AWAY: Final = f"Nothing is evicted; the taint {BANDWIDTH_UNAVAILABLE} keeps new pods away"


def _excess(offer: NodeOffer) -> str:
    return f"Bound pods request more than the node has: {_amounts_of(offer.excess)}."


def _offered(offer: NodeOffer) -> str:
    return _amounts_of(offer.mbps) or "nothing"


def _amounts_of(mbps: Mapping[str, int]) -> str:
    return ", ".join(f"{each} {name}" for name, each in mbps.items())


def _unattested(rules: BandwidthRules) -> str:
    labels = " or ".join(f"{key}={value}" for key, value in rules.device_plugin_labels) or "a label of the settings"
    return f"No label attests a device plugin on this node ({labels})."


def _over(status: api.BandwidthStatus) -> Iterator[str]:
    left = status.remaining or api.LinksLeft()
    for name, rates in (("network card", left.network), ("virtual switch", left.local)):
        for way, mbps_left in (("up", rates.ul_mbps), ("down", rates.dl_mbps)):
            if mbps_left < 0:
                yield f"{-mbps_left} Mbps {way} on the {name}"


def amounts(rates: api.RateQuantities | api.RatesUsed) -> str:
    """Both directions, up first."""
    return f"{rates.ul_mbps}/{rates.dl_mbps}"


def amounts_of(rates: Rates) -> str:
    """The same of bits per second, in whole Mbps."""
    return amounts(_rates(rates))


def unreadable(malformed: Malformed) -> str:
    """That an annotation cannot be read, and what to write instead."""
    example = "" if malformed.example in malformed.reason else f"; for example {malformed.example}"
    return f"{malformed.key} {malformed.value!r} {malformed.reason}{example}"


def events(before: api.BandwidthStatus, found: NodeAccount) -> Iterator[EmitEvent]:
    """What the owners of pods should know, once for each pod: what is written into the status with it tells that they were told."""
    known = {each.pod_uid: each for each in before.reservations}
    for each in found.held[: api.MOST_LISTED]:
        told = known.get(each.pod.uid)
        object_ = f"Pod/{each.pod.namespace}/{each.pod.name}"
        if each.was_malformed and each.malformed is not None and not (told is not None and told.malformed):
            says = f"{unreadable(each.malformed)}. It counts as {amounts_of(each.rates)} Mbps up/down."
            yield EmitEvent(object=object_, event_type="Warning", reason=MALFORMED, message=says)
        if each.edited and not (told is not None and told.edited):
            says = (
                f"Bandwidth is fixed when a pod is bound: {amounts_of(each.rates)} Mbps up/down stay reserved. "
                "To change it, recreate the pod."
            )
            yield EmitEvent(object=object_, event_type="Warning", reason=EDITED, message=says)
