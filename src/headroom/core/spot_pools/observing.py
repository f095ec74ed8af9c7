"""What became of each slot since it was last written down, by evidence alone: an answer of the cloud about this token or this id.

That a list does not show a machine is no evidence: lists lag behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from headroom.api import marks
from headroom.api.spot_pools_status import Slot
from headroom.core.spot_pools import breaking, resting
from headroom.core.spot_pools.fleet import SpotFleet, is_alive
from headroom.core.spot_pools.places import (
    GONE,
    LAG_MS,
    LEFT,
    NOT_FOUND,
    UNRESOLVED,
    PoolSlot,
    SpotPoolState,
    told,
    when,
)
from headroom.core.spot_pools.wording import dollars
from headroom.model import times
from headroom.model.cloud_facts import Instance, Launch
from headroom.model.facts import Node

NOT_FOUND_MS: Final = 2 * times.MINUTE
INTENT_MS: Final = times.HOUR
"""A token is not sent any more after this: nobody knows for how long a cloud remembers it."""
REFUSALS: Final = ("SoldOut", "PriceTooLow", "QuotaReached", "Refused")
"""What proves that no machine exists for a token."""
FLIGHT_MS: Final = times.MINUTE
"""So long after the refusal of one call another with the same token may still be on its way, and find what the first did not. Whether it
did, only a list tells that began later."""
EARLIEST_MS, LATEST_MS = times.HOUR, 24 * times.HOUR
"""A reclaim before that, or later, is none of now."""
_LONGEST_NUMBER: Final = 6
_LONGEST_SECONDS: Final = 12
_MOMENTS: Final = ("since", "launched_at", "seen_at", "joined_at", "idle_since", "not_found_since")


def observe(pool: SpotPoolState, fleet: SpotFleet) -> None:
    """Bring every slot up to date, adopt machines that no slot has, and drop slots that are free."""
    if pool.elsewhere:
        pool.places = [PoolSlot(slot=each, is_ours=False) for each in pool.before.slots]
        return
    mine = fleet.by_owner.get(pool.resource.uid, ()) if pool.resource.uid else ()
    claimed: set[str] = {each.instance_id for each in pool.before.slots if each.instance_id}
    named: set[str] = set()
    for slot in pool.before.slots:
        place = _observed(pool, slot, claimed, named)
        if place is not None:
            pool.places.append(place)
    _find(pool, mine, claimed)
    unknown = [each for each in mine if each.name not in claimed and is_alive(each)]
    pool.left = sorted((each for each in mine if each.state in LEFT), key=lambda each: each.name)
    pool.closing = len(fleet.closing(pool.resource.uid, pool.ref)) if pool.resource.deleting else 0
    pool.alive = sum(map(is_alive, mine))
    if unknown:
        _adopt(pool, unknown)
    pool.places = [each for each in pool.places if not _is_disproved(pool, each)]
    for place in pool.places:
        _join(pool, fleet, place)


def _observed(pool: SpotPoolState, slot: Slot, claimed: set[str], named: set[str]) -> PoolSlot | None:
    """A slot as it is now; None if it is free."""
    world, slot = pool.world, _not_ahead(slot, pool.text_now)
    if not slot.instance_id:
        return _unresolved(pool, PoolSlot(slot=slot), claimed)
    if slot.instance_id in named:
        return None  # the status names a machine twice
    named.add(slot.instance_id)
    if slot.state in UNRESOLVED:  # nobody but a hand writes that: a call for it would buy one more
        slot = structs.replace(slot, state="Running", cause="")
    instance = world.instances.get(slot.instance_id)
    place = PoolSlot(slot=slot, instance=instance)
    if instance is None and not world.instances_given:
        place.absent = True
        return place
    if instance is None or instance.state == NOT_FOUND:
        place.instance, place.absent = None, True
        return _not_found(pool, place)
    return _there(pool, place, instance)


def _not_ahead(slot: Slot, now: str) -> Slot:
    """A slot none of whose moments is later than now. They are written down so: what is only read as nearer moves along with the
    clock, and nobody would wait for it any shorter.
    """
    if max(slot.since, slot.launched_at, slot.seen_at, slot.joined_at, slot.idle_since, slot.not_found_since) <= now:
        return slot
    return structs.replace(slot, **{name: now for name in _MOMENTS if getattr(slot, name) > now})


def _unresolved(pool: SpotPoolState, place: PoolSlot, claimed: set[str]) -> PoolSlot | None:
    slot, now = place.slot, pool.now
    launch = _launch_of(pool, slot)
    if slot.state not in UNRESOLVED or not slot.token:
        return (
            None  # without a machine there is nothing to drain or to end, and without a token every call would buy one
        )
    if slot.cause == "Refused":
        if launch is None or launch.outcome in REFUSALS:
            return place
        # It was another process that was refused: our own call with this token may have come through, and only lists can tell.
        place.change(since=told(now), cause="Unanswered")
    if launch is not None and launch.outcome in REFUSALS:
        if slot.cause == "Unanswered":
            return place
        resting.refused(pool, slot, launch)
        place.change(state="Cancelling", since=told(now), cause="Refused")
        return place
    if launch is not None and launch.outcome == "Accepted" and launch.instance:
        if launch.instance in claimed:
            # The cloud names one machine for two tokens: what became of this one, only its lists can tell.
            place.become("Cancelling", now)
            return place
        claimed.add(launch.instance)
        instance = pool.world.instances.get(launch.instance)
        bought(pool, place, launch.instance)
        if instance is None or instance.state == NOT_FOUND:
            return place  # it was accepted a moment ago: lists lag behind
        return _there(pool, place, instance)
    if slot.state == "Launching" and now - (when(slot.launched_at, now) or now) >= INTENT_MS:
        place.become("Cancelling", now, "Failed")
    return place


def _launch_of(pool: SpotPoolState, slot: Slot) -> Launch | None:
    """What came of its launch. Whoever reads a token can send it to a cloud of their own, so what another pool heard is none."""
    found = pool.world.launches.get(slot.token) if slot.token else None
    return found if found is not None and found.pool == pool.key else None


def _find(pool: SpotPoolState, mine: Iterable[Instance], claimed: set[str]) -> None:
    """Give intents the machines that carry their tokens, whatever became of these."""
    awaited = {each.slot.token: each for each in pool.places if not each.slot.instance_id and each.slot.token}
    if not awaited:
        return
    for instance in sorted(mine, key=lambda each: (not is_alive(each), each.launched_at or pool.now, each.name)):
        place = awaited.get(instance.tags.get(marks.TOKEN_TAG, ""))
        if place is None or instance.name in claimed:
            continue
        del awaited[place.slot.token]
        claimed.add(instance.name)
        bought(pool, place, instance.name)
        if _there(pool, place, instance) is None:
            pool.places.remove(place)


def bought(pool: SpotPoolState, place: PoolSlot, instance: str) -> None:
    """A launch came about."""
    slot = place.slot
    _note_bought(pool, pool.now)
    resting.succeeded(pool, slot)
    place.change(instance_id=instance, state="Running", since=told(pool.now), cause="")
    pool.tell("Launched", f"{instance} ({slot.instance_type}{_in(slot.zone)}) was launched.", instance)


def _note_bought(pool: SpotPoolState, at: int) -> None:
    minute = at - at % times.MINUTE
    pool.bought[minute] = pool.bought.get(minute, 0) + 1


def _in(zone: str) -> str:
    return f" in {zone}" if zone else ""


def _not_found(pool: SpotPoolState, place: PoolSlot) -> PoolSlot | None:
    """The cloud does not know the id. That is evidence once the machine is old enough to show, and it stays so."""
    slot, now = place.slot, pool.now
    since = when(slot.not_found_since, now)
    if since is None:
        place.change(not_found_since=told(now))
        since = now
    # What counts is when the cloud was asked, and when the machine surely existed: an intent may have waited long for its call.
    begun, asked = when(slot.seen_at, now) or when(slot.since, now) or now, pool.listed_at
    if asked - begun > LAG_MS and asked - since >= NOT_FOUND_MS:
        _note_never_joined(pool, slot)
        pool.tell("Lost", f"The cloud no longer knows {slot.instance_id}.", slot.instance_id, warns=True)
        return None
    pool.recheck.append(max(begun + LAG_MS + 1, since + NOT_FOUND_MS))
    return place


def _there(pool: SpotPoolState, place: PoolSlot, instance: Instance) -> PoolSlot | None:
    slot, now = place.slot, pool.now
    place.instance = instance
    tags = instance.tags
    place.is_ours = tags.get(marks.CLUSTER_TAG) == pool.world.cluster and tags.get(marks.OWNER_TAG) == pool.resource.uid
    if instance.state in GONE:
        _ended(pool, place, instance)
        return None
    if not slot.seen_at or slot.not_found_since:
        place.change(seen_at=slot.seen_at or told(now), not_found_since="")
    price = dollars(instance.price_per_hour)
    if price and price != slot.price_per_hour:
        place.change(price_per_hour=price)
    if instance.reclaim_at is not None:
        _reclaimed(pool, place, instance.reclaim_at)
    return place


def _reclaimed(pool: SpotPoolState, place: PoolSlot, at: int) -> None:
    """The cloud takes a machine back then."""
    if not place.slot.reclaim_at:
        pool.tell("Reclaimed", f"The cloud reclaims {place.name} at {told(at)}.", place.name, warns=True)
    if place.slot.reclaim_at != told(at):
        place.change(reclaim_at=told(at))


def _ended(pool: SpotPoolState, place: PoolSlot, instance: Instance) -> None:
    slot = place.slot
    if instance.reclaim_at is None:
        _note_never_joined(pool, slot)
    if instance.state == "LAUNCH_FAILED" and not slot.joined_at:
        pool.tell("LaunchFailed", f"The cloud failed to start {instance.name}.", instance.name, warns=True)
    elif slot.state == "Running":
        pool.tell(
            "Lost", f"{instance.name} is {instance.state}; this pool did not cause it.", instance.name, warns=True
        )
    elif slot.state in ("Draining", "Ending"):
        pool.tell("Ended", f"{instance.name} has ended.", instance.name)


def _note_never_joined(pool: SpotPoolState, slot: Slot) -> None:
    """One that ends by itself before it has joined is a failure like one that never joins: a broken image would be bought for ever."""
    if slot.state == "Running" and not slot.joined_at and not slot.reclaim_at:
        breaking.failed(pool)


# --- machines that no slot has --------------------------------------------------------------------------------------------------


def _adopt(pool: SpotPoolState, unknown: list[Instance]) -> None:
    """Give machines a slot: that of the intent they came of, else their own number, else the lowest that is free."""
    awaited = {each.number: each for each in pool.places if not each.slot.instance_id}
    taken = {each.number for each in pool.places}
    for instance in sorted(unknown, key=lambda each: (each.launched_at or pool.now, each.name)):
        number = _number(instance)
        place = awaited.get(number) if number is not None and marks.TOKEN_TAG not in instance.tags else None
        if place is not None and _came_of(place.slot, instance):
            del awaited[place.number]
            bought(pool, place, instance.name)
            _there(pool, place, instance)
            continue
        if number is None or number in taken:
            number = next(each for each in range(len(taken) + 1) if each not in taken)
        taken.add(number)
        pool.places.append(_adopted(pool, number, instance))
    pool.places.sort(key=lambda each: each.number)


def _adopted(pool: SpotPoolState, number: int, instance: Instance) -> PoolSlot:
    now = told(pool.now)
    begun = pool.now if instance.launched_at is None else min(instance.launched_at, pool.now)
    slot = Slot(
        slot=number,
        state="Running",
        since=now,
        instance_type=instance.instance_type,
        zone=instance.zone,
        launched_at=told(begun),
        instance_id=instance.name,
        seen_at=now,
        price_per_hour=dollars(instance.price_per_hour),
        reclaim_at=told(instance.reclaim_at),
    )
    pool.tell("Adopted", f"{instance.name} carries this pool's tags and becomes slot {number}.", instance.name)
    return PoolSlot(slot=slot, instance=instance)


def _number(instance: Instance) -> int | None:
    text = instance.tags.get(marks.SLOT_TAG, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def _came_of(slot: Slot, instance: Instance) -> bool:
    """Whether a machine is what an intent asked for."""
    is_type = not instance.instance_type or instance.instance_type == slot.instance_type
    return is_type and (not slot.zone or not instance.zone or instance.zone == slot.zone)


def _is_disproved(pool: SpotPoolState, place: PoolSlot) -> bool:
    """Whether a launch that is not wanted any more surely came to nothing: a list that began late enough does not show it."""
    if place.slot.state != "Cancelling":
        return False
    since = when(place.slot.since, pool.now) or pool.now
    if place.slot.cause == "Refused":
        pool.recheck.append(since + FLIGHT_MS)
        return pool.listed_at - since >= FLIGHT_MS
    if pool.listed_at - since > LAG_MS:
        _note_bought(pool, when(place.slot.launched_at, pool.now) or since)  # it may have come and gone unseen
        return True
    pool.recheck.append(since + LAG_MS + 1)
    return False


def _join(pool: SpotPoolState, fleet: SpotFleet, place: PoolSlot) -> None:
    """Note the node that a machine became, and that it is ready."""
    slot = place.slot
    if not place.is_ours:
        return  # what a status names is no evidence, so nothing happens to its node
    place.node = fleet.node_of(place, pool.ref.namespace)
    if place.node is not None and slot.node != place.node.name:
        place.change(node=place.node.name)
    if place.node is not None and not slot.reclaim_at and (at := _told_by(place.node, pool.now)) is not None:
        _reclaimed(pool, place, at)
    if slot.joined_at or place.instance is None:
        return
    if breaking.has_come(pool, place):
        place.change(joined_at=told(pool.now))
        breaking.joined(pool)


def _told_by(node: Node, now: int) -> int | None:
    """When the cloud takes a node's machine back, as the node's label says."""
    text = next((value for key, value in node.labels if key == marks.RECLAIM_AT), "") if node.labels else ""
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_SECONDS):
        return None
    at = int(text) * times.SECOND
    return at if now - EARLIEST_MS <= at <= now + LATEST_MS else None
