"""Lines to draw: what a budget's window held and will hold, and how many GPUs were in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from headroom.api.budgets import GPUWorkloadBudgetSpec
from headroom.core.usage.forecasts import UsageForecast
from headroom.core.usage.reckoning import BudgetUsage, Outlook, quota_of
from headroom.core.usage.summary import gpus_in
from headroom.model.numbering import Ints
from headroom.model.times import HOUR, SECOND
from headroom.model.world import World

PAST: Final = 180
"""Points of the past: a drawing is no wider in pixels that matter."""
AHEAD: Final = 60


class UsageCurve(NamedTuple):
    """Moments, and a sum at each of them."""

    moments: list[int]
    sums: list[int]


class Drawn(NamedTuple):
    """One quota of a budget over time, in millionths x milliseconds."""

    past: UsageCurve
    """Up to `as_of`; it begins where everything that counts is known."""
    ahead: UsageCurve
    """From `as_of` on, with pods that run ending when they declare."""
    quota: int | None


class Drawing(NamedTuple):
    """Both quotas of a budget over time."""

    as_of: int
    gpus: Drawn
    usd: Drawn
    turns: Outlook


class Ahead(NamedTuple):
    """What is expected of a budget: when its rows end, by their place, and what follows."""

    as_of: int
    ends: Mapping[int, int]
    turns: Outlook


def drawing(world: World, rows: BudgetUsage, spec: GPUWorkloadBudgetSpec, ahead: Ahead) -> Drawing:
    """What the window of a budget held over its own length, and what it comes to."""
    length, quota, as_of = spec.quota.window_hours * HOUR, quota_of(spec), ahead.as_of
    # A sum over a window is only right if all is known from the window's own begin on.
    since = min(as_of, max(as_of - length, world.usage.complete_since + length))
    gpus, usd = rows.course(since, ahead.ends)
    exhausted_at, recovers_at = ahead.turns
    until = _until(as_of, length, exhausted_at if recovers_at is None else recovers_at)
    return Drawing(
        as_of, _drawn(gpus, as_of, until, quota.gpu_ms), _drawn(usd, as_of, until, quota.usd_ms), ahead.turns
    )


def _until(as_of: int, length: int, turn: int | None) -> int:
    """How far to look ahead: a little beyond the turn, so that it can be seen; at most one window."""
    if turn is None:
        return as_of + length // 2
    return as_of + min(length, max((turn - as_of) * 5 // 4, length // 20))


def _drawn(course: UsageForecast, as_of: int, until: int, quota: int | None) -> Drawn:
    return Drawn(_line(course, course.as_of, as_of, PAST), _line(course, as_of, until, AHEAD), quota)


def _line(course: UsageForecast, begin: int, end: int, points: int) -> UsageCurve:
    moments = evenly(begin, end, points)
    return UsageCurve(moments, [course.at(moment) for moment in moments])


def evenly(begin: int, end: int, points: int) -> list[int]:
    """Moments from `begin` to `end`, both included, in whole seconds between."""
    if end <= begin:
        return [begin]
    step = max((end - begin) // points, SECOND)
    inner = range(begin - begin % SECOND + step, end, step)
    return [begin, *inner, end]


def held(world: World, begin: int, points: int = 144) -> UsageCurve:
    """Millionths of GPUs that pods of this cluster held at moments from `begin` until now."""
    table = world.usage
    rates = np.zeros(len(table.groups), np.int64)
    for number, group in enumerate(table.groups):
        rates[number] = gpus_in(group.terms.amounts) if group.terms.cluster == world.cluster else 0
    moments = evenly(max(begin, table.complete_since), world.as_of, points)
    of_row, start, end = rates[table.column("group")], table.column("start"), table.column("low_end")
    counts = of_row > 0
    rate, asked = of_row[counts], np.array(moments, np.int64)
    return UsageCurve(
        moments, (_sum_before(start[counts], rate, asked) - _sum_before(end[counts], rate, asked)).tolist()
    )


def _sum_before(at: Ints, rate: Ints, moments: Ints) -> Ints:
    """The sum of the rates of what happened up to each moment."""
    order = np.argsort(at)
    sums = np.concatenate([[0], np.cumsum(rate[order])])
    found: Ints = sums[np.searchsorted(at[order], moments, side="right")]
    return found
