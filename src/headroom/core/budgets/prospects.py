"""What comes of a budget if the current pods run until the end that they declared, and what would if so much more began now."""

from __future__ import annotations

from typing import Final, NamedTuple

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.usage import Drawing, Outlook, Reckoning, UsageForecast, UsageRun, turns_of
from headroom.model.world import World

MOST_ROUNDS: Final = 100


class More(NamedTuple):
    """Something that could begin now: millionths of a GPU, and for how many milliseconds."""

    rate: int
    length: int


class Course(NamedTuple):
    """The sum over a budget's window from now on, and what it may be; no quota is no limit."""

    sums: UsageForecast
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
    """When the budget is back under quota, where it is over it now; None if never."""
    fits: bool = False
    """Whether more could begin now: every quota holds while it runs, and nothing would be stopped for it."""
    starts_at: int | None = None
    """The first moment at which it could; None if there is none."""


def prospect(world: World, budget: AnyResource, more: More | None = None) -> Prospect:
    """What comes of a valid budget, with something more or without."""
    usage.arrange(world)
    account = BudgetAccount(world, budget)
    sums = account.rows.forecasts(account.ends())
    quotas = (account.quota.gpu_ms, account.quota.usd_ms)
    found = _prospect(account, tuple(map(Course, sums, quotas)), account.outlook)
    if more is None:
        return found
    begin = found.now.as_of
    rates = (more.rate, account.price(more.rate))
    # As with queued pods: nothing is released that would be stopped again.
    limits = [None if quota is None else quota * account.limit_share // 100 for quota in quotas]
    asked = [(each, rate, limit) for each, rate, limit in zip(sums, rates, limits, strict=True) if limit is not None]
    starts_at = _earliest(asked, begin, more.length)
    added = [
        each.plus(UsageRun(begin, begin + more.length, rate)) if rate else each
        for each, rate in zip(sums, rates, strict=True)
    ]
    limited = [(each, quota) for each, quota in zip(added, quotas, strict=True) if quota is not None]
    turns = turns_of(limited, exceeded=bool(found.now.exceeded))
    with_more = _prospect(account, tuple(map(Course, added, quotas)), turns)
    return with_more._replace(fits=starts_at == begin, starts_at=starts_at)


def drawing(world: World, budget: AnyResource) -> Drawing:
    """The window of a valid budget as a line: what it held, and what it comes to by the same forecast."""
    usage.arrange(world)
    account = BudgetAccount(world, budget)
    ahead = usage.Ahead(account.found.as_of, account.ends(), account.outlook)
    return usage.drawing(world, account.rows, account.spec, ahead)


def _prospect(account: BudgetAccount, courses: tuple[Course, ...], turns: Outlook) -> Prospect:
    return Prospect(account.found, courses[0], courses[1], turns.exhausted_at, turns.recovers_at)


def _earliest(asked: list[tuple[UsageForecast, int, int]], begin: int, length: int) -> int | None:
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
