"""Why a pod is pending, as far as spot machines can help it: which one is coming for it, or why none is launched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headroom.core.capacity import CapacityRound, PodAnswer, Why, reason
from headroom.core.demand import Unit
from headroom.core.spot_pools import rooms
from headroom.core.spot_pools.places import PoolSlot, SpotPoolState, told, when
from headroom.core.spot_pools.supply import SpotSupply
from headroom.core.spot_pools.unserved import SILENT, late
from headroom.core.spot_pools.wording import small, where
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Pod


def explained(found: CapacityRound, pod: Pod) -> PodAnswer | None:
    """What there is to say of a pod without a node; None where no pool has anything to do with it."""
    mine = [each for each in found.supplies if isinstance(each, SpotSupply)]
    if pod.node or not mine:
        return None
    room = next((name for name, uids in found.into.items() if pod.uid in uids), "")
    if room:
        return next((answer for each in mine if (answer := _placed(each.pool, room)) is not None), None)
    waits = next((each for each in mine if _is_among(found.waiting.get(each.ref, ()), pod)), None)
    if waits is not None:
        why = late(waits.pool)
        return PodAnswer(why.reason, f"{waits.ref} launches no machine for it yet: {small(why.message)}")
    left_out = found.wanted.left_out.get(pod.uid)
    if left_out is not None and pod.uid not in found.over_quota:
        # Whatever else brings machines says the same.
        says = f"No machine is launched for it: {small(left_out.message)}"
        is_asked = len(mine) == len(found.supplies) and any(each.pool.on_demand for each in mine)
        return PodAnswer(left_out.reason, says) if is_asked else None
    unit = next((each for each in found.left if _is_among((each,), pod)), None)
    if unit is None:
        return None
    refusals = list(_refusals(found, mine, unit, pod))
    if not refusals:
        return None
    ref, why = refusals[0]
    more = tuple(f"{other}: {each.reason}: {each.message}" for other, each in refusals[1:])
    return PodAnswer(why.reason, f"{ref} launches no machine for it: {small(why.message)}", "", more)


def _is_among(units: Iterable[Unit], pod: Pod) -> bool:
    return any(pod.uid in part.pods for unit in units for part in unit.parts)


def _placed(pool: SpotPoolState, room: str) -> PodAnswer | None:
    """What a pool says of the room that a pod goes to; None if it is not one of its own."""
    for place in pool.places:
        if room == rooms.name_of(pool, place):
            return _coming(pool, place) if rooms.is_coming(place) else _there(pool, place)
    begin = f"{pool.key}:"
    if not room.startswith(begin):
        return None
    kind, _, zone = room.removeprefix(begin).partition("#")[0].partition("@")
    return PodAnswer("Launching", f"A machine of {pool.ref} ({where(kind, zone)}) is launched for it next.", room)


def _there(pool: SpotPoolState, place: PoolSlot) -> PodAnswer:
    return PodAnswer("Placed", f"It fits on {place.slot.node}, a node of {pool.ref}.", place.slot.node)


def _coming(pool: SpotPoolState, place: PoolSlot) -> PodAnswer:
    slot = place.slot
    whose = f"{place.name} ({where(slot.instance_type, slot.zone)}) of {pool.ref}"
    if place.state == "Launching":
        since = f" since {slot.launched_at or slot.since}" if not place.is_new else ""
        return PodAnswer("Launching", f"{whose} is being launched for it{since}.", place.name)
    seen = when(slot.seen_at, pool.now)
    late = told((pool.now if seen is None else seen) + pool.spec.join_timeout_seconds * times.SECOND)
    says = (
        f"{whose} is booting for it; if its node is not ready by {late}, the machine is ended and another one is tried."
    )
    return PodAnswer("Joining", says, place.name)


def _refusals(found: CapacityRound, mine: list[SpotSupply], unit: Unit, pod: Pod) -> Iterator[tuple[Ref, Why]]:
    """Every pool that launches nothing for it, with the reason."""
    for each in mine:
        pool, word = each.pool, reason(found, each, unit)
        if word in SILENT or not pool.on_demand:
            continue
        if pool.unlisted and pool.listing is None and not found.world.instances_given:
            # Whoever asks does not see the clouds: what the operator wrote of this pod counts.
            for written in pool.before.unserved:
                if written.pod == pod.key:
                    yield each.ref, Why(written.reason, written.message)
            continue
        yield each.ref, each.why(unit, word)
