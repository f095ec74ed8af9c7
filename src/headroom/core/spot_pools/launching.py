"""What is launched: an intent with its token in the status first, then the call, and the same call again until its outcome is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headroom.api import marks
from headroom.api.power_status import MOST_SHAPES, Assigned
from headroom.api.spot_pools_status import Purchases, Slot
from headroom.core.spot_pools import breaking
from headroom.core.spot_pools.alternatives import Alternative, LaunchChoice
from headroom.core.spot_pools.places import UNRESOLVED, PoolSlot, SpotPoolState, told, when
from headroom.core.spot_pools.wording import of_machines
from headroom.model import times
from headroom.model.actions import AddFinalizer, LaunchInstance

HOUR_MS: Final = times.HOUR + times.MINUTE
"""Purchases are remembered by minute, so one of the first moment of a minute counts for a minute longer."""
FEWEST: Final = 10
"""Machines that may be bought in an hour unless the pool says otherwise, at least."""
_TOKEN: Final = 40


class LaunchOrder(NamedTuple):
    """A machine to be launched."""

    alternative: Alternative
    assigned: Mapping[str, int] = {}


class Limit(NamedTuple):
    """How many machines may be launched now, and what is in the way of more."""

    machines: int
    why: str = ""
    says: str = ""


def remember(pool: SpotPoolState) -> None:
    """Take up what was bought in the last hour."""
    for each in pool.before.purchases:
        minute = when(each.minute, pool.now)
        if minute is not None and minute + HOUR_MS > pool.now:
            pool.bought[minute] = pool.bought.get(minute, 0) + each.count


def status(pool: SpotPoolState) -> tuple[Purchases, ...]:
    """What is remembered of purchases from now on."""
    return tuple(Purchases(minute=told(minute), count=count) for minute, count in sorted(pool.bought.items()))


def most_an_hour(pool: SpotPoolState) -> int:
    """Machines that may be bought in an hour."""
    given = pool.spec.max_purchases_per_hour
    return max(FEWEST, 2 * pool.spec.maximum) if given is None else given


def limit(pool: SpotPoolState) -> Limit:
    """How many more may be launched now."""
    return min(purchases(pool), room(pool), key=lambda each: each.machines)


def purchases(pool: SpotPoolState) -> Limit:
    """How many more may be bought in this hour: more than that wait."""
    unresolved, bought, most = len(pool.are(*UNRESOLVED)), sum(pool.bought.values()), most_an_hour(pool)
    says = f"{bought} machines were bought in the last hour and {unresolved} are being launched, of at most {most} (maxPurchasesPerHour)."
    return Limit(max(0, most - bought - unresolved), "PurchaseLimit", says)


def room(pool: SpotPoolState) -> Limit:
    """How many more the pool may have, whatever was bought: pods for more than that pass on."""
    exist = f"{of_machines(len(pool.places))} exist, are being launched or ended"
    found = [
        Limit(
            pool.ceiling - len(pool.places),
            "SurgeLimit",
            f"{exist}, of at most {pool.ceiling} (maximum and maxSurge).",
        )
    ]
    at_once = breaking.at_once(pool)
    if at_once is not None:
        until = f" before {told(pool.breaker_until)}" if breaking.is_open(pool) else " until one joins"
        says = f"The last {pool.never_joined} machines did not join, so none is launched{until}."
        found.append(Limit(at_once, "NeverJoined", says))
    least = min(found, key=lambda each: each.machines)
    return Limit(max(0, least.machines), least.why, least.says)


def launch(pool: SpotPoolState, orders: Sequence[LaunchOrder]) -> list[PoolSlot]:
    """Write down intents."""
    taken = {each.number for each in pool.places}
    free = (number for number in range(len(taken) + len(orders)) if number not in taken)
    new = [_intent(pool, number, order) for number, order in zip(free, orders, strict=False)]
    pool.places = sorted((*pool.places, *new), key=lambda each: each.number)
    return new


def fill(pool: SpotPoolState, choose: Callable[[], LaunchChoice], missing: int) -> list[PoolSlot]:
    """Launch what is missing, as far as that may be. What could be launched is found only if something is."""
    if missing <= 0:
        return []
    choice = choose()
    most = limit(pool)
    if most.machines < missing:
        pool.wants, pool.wants_why, pool.wants_says = missing - most.machines, most.why, most.says
    if not choice.open:
        pool.wants, pool.wants_why, pool.wants_says = missing, choice.why, choice.says
        return []
    return launch(pool, [LaunchOrder(choice.open[0])] * min(missing, most.machines))


def calls(pool: SpotPoolState) -> Iterator[AddFinalizer | LaunchInstance]:
    """The calls for all intents whose outcome is not known: a repeated one launches no second machine."""
    launching = pool.are("Launching")
    if launching and marks.POOL_FINALIZER not in pool.resource.finalizers:
        yield AddFinalizer(object=str(pool.ref))
    for each in launching:
        slot = each.slot
        yield LaunchInstance(
            pool=pool.key, slot=slot.slot, token=slot.token, instance_type=slot.instance_type, zone=slot.zone
        )


def _intent(pool: SpotPoolState, number: int, order: LaunchOrder) -> PoolSlot:
    kind, zone = order.alternative.instance_type, order.alternative.zone
    now = told(pool.now)
    slot = Slot(
        slot=number,
        state="Launching",
        since=now,
        token=token_of(pool, number, kind, zone),
        instance_type=kind,
        zone=zone,
        launched_at=now,
        assigned=tuple(
            Assigned(shape=shape, pods=many) for shape, many in sorted(order.assigned.items())[:MOST_SHAPES]
        ),
    )
    return PoolSlot(slot=slot, is_new=True)


def token_of(pool: SpotPoolState, number: int, kind: str, zone: str) -> str:
    """Names one intent for ever: another moment, slot, type, zone or image is another intent."""
    parts = (pool.world.cluster, pool.resource.uid, number, pool.now, kind, zone, pool.spec.image_id or "")
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:_TOKEN]
