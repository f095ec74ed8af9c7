"""Machines of this cluster that no Spotpool owns: reported by one pool, and ended only where an administrator said so."""

from __future__ import annotations

from typing import Final

from headroom.api.spot_pools_status import MOST_ORPHANS, Orphan
from headroom.core.spot_pools.fleet import SpotFleet
from headroom.core.spot_pools.places import NOT_FOUND, SpotPoolState, told, when
from headroom.model import times
from headroom.model.actions import TerminateInstance

REST_MS: Final = times.HOUR
"""From first sight: a restored backup has new uids, and somebody must have time to see it."""
_OVER: Final = ("SHUTDOWN", "TERMINATING", NOT_FOUND)


def look(pool: SpotPoolState, fleet: SpotFleet) -> None:
    """Note orphans in the place that this pool reports on."""
    place = pool.spec.provider, pool.spec.region
    if not fleet.strangers or fleet.reporters.get(place) != pool.resource.uid:
        return
    found = sorted(
        each.name
        for owner in fleet.strangers
        for each in fleet.by_owner[owner]
        if (each.provider, each.region) == place and each.state not in _OVER
    )
    known = {each.instance_id: each.since for each in pool.before.orphans}
    pool.orphan_count = len(found)
    kept = [name for name in found if name in known] + [name for name in found if name not in known]
    pool.orphans = [
        Orphan(instance_id=name, since=known.get(name) or told(pool.now)) for name in sorted(kept[:MOST_ORPHANS])
    ]
    if found and not known:
        says = f"{len(found)} machines of this cluster belong to no Spotpool: {', '.join(found[:3])}."
        pool.tell("Orphans", says, warns=True)


def end(pool: SpotPoolState, fleet: SpotFleet) -> None:
    """End those that were seen for long enough, unless so many look like orphans that the uids may be what is wrong."""
    if not pool.world.end_orphans or not pool.orphans:
        return
    # Of this provider only: whoever runs a service behind a webhook could tip the balance with machines that do not exist.
    tagged = {
        owner: sum(each.provider == pool.spec.provider for each in them) for owner, them in fleet.by_owner.items()
    }
    if 2 * sum(tagged[owner] for owner in fleet.strangers) > sum(tagged.values()):
        return
    for each in pool.orphans:
        since = when(each.since, pool.now) or pool.now
        if pool.now - since >= REST_MS:
            pool.due.append(TerminateInstance(pool=pool.key, instance=each.instance_id))
        else:
            pool.recheck.append(since + REST_MS)
