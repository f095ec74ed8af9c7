"""What becomes of a budget if what runs goes on, and what would become of it if so much more began now."""

from __future__ import annotations

from typing import Final, NamedTuple

from headroom.api.kinds import AnyResource
from headroom.core.usage import coverage
from headroom.core.usage.forecasts import Forecast, Run
from headroom.core.usage.reckoning import Ledgered, Reckoning, quota_of
from headroom.model.times import HOUR
from headroom.model.world import World

MOST_ROUNDS: Final = 100


class More(NamedTuple):
    """Something that could begin now: millionths of a GPU, and for how many milliseconds."""

    rate: int
    length: int


class Course(NamedTuple):
    """The sum over a budget's window from now on, and what it may be."""

    sums: Forecast
    quota: int | None
    rate: int
    """What more would add to it."""


class Prospect(NamedTuple):
    """What comes."""

    now: Reckoning
    """As it is, without more."""
    gpus: Course
    usd: Course
    exhausted_at: int | None
    """When a quota would be reached; None if none is, or if one is already."""
    fits: bool
    """Whether every quota holds while more runs."""
    starts_at: int | None
    """The first moment at which more would fit; None if there is none, or nothing more is asked about."""


def prospect(world: World, budget: AnyResource, more: More | None = None) -> Prospect:
    """What comes of a valid budget, with something more or without."""
    coverage.arrange(world, coverage.budgets_of(world))
    rows = Ledgered(world, coverage.scope_of(world, budget), budget.spec.quota.window_hours * HOUR)
    quota = quota_of(budget.spec)
    now = rows.reckoned(quota)
    gpus, usd = rows.forecasts({})
    rate = more.rate if more else 0
    dollars, paid_for = rows.dearest
    # As with pods that wait: by the dearest that is paid now.
    courses = (Course(gpus, quota.gpu_ms, rate), Course(usd, quota.usd_ms, -(-rate * dollars // paid_for)))
    starts_at = _earliest(courses, now.as_of, more.length) if more else None
    with_more = [_with(each, now.as_of, more) for each in courses]
    reached = [each.sums.reaches(each.quota) for each in with_more if each.quota is not None]
    return Prospect(
        now=now,
        gpus=with_more[0],
        usd=with_more[1],
        exhausted_at=None if now.exceeded else min((each for each in reached if each is not None), default=None),
        fits=starts_at == now.as_of if more else not now.exceeded,
        starts_at=starts_at,
    )


def _with(course: Course, as_of: int, more: More | None) -> Course:
    if more is None or not course.rate:
        return course
    return course._replace(sums=course.sums.plus(Run(as_of, as_of + more.length, course.rate)))


def _earliest(courses: tuple[Course, ...], as_of: int, length: int) -> int | None:
    """The first moment that suits every quota: each names its own, until none names a later one."""
    moment = as_of
    for _ in range(MOST_ROUNDS):
        before = moment
        for each in courses:
            if each.quota is not None:
                found = each.sums.earliest(each.rate, length, each.quota, moment)
                if found is None:
                    return None
                moment = found
        if moment == before:
            return moment
    return None
