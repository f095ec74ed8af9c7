"""Sums over a rolling window agree with counting second by second, and forecasts with waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headroom.core.usage.windows import Curve, RowRates, WindowSpan, largest, rates_of
from headroom.model.usage_table import OPEN

HORIZON = 60
ends = st.one_of(st.integers(0, HORIZON), st.none())
rows = st.lists(st.tuples(st.integers(0, HORIZON), ends, st.integers(1, 5)), max_size=8)


def a_curve(found: list[tuple[int, int | None, int]], as_of: int, length: int, unit: int = 1) -> Curve:
    start = np.array([each[0] for each in found], np.int64)
    end = np.array([OPEN if each[1] is None else max(each[0], each[1]) for each in found], np.int64)
    of_group = {number: each[2] * unit for number, each in enumerate(found)}
    rates = rates_of(of_group, len(found), np.arange(len(found)), length)
    return Curve(start, end, rates, WindowSpan(as_of, length))


def counted(found: list[tuple[int, int | None, int]], as_of: int, length: int) -> int:
    """The slow way: one tick after the other."""
    return sum(
        rate
        for start, end, rate in found
        for tick in range(max(0, as_of - length), as_of)
        if start <= tick and (end is None or tick < end)
    )


@given(rows, st.integers(0, HORIZON), st.integers(1, HORIZON))
def test_the_sum_is_what_counting_tick_by_tick_gives(
    found: list[tuple[int, int | None, int]], as_of: int, length: int
) -> None:
    assert a_curve(found, as_of, length, unit=7).total == 7 * counted(found, as_of, length)


@given(rows, st.integers(0, HORIZON), st.integers(1, HORIZON), st.integers(1, 400))
def test_the_forecast_is_what_waiting_would_show(
    found: list[tuple[int, int | None, int]], as_of: int, length: int, quota: int
) -> None:
    curve = a_curve(found, as_of, length)
    later = range(as_of, as_of + HORIZON + length + 2)
    sums = {tick: counted(found, tick, length) for tick in later}
    assert curve.reaches(quota) == next((tick for tick in later if sums[tick] >= quota), None)
    assert curve.falls_below(quota) == next((tick for tick in later if sums[tick] < quota), None)


@given(rows, st.integers(0, HORIZON), st.integers(1, HORIZON), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    found: list[tuple[int, int | None, int]], as_of: int, length: int, rng: Any
) -> None:
    shuffled = list(found)
    rng.shuffle(shuffled)
    one, other = a_curve(found, as_of, length), a_curve(shuffled, as_of, length)
    assert (one.total, one.rate_at(as_of), one.reaches(50)) == (other.total, other.rate_at(as_of), other.reaches(50))


def test_amounts_beyond_64_bits_are_still_exact() -> None:
    huge = 10**20 + 1
    curve = a_curve([(0, None, huge), (10, 20, huge + 1)], as_of=30, length=25)
    assert curve.total == huge * 25 + (huge + 1) * 10
    assert curve.rate_at(30) == huge
    assert curve.reaches(huge * 37) is None
    assert curve.falls_below(huge * 30) == 41


def test_what_starts_in_the_future_counts_from_then_on() -> None:
    curve = a_curve([(50, None, 2)], as_of=30, length=100)
    assert curve.total == 0
    assert (curve.rate_at(30), curve.rate_at(50)) == (0, 2)
    assert curve.reaches(20) == 60


def test_nothing_at_all_is_zero() -> None:
    curve = Curve(np.empty(0, np.int64), np.empty(0, np.int64), RowRates(np.empty(0, np.int64), 1), WindowSpan(10, 5))
    assert (curve.total, curve.rate_at(10), curve.reaches(1), curve.falls_below(1)) == (0, 0, None, 10)


def test_of_equal_pods_the_first_by_name_are_shown() -> None:
    names = ["d", "a", "c", "b", "z"]
    assert largest(np.array([5, 5, 5, 5, 9]), 3, lambda place: names[place]) == [4, 1, 3]
    assert largest(np.array([0, 0]), 3, lambda place: names[place]) == []
