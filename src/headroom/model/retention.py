"""What the ledger must keep of each cluster, and from when on it may forget. Moments and windows are milliseconds.

The past cannot be brought back, so everything here errs on the side of keeping: a window counts at once when it grows, and shrinks
only after a week in which every budget had a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, structs

from headroom.model.times import MINUTE
from headroom.model.usage import DAY

WEEK: Final = 7 * DAY
SHORTEST_KEPT: Final = 35 * DAY
GAP: Final = DAY
"""After so long without a look, nobody can tell a long outage from a clock that is ahead."""


class Reach(Struct, frozen=True, kw_only=True):
    """The largest window that any budget has had."""

    window: int = 0
    shorter: int = 0
    """The largest one since `since`."""
    since: int = 0
    """From when on all budgets have had shorter windows; 0 while one has this."""

    def next(self, wanted: int, now: int) -> Reach:
        """What follows when the largest window of all budgets is `wanted`."""
        if wanted >= self.window:
            return Reach(window=wanted)
        if not self.since:
            return Reach(window=self.window, shorter=wanted, since=now)
        shorter = max(self.shorter, wanted)
        if now - self.since < WEEK:
            return structs.replace(self, shorter=shorter)
        return Reach(window=shorter)

    def begun_anew(self, now: int) -> Reach:
        """The same, with a week that begins now."""
        return structs.replace(self, since=now) if self.since else self


class Retention(Struct, frozen=True, kw_only=True):
    """What the ledger knows of one cluster, and must keep of it."""

    cluster: str
    known_since: int
    """From when on everything that happened there is in the ledger."""
    own: Reach = Reach()
    spanning: Reach = Reach()
    """Of budgets that span clusters: they need the rows of every cluster."""
    looked_at: int = 0
    """When its leader last looked at its budgets."""
    prune_from: int = 0
    """Nothing is forgotten before this moment."""


def looked(before: Retention, own: int, spanning: int, now: int) -> Retention:
    """What follows from a look at all budgets: the largest window, and the largest of those that span clusters.

    Where nobody looked for a day, or the clock was ahead at the last look, pruning waits for a week.
    """
    is_gap = not -MINUTE <= now - before.looked_at <= GAP
    reaches = before.own, before.spanning
    if is_gap:
        reaches = before.own.begun_anew(now), before.spanning.begun_anew(now)
    return structs.replace(
        before,
        own=reaches[0].next(own, now),
        spanning=reaches[1].next(spanning, now),
        looked_at=now,
        prune_from=now + WEEK if is_gap else before.prune_from,
    )


def forgettable(known: Mapping[str, Retention], cluster: str, now: int) -> int | None:
    """Rows of a cluster that ended before this moment may go; None while none may."""
    mine = known.get(cluster)
    if mine is None or now < mine.prune_from:
        return None
    return now - kept_for(known, cluster)


def kept_for(known: Mapping[str, Retention], cluster: str) -> int:
    """For how long rows of a cluster are kept: twice the largest window that may look at them, at least 35 days."""
    mine = known.get(cluster)
    windows = [each.spanning.window for each in known.values()] + [mine.own.window if mine else 0]
    return max(SHORTEST_KEPT, 2 * max(windows))


def united(one: Retention, other: Retention, complete_until: int) -> Retention:
    """What two ledgers say of one cluster once the rows of both are in one.

    `complete_until` is up to when the one that began earlier is complete; what lies between that and the other's begin nobody knows.
    """
    newer = max(one, other, key=lambda each: each.looked_at)
    first, second = sorted((one.known_since, other.known_since))
    return structs.replace(
        newer,
        known_since=first if complete_until >= second - MINUTE else second,
        own=max(one.own, other.own, key=lambda each: each.window),
        spanning=max(one.spanning, other.spanning, key=lambda each: each.window),
        prune_from=max(one.prune_from, other.prune_from),
    )
