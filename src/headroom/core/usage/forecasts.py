"""What the sum over a rolling window becomes from now on, and what more would fit under a limit: exact, in whole numbers.

A `UsageForecast` is a piecewise-linear function of the moment at which the window ends. What begins to run adds a ramp to it: the sum
rises while it runs, and falls as the window leaves it behind. So "may this start now" and "when may it start" are answered at the
few moments at which the slope changes. Rates are divided by their common divisor, and where a sum could still pass 63 bits it is
made of Python's integers.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Final, NamedTuple

import numpy as np

from headroom.core.usage.windows import Numbers
from headroom.model.numbering import Ints
from headroom.model.usage_table import OPEN

_SAFE: Final = 2**61
MOST_STEPS: Final = 20_000


class UsageRun(NamedTuple):
    """Something that holds `rate` millionths from `start` until `end`; OPEN for what goes on."""

    start: int
    end: int
    rate: int


class Runs(NamedTuple):
    """The same for many, as columns."""

    start: Ints
    end: Ints
    rate: Numbers


class ForecastSpan(NamedTuple):
    """From when on, for windows of which length, and up to when at most the sums are asked for."""

    as_of: int
    window: int
    until: int = OPEN


class UsageForecast:
    """The sum over windows that end at `as_of` or later."""

    def __init__(self, span: ForecastSpan, total: int, changes: tuple[Ints, Numbers], unit: int) -> None:
        """`changes` are moments, the first of which is `as_of`, and by how much the slope changes at each; all in `unit`."""
        self.as_of, self.window, _ = self._span = span
        self._times, self._changes = changes
        self._total, self._unit = total, unit
        self._slopes: Numbers = np.cumsum(self._changes)
        begin = np.zeros(1, self._changes.dtype)
        self._sums: Numbers = total + np.concatenate([begin, np.cumsum(self._slopes[:-1] * np.diff(self._times))])

    @classmethod
    def of(cls, span: ForecastSpan, total: int, runs: Runs) -> UsageForecast:
        """From all that is inside the window now, or will begin."""
        as_of, window, until = span
        start, end = runs.start, runs.end
        unit = int(np.gcd.reduce(runs.rate)) if len(runs.rate) else 0
        unit = unit or 1
        rate: Numbers = runs.rate // unit
        if len(rate) and int(rate.max()) * len(rate) * 4 * window >= _SAFE:
            rate = rate.astype(object)
        closed = end < OPEN
        leaves = np.where(closed, end, 0) + window
        runs_now, leaves_now = (
            (start <= as_of) & (end > as_of),
            (start + window <= as_of) & (~closed | (leaves > as_of)),
        )
        parts = (
            (start, rate, (start > as_of) & (start <= until)),
            (end, -rate, closed & (end > as_of) & (end <= until)),
            (start + window, -rate, (start + window > as_of) & (start + window <= until)),
            (leaves, rate, closed & (leaves > as_of) & (leaves <= until)),
        )
        times = np.concatenate([each[mask] for each, _, mask in parts])
        steps = np.concatenate([each[mask] for _, each, mask in parts])
        order = np.argsort(times, kind="stable")
        first: Any = np.array([rate[runs_now].sum() - rate[leaves_now].sum()], rate.dtype)
        changes = np.concatenate([[as_of], times[order]]).astype(np.int64), np.concatenate([first, steps[order]])
        return cls(span, total // unit, changes, unit)

    def plus(self, run: UsageRun) -> UsageForecast:
        """The same with one thing more that runs."""
        if run.rate % self._unit:
            return self._in_units_of(run.rate).plus(run)
        rate = run.rate // self._unit
        steps = [(run.start, rate), (run.start + self.window, -rate)]
        if run.end < OPEN:
            steps += [(run.end, -rate), (run.end + self.window, rate)]
        steps = sorted((max(moment, self.as_of), step) for moment, step in steps if moment <= self._span.until)
        changes = self._changes
        if changes.dtype != object and rate * 4 * self.window + int(np.max(np.abs(self._sums))) >= _SAFE:
            changes = changes.astype(object)
        times = np.array([moment for moment, _ in steps], np.int64)
        places = np.searchsorted(self._times, times, side="right")
        more = np.array([step for _, step in steps], changes.dtype)
        moved = np.insert(self._times, places, times), np.insert(changes, places, more)
        return UsageForecast(self._span, self._total, moved, self._unit)

    def _in_units_of(self, rate: int) -> UsageForecast:
        """The same in a unit that divides a rate too."""
        unit = gcd(self._unit, rate)
        times = self._unit // unit
        changes = self._changes
        if changes.dtype != object and times * int(np.max(np.abs(self._sums))) >= _SAFE:
            changes = changes.astype(object)
        return UsageForecast(self._span, self._total * times, (self._times, changes * times), unit)

    def at(self, moment: int) -> int:
        """The sum over the window that ends at a moment."""
        return self._at(moment) * self._unit

    def _at(self, moment: int) -> int:
        place = int(np.searchsorted(self._times, moment, side="right")) - 1
        return int(self._sums[place]) + int(self._slopes[place]) * (moment - int(self._times[place]))

    def points(self, until: int) -> tuple[Ints, Numbers]:
        """The moments up to `until` at which the slope changes, and `until` itself, each with the sum at it."""
        count = int(np.searchsorted(self._times, until, side="right"))
        sums = np.concatenate([self._sums[:count], np.array([self._at(until)], self._sums.dtype)])
        if sums.dtype != object and int(np.max(np.abs(sums))) * self._unit >= _SAFE:
            sums = sums.astype(object)
        return np.append(self._times[:count], until), sums * self._unit

    def reaches(self, limit: int) -> int | None:
        """The first moment, from `as_of` on, at which the sum is at least `limit`; None if it never is."""
        wanted = -(-limit // self._unit)
        before, slope = self._before(np.flatnonzero(self._sums >= wanted))
        if before is None:
            return self.as_of
        gap = wanted - int(self._sums[before])
        return int(self._times[before]) - (-gap // slope) if slope > 0 else None

    def falls_below(self, limit: int) -> int | None:
        """The first moment, from `as_of` on, at which the sum is below `limit`; None if it never is."""
        wanted = -(-limit // self._unit)
        before, slope = self._before(np.flatnonzero(self._sums < wanted))
        if before is None:
            return self.as_of
        gap = int(self._sums[before]) - wanted
        return int(self._times[before]) + gap // -slope + 1 if slope < 0 else None

    def _before(self, found: Ints) -> tuple[int | None, int]:
        """The last change of slope before the first of some, or the last of all if there is none; None if it is the very first."""
        if len(found) and not found[0]:
            return None, 0
        before = int(found[0]) - 1 if len(found) else len(self._times) - 1
        return before, int(self._slopes[before])

    def fits(self, rate: int, length: int, limit: int) -> bool:
        """Whether the sum stays below `limit` while something more runs for `length` from now on."""
        if rate % self._unit:
            return self._in_units_of(rate).fits(rate, length, limit)
        return self._next_try(self.as_of, rate // self._unit, length, -(-limit // self._unit)) is None

    def earliest(self, rate: int, length: int, limit: int, after: int | None = None) -> int | None:
        """The first moment at which such a run would fit; None if there is none."""
        if rate % self._unit:
            return self._in_units_of(rate).earliest(rate, length, limit, after)
        moment = self.as_of if after is None else after
        for _ in range(MOST_STEPS):
            later = self._next_try(moment, rate // self._unit, length, -(-limit // self._unit))
            if later is None:
                return moment
            if later >= OPEN:
                return None
            moment = later
        return None

    def _next_try(self, start: int, rate: int, length: int, limit: int) -> int | None:
        """None if a run from `start` fits; else the first later moment at which it might, OPEN if there is none.

        At a moment t between, the run has added rate x (t - start): what is too much there stays too much for every start before
        the moment that is given back, so no start that fits is passed over.
        """
        end, most = start + length, min(length, self.window)
        low = int(np.searchsorted(self._times, start, side="right"))
        high = int(np.searchsorted(self._times, end, side="right"))
        times, sums = self._times[low:high], self._sums[low:high]
        added = np.minimum(times - start, most)
        over = sums + (added.astype(object) if sums.dtype == object else added) * rate >= limit
        tries = []
        if over.any():
            where, what = times[over], sums[over]
            room = np.maximum(limit - 1 - what, -1)
            # Where alone it is too much already, only a start after it may do.
            bounds = np.where(room >= 0, where - room // max(rate, 1), where + 1)
            tries.append(int(bounds.max()))
        tries += self._edge(start, 0, limit, start)
        tries += self._edge(end, most * rate, limit, start)
        if self.window < length:
            tries += self._edge(start + self.window, most * rate, limit, start)
        return max(*tries, start + 1) if tries else None

    def _edge(self, moment: int, added: int, limit: int, start: int) -> list[int]:
        """If the sum at a moment that moves with the start is too much: how far the start must move at least."""
        place = int(np.searchsorted(self._times, moment, side="right")) - 1
        slope = int(self._slopes[place])
        excess = int(self._sums[place]) + slope * (moment - int(self._times[place])) + added - (limit - 1)
        if excess <= 0:
            return []
        rest = int(self._times[place + 1]) - moment if place + 1 < len(self._times) else OPEN
        move = min(-(-excess // -slope), rest) if slope < 0 else rest
        return [min(start + move, OPEN)]
