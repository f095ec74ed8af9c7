"""What each pod of a node holds of its links: every bound pod that has not finished, whoever scheduled it.

What a pod asked for when it was bound stays until it ends; later edits are told and change nothing. What was asked for then is known, in
this order: by its native requests, which nobody can change, in native mode; by our own status, which outlives us; by the annotations with which it was
first seen on its node; by those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from headroom.api import bandwidth as api
from headroom.api.bandwidth_config import EXTENDED, EXTENDED_RATES, NATIVE
from headroom.core.bandwidth.groups import is_marked, is_together
from headroom.core.bandwidth.rates import AskedRates, Malformed, asked_in
from headroom.model.bandwidth import MEGABIT, MOST_BITS, BandwidthRules, Links, Rates, is_counted, mbps
from headroom.model.facts import Pairs, Pod
from headroom.model.world import World

UNIT: Final = 1_000_000
"""Amounts of resources are millionths."""


class HeldRates(Struct, frozen=True, gc=False):
    """What one pod holds."""

    pod: Pod
    links: Links
    """What it holds of each link."""
    asked: Rates
    """What its annotations asked for when it was bound."""
    siblings: bool = False
    """It said, when it was bound, that it talks only to siblings."""
    malformed: Malformed | None = None
    was_malformed: bool = False
    """Something of what it asked for could not be read, and counts as the default."""
    edited: bool = False
    """It asks for something else now than when it was bound."""

    @property
    def rates(self) -> Rates:
        """All that it holds: what passes the card passes the virtual switch too."""
        return self.links.local

    @property
    def link_local(self) -> bool:
        """Whether it holds nothing of the card."""
        return bool(self.links.local) and not self.links.network


class NodeAccount(Struct, frozen=True, gc=False):
    """Who holds what on one node."""

    held: tuple[HeldRates, ...] = ()
    """Those whose bind-time requests were edited first, then those that cannot be read, then by how much they hold."""
    used: Links = Links()
    pods: int = 0
    """How many hold something."""
    host_network: int = 0
    """Pods in the node's own network that ask: nothing shapes their traffic, so nothing is reserved for them."""


class AskedCache:
    """What annotations ask for, each distinct set of them read once in a pass: pods of one template say the same."""

    def __init__(self, rules: BandwidthRules) -> None:
        self._rules = rules
        self._known: dict[Pairs, tuple[AskedRates, bool]] = {}

    def of(self, annotations: Pairs) -> tuple[AskedRates, bool]:
        """What is asked for, and whether only siblings are talked to."""
        found = self._known.get(annotations)
        if found is None:
            found = self._known[annotations] = asked_in(annotations, self._rules), is_marked(annotations)
        return found


def account(
    world: World, node: str, memory: Mapping[str, api.Reservation], reading: AskedCache | None = None
) -> NodeAccount:
    """What the pods of one node hold, with what our status remembers of them."""
    pods, read = world.pods, (reading or AskedCache(world.bandwidth)).of
    found: list[HeldRates] = []
    host_network = 0
    for uid in pods.by_node[node]:
        pod = pods.get(uid)
        if pod is None or not is_counted(pod) or not _may_hold(pod, world, memory):
            continue
        if pod.shape.host_network:
            host_network += bool(read(pod.annotations)[0].keys)
            continue
        held = _held(world, pod, memory.get(uid), read)
        if held.rates or held.edited:
            found.append(held)
    found.sort(key=_order)
    return NodeAccount(tuple(found), _sum(found), sum(1 for each in found if each.rates), host_network)


def _may_hold(pod: Pod, world: World, memory: Mapping[str, api.Reservation]) -> bool:
    """Quickly: most pods of most clusters say nothing, and never did."""
    if pod.annotations or world.bandwidth.defaults is not None or pod.uid in memory or pod.uid in world.pods.bound_with:
        return True
    return native_links(pod, world.bandwidth) is not None


def _held(
    world: World,
    pod: Pod,
    known: api.Reservation | None,
    read: Callable[[Pairs], tuple[AskedRates, bool]],
) -> HeldRates:
    bound, native = world.pods.bound_with.get(pod.uid), native_links(pod, world.bandwidth)
    now, marked = read(pod.annotations)
    first, was_marked = (now, marked) if bound is None else read(bound)
    said = _Said(first.rates, was_marked, bool(first.malformed))
    if known is not None:
        said = _Said(Rates(known.up_bits, known.down_bits), known.siblings, known.malformed)
    links = _fixed(said.rates, native)
    is_other = links != _fixed(now.rates, native) or said.siblings != marked
    if (said.siblings or world.bandwidth.siblings) and is_together(world.pods, pod):
        links = Links(local=links.local)
    return HeldRates(
        pod=pod,
        links=links,
        asked=said.rates,
        siblings=said.siblings,
        malformed=first.problem,
        was_malformed=said.malformed,
        edited=is_other or _differs(now, native) or (known is not None and known.edited),
    )


class _Said(NamedTuple):
    """What a pod asked for when it was bound."""

    rates: Rates
    siblings: bool
    malformed: bool


def _differs(now: AskedRates, native: Links | None) -> bool:
    """Whether the annotations ask for something else than the requests that were made from them."""
    return native is not None and bool(now.keys) and native.network != _rounded(now.rates)


def _fixed(rates: Rates, native: Links | None) -> Links:
    """What the pod holds, if it has native requests: these, or what they were rounded up from. What passes the card passes the switch too."""
    rounded = _rounded(rates)
    return Links(rates, rates) if native in (None, Links(rounded, rounded)) else native


def _rounded(rates: Rates) -> Rates:
    """In whole megabits."""
    return Rates(mbps(rates.up) * MEGABIT, mbps(rates.down) * MEGABIT)


def native_links(pod: Pod, rules: BandwidthRules) -> Links | None:
    """What the pod requests of kube-scheduler on each link, in bits per second; None if it requests nothing.

    What it requests of the virtual switch comes on top of what it requests of the card. In other modes nobody holds its requests against
    the annotations, so they are what anybody wrote. More than a link can ever carry counts as that, whatever a pod for a named node asks.
    """
    if rules.mode != NATIVE or not (
        found := {name: bits for name, bits in pod.shape.requests if name in EXTENDED and bits}
    ):
        return None
    # Whole megabits in millionths are bits.
    card, inside = (Rates(*(found.get(names[link], 0) for names in EXTENDED_RATES.values())) for link in (0, 1))
    return Links(local=_carried(card + inside), network=_carried(card))


def _carried(rates: Rates) -> Rates:
    return Rates(min(rates.up, MOST_BITS), min(rates.down, MOST_BITS))


def _order(held: HeldRates) -> tuple[bool, bool, int, str, str, str]:
    pod = held.pod
    amount = held.rates.up + held.rates.down
    return not held.edited, not held.was_malformed, -amount, pod.namespace, pod.name, pod.uid


def _sum(found: list[HeldRates]) -> Links:
    links = [each.links for each in found]
    local = Rates(sum(each.local.up for each in links), sum(each.local.down for each in links))
    return Links(local, Rates(sum(each.network.up for each in links), sum(each.network.down for each in links)))
