"""Suspend and Evict: which units are stopped so that usage falls below a step in time, and no more than these.

What was used stays used, so stopping only bends the curve: a unit that stops takes its rate x the time from now on out of the
forecast. Units are taken in order until the forecast is below the step within the time that the budget gives, then those that are
not needed are given back; where no set of them is enough, all go. One unit at a time, each after a fresh look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from headroom.api import marks
from headroom.api.enforcement import EvictedOwner, Stopped
from headroom.core.budgets.accounts import BudgetAccount, end_of
from headroom.core.budgets.ladder import ActiveStep
from headroom.core.budgets.sharing import joined
from headroom.core.budgets.units import BudgetUnit, goes_on, is_protected, note, owner_of, suspends, units
from headroom.core.budgets.unseen import is_unclear
from headroom.core.budgets.waiting import SKEW_MS, was_let_go
from headroom.core.usage import Running
from headroom.model import times
from headroom.model.actions import Action
from headroom.model.facts import Pod

GIVE_UP_MS: Final = 120_000
"""A unit that has not gone by then would not go: the next one is taken."""
SPARED_MS: Final = 300_000
"""And it is not tried again before that."""
MOST_OF_OWNER: Final = 3
"""So often the pods of one owner are evicted within the window, where nothing keeps it from making them anew."""
CAP_MS: Final = 60_000
"""Caps are about so long a time."""
MOST_MOMENTS: Final = 10
"""So many evictions of one owner are remembered, each with its moment."""
MOST_KEPT: Final = 50
MOST_OWNERS: Final = 200


class StopCandidate(NamedTuple):
    """A unit that could be stopped."""

    unit: BudgetUnit
    runs: tuple[Running, ...]
    """Its pods that this budget counts."""


class Past(NamedTuple):
    """What was stopped before, as the status of a budget keeps it."""

    stopped: tuple[Stopped, ...]
    evictions: tuple[EvictedOwner, ...]

    def with_(self, new: Stopped) -> Past:
        """With one thing more; of a unit that would not go, only the last time is kept."""
        kept = [each for each in self.stopped if (each.unit, each.outcome) != (new.unit, "Blocked")]
        known = {each.owner: each for each in self.evictions}
        if new.action == "Evict" and new.outcome == "Stopped" and new.owner and not new.by:
            known[new.owner] = _evicted(new.owner, (*_moments(known.get(new.owner)), new.at))
        return Past((new, *kept), tuple(known.values()))

    def trimmed(self, now: int, window: int) -> Past:
        """Without what is long past, and no more than a status should hold."""
        young = [each for each in self.stopped if now - _at(each.at) < window]
        recent = sum(1 for each in young if now - _at(each.at) < CAP_MS)
        aged = (
            _evicted(each.owner, young_)
            for each in self.evictions
            if (young_ := tuple(at for at in _moments(each) if now - _at(at) < window))
        )
        owners = sorted(aged, key=lambda each: (_at(each.last), each.owner))
        return Past(tuple(young[: max(MOST_KEPT, recent)]), tuple(owners[-MOST_OWNERS:]))

    def spared(self, now: int) -> set[str]:
        """Units that would not go when they were asked lately."""
        return {
            each.unit
            for each in self.stopped
            if each.outcome == "Blocked" and now - _at(each.at) < SPARED_MS + GIVE_UP_MS
        }

    def times(self, owner: str) -> int:
        """How often pods of an owner were evicted inside the window."""
        return next((each.count for each in self.evictions if each.owner == owner), 0)

    def looping_until(self, window: int) -> Iterator[int]:
        """When an owner of which so many pods were evicted has one less inside the window."""
        for each in self.evictions:
            if each.count >= MOST_OF_OWNER:
                yield _at(_moments(each)[-MOST_OF_OWNER]) + window


def _evicted(owner: str, moments: tuple[str, ...]) -> EvictedOwner:
    kept = moments[-MOST_MOMENTS:]
    return EvictedOwner(owner=owner, count=len(kept), last=kept[-1], moments=kept)


def _moments(each: EvictedOwner | None) -> tuple[str, ...]:
    """When the pods of an owner were evicted; an older status tells only when last."""
    if each is None:
        return ()
    return each.moments or (each.last,) * min(each.count, MOST_MOMENTS)


def _at(text: str) -> int:
    return times.moment(text) or 0


class QuotaExcess:
    """One quota that must get below a step, seen at the moments that matter.

    What runs on takes its rate x time out of the forecast when it stops, so all of it is one number to compare with; only what
    would have ended by itself in time must be looked at moment by moment.
    """

    def __init__(self, excess: Any, times_: Any, *, is_dollars: bool) -> None:
        """By how much it is too much at each moment, which are counted from now."""
        self._excess, self._times, self._is_dollars = excess, times_, is_dollars
        self._rate = 0
        self._enough = self._least()

    @property
    def is_met(self) -> bool:
        """Whether it is below the step at some moment."""
        return self._enough is not None and self._rate >= self._enough

    def is_helped_by(self, account: BudgetAccount, each: StopCandidate) -> bool:
        """Whether it is not met yet and a unit takes something out of it: what costs nothing or ends just now does not."""
        as_of = account.found.as_of
        return not self.is_met and any(rate and end != as_of for rate, end in self._taken(account, each))

    def _taken(self, account: BudgetAccount, each: StopCandidate) -> Iterator[tuple[int, int | None]]:
        for run in each.runs:
            pod = account.world.pods.get(run.uid)
            end = end_of(account.world, pod, run.begun, account.found.as_of) if pod is not None else None
            yield run.price if self._is_dollars else run.rate, end

    def change(self, account: BudgetAccount, each: StopCandidate, sign: int) -> None:
        """A unit stops (1), or goes on after all (-1)."""
        as_of = account.found.as_of
        for rate, end in self._taken(account, each):
            if end is None:
                self._rate += sign * rate
            else:
                self._excess = self._excess - np.minimum(self._times, end - as_of) * (sign * rate)
                self._enough = self._least()

    def _least(self) -> int | None:
        """The least rate that must stop for it to be met; None if no rate is enough."""
        if bool((self._excess <= 0).any()):
            return 0
        later = self._times > 0
        return min((-(-self._excess[later] // self._times[later])).tolist(), default=None)


def needed(
    account: BudgetAccount, step: ActiveStep, going: frozenset[str], past: Past, overdue: frozenset[str] = frozenset()
) -> list[StopCandidate]:
    """The units that must go for a step, in the order in which they go. `going` are pods that count as gone already.

    Those with pods that are `overdue` go first, and those that would not go before last: else a few of these would keep all others.
    """
    if not account.may_stop(step.share):
        return []
    needs, chosen = _needs(account, step, going), list[tuple[StopCandidate, ...]]()
    groups = joined(account, list(_candidates(account, step, going, past, overdue)), going)
    blocked = {each.unit for each in past.stopped if each.outcome == "Blocked"}

    def place(each: StopCandidate) -> tuple[Any, ...]:
        is_overdue = any(run.uid in overdue for run in each.runs)
        return (not is_overdue, not is_overdue and each.unit.name in blocked, *_order(account, each))

    for group in sorted(groups, key=lambda group: max(map(place, group))):
        if _are_met(needs):
            break
        if any(need.is_helped_by(account, each) for each in group for need in needs):
            _change(needs, account, group, 1)
            chosen.append(group)
    for group in reversed(chosen[:]) if _are_met(needs) else ():
        _change(needs, account, group, -1)
        if _are_met(needs):
            chosen.remove(group)
        else:
            _change(needs, account, group, 1)
    return [each for group in chosen for each in group]


def _change(needs: Sequence[QuotaExcess], account: BudgetAccount, group: Sequence[StopCandidate], sign: int) -> None:
    for need in needs:
        for each in group:
            need.change(account, each, sign)


def _are_met(needs: Sequence[QuotaExcess]) -> bool:
    return all(each.is_met for each in needs)


def recovers(account: BudgetAccount, step: ActiveStep, going: frozenset[str]) -> bool:
    """Whether usage falls below a step in time with nothing more stopped."""
    return _are_met(_needs(account, step, going))


def _needs(account: BudgetAccount, step: ActiveStep, going: frozenset[str]) -> list[QuotaExcess]:
    as_of = account.found.as_of
    until = as_of + account.recover_within
    found = []
    for forecast, quota, is_dollars in zip(
        account.rows.forecasts(account.ends(going), until=until),
        (account.quota.gpu_ms, account.quota.usd_ms),
        (False, True),
        strict=True,
    ):
        if quota is not None and (account.is_priced or not is_dollars):
            moments, sums = forecast.points(until)
            threshold = -(-quota * step.share // 100)
            found.append(QuotaExcess(sums - (threshold - 1), moments.astype(sums.dtype) - as_of, is_dollars=is_dollars))
    return found


def _candidates(
    account: BudgetAccount, step: ActiveStep, going: frozenset[str], past: Past, overdue: frozenset[str]
) -> Iterator[StopCandidate]:
    now, runs = account.world.now, dict[str, list[Running]]()
    for each in account.running:
        pod = account.world.pods.get(each.uid)
        if pod is not None and each.uid not in going and goes_on(pod, now) and each.start <= now:
            runs.setdefault(each.uid, []).append(each)
    spared = past.spared(now)
    for unit in {unit.pods[0].uid: unit for unit in units(account.world, runs).values()}.values():
        counted = [run for pod in unit.pods for run in runs.get(pod.uid, ())]
        is_spared = unit.name in spared and overdue.isdisjoint(run.uid for run in counted)
        pods = () if is_spared else _able(account, step.action, unit, counted, past)
        able = {pod.uid for pod in pods}
        if left := tuple(run for run in counted if run.uid in able):
            yield StopCandidate(BudgetUnit(unit.name, pods), left)


def _able(
    account: BudgetAccount, action: str, unit: BudgetUnit, runs: Sequence[Running], past: Past
) -> tuple[Pod, ...]:
    """Those of a unit that may be stopped, each judged for itself: one that may not shields nobody but itself."""
    world, fresh = account.world, _just_released(account, unit, runs)
    kept = _shielded(account, unit) if action == "Suspend" else set[Action]()
    return tuple(
        pod
        for pod in unit.pods
        if goes_on(pod, world.now)
        and not is_protected(world, pod)
        and not is_unclear(world, pod)
        and pod.uid not in fresh
        and (
            (owner := suspends(account.queued, pod, account.scope.selector)) is not None and owner not in kept
            if action == "Suspend"
            else not is_looping(account, pod, past)
        )
    )


def _shielded(account: BudgetAccount, unit: BudgetUnit) -> set[Action]:
    """Owners that cannot be suspended without ending a pod that must not end."""
    world = account.world
    owners = {pod.owner.uid for pod in unit.pods if pod.owner is not None}
    ranks = (world.pods.get(uid) for owner in owners for uid in world.pods.by_owner[owner])
    every = {pod.uid: pod for pod in (*unit.pods, *ranks) if pod is not None}
    found = (
        suspends(account.queued, pod, account.scope.selector)
        for pod in every.values()
        if goes_on(pod, world.now) and is_protected(world, pod)
    )
    return {each for each in found if each is not None}


def _just_released(account: BudgetAccount, unit: BudgetUnit, runs: Sequence[Running]) -> set[str]:
    """The pods of a unit that were released within the horizon, which are not stopped again at once.

    Those of one owner are left alone together, or not: most of them decide. What shares no more than a label is not left alone with them,
    nor is an owner left alone that has more by now than was judged when it was released.
    """
    now, rates = account.world.now, Counter[str]()
    for run in runs:
        rates[run.uid] += run.rate
    young = {pod.uid: pod for pod in unit.pods if _released_since(account, pod, now - account.horizon)}
    grown = _grown(account, young.values(), rates)
    owners: dict[str, list[Pod]] = {}
    for pod in unit.pods:
        owners.setdefault(pod.owner.uid if pod.owner is not None else pod.uid, []).append(pod)
    found = set[str]()
    for pods in owners.values():
        fresh = sum(rates[pod.uid] for pod in pods if pod.uid in young)
        has_grown = any(uid in grown for pod in pods for uid in _whose(account, pod))
        if fresh and 2 * fresh >= sum(rates[pod.uid] for pod in pods) and not has_grown:
            found |= {pod.uid for pod in pods}
    return found


def _grown(account: BudgetAccount, pods: Iterable[Pod], rates: Counter[str]) -> set[str]:
    """Uids of owners that have more by now than was judged."""
    used = Counter[str]()
    for pod in pods:
        used.update(dict.fromkeys(_whose(account, pod), rates[pod.uid]))
    return {uid for uid, rate in account.judged.items() if used[uid] > rate}


def _whose(account: BudgetAccount, pod: Pod) -> set[str]:
    """By whose release a pod may have started: its own, its owner's, that of its owner's JobSet or of Kueue's Workload."""
    whole = account.world.workloads.get(owner_of(pod))
    found = {pod.uid} if pod.owner is None else {pod.uid, pod.owner.uid}
    return found | {each.uid for each in (whole, account.queued.of(pod)) if each is not None}


def _released_since(account: BudgetAccount, pod: Pod, since: int) -> bool:
    """Whether a pod, or its owner before it made the pod, was released after a moment; a mark counts only where it is guarded."""
    world, owner = account.world, account.world.workloads.get(owner_of(pod))
    released = None if world.hold_problem else times.moment(note(pod, marks.RELEASED_AT))
    if released is not None and since < released <= world.now + SKEW_MS:
        return True
    if owner is None or owner.released_at is None or not was_let_go(world, owner.key, account.horizon):
        return False
    if not owner.is_as_released and owner.uid not in account.judged:
        return False  # it was changed before anybody saw what it came to
    is_its_own = owner.kind == "JobSet" or (pod.owner is not None and pod.owner.uid == owner.uid)
    # Suspending an owner takes all its pods away.
    return is_its_own and pod.created + SKEW_MS >= owner.released_at


def turns(account: BudgetAccount, past: Past) -> Iterator[int]:
    """When something may be stopped that must not be now."""
    yield from (_at(each.at) + SPARED_MS + GIVE_UP_MS for each in past.stopped if each.outcome == "Blocked")
    yield from past.looping_until(account.window)
    for each in account.world.workloads.values():
        if each.released_at is not None:
            yield each.released_at + account.horizon
    for uid, _ in account.rows.places(sorted(account.world.pods.annotated)):
        pod = account.world.pods.get(uid)
        released = times.moment(note(pod, marks.RELEASED_AT)) if pod is not None else None
        if released is not None:
            yield released + account.horizon


def is_looping(account: BudgetAccount, pod: Pod, past: Past) -> bool:
    """Whether evicting a pod is of no use, since its owner recreates it at once and nothing holds that."""
    owner = owner_of(pod)
    if not owner or past.times(owner) < MOST_OF_OWNER:
        return False
    return not account.has_step("Hold") or bool(account.world.hold_problem)


def _order(account: BudgetAccount, each: StopCandidate) -> tuple[Any, ...]:
    if account.spec.enforcement.order == "WorstOffender":
        used = account.rows.used_by([run.place for run in each.runs])
        return (-sum(used.values()), each.unit.name)
    pods = each.unit.pods
    priority = max(pod.priority for pod in pods)
    return (priority, max(_lost(account, pod) for pod in pods), -sum(run.rate for run in each.runs), each.unit.name)


def _lost(account: BudgetAccount, pod: Pod) -> int:
    """For how long a pod would have worked for nothing."""
    now = account.world.now
    saved = times.moment(note(pod, marks.CHECKPOINTED_AT))
    begun = now if pod.started is None else pod.started
    return max(0, now - max(begun, min(saved, now) if saved is not None else begun))
