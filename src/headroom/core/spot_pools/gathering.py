"""The pools of a world with what is known of their machines, and which of them news concerns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.core.capacity import guarded
from headroom.core.spot_pools import announced, breaking, ending, launching, observing, orphans, resting
from headroom.core.spot_pools.fleet import SpotFleet
from headroom.core.spot_pools.places import KIND, PoolSlot, SpotPoolState
from headroom.core.spot_pools.wording import of_machines
from headroom.model import times
from headroom.model.changes import Changes, Topic
from headroom.model.cloud_facts import Listing
from headroom.model.decisions import Ref
from headroom.model.facts import Node
from headroom.model.world import World, ref_of

OLD_MS: Final = 5 * times.MINUTE
"""Nothing is launched or ended on an older list."""


def pools_of(world: World, without: Collection[Ref] = ()) -> Iterator[tuple[SpotPoolState, SpotFleet]]:
    """Every pool that can be read, but for some."""
    fleet = SpotFleet(world)
    for ref, each in world.of_kind(KIND):
        if ref not in without and each.spec is not None:
            yield guarded(ref, _pool, world, ref, each, fleet), fleet


def _pool(world: World, ref: Ref, resource: AnyResource, fleet: SpotFleet) -> SpotPoolState:
    key = f"{ref.namespace}/{ref.name}"
    listing = world.listings.get(key)
    listed_at = world.now if world.instances_given else min(listing.at, world.now) if listing is not None else 0
    pool = SpotPoolState(
        ref=ref,
        resource=resource,
        spec=resource.spec,
        world=world,
        key=key,
        listing=listing,
        listed_at=listed_at,
        halted=_halted(world, resource),
    )
    _note_account(pool, listing)
    _note_listing(pool, listing)
    breaking.remember(pool)
    resting.remember(pool)
    launching.remember(pool)
    observing.observe(pool, fleet)
    _brake(pool)
    ending.measure(pool)
    if pool.before.expected or pool.before.missed:
        announced.remember(pool, fleet.presence)
    orphans.look(pool, fleet)
    return pool


def _halted(world: World, resource: AnyResource) -> str:
    if world.stopped:
        return "Stopped"
    if resource.spec.paused:
        return "Paused"
    return "Deleting" if resource.deleting else ""


def _note_account(pool: SpotPoolState, listing: Listing | None) -> None:
    """A pool without slots may move to another account; its machines cannot."""
    if pool.world.instances_given:
        return  # whoever gives the machines gives those of the pool
    mine, told = pool.before.account, listing.account if listing is not None else ""
    pool.elsewhere = bool(pool.before.slots and mine and told and told != mine)
    pool.account = mine if pool.elsewhere or not told else told


def _note_listing(pool: SpotPoolState, listing: Listing | None) -> None:
    if pool.world.instances_given:
        return
    if pool.elsewhere and listing is not None:
        pool.unlisted = "OtherAccount"
        pool.unlisted_says = (
            f"Its machines are in account {pool.account}, but its keys belong to account {listing.account}: no machine is launched "
            f"or ended until the keys belong to account {pool.account} again."
        )
        return
    problem = listing.problem if listing is not None else ""
    more = f": {listing.message}" if listing is not None and listing.message else ""
    if not pool.listed_at:
        pool.unlisted = problem or "NotListed"
        pool.unlisted_says = f"Its machines could not be listed yet{more}, so no machine is launched or ended."
    elif pool.now - pool.listed_at > OLD_MS:
        pool.unlisted = problem or "ListingOld"
        at = times.text(pool.listed_at)
        pool.unlisted_says = f"Its machines were last listed at {at}{more}, so no machine is launched or ended."
    else:
        pool.recheck.append(pool.listed_at + OLD_MS + 1)


def _brake(pool: SpotPoolState) -> None:
    """More than half of the machines gone from one list, without a word of the cloud on any: more likely a fault than the truth."""
    known = {each.slot for each in pool.before.slots if each.instance_id and each.seen_at}
    there = [each for each in pool.places if each.number in known] if len(known) > 1 else []
    gone = [each for each in there if each.absent]
    if len(there) > 1 and 2 * len(gone) > len(there):
        pool.braked = (
            f"{len(gone)} of {of_machines(len(there))} are missing from the cloud's list, and the cloud does not confirm that they ended; "
            "no machine is launched or ended until it does."
        )


def owns_node(world: World, pool: AnyResource, node: Node) -> bool:
    """Whether a node is that of a machine of a pool, or of one that is ending: no pod may start there any more."""
    if any(each.node == node.name for each in pool.status.slots):
        return True
    return node in SpotFleet(world).closing(pool.uid, ref_of(pool))


# --- whom news concerns ---------------------------------------------------------------------------------------------------------


def concerned(world: World, changes: Changes) -> Collection[Ref] | None:
    """The pools that are to be decided anew while no pod is pending; None for all."""
    found = {ref for ref in changes.resources if ref.kind == KIND}
    if changes.pods:  # one of them may be what was announced
        found |= {ref for ref, each in world.of_kind(KIND) if each.status.expected}
    names = set(changes.facts.get(Topic.INSTANCES, ()))
    pods = (world.pods.get(uid) for uid in changes.pods)
    nodes = {*changes.nodes, *(pod.node for pod in pods if pod is not None)} - {""}
    if not (names or nodes or Topic.INSTANCES in changes.facts or Topic.OFFERS in changes.facts):
        return found
    pools = world.of_kind(KIND)
    if Topic.OFFERS in changes.facts or (Topic.INSTANCES in changes.facts and not names):
        return {ref for ref, _ in pools}
    return found | _named(world, names, nodes)


def _named(world: World, names: set[str], nodes: set[str]) -> set[Ref]:
    """The pools whose slots, machines, lists, launches or nodes have these names."""
    fleet = SpotFleet(world)
    uids = {tags[marks.OWNER_TAG] for name in names if (tags := _tags(world, name)).get(marks.OWNER_TAG)}
    strays = uids & fleet.strangers
    places = {(each.provider, each.region) for owner in strays for each in fleet.by_owner[owner]}
    uids |= {fleet.reporters[place] for place in places if place in fleet.reporters}
    new = {node.name for name in nodes if (node := world.nodes.get(name)) is not None}
    found: set[Ref] = set()
    for ref, each in world.of_kind(KIND):
        key = f"{ref.namespace}/{ref.name}"
        slots = each.status.slots
        is_named = key in names or each.uid in uids
        is_named = is_named or any(
            slot.instance_id in names or slot.token in names or (slot.node and slot.node in nodes) for slot in slots
        )
        if (
            is_named
            or (names and each.status.orphans)
            or (nodes and each.deleting)
            or (
                new
                and any(
                    (
                        node := fleet.node_of(
                            PoolSlot(slot=slot, instance=world.instances.get(slot.instance_id)), ref.namespace
                        )
                    )
                    is not None
                    and node.name in new
                    for slot in slots
                    if slot.instance_id and not slot.node
                )
            )
        ):
            found.add(ref)
    return found


def _tags(world: World, name: str) -> dict[str, str]:
    instance = world.instances.get(name)
    return instance.tags if instance is not None else {}
