"""How many machines stay on now: at least `minOn`, and more in the times of the week that `keepOn` names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from headroom.api.power import DAYS, KeepOn, PowerPolicy

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REACH: Final = 9
"""Days from yesterday on: every window begins at least once in them, and the one that stands now began in them."""


class Floor(NamedTuple):
    """How many machines stay on, and until when that is so."""

    machines: int
    recheck_at: int | None


def floor_of(policy: PowerPolicy, machines: int, now: int) -> Floor:
    """How many of the pool's machines stay on now."""
    least, edges = policy.min_on, []
    for each in policy.keep_on:
        for begin, end in _windows(each, now):
            edges += [edge for edge in (begin, end) if edge > now]
            if begin <= now < end:
                least = max(least, machines if each.min_on is None else each.min_on)
    return Floor(min(least, machines), min(edges, default=None))


def _windows(each: KeepOn, now: int) -> Iterator[tuple[int, int]]:
    """When a window begins and ends, around now. The clock on the wall counts, whatever summer does to it."""
    zone = ZoneInfo(each.time_zone)
    today = (_EPOCH + timedelta(milliseconds=now)).astimezone(zone).date()
    for ahead in range(-1, _REACH):
        day = today + timedelta(days=ahead)
        if not each.days or DAYS[day.weekday()] in each.days:
            last = day if each.begin < each.end else day + timedelta(days=1)
            yield _moment(day, each.begin, zone), _moment(last, each.end, zone)


def _moment(day: date, clock: str, zone: ZoneInfo) -> int:
    hour, minute = map(int, clock.split(":"))
    when = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    return (when - _EPOCH) // timedelta(milliseconds=1)
