"""What Karpenter's machines teach of offers: launches, failures, interruptions. Seen here, kept in the ledger, shared by clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from msgspec import structs

from headroom.core.offers.quotes import SPOT
from headroom.core.offers.rendering import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from headroom.model import times
from headroom.model.cloud_facts import Experience, LaunchFailure, Offer
from headroom.model.facts import NodeClaim, NodePool
from headroom.model.machine_records import MachineRecord
from headroom.model.world import World

NODE_CLAIMS: Final = "nodeclaims.karpenter.sh"
_ZONE_ID: Final = "topology.k8s.aws/zone-id"
_NOT_THE_OFFERS: Final = frozenset({"NodeClassNotReady"})
"""Failures that say nothing of what was to be launched."""
TOGETHER_MS: Final = 5 * times.MINUTE
"""Launches of a NodePool that fail within so long are one failure: many claims meet the same lack, again and again."""
MOST_OFFERS: Final = 64
"""A launch that could have been of more offers than this says little of each."""


def records_of(world: World) -> list[MachineRecord]:
    """What is to be seen now of every machine that Karpenter launched, and of the launches that failed."""
    if NODE_CLAIMS in world.unseen or not world.cluster:
        return []
    found = [each for claim in world.node_claims.values() if (each := _launched(world, claim)) is not None]
    for failure in sorted(world.launch_failures.values(), key=lambda each: (each.at, each.claim)):
        found += _failed(world, failure)
    return [each for _, each in sorted({each.key: each for each in reversed(found)}.items())]


def _launched(world: World, claim: NodeClaim) -> MachineRecord | None:
    labels = dict(claim.labels)
    kind, zone, capacity = (
        labels.get(INSTANCE_TYPE),
        labels.get(_ZONE_ID) or labels.get(ZONE),
        labels.get(CAPACITY_TYPE),
    )
    if not claim.launched or not (kind and zone and capacity):
        return None
    return MachineRecord(
        cluster=world.cluster,
        machine=claim.uid or claim.name,
        instance_type=kind,
        zone=zone,
        capacity_type=capacity,
        began=min(claim.created, world.now),
        seen_until=world.now if claim.deleting is None else max(claim.created, min(claim.deleting, world.now)),
        outcome="Interrupted" if capacity == SPOT and _is_interrupted(world, claim) else "",
    )


def _is_interrupted(world: World, claim: NodeClaim) -> bool:
    """Whether its cloud takes it back: it ends, and neither Karpenter's own reasons nor the end of its NodePool explain that. One that
    never joined is given up by Karpenter, which marks that nowhere.
    """
    pool = world.node_pools.get(claim.node_pool)
    is_ended = claim.deleting is not None and claim.registered and not claim.disrupted
    return is_ended and pool is not None and not pool.deleting


def _failed(world: World, failure: LaunchFailure) -> Iterator[MachineRecord]:
    """One record for each offer that the launch could have been of: it fails only if none of them can be had."""
    pool, claim = world.node_pools.get(failure.node_pool), world.node_claims.get(failure.claim)
    if pool is None or failure.reason in _NOT_THE_OFFERS:
        return
    allowed = _allowed(pool) | ({key: (value,) for key, value in claim.labels} if claim else {})
    parts = [allowed.get(key, ()) for key in (INSTANCE_TYPE, CAPACITY_TYPE)]
    parts.append(allowed.get(_ZONE_ID, ()) or allowed.get(ZONE, ()))
    every = list(product(*parts))
    for kind, capacity, zone in every if len(every) <= MOST_OFFERS else ():
        yield MachineRecord(
            cluster=world.cluster,
            machine=f"{failure.node_pool}/failed/{failure.at // TOGETHER_MS}",
            instance_type=kind,
            zone=zone,
            capacity_type=capacity,
            began=failure.at,
            seen_until=failure.at,
            outcome="Failed",
        )


def _allowed(pool: NodePool) -> dict[str, tuple[str, ...]]:
    return {each.key: each.values for each in pool.requirements if each.operator == "In"}


def with_zone_ids(records: Iterable[MachineRecord], offers: Iterable[Offer]) -> list[MachineRecord]:
    """With the ids of zones that are only known by name, as far as offers tell them."""
    ids = {each.zone: each.zone_id for each in offers if each.zone and each.zone_id}
    return [structs.replace(each, zone=ids.get(each.zone, each.zone)) for each in records]


def with_zone_names(found: Iterable[Experience], offers: Iterable[Offer]) -> dict[str, Experience]:
    """Experience by offer, under the names of zones in this account. Time counts in whole hours, so that it is news only then."""
    names = {each.zone_id: each.zone for each in offers if each.zone and each.zone_id}
    every: dict[str, Experience] = {}
    for each in found:
        kind, _, rest = each.offer.partition("/")
        zone, _, capacity = rest.rpartition("/")
        name = f"{kind}/{names.get(zone, zone)}/{capacity}"
        every[name] = _added(every.get(name, Experience(offer=name)), each)
    return {
        name: structs.replace(each, machine_ms=each.machine_ms - each.machine_ms % times.HOUR)
        for name, each in every.items()
    }


def _added(one: Experience, other: Experience) -> Experience:
    return structs.replace(
        one,
        launches=one.launches + other.launches,
        failures=one.failures + other.failures,
        interruptions=one.interruptions + other.interruptions,
        machine_ms=one.machine_ms + other.machine_ms,
    )


def news_of(
    records: Iterable[MachineRecord], written: Mapping[tuple[str, str, str, str, str], MachineRecord], after_ms: int
) -> list[MachineRecord]:
    """Those that the ledger should hear of: new ones, those that ended, and after a while those that still run."""
    found = []
    for each in records:
        known = written.get(each.key)
        if known is None or known.outcome != each.outcome or each.seen_until - known.seen_until >= after_ms:
            found.append(each)
    return found
