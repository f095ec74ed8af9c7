"""Lines to draw: what a budget's window held and will hold, and how many GPUs were in use."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headroom.api.kinds import AnyResource
from headroom.core.usage import coverage
from headroom.core.usage.forecasts import Forecast
from headroom.core.usage.reckoning import Ledgered, quota_of
from headroom.core.usage.summary import gpus_in
from headroom.model.numbering import Ints
from headroom.model.times import HOUR, SECOND
from headroom.model.world import World

PAST: Final = 180
"""Points of the past: a drawing is no wider in pixels that matter."""
AHEAD: Final = 60


class Line(NamedTuple):
    """Moments, and a sum at each of them."""

    moments: list[int]
    sums: list[int]


class Drawn(NamedTuple):
    """One quota of a budget over time, in millionths x milliseconds."""

    past: Line
    """Up to `as_of`; it begins where everything that counts is known."""
    ahead: Line
    """From `as_of` on, if what runs goes on."""
    quota: int | None


class Drawing(NamedTuple):
    """Both quotas of a budget over time."""

    as_of: int
    gpus: Drawn
    usd: Drawn
    exhausted_at: int | None
    recovers_at: int | None


def drawing(world: World, budget: AnyResource) -> Drawing:
    """What the window of a valid budget held over its own length, and what it comes to."""
    coverage.arrange(world)
    length = budget.spec.quota.window_hours * HOUR
    rows = Ledgered(world, coverage.scope_of(world, budget), length)
    quota = quota_of(budget.spec)
    told = rows.reckoned(quota)
    # A sum over a window is only right if all is known from the window's own begin on.
    since = min(told.as_of, max(told.as_of - length, world.usage.complete_since + length))
    gpus, usd = rows.course(since)
    turn = told.exhausted_at if told.recovers_at is None else told.recovers_at
    until = _until(told.as_of, length, turn)
    return Drawing(
        told.as_of,
        _drawn(gpus, told.as_of, until, quota.gpu_ms),
        _drawn(usd, told.as_of, until, quota.usd_ms),
        told.exhausted_at,
        told.recovers_at,
    )


def _until(as_of: int, length: int, turn: int | None) -> int:
    """How far to look ahead: a little beyond the turn, so that it can be seen; at most one window."""
    if turn is None:
        return as_of + length // 2
    return as_of + min(length, max((turn - as_of) * 5 // 4, length // 20))


def _drawn(course: Forecast, as_of: int, until: int, quota: int | None) -> Drawn:
    return Drawn(_line(course, course.as_of, as_of, PAST), _line(course, as_of, until, AHEAD), quota)


def _line(course: Forecast, begin: int, end: int, points: int) -> Line:
    moments = evenly(begin, end, points)
    return Line(moments, [course.at(moment) for moment in moments])


def evenly(begin: int, end: int, points: int) -> list[int]:
    """Moments from `begin` to `end`, both included, in whole seconds between."""
    if end <= begin:
        return [begin]
    step = max((end - begin) // points, SECOND)
    inner = range(begin - begin % SECOND + step, end, step)
    return [begin, *inner, end]


def held(world: World, begin: int, points: int = 144) -> Line:
    """Millionths of GPUs that pods of this cluster held at moments from `begin` until now."""
    table = world.usage
    rates = np.zeros(len(table.groups), np.int64)
    for number, group in enumerate(table.groups):
        rates[number] = gpus_in(group.terms.amounts) if group.terms.cluster == world.cluster else 0
    moments = evenly(max(begin, table.complete_since), world.as_of, points)
    of_row, start, end = rates[table.column("group")], table.column("start"), table.column("low_end")
    counts = of_row > 0
    rate, asked = of_row[counts], np.array(moments, np.int64)
    return Line(moments, (_sum_before(start[counts], rate, asked) - _sum_before(end[counts], rate, asked)).tolist())


def _sum_before(at: Ints, rate: Ints, moments: Ints) -> Ints:
    """The sum of the rates of what happened up to each moment."""
    order = np.argsort(at)
    sums = np.concatenate([[0], np.cumsum(rate[order])])
    found: Ints = sums[np.searchsorted(at[order], moments, side="right")]
    return found
