"""What comes of a budget if what runs goes on until the end that it declared, and what would if so much more began now."""

from __future__ import annotations

from typing import Final, NamedTuple

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.budgets.accounts import Account
from headroom.core.usage import Forecast, Reckoning, Run
from headroom.model.world import World

MOST_ROUNDS: Final = 100


class More(NamedTuple):
    """Something that could begin now: millionths of a GPU, and for how many milliseconds."""

    rate: int
    length: int


class Course(NamedTuple):
    """The sum over a budget's window from now on, and what it may be; no quota is no limit."""

    sums: Forecast
    quota: int | None


class Prospect(NamedTuple):
    """What comes."""

    now: Reckoning
    gpus: Course
    """With more, where more is asked about."""
    usd: Course
    exhausted_at: int | None
    """When a quota will be reached; None if none is, or if one is already."""
    recovers_at: int | None
    """When every quota holds again, where one does not now; None if never."""
    fits: bool = False
    """Whether more could begin now: every quota holds while it runs, and nothing would be stopped for it."""
    starts_at: int | None = None
    """The first moment at which it could; None if there is none."""


def prospect(world: World, budget: AnyResource, more: More | None = None) -> Prospect:
    """What comes of a valid budget, with something more or without."""
    usage.arrange(world)
    account = Account(world, budget)
    sums = account.rows.forecasts(account.ends())
    quotas = (account.quota.gpu_ms, account.quota.usd_ms)
    found = _prospect(account, tuple(map(Course, sums, quotas)))
    if more is None:
        return found
    begin = found.now.as_of
    rates = (more.rate, account.price(more.rate))
    # As with pods that wait: nothing is let start that would be stopped again.
    limits = [None if quota is None else quota * account.limit_share // 100 for quota in quotas]
    asked = [(each, rate, limit) for each, rate, limit in zip(sums, rates, limits, strict=True) if limit is not None]
    starts_at = _earliest(asked, begin, more.length)
    added = [
        each.plus(Run(begin, begin + more.length, rate)) if rate else each
        for each, rate in zip(sums, rates, strict=True)
    ]
    with_more = _prospect(account, tuple(map(Course, added, quotas)))
    return with_more._replace(fits=starts_at == begin, starts_at=starts_at)


def _prospect(account: Account, courses: tuple[Course, ...]) -> Prospect:
    now = account.found
    limited = [(each.sums, each.quota) for each in courses if each.quota is not None]
    reached = [] if now.exceeded else [sums.reaches(quota) for sums, quota in limited]
    holds = [sums.falls_below(quota) for sums, quota in limited] if now.exceeded else []
    return Prospect(
        now=now,
        gpus=courses[0],
        usd=courses[1],
        exhausted_at=min((each for each in reached if each is not None), default=None),
        recovers_at=None if None in holds else max((each for each in holds if each is not None), default=None),
    )


def _earliest(asked: list[tuple[Forecast, int, int]], begin: int, length: int) -> int | None:
    """The first moment that suits every quota: each names its own, until none names a later one."""
    moment = begin
    for _ in range(MOST_ROUNDS):
        before = moment
        for sums, rate, limit in asked:
            found = sums.earliest(rate, length, limit, moment)
            if found is None:
                return None
            moment = found
        if moment == before:
            return moment
    return None
