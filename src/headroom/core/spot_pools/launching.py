"""What is launched: an intent with its token in the status first, then the call, and the same call again until its outcome is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headroom.api import marks
from headroom.api.power_status import MOST_SHAPES, Assigned
from headroom.api.spot_pools_status import Purchases, Slot
from headroom.core.spot_pools import breaking
from headroom.core.spot_pools.alternatives import Alternative, Choice
from headroom.core.spot_pools.places import UNRESOLVED, Place, Pool, told, when
from headroom.core.spot_pools.wording import of_machines
from headroom.model import times
from headroom.model.actions import AddFinalizer, LaunchInstance

HOUR_MS: Final = times.HOUR + times.MINUTE
"""Purchases are remembered by minute, so one of the first moment of a minute counts for a minute longer."""
FEWEST: Final = 10
"""Machines that may be bought in an hour unless the pool says otherwise, at least."""
_TOKEN: Final = 40


class Order(NamedTuple):
    """A machine to be launched."""

    alternative: Alternative
    assigned: Mapping[str, int] = {}


class Limit(NamedTuple):
    """How many machines may be launched now, and what is in the way of more."""

    machines: int
    why: str = ""
    says: str = ""


def remember(pool: Pool) -> None:
    """Take up what was bought in the last hour."""
    for each in pool.before.purchases:
        minute = when(each.minute, pool.now)
        if minute is not None and minute + HOUR_MS > pool.now:
            pool.bought[minute] = pool.bought.get(minute, 0) + each.count


def status(pool: Pool) -> tuple[Purchases, ...]:
    """What is remembered of purchases from now on."""
    return tuple(Purchases(minute=told(minute), count=count) for minute, count in sorted(pool.bought.items()))


def most_an_hour(pool: Pool) -> int:
    """Machines that may be bought in an hour."""
    given = pool.spec.max_purchases_per_hour
    return max(FEWEST, 2 * pool.spec.maximum) if given is None else given


def limit(pool: Pool) -> Limit:
    """How many more may be launched now."""
    unresolved = len(pool.are(*UNRESOLVED))
    bought = sum(pool.bought.values())
    most = most_an_hour(pool)
    found = [
        Limit(
            pool.ceiling - len(pool.places),
            "SurgeLimit",
            f"{of_machines(len(pool.places))} exist, are being launched or ended, of at most {pool.ceiling} (maximum and maxSurge).",
        ),
        Limit(
            most - bought - unresolved,
            "PurchaseLimit",
            f"{bought} bought in the last hour and {unresolved} under way, of at most {most} (maxPurchasesPerHour).",
        ),
    ]
    at_once = breaking.at_once(pool)
    if at_once is not None:
        until = f" before {told(pool.breaker_until)}" if breaking.is_open(pool) else " more until one joins"
        says = f"The last {pool.never_joined} machines did not join, so none is launched{until}."
        found.append(Limit(at_once, "NeverJoined", says))
    least = min(found, key=lambda each: each.machines)
    return Limit(max(0, least.machines), least.why, least.says)


def launch(pool: Pool, orders: Sequence[Order]) -> list[Place]:
    """Write down intents."""
    taken = {each.number for each in pool.places}
    free = (number for number in range(len(taken) + len(orders)) if number not in taken)
    new = [_intent(pool, number, order) for number, order in zip(free, orders, strict=False)]
    pool.places = sorted((*pool.places, *new), key=lambda each: each.number)
    return new


def fill(pool: Pool, choice: Choice, missing: int) -> list[Place]:
    """Launch what is missing, as far as that may be."""
    if missing <= 0:
        return []
    most = limit(pool)
    if most.machines < missing:
        pool.wants, pool.wants_why, pool.wants_says = missing - most.machines, most.why, most.says
    if not choice.open:
        pool.wants, pool.wants_why, pool.wants_says = missing, choice.why, choice.says
        return []
    return launch(pool, [Order(choice.open[0])] * min(missing, most.machines))


def calls(pool: Pool) -> Iterator[AddFinalizer | LaunchInstance]:
    """The calls for all intents whose outcome is not known: a repeated one launches no second machine."""
    launching = pool.are("Launching")
    if launching and marks.POOL_FINALIZER not in pool.resource.finalizers:
        yield AddFinalizer(object=str(pool.ref))
    for each in launching:
        slot = each.slot
        yield LaunchInstance(
            pool=pool.key, slot=slot.slot, token=slot.token, instance_type=slot.instance_type, zone=slot.zone
        )


def _intent(pool: Pool, number: int, order: Order) -> Place:
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
    return Place(slot=slot, is_new=True)


def token_of(pool: Pool, number: int, kind: str, zone: str) -> str:
    """Names one intent for ever: another moment, slot, type, zone or image is another intent."""
    parts = (pool.world.cluster, pool.resource.uid, number, pool.now, kind, zone, pool.spec.image_id or "")
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:_TOKEN]
