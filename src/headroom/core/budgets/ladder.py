"""Which steps of a budget's ladder stand: they begin at their share of the quota and end some points below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from headroom.api.enforcement import EnforcementStep, EnteredStep, percent
from headroom.core.budgets.accounts import BudgetAccount
from headroom.model import conditions, times

POINTS_BELOW: Final = 5
DWELL_MS: Final = 60_000
"""A step is active for so long at least, however quickly usage falls."""
EXCEEDED: Final = "QuotaExceeded"


class ActiveStep(NamedTuple):
    """A step that stands."""

    share: int
    """Per cent of the quota at which it begins."""
    action: str
    since: int
    acts_from: int
    """When its grace is over."""


def exit_share(share: int) -> int:
    """Where a step ends; a very low one ends half way down."""
    return max(share - POINTS_BELOW, share // 2)


def standing(account: BudgetAccount) -> tuple[ActiveStep, ...]:
    """The active steps, the lowest first."""
    found = []
    for step in account.spec.enforcement.ladder:
        since = _since(account, step)
        if since is not None:
            share = percent(step.at)
            grace = account.spec.enforcement.grace_period_seconds * times.SECOND
            found.append(ActiveStep(share, step.action, since, _grace_from(account, share, since) + grace))
    return tuple(found)


def _since(account: BudgetAccount, step: EnforcementStep) -> int | None:
    now, share = account.world.now, percent(step.at)
    before = _recorded(account, step)
    if account.has_reached(share):
        return now if before is None else min(before, now)
    if before is None:
        return None
    is_left = not account.has_reached(exit_share(share)) and now - before >= DWELL_MS
    return None if is_left else before


def _recorded(account: BudgetAccount, step: EnforcementStep) -> int | None:
    """When the step began, by the status; by the condition where an older status has no steps."""
    for each in account.status.steps:
        if (each.at, each.action) == (step.at, step.action):
            return times.moment(each.since) or 0
    exceeded = conditions.find(account.status.conditions, EXCEEDED)
    if not account.status.steps and percent(step.at) <= 100 and exceeded is not None and exceeded.status == "True":
        return times.moment(exceeded.last_transition_time) or 0
    return None


def _grace_from(account: BudgetAccount, share: int, since: int) -> int:
    """Grace is about how long the quota has been exceeded; below it, about how long the step has stood."""
    exceeded = conditions.find(account.status.conditions, EXCEEDED)
    if share >= 100 and exceeded is not None and exceeded.status == "True":
        return min(since, times.moment(exceeded.last_transition_time) or since)
    return since


def entered(steps: tuple[ActiveStep, ...]) -> tuple[EnteredStep, ...]:
    """The steps as the status keeps them."""
    return tuple(EnteredStep(at=f"{each.share}%", action=each.action, since=times.text(each.since)) for each in steps)


def acts(account: BudgetAccount, steps: tuple[ActiveStep, ...], action: str) -> ActiveStep | None:
    """The lowest step of an action that stands and whose grace is over."""
    now = account.world.now
    return next((each for each in steps if each.action == action and now >= each.acts_from), None)


def turns(account: BudgetAccount, steps: tuple[ActiveStep, ...]) -> Iterator[int]:
    """When, by the clock alone, a step will begin, act or end, if the current pods keep running."""
    now, lag = account.world.now, account.world.now - account.found.as_of
    stand = {(each.share, each.action): each for each in steps}
    for step in account.spec.enforcement.ladder:
        share = percent(step.at)
        standing_ = stand.get((share, step.action))
        if standing_ is not None:
            yield from (each for each in (standing_.acts_from, standing_.since + DWELL_MS) if each > now)
        for curve, quota in ((account.rows.gpus, account.quota.gpu_ms), (account.rows.usd, account.quota.usd_ms)):
            if quota is None:
                continue
            reached, left = (-(-quota * each // 100) for each in (share, exit_share(share)))
            moment = curve.reaches(reached) if standing_ is None else curve.falls_below(left)
            if moment is not None and moment + lag > now:
                yield moment + lag
