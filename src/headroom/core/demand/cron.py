"""When a CronJob runs, by the rules of the library that reads schedules in Kubernetes (robfig/cron, `ParseStandard`).

Decision record 16 says why this is our own: no library for Python reads them alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from headroom.model.times import HOUR, MINUTE, SECOND

LONGEST: Final = 256
"""Letters of a schedule that is read: each of the five fields could list everything it knows."""
MOST_REMEMBERED: Final = 65536
_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_LENGTHS: Final = dict(zip(range(1, 13), (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))
"""Days of the months, at most."""
_WEEKDAYS: Final = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_NUMBER: Final = re.compile(r"\+?[0-9]{1,9}", re.ASCII)
_LENGTH: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {
    "ns": Fraction(1, 10**6),
    "ms": Fraction(1),
    "s": Fraction(SECOND),
    "m": Fraction(MINUTE),
    "h": Fraction(HOUR),
}
_MICRO: Final = Fraction(1, 1000)


class Schedule(NamedTuple):
    """The minutes at which something runs, or how long lies between two runs."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    is_either: bool = False
    """One of day and weekday is enough: where both are said."""
    every_ms: int = 0

    def is_on(self, day: datetime) -> bool:
        """Whether it runs on a day."""
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (of_month or of_week if self.is_either else of_month and of_week)


class _Unreadable(Exception):
    """The API server would have refused it."""


@lru_cache(maxsize=16384)
def schedule_of(text: str) -> Schedule | None:
    """A schedule; None if it cannot be read. One with a time zone in it (`TZ=`) is refused, as Kubernetes does."""
    if len(text) > LONGEST:
        return None
    try:
        if text.startswith(_EVERY):
            return Schedule(every_ms=_length(text.removeprefix(_EVERY)))
        fields = _MACROS.get(text, text).split()
        if len(fields) != 5 or text.startswith(("TZ=", "CRON_TZ=")):
            return None
        minutes, hours = _field(fields[0], 0, 59), _field(fields[1], 0, 23)
        days, months = _field(fields[2], 1, 31), _field(fields[3], 1, 12, _MONTHS)
        weekdays = _field(fields[4], 0, 6, _WEEKDAYS)
    except _Unreadable:
        return None
    return Schedule(
        minutes=minutes.values,
        hours=hours.values,
        days=days.values,
        months=months.values,
        weekdays=weekdays.values,
        is_either=not (days.is_any or weekdays.is_any),
    )


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo | None:
    """A time zone; None if there is none of that name."""
    try:
        return ZoneInfo(name or "UTC") if name.lower() != "local" else None
    except (KeyError, OSError, ValueError):
        return None


def problem_of(text: str, zone: str) -> tuple[str, str] | None:
    """What keeps a CronJob from ever running: the field, and what about it; None if nothing does."""
    schedule = schedule_of(text)
    if schedule is None:
        return "spec.schedule", f"{text!r} is not a schedule that Kubernetes accepts"
    if zone_of(zone) is None:
        return "spec.timeZone", f"{zone!r} is not a known time zone"
    # With a weekday beside the day, one of them is enough.
    is_ever = (
        schedule.every_ms or schedule.is_either or any(min(schedule.days) <= _LENGTHS[each] for each in schedule.months)
    )
    return None if is_ever else ("spec.schedule", f"{text!r} names a day that none of its months has")


def first_run(text: str, zone: str, since: int, after: int, until: int) -> int | None:
    """The first run later than one moment and no later than another. `since` is where intervals (`@every`) begin."""
    schedule = schedule_of(text)
    if schedule is None or zone_of(zone) is None:
        return None
    if schedule.every_ms:
        steps = max(1, (after - since) // schedule.every_ms + 1)
        found = since - since % SECOND + steps * schedule.every_ms
        return found if found <= until else None
    return _REMEMBERED.first(text, zone, after, until)


class _Span(NamedTuple):
    """Between two moments there is no run, and at the end of it there is one or not."""

    after: int
    until: int
    runs: bool


class NextRuns:
    """The next run of each schedule: where thousands are asked about at every look, each is reckoned once for each run."""

    def __init__(self, search: Callable[[str, str, int, int], int | None]) -> None:
        self._search = search
        self._spans: dict[tuple[str, str], _Span] = {}

    def first(self, text: str, zone: str, after: int, until: int) -> int | None:
        """The first run later than one moment and no later than another."""
        span = self._spans.get((text, zone))
        is_known = (
            span is not None and span.after <= after and (after < span.until if span.runs else until <= span.until)
        )
        if span is None or not is_known:
            run = self._search(text, zone, after, until)
            span = _Span(after, until if run is None else run, run is not None)
            if len(self._spans) >= MOST_REMEMBERED:
                self._spans.clear()
            self._spans[text, zone] = span
        return span.until if span.runs and span.until <= until else None


def _search(text: str, zone: str, after: int, until: int) -> int | None:
    for hour in range(after // HOUR, until // HOUR + 1):
        for run in _runs_of(text, zone, hour):
            if after < run <= until:
                return run
    return None


def _runs_of(text: str, zone: str, hour: int) -> Iterator[int]:
    """The runs in one hour of the clock that goes on whatever is done to others: what those skip is skipped, what they repeat too."""
    schedule = schedule_of(text)
    assert schedule is not None
    for there, first, many in _local(zone, hour):
        if there.hour in schedule.hours and schedule.is_on(there):
            for minute in range(many):
                if there.minute + minute in schedule.minutes:
                    yield hour * HOUR + (first + minute) * MINUTE


@lru_cache(maxsize=4096)
def _local(zone: str, hour: int) -> tuple[tuple[datetime, int, int], ...]:
    """An hour as the clocks of a zone show it: in pieces within which only the minute moves, each with its first minute and how many."""
    place = zone_of(zone)
    assert place is not None
    begin = datetime.fromtimestamp(hour * HOUR // SECOND, UTC)
    start, end = (_naive(begin + timedelta(minutes=minute), place) for minute in (0, 59))
    if end - start == timedelta(minutes=59):  # the clocks are not turned in it, as in nearly every hour
        many = 60 - start.minute
        pieces = ((start, 0, many), (start + timedelta(minutes=many), many, 60 - many))
        return pieces if many < 60 else pieces[:1]
    return _pieces(begin, place)


def _naive(moment: datetime, place: ZoneInfo) -> datetime:
    return moment.astimezone(place).replace(tzinfo=None)


def _pieces(begin: datetime, place: ZoneInfo) -> tuple[tuple[datetime, int, int], ...]:
    """The same, minute by minute."""
    found: list[tuple[datetime, int, int]] = []
    for minute in range(60):
        there = _naive(begin + timedelta(minutes=minute), place)
        first, since, many = found[-1] if found else (there, minute, 0)
        goes_on = there == first + timedelta(minutes=many)
        if found and goes_on and there.hour == first.hour:
            found[-1] = first, since, many + 1
        else:
            found.append((there, minute, 1))
    return tuple(found)


_REMEMBERED: Final = NextRuns(_search)


# --- reading --------------------------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    values: frozenset[int]
    is_any: bool
    """It says `*` or `?`; with a step it says less than that."""


def _field(text: str, least: int, most: int, names: Mapping[str, int] | None = None) -> _Field:
    values, is_any = set[int](), False
    for piece in filter(None, text.split(",")):
        span, *steps = piece.split("/")
        low, *highs = span.split("-")
        if len(steps) > 1:
            raise _Unreadable
        step = _number(steps[0]) if steps else 1
        is_star = low in ("*", "?")
        if is_star:
            start, end = least, most
        else:
            start = _number(low, names)
            end = start if not highs else _number(highs[0], names)
            if len(highs) > 1:
                raise _Unreadable
            end = most if steps and not highs else end  # 5/15 means 5-59/15
        if not (least <= start <= end <= most and step):
            raise _Unreadable
        values.update(range(start, end + 1, step))
        is_any = is_any or (is_star and step == 1)
    return _Field(frozenset(values), is_any)


def _number(text: str, names: Mapping[str, int] | None = None) -> int:
    if names is not None and text.lower() in names:
        return names[text.lower()]
    if not _NUMBER.fullmatch(text):
        raise _Unreadable
    return int(text)


def _length(text: str) -> int:
    """A length of time as Go writes it, in whole seconds and no less than one."""
    sign, digits = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    pieces = _LENGTH.findall(digits)
    if digits != "0" and (not pieces or "".join(number + unit for number, unit in pieces) != digits):
        raise _Unreadable
    found = sum(Fraction(f"0{number}") * _UNITS.get(unit, _MICRO) for number, unit in pieces)
    return max(SECOND, 0 if sign == "-" else int(found) // SECOND * SECOND)
