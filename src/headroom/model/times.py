"""Moments as whole milliseconds since 1970 (UTC), and their text at the edge."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
FIRST: Final = -62_135_596_800_000
"""The first moment that can be written: the begin of the year 1."""
LAST: Final = 253_402_300_799_999
"""The last moment that can be written: the end of the year 9999."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)

_USUAL_GRACE: Final = 30 * SECOND


def overtime(grace_seconds: int) -> int:
    """For how long a pod may run on after its deadline: its kubelet waits for the whole grace period, of which the usual part is no matter."""
    return max(0, grace_seconds * SECOND - _USUAL_GRACE)


def moment(text: str | None) -> int | None:
    """Milliseconds of an RFC 3339 time; None for what is not one, or nothing at all."""
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    found = (when - _EPOCH) // timedelta(milliseconds=1)
    return found if FIRST <= found <= LAST else None  # another zone may be in a year that cannot be written


@lru_cache(maxsize=256)
def text(ms: int) -> str:
    """The moment as RFC 3339, with milliseconds only where there are any. All budgets of a pass say the same few."""
    when = _EPOCH + timedelta(milliseconds=ms)
    return when.strftime("%Y-%m-%dT%H:%M:%S") + (f".{ms % SECOND:03d}" if ms % SECOND else "") + "Z"


def duration(value: str) -> int | None:
    """Milliseconds of a duration such as 90s, 5m, 1h30m or 2d; None for anything else."""
    match = _DURATION.fullmatch(value)
    if match is None or not value:
        return None
    days, hours, minutes, seconds, ms = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * MINUTE + seconds * SECOND + ms
