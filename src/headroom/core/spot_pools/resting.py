"""Types and zones that could not be had: they rest, longer each time, until one of them is had again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs

from headroom.api.spot_pools_status import Slot, SoldOut
from headroom.core.spot_pools.places import SpotPoolState, ahead, told, when
from headroom.model import times
from headroom.model.cloud_facts import Launch

RESTS_MS: Final = tuple(minutes * times.MINUTE for minutes in (5, 10))
"""Chosen on the first half of a recorded trace of nine zones (`make bench NAME=spotcosts`): with longer ones a zone that has machines again
is noticed too late."""
FORGOTTEN_MS: Final = 2 * times.HOUR
"""How long after its rest a failure is remembered."""
EVERYWHERE: Final = "*"
MOST: Final = 300


def remember(pool: SpotPoolState) -> None:
    """Take up what is remembered."""
    for each in pool.before.sold_out:
        until = when(each.until, pool.now + RESTS_MS[-1])
        if until is not None and pool.now - until < FORGOTTEN_MS:
            # Written down as it counts: what is only read as nearer would move along with the clock.
            known = each if each.until == told(until) else structs.replace(each, until=told(until))
            pool.rests[each.instance_type, each.zone] = known


def refused(pool: SpotPoolState, slot: Slot, launch: Launch) -> None:
    """A launch was refused for good; several of one decision count once."""
    key = slot.instance_type, EVERYWHERE if launch.outcome == "QuotaReached" else slot.zone
    known = pool.rests.get(key)
    if known is not None and ahead(known.until, pool.now, RESTS_MS[-1]) is not None:
        return
    failures = 1 + (known.failures if known is not None else 0)
    until = told(pool.now + RESTS_MS[min(failures, len(RESTS_MS)) - 1])
    pool.rests[key] = SoldOut(instance_type=key[0], zone=key[1], failures=failures, until=until, reason=launch.outcome)
    says = f"{slot.instance_type}{f' in {slot.zone}' if slot.zone else ''} could not be launched ({launch.outcome})"
    more = f": {launch.message}" if launch.message else ""
    pool.tell(launch.outcome, f"{says}{more}. It is not tried again before {until}.", warns=True)


def succeeded(pool: SpotPoolState, slot: Slot) -> None:
    """One was had."""
    pool.rests.pop((slot.instance_type, slot.zone), None)
    pool.rests.pop((slot.instance_type, EVERYWHERE), None)


def until(pool: SpotPoolState, instance_type: str, zone: str) -> int | None:
    """Until when a type rests in a zone; None if it does not."""
    found = [
        moment
        for where in (zone, EVERYWHERE)
        if (known := pool.rests.get((instance_type, where))) is not None
        and (moment := ahead(known.until, pool.now, RESTS_MS[-1])) is not None
    ]
    return max(found, default=None)


def standing(pool: SpotPoolState) -> Iterator[SoldOut]:
    """Those that rest now."""
    for _, each in sorted(pool.rests.items()):
        if ahead(each.until, pool.now, RESTS_MS[-1]) is not None:
            yield each


def status(pool: SpotPoolState) -> tuple[SoldOut, ...]:
    """What is remembered from now on, the newest if there are too many."""
    found = sorted(pool.rests.values(), key=lambda each: each.until, reverse=True)[:MOST]
    return tuple(sorted(found, key=lambda each: (each.instance_type, each.zone)))
