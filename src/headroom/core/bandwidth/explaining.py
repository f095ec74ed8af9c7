"""What there is to say of one pod's bandwidth: what it asks for, what is reserved for it and where, and what decides where it may go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headroom.api import bandwidth as api
from headroom.api.bandwidth_config import EXTENDED
from headroom.core.bandwidth.accounting import HeldRates, account
from headroom.core.bandwidth.groups import is_marked, is_together
from headroom.core.bandwidth.native import attestation
from headroom.core.bandwidth.overlays import karpenter_note
from headroom.core.bandwidth.rates import asked_by
from headroom.core.bandwidth.telling import amounts_of, digest_of, remembered, unreadable, workload_of
from headroom.model import conditions
from headroom.model.bandwidth import ENDED, Rates, group_of, is_counted, mbps
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.world import World

MOST_NODES: Final = 3
_KIND: Final = "Bandwidth"
_REQUESTS: Final = frozenset({api.MARKER, *EXTENDED})


def says_something(world: World, pod: Pod) -> bool:
    """Whether there is anything to say of a pod's bandwidth by what stands on the pod itself."""
    return bool(asked_by(pod, world.bandwidth).rates) or any(name in _REQUESTS for name, _ in pod.shape.requests)


def notes(world: World, pod: Pod, statuses: Mapping[Ref, object]) -> Iterator[str]:
    """Sentences, none for a pod that neither asks for bandwidth nor has any; `statuses` are those of Bandwidths, as far as they are known."""
    if pod.phase in ENDED:
        return
    if pod.shape.host_network:
        if asked_by(pod, world.bandwidth).keys:
            yield "bandwidth: it uses the host network, which no CNI limits, so no bandwidth is reserved for it"
        return
    if is_counted(pod):
        yield from _bound(world, pod, statuses.get(Ref(_KIND, "", pod.node)))
    elif says_something(world, pod):
        yield from _pending(world, pod, statuses)
        if why := karpenter_note(world, pod):
            yield f"bandwidth: {why}"


# --- a pod on a node ----------------------------------------------------------------------------------------------------------


def _bound(world: World, pod: Pod, status: object) -> Iterator[str]:
    known = status if isinstance(status, api.BandwidthStatus) else api.BandwidthStatus()
    memory = remembered(known, digest_of(world.bandwidth))
    held = next((each for each in account(world, pod.node, memory).held if each.pod.uid == pod.uid), None)
    if held is None:
        return
    yield f"bandwidth: {_reserved(world, held)}"
    if held.siblings and not held.link_local:
        yield f"bandwidth: it declares traffic with siblings only, but {_why_not_together(world, pod)}"
    if held.malformed is not None:
        yield f"bandwidth: {unreadable(held.malformed)}; it counts as {amounts_of(held.rates)} Mbps up/down"
    if held.edited:
        yield (
            "bandwidth: its request was edited after it was bound, without effect; "
            "to change the reservation, recreate the pod"
        )
    over = conditions.find(known.conditions, "Overcommitted")
    if over is not None and over.status == "True":
        yield f"bandwidth: node {pod.node} is overcommitted: {over.message}"


def _reserved(world: World, held: HeldRates) -> str:
    pod = held.pod
    reserved = f"{amounts_of(held.rates)} Mbps up/down are reserved on node {pod.node}, of its virtual switch"
    if held.link_local:
        return f"{reserved} only: {_why_not_the_card(world, held)}"
    if held.links.network != held.rates:
        return f"{reserved}, and {amounts_of(held.links.network)} of these of its network card"
    return f"{reserved} and its network card"


def _why_not_the_card(world: World, held: HeldRates) -> str:
    workload = workload_of(held.pod)
    if (held.siblings or world.bandwidth.siblings) and is_together(world.pods, held.pod):
        return f"all pods of {workload.kind} {workload.name} are on this node, so the network card is not used"
    return "it requests nothing of the network card"


def _why_not_together(world: World, pod: Pod) -> str:
    if pod.owner is None:
        return "it has no controller, so it has no siblings, and the network card is used"
    nodes = sorted(world.pods.by_group[group_of(pod)])
    more = len(nodes) - MOST_NODES
    listed = ", ".join(nodes[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")
    workload = workload_of(pod)
    return (
        f"the pods of {workload.kind} {workload.name} are on {len(nodes)} nodes ({listed}), so the network card is used"
    )


# --- a pod without a node -----------------------------------------------------------------------------------------------------


def _pending(world: World, pod: Pod, statuses: Mapping[Ref, object]) -> Iterator[str]:
    asked = asked_by(pod, world.bandwidth)
    if asked.rates:
        by = f" ({', '.join(asked.keys)})" if asked.keys else ""
        yield f"bandwidth: it requests {amounts_of(asked.rates)} Mbps up/down{by}"
    if asked.problem is not None:
        yield f"bandwidth: {unreadable(asked.problem)}; it will count as {amounts_of(asked.rates)} Mbps up/down"
    yield f"bandwidth: {_who_places_it(world, pod)}"
    if is_marked(pod.annotations) and pod.owner is None:
        yield "bandwidth: it declares traffic with siblings only, but it has no controller and so no siblings"
    left = [
        known.remaining for known in statuses.values() if isinstance(known, api.BandwidthStatus) and known.remaining
    ]
    if left and asked.rates:
        fits = sum(_fits(asked.rates, each) for each in left)
        yield f"bandwidth: {fits} of {len(left)} nodes have that much free on their links"


def _fits(rates: Rates, left: api.LinksLeft) -> bool:
    up, down = mbps(rates.up), mbps(rates.down)
    return all(up <= each.ul_mbps and down <= each.dl_mbps for each in (left.network, left.local))


def _who_places_it(world: World, pod: Pod) -> str:
    """By what stands in its requests, which the API server wrote when it was created."""
    names = {name for name, _ in pod.shape.requests}
    if api.MARKER in names:
        return "kube-scheduler asks Headroom's extender which nodes fit; the pod's events say why a node does not"
    if counted := [each for each in EXTENDED if each in names]:
        publish = (
            f"; {attestation(world).attested} of {len(world.nodes)} nodes publish them" if len(world.nodes) else ""
        )
        return f"kube-scheduler counts it by its request for {' and '.join(counted)}{publish}"
    if world.bandwidth.mode == "Off":
        # Who may not read the operator's settings says the same.
        return "it may go to any node: it was created while placement by bandwidth was off (setting bandwidth_mode)"
    return (
        f"bandwidth_mode is {world.bandwidth.mode}, but the pod was created before its policies were installed, so it may go "
        "to any node; recreate the pod to place it by bandwidth"
    )
