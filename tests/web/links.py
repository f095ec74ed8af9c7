"""Bandwidths as an operator has left them: within capacity, overcommitted, with pods of several teams, and such as nobody can read."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.api import bandwidth as api
from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.model.bandwidth import MEGABIT
from headroom.model.decisions import Decision
from headroom.model.times import HOUR, text
from headroom.model.world import ref_of
from tests.builders import NOON, a_resource
from tests.web.pools import Left

CARD, SWITCH = 1000, 20_000


def condition(type_: str, status: Any, message: str, reason: str = "Reconciled") -> Condition:
    moment = text(NOON - HOUR)
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=moment)


def holds(pod: str, up: int, down: int = 0, *, local: bool = False, owner: str = "Job train", **more: Any) -> Any:
    """What one pod, `namespace/name`, has reserved, in Mbps."""
    namespace, name = pod.split("/")
    kind, of = owner.split(" ")
    rates = api.RateQuantities(ul_mbps=up, dl_mbps=down)
    return api.Reservation(
        pod_uid=f"uid-{name}",
        pod_name=name,
        namespace=namespace,
        deployment_type=kind,
        deployment_name=of,
        bandwidth=api.LinkQuantities(local=rates, network=api.RateQuantities() if local else rates),
        link_local=local,
        up_bits=up * MEGABIT,
        down_bits=down * MEGABIT,
        **more,
    )


def a_node_with(
    name: str, *reservations: api.Reservation, capacity: int = CARD, ready: Condition | None = None, **more: Any
) -> Left:
    """The Bandwidth of a node, with what its pods have reserved; `more` is of its status."""
    local = [each.bandwidth.local for each in reservations]
    card = [each.bandwidth.network for each in reservations]
    used = {"local": _sum(local), "network": _sum(card)}
    over = max(used["network"].ul_mbps, used["network"].dl_mbps) > capacity
    says = f"More is reserved than there is: {used['network'].ul_mbps - capacity} Mbps up on the network card."
    status = api.BandwidthStatus(
        conditions=(
            ready or condition("Ready", "True", f"{len(reservations)} pods hold bandwidth."),
            condition("Overcommitted", str(over), says if over else "No link has more reserved than it carries."),
        ),
        status="Created",
        capacity=api.LinkQuantities(local=_both(SWITCH), network=_both(capacity)),
        used=api.LinksUsed(**used),
        reservations=reservations,
        pods=more.pop("pods", len(reservations)),
        edited_pods=sum(each.edited for each in reservations),
        malformed_pods=sum(each.malformed for each in reservations),
        network_from="Annotation",
        local_from="Settings",
        **more,
    )
    resource: AnyResource = structs.replace(a_resource("Bandwidth", name, capacity={}), status=status)
    ready_ = status.conditions[0]
    return Left(
        resource, Decision(resource=ref_of(resource), status=status, reason=ready_.reason, message=ready_.message)
    )


def _both(mbps: int) -> api.RateQuantities:
    return api.RateQuantities(ul_mbps=mbps, dl_mbps=mbps)


def _sum(rates: list[api.RateQuantities]) -> api.RatesUsed:
    return api.RatesUsed(ul_mbps=sum(each.ul_mbps for each in rates), dl_mbps=sum(each.dl_mbps for each in rates))


UNREADABLE = condition("Ready", "False", "headroom.dev/network-bandwidth 'much' must be ...", "InvalidAnnotation")


def a_bit_of_everything() -> tuple[Left, ...]:
    """Four nodes: one within its capacity, one with more than it carries, one that cannot be read, and one that is free."""
    return (
        a_node_with(
            "calm", holds("team-a/web", 300, 100), holds("team-b/rank-0", 200, local=True, owner="StatefulSet rank")
        ),
        a_node_with(
            "full",
            holds("team-a/train-0", 900, 400),
            holds("team-b/odd", 20, 20, malformed=True),
            holds("team-b/later", 200, edited=True),
            pods=4,
        ),
        a_node_with("odd", ready=UNREADABLE),
        a_node_with("quiet", host_network_pods=2),
    )
