"""Sums over a rolling window, and what becomes of them: exact, in whole numbers.

The sum over the window that ends at t is a piecewise-linear function of t: it rises with what runs, and falls with what the far end
of the window leaves behind. A `Curve` is that function for some rows, so "when is the quota reached" is a division, not a guess.
Rates are divided by their common divisor first; where a sum could still pass 63 bits, it is made of Python's integers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from functools import cached_property
from math import gcd
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom.model.numbering import Ints
from headroom.model.usage_table import OPEN

_SAFE: Final = 2**61
Numbers = NDArray[Any]
"""int64, or Python's integers where these would not do."""


class WindowSpan(NamedTuple):
    """The window [as_of - length, as_of)."""

    as_of: int
    length: int


class RowRates(NamedTuple):
    """What each row counts per millisecond, in units of so many millionths."""

    values: Numbers
    unit: int


def rates_of(of_group: Mapping[int, int], groups: int, group_of_row: Ints, length: int) -> RowRates:
    """The rate of every row, from the rate of its group; whole 64-bit numbers where every sum of them surely fits."""
    unit = gcd(*of_group.values()) or 1
    fits = max(of_group.values(), default=0) // unit * max(len(group_of_row), 1) * length < _SAFE
    known: Numbers = np.zeros(groups, np.int64 if fits else object)
    for number, rate in of_group.items():
        known[number] = rate // unit
    return RowRates(known[group_of_row], unit)


class Curve:
    """The sum over a window as a function of the moment at which the window ends, if the current pods keep running."""

    def __init__(self, start: Ints, end: Ints, rates: RowRates, span: WindowSpan, held: Ints | None = None) -> None:
        """`end` is OPEN for what still runs; `held` is given where it was worked out before."""
        self._start, self._end, self._rates, self._span = start, end, rates, span
        self.held = overlaps(start, end, span) if held is None else held
        """Milliseconds of each row inside the window."""
        self.total = int(np.sum(self.held * rates.values)) * rates.unit if len(start) else 0
        """Millionths x milliseconds, now."""

    def rate_at(self, moment: int) -> int:
        """What runs at a moment, in millionths."""
        runs = (self._start <= moment) & (self._end > moment)
        return int(np.sum(self._rates.values[runs])) * self._rates.unit

    @property
    def next_turn(self) -> int | None:
        """The first moment from now on at which some row is known to begin or end."""
        as_of = self._span.as_of
        parts = self._start[self._start > as_of], self._end[(self._end > as_of) & (self._end < OPEN)]
        return min((int(each.min()) for each in parts if len(each)), default=None)

    def reaches(self, quota: int) -> int | None:
        """When the sum will first be at least `quota`; None if it never is. Now, if it is already."""
        if self.total >= quota:
            return self._span.as_of
        if not len(self._start):
            return None
        rising = self._start < OPEN
        most = self.total + int(np.sum(self._rates.values[rising & (self._end > self._span.as_of)])) * (
            self._rates.unit * self._span.length
        )
        if most < quota:
            return None
        wanted = -(-quota // self._rates.unit)
        return self._first(lambda sums: sums >= wanted, lambda gap, slope: -(-(wanted - gap) // slope))

    def falls_below(self, quota: int) -> int | None:
        """When the sum will first be below `quota`; None if it never is. Now, if it is already."""
        if self.total < quota:
            return self._span.as_of
        wanted = -(-quota // self._rates.unit)
        return self._first(lambda sums: sums < wanted, lambda gap, slope: (gap - wanted) // -slope + 1)

    def _first(self, holds: Callable[[Numbers], Any], steps: Callable[[int, int], int]) -> int | None:
        """The first moment at which something holds of the sum, which it does not yet."""
        times, slopes, sums = self._points
        found = np.flatnonzero(holds(sums))
        if not len(found):
            return None
        before = int(found[0]) - 1
        return int(times[before]) + steps(int(sums[before]), int(slopes[before]))

    @cached_property
    def _points(self) -> tuple[Ints, Numbers, Numbers]:
        """The moments at which the slope changes, from now on: each with the slope after it and the sum at it."""
        as_of, length = self._span
        start, end, rates = self._start, self._end, self._rates.values
        closed = end < OPEN
        far_end = np.where(closed, end, 0) + length
        now = (
            rates[(start <= as_of) & (end > as_of)].sum()
            - rates[(start + length <= as_of) & (~closed | (far_end > as_of))].sum()
        )
        parts = (
            (start, rates, start > as_of),
            (end, -rates, closed & (end > as_of)),
            (start + length, -rates, start + length > as_of),
            (far_end, rates, closed & (far_end > as_of)),
        )
        times = np.concatenate([each[mask] for each, _, mask in parts])
        steps = np.concatenate([each[mask] for _, each, mask in parts])
        order = np.argsort(times)  # of equal moments, any may come first: no time passes between them
        times = np.concatenate([[as_of], times[order]]).astype(np.int64)
        slopes = now + np.concatenate([np.zeros(1, rates.dtype), np.cumsum(steps[order])])
        sums = self.total // self._rates.unit + np.concatenate(
            [np.zeros(1, rates.dtype), np.cumsum(slopes[:-1] * np.diff(times))]
        )
        return times, slopes, sums


def overlaps(start: Ints, end: Ints, span: WindowSpan) -> Ints:
    """Milliseconds of each row inside the window; never negative, never of the future."""
    begins = np.maximum(start, span.as_of - span.length)
    found: Ints = np.maximum(np.minimum(end, span.as_of) - begins, 0)
    return found


def largest(values: Numbers, count: int, name: Callable[[int], str]) -> list[int]:
    """The places of the largest values above 0, the largest first; of equal ones, the first by name."""
    places = np.flatnonzero(values > 0)
    if len(places) > count:
        chosen = values[places]
        if chosen.dtype == np.int64:
            least = np.partition(chosen, len(chosen) - count)[len(chosen) - count]
            places = places[chosen >= least]
    return heapq.nsmallest(count, map(int, places), key=lambda place: (-values[place], name(place)))
