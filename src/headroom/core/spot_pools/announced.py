"""Runs that are announced and do not come: machines are launched and kept for them, so a namespace whose runs do not come is soon not believed.

What a budget estimates of pods that it queues is the operator's own word, and is always believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.api.power_status import Expected
from headroom.api.spot_pools_status import MOST_EXPECTED, MOST_NAMESPACES, MissedRuns
from headroom.core import demand
from headroom.core.capacity import SupplyOutcome
from headroom.core.demand import Presence
from headroom.core.spot_pools import rooms
from headroom.core.spot_pools.places import LEAD_MS, SpotPoolState, told, when
from headroom.model import times

BELIEVED: Final = 3
"""Runs of a namespace that may be missed before its word counts for less: then one run is believed after a pause."""
FIRST_PAUSE_MS: Final = times.HOUR
LONGEST_PAUSE_MS: Final = 4 * times.HOUR
REMEMBERED_MS: Final = 24 * times.HOUR
MOST_MOMENTS: Final = 32
"""For each namespace, the latest."""


def remember(pool: SpotPoolState, presence: Presence) -> None:
    """Take up what was missed, and see which of the expected have come."""
    for known in pool.before.missed:
        moments = (moment for text in known.at if (moment := when(text, pool.now)) is not None)
        if late := sorted(moment for moment in moments if moment > pool.now - REMEMBERED_MS):
            pool.missed[known.namespace] = late
    for each in pool.before.expected:
        due_at = times.moment(each.due_at) or 0
        if each.of.count("/") != 2 or due_at > pool.now + LEAD_MS:
            continue  # nobody is named so, or the clock was turned back
        namespace = each.of.split("/")[1]
        if presence.has_come(each.of, each.uid, due_at):
            left = pool.missed.pop(namespace, [])[1:]
            pool.missed |= {namespace: left} if left else {}
        elif due_at + demand.LATE_MS > pool.now:
            pool.expected[each.of] = each
            pool.recheck.append(due_at + demand.LATE_MS)
        else:
            pool.missed[namespace] = [*pool.missed.get(namespace, ()), pool.now][-MOST_MOMENTS:]


def until(pool: SpotPoolState, namespace: str) -> int | None:
    """Before when a namespace's word on runs to come is not believed; None if it is."""
    moments = pool.missed.get(namespace, ())
    if len(moments) < BELIEVED:
        return None
    pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << (len(moments) - BELIEVED))
    end = moments[-1] + pause
    return end if end > pool.now else None


def unheeded(pool: SpotPoolState) -> frozenset[str]:
    """Namespaces for whose announced runs nothing is launched or kept."""
    found = {namespace: until(pool, namespace) for namespace in pool.missed}
    pool.recheck += [end for end in found.values() if end is not None]
    return frozenset(namespace for namespace, end in found.items() if end is not None)


def expect(pool: SpotPoolState, outcome: SupplyOutcome) -> None:
    """Remember for whom machines are launched or kept that are not there yet."""
    announcers = outcome.round.wanted.announcers
    if not announcers:
        return
    names = {rooms.name_of(pool, each) for each in pool.are("Launching", "Running") if not each.busy}
    for name in sorted(names | {each.name for each in outcome.opened}):
        uids = outcome.into.get(name, ())
        if any(uid not in announcers for uid in uids):
            continue  # it is for pods that are there
        for by in (announcers[uid] for uid in uids if announcers[uid].is_own_word):
            if by.of not in pool.expected and len(pool.expected) < MOST_EXPECTED:
                pool.expected[by.of] = Expected(of=by.of, uid=by.uid, due_at=told(by.due_at))


def status(pool: SpotPoolState) -> Iterator[MissedRuns]:
    """What is remembered of runs that were missed."""
    latest = sorted(pool.missed.items(), key=lambda each: (-each[1][-1], each[0]))[:MOST_NAMESPACES]
    return (MissedRuns(namespace=name, at=tuple(map(told, moments))) for name, moments in sorted(latest))
