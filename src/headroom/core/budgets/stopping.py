"""Suspend and Evict: which units go so that usage falls below a step in time, and no more than these.

What was used stays used, so stopping only bends the curve: a unit that stops takes its rate x the time from now on out of the
forecast. Units are taken in order until the forecast is below the step within the time that the budget gives, then those that are
not needed are given back; where no set of them is enough, all go. One unit at a time, each after a fresh look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from headroom.api import marks
from headroom.api.enforcement import EvictedOwner, Stopped, Victim
from headroom.core.budgets.accounts import Account, end_of
from headroom.core.budgets.holding import evicts
from headroom.core.budgets.ladder import Standing
from headroom.core.budgets.sharing import joined
from headroom.core.budgets.units import (
    Unit,
    is_alive,
    is_protected,
    note,
    owner_of,
    suspends,
    unit_of,
    units,
)
from headroom.core.budgets.unseen import is_unclear
from headroom.core.budgets.waiting import was_let_go
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
OWN_WORD_MS: Final = 10_000
"""So long the mark of an owner that we suspended may be seen later than its pods going."""
MOST_KEPT: Final = 50
MOST_OWNERS: Final = 200
MOST_UIDS: Final = 500
SHOWN_PODS: Final = 8


class Candidate(NamedTuple):
    """A unit that could be stopped."""

    unit: Unit
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


class Need:
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

    def is_helped_by(self, account: Account, each: Candidate) -> bool:
        """Whether it is not met yet and a unit takes something out of it: what costs nothing or ends just now does not."""
        as_of = account.found.as_of
        return not self.is_met and any(rate and end != as_of for rate, end in self._taken(account, each))

    def _taken(self, account: Account, each: Candidate) -> Iterator[tuple[int, int | None]]:
        for run in each.runs:
            pod = account.world.pods.get(run.uid)
            end = end_of(account.world, pod, run.begun, account.found.as_of) if pod is not None else None
            yield run.price if self._is_dollars else run.rate, end

    def change(self, account: Account, each: Candidate, sign: int) -> None:
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


def needed(account: Account, step: Standing, going: frozenset[str], past: Past) -> list[Candidate]:
    """The units that must go for a step, in the order in which they go. `going` are pods that count as gone already."""
    if not account.may_stop(step.share):
        return []
    needs, chosen = _needs(account, step, going), list[tuple[Candidate, ...]]()
    groups = joined(account, list(_candidates(account, step, going, past)), going)
    for group in sorted(groups, key=lambda group: max(_order(account, each) for each in group)):
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


def _change(needs: Sequence[Need], account: Account, group: Sequence[Candidate], sign: int) -> None:
    for need in needs:
        for each in group:
            need.change(account, each, sign)


def _are_met(needs: Sequence[Need]) -> bool:
    return all(each.is_met for each in needs)


def recovers(account: Account, step: Standing, going: frozenset[str]) -> bool:
    """Whether usage falls below a step in time with nothing more stopped."""
    return _are_met(_needs(account, step, going))


def _needs(account: Account, step: Standing, going: frozenset[str]) -> list[Need]:
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
            found.append(Need(sums - (threshold - 1), moments.astype(sums.dtype) - as_of, is_dollars=is_dollars))
    return found


def _candidates(account: Account, step: Standing, going: frozenset[str], past: Past) -> Iterator[Candidate]:
    runs: dict[str, list[Running]] = {}
    for each in account.running:
        pod = account.world.pods.get(each.uid)
        if pod is not None and each.uid not in going and is_alive(pod) and each.start <= account.world.now:
            runs.setdefault(unit_of(pod), []).append(each)
    every = units(account.world, (each.uid for found in runs.values() for each in found))
    spared = past.spared(account.world.now)
    for name, found in runs.items():
        unit = every[name]
        candidate = Candidate(unit, tuple(found))
        if name not in spared and may_go(account, step.action, candidate, past):
            yield candidate


def may_go(account: Account, action: str, candidate: Candidate, past: Past) -> bool:
    """Whether a unit may be stopped at all."""
    pods = [pod for pod in candidate.unit.pods if is_alive(pod)]
    if any(map(is_protected, pods)) or _was_just_released(account, candidate):
        return False
    if any(is_unclear(account.world, pod) for pod in pods):
        return False
    if action == "Suspend":
        return all(suspends(account.queued, pod) is not None for pod in pods)
    return not is_looping(account, candidate.unit, past)


def _was_just_released(account: Account, candidate: Candidate) -> bool:
    """Whether most of a unit was let start within the horizon: that is not stopped again at once."""
    since = account.world.now - account.horizon
    if was_let_go(account.world, candidate.unit.name, account.horizon):
        return True
    fresh = 0
    for run in candidate.runs:
        pod = account.world.pods.get(run.uid)
        released = times.moment(note(pod, marks.RELEASED_AT)) if pod is not None else None
        fresh += run.rate if released is not None and released > since else 0
    return 2 * fresh >= sum(run.rate for run in candidate.runs)


def turns(account: Account, past: Past) -> Iterator[int]:
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


def is_looping(account: Account, unit: Unit, past: Past) -> bool:
    """Whether evicting a unit is of no use, since its owner makes it anew at once and nothing holds that."""
    is_held = account.has_step("Hold") and not account.world.hold_problem
    if is_held and not any(account.queued.of(pod) for pod in unit.pods):
        return False
    return any(past.times(owner) >= MOST_OF_OWNER for pod in unit.pods if (owner := owner_of(pod)))


def _order(account: Account, each: Candidate) -> tuple[Any, ...]:
    if account.spec.enforcement.order == "WorstOffender":
        used = account.rows.used_by([run.place for run in each.runs])
        return (-sum(used.values()), each.unit.name)
    pods = [pod for pod in each.unit.pods if is_alive(pod)]
    priority = max(pod.priority for pod in pods)
    return (priority, max(_lost(account, pod) for pod in pods), -sum(run.rate for run in each.runs), each.unit.name)


def _lost(account: Account, pod: Pod) -> int:
    """For how long a pod would have worked for nothing."""
    now = account.world.now
    saved = times.moment(note(pod, marks.CHECKPOINTED_AT))
    begun = now if pod.started is None else pod.started
    return max(0, now - max(begun, min(saved, now) if saved is not None else begun))


# --- the one that is being stopped --------------------------------------------------------------------------------------------


def victim_of(candidate: Candidate, step: Standing, now: int) -> Victim:
    """A unit as the one that is being stopped."""
    pods = [pod for pod in candidate.unit.pods if is_alive(pod)]
    return Victim(
        unit=candidate.unit.name,
        action=step.action,
        at=times.text(now),
        uids=tuple(pod.uid for pod in pods)[:MOST_UIDS],
        pods=tuple(pod.key for pod in pods[:SHOWN_PODS]),
        owner=next((owner for pod in pods if (owner := owner_of(pod))), ""),
    )


def alive(account: Account, victim: Victim) -> list[Pod]:
    """Those of its pods that are not seen to go yet."""
    found = [pod for uid in victim.uids if (pod := account.world.pods.get(uid)) is not None and is_alive(pod)]
    if len(victim.uids) == MOST_UIDS:
        # A gang of so many is known by its name; what was made since it was chosen is new.
        every = units(account.world, (pod.uid for pod in found)).get(victim.unit)
        before = _at(victim.at) - times.SECOND
        found = [pod for pod in (every.pods if every else ()) if is_alive(pod) and pod.created < before]
    return found


def was_stopped(account: Account, victim: Victim) -> bool:
    """Whether a unit that has gone did so because it was stopped, not by itself or by somebody else's doing.

    The API server writes into a pod that it granted an eviction; an owner that was suspended has our mark, which it guards.
    """
    if victim.action == "Suspend":
        return _is_suspended(account, victim)
    pods = account.world.pods
    granted = [pods.evicted.get(uid) if (pod := pods.get(uid)) is None else pod.evicted for uid in victim.uids]
    # A pod may still have the mark of an eviction that came to nothing long before.
    since = _at(victim.at) - times.MINUTE
    return any(at is not None and at >= since for at in granted)


def vanished(account: Account, victim: Victim) -> bool:
    """Whether a unit has gone and nobody saw why, as after a restart: it may have been stopped."""
    pods = account.world.pods
    unseen = (uid for uid in victim.uids if uid not in pods and uid not in pods.seen_going)
    return victim.action == "Evict" and any(unseen)


def _is_suspended(account: Account, victim: Victim) -> bool:
    by = f"{account.ref.kind}/{victim.by}" if victim.by else str(account.ref)
    names = {victim.owner, victim.unit} - {""}
    return any(
        each.suspended_by == by
        and not names.isdisjoint({each.key, each.owner, f"PodGroup/{each.namespace}/{each.name}"})
        for each in account.world.workloads.values()
        if each.suspended
    )


def still_goes(account: Account, victim: Victim) -> bool:
    """Whether the one that is being stopped may still be: as it is now, not as it was when it was chosen."""
    left = alive(account, victim)
    # By the rows that make up the sums: what they do not count is no victim.
    return any(account.rows.counts(pod.uid) for pod in left) and not any(map(is_protected, left))


def stops(account: Account, victim: Victim) -> Iterator[Action]:
    """What is due for the one that is being stopped."""
    if victim.by:
        return
    owners: dict[Action, None] = {}
    for pod in alive(account, victim):
        owner = suspends(account.queued, pod)
        if victim.action == "Evict":
            yield evicts(pod)
        elif owner is not None:
            owners[owner] = None
    yield from owners


def record(victim: Victim, outcome: str, at: int) -> Stopped:
    """What the status keeps of it afterwards."""
    return Stopped(
        unit=victim.unit,
        action=victim.action,
        at=times.text(at),
        pods=victim.pods,
        by=victim.by,
        owner=victim.owner,
        outcome=outcome,
    )
