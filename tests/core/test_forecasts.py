"""Forecasts: held against counting every millisecond, and exact beyond 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headroom.core.usage import UsageForecast, UsageRun
from headroom.core.usage.forecasts import ForecastSpan, Runs
from headroom.model.usage_table import OPEN

NOW = 100
runs = st.lists(
    st.builds(
        lambda start, length, rate: UsageRun(start, OPEN if length is None else start + length, rate),
        st.integers(80, 103),
        st.none() | st.integers(1, 25),
        st.integers(1, 4),
    ),
    max_size=6,
)


def counted(every: list[UsageRun], window: int, end: int) -> int:
    return sum(each.rate * max(0, min(each.end, end) - max(each.start, end - window)) for each in every)


def forecast_of(every: list[UsageRun], window: int, until: int = OPEN) -> UsageForecast:
    columns = Runs(*(np.array([each[place] for each in every], np.int64) for place in range(3)))
    return UsageForecast.of(ForecastSpan(NOW, window, until), counted(every, window, NOW), columns)


@given(runs, st.sampled_from([5, 10, 17]))
def test_it_is_the_sum_at_every_moment(every: list[UsageRun], window: int) -> None:
    forecast = forecast_of(every, window)
    assert [forecast.at(each) for each in range(NOW, NOW + 60)] == [
        counted(every, window, each) for each in range(NOW, NOW + 60)
    ]


@given(runs, st.sampled_from([5, 10, 17]), st.integers(0, 30), runs)
def test_one_that_looks_less_far_is_the_same_up_to_there(
    every: list[UsageRun], window: int, far: int, more: list[UsageRun]
) -> None:
    whole, near = forecast_of(every, window), forecast_of(every, window, NOW + far)
    for run in more:
        whole, near = whole.plus(run), near.plus(run)
    assert [near.at(each) for each in range(NOW, NOW + far + 1)] == [
        whole.at(each) for each in range(NOW, NOW + far + 1)
    ]


@given(runs, st.sampled_from([5, 10, 17]), runs)
def test_more_that_runs_adds_up(every: list[UsageRun], window: int, more: list[UsageRun]) -> None:
    later = [UsageRun(run.start + 20, min(run.end + 20, OPEN), 6 * run.rate) for run in more]
    forecast = forecast_of(every, window)
    for run in later:
        forecast = forecast.plus(run)
    for moment in range(NOW, NOW + 60):
        assert forecast.at(moment) == counted([*every, *later], window, moment)


@given(runs, st.sampled_from([5, 10, 17]), st.integers(1, 4), st.integers(1, 20), st.integers(1, 80))
@example([UsageRun(90, OPEN, 4)], 10, 1, 5, 40)
@example([], 5, 1, 20, 6)
def test_the_earliest_start_is_the_first_that_fits(
    every: list[UsageRun], window: int, rate: int, length: int, limit: int
) -> None:
    def fits(start: int) -> bool:
        with_it = [*every, UsageRun(start, start + length, rate)]
        return all(counted(with_it, window, each) < limit for each in range(start, start + length + 1))

    forecast = forecast_of(every, window)
    assert forecast.fits(rate, length, limit) == fits(NOW)
    wanted = next((each for each in range(NOW, NOW + 100) if fits(each)), None)
    assert forecast.earliest(rate, length, limit) == wanted
    if wanted is not None:
        after = next(each for each in range(wanted + 3, NOW + 200) if fits(each) or each == NOW + 199)
        assert forecast.earliest(rate, length, limit, wanted + 3) in (after, None)


def test_it_is_exact_beyond_64_bits() -> None:
    year = 366 * 86_400_000
    columns = Runs(np.zeros(2, np.int64), np.full(2, OPEN), np.array([10**13 - 1, 1], np.int64))
    forecast = UsageForecast.of(ForecastSpan(0, year), 0, columns)
    assert forecast.at(year) == year * 10**13
    assert forecast.plus(UsageRun(0, OPEN, 10**13)).at(year) == 2 * year * 10**13
    assert forecast.earliest(1, 1, 10**30) == 0


@pytest.mark.parametrize("until", [NOW, NOW + 1, NOW + 30])
def test_the_points_end_where_they_are_asked_to(until: int) -> None:
    forecast = forecast_of([UsageRun(95, 110, 2)], 10)
    moments, sums = forecast.points(until)
    assert int(moments[-1]) == until
    assert [int(each) for each in sums] == [forecast.at(int(each)) for each in moments]


@given(runs, st.sampled_from([5, 10, 17]), runs, st.integers(1, 60))
def test_the_first_moments_at_and_below_a_limit(
    every: list[UsageRun], window: int, more: list[UsageRun], limit: int
) -> None:
    forecast = forecast_of(every, window)
    for run in more:
        forecast = forecast.plus(UsageRun(run.start + 20, min(run.end + 20, OPEN), 6 * run.rate))
    # After so long nothing changes any more: what ended has left the window, what goes on fills it.
    sums = {moment: forecast.at(moment) for moment in range(NOW, NOW + 120)}
    assert forecast.reaches(limit) == next((at for at, total in sums.items() if total >= limit), None)
    assert forecast.falls_below(limit) == next((at for at, total in sums.items() if total < limit), None)
