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
from headroom.api.enforcement import Stopped, Victim
from headroom.core.budgets.accounts import Account, end_of, note
from headroom.core.budgets.holding import evicts
from headroom.core.budgets.ladder import Standing
from headroom.core.budgets.units import Unit, is_alive, is_protected, is_queued, owner_of, suspends, unit_of, units
from headroom.core.usage import Running
from headroom.model import times
from headroom.model.actions import Action, SuspendOwner
from headroom.model.facts import Pod

GIVE_UP_MS: Final = 120_000
"""A unit that has not gone by then would not go: the next one is taken."""
SPARED_MS: Final = 300_000
"""And it is not tried again before that."""
MOST_OF_OWNER: Final = 3
"""So often the pods of one owner are evicted within the window, where nothing keeps it from making them anew."""
MOST_KEPT: Final = 50
SHOWN_PODS: Final = 8


class Candidate(NamedTuple):
    """A unit that could be stopped."""

    unit: Unit
    runs: tuple[Running, ...]
    """Its pods that this budget counts."""


class Gain(NamedTuple):
    """One quota that must get below the step, seen at the moments that matter."""

    excess: Any
    """By how much it is too much at each of them."""
    times: Any
    is_dollars: bool


def needed(account: Account, step: Standing, going: frozenset[str]) -> list[Candidate]:
    """The units that must go for a step, in the order in which they go. `going` are pods that count as gone already."""
    if not account.has_reached(step.share):
        return []
    chosen: list[tuple[Candidate, list[Any]]] = []
    gains = _gains(account, step, going)
    left = [gain.excess for gain in gains]
    for each in sorted(_candidates(account, step, going), key=lambda each: _order(account, each)):
        if _is_enough(left):
            break
        parts = [_taken(account, each, gain) for gain in gains]
        left = [before - part for before, part in zip(left, parts, strict=True)]
        chosen.append((each, parts))
    if _is_enough(left):
        for place in reversed(range(len(chosen))):
            without = [after + part for after, part in zip(left, chosen[place][1], strict=True)]
            if _is_enough(without):
                left = without
                del chosen[place]
    return [each for each, _ in chosen]


def recovers(account: Account, step: Standing, going: frozenset[str]) -> bool:
    """Whether usage falls below a step in time with nothing more stopped."""
    return _is_enough([gain.excess for gain in _gains(account, step, going)])


def _gains(account: Account, step: Standing, going: frozenset[str]) -> list[Gain]:
    as_of = account.found.as_of
    until = as_of + account.recover_within
    found = []
    for forecast, quota, is_dollars in zip(
        account.rows.forecasts(account.ends(going), until=until),
        (account.quota.gpu_ms, account.quota.usd_ms),
        (False, True),
        strict=True,
    ):
        if quota is not None:
            moments, sums = forecast.points(until)
            threshold = -(-quota * step.share // 100)
            found.append(Gain(sums - (threshold - 1), moments.astype(sums.dtype) - as_of, is_dollars))
    return found


def _is_enough(left: Sequence[Any]) -> bool:
    """Whether every quota is below the step at some moment."""
    return all(bool((each <= 0).any()) for each in left)


def _taken(account: Account, each: Candidate, gain: Gain) -> Any:
    """What the forecast loses at each moment if a unit stops now."""
    as_of, total = account.found.as_of, 0 * gain.times
    for run in each.runs:
        pod = account.world.pods.get(run.uid)
        end = end_of(pod, run.start, as_of) if pod is not None else None
        until = gain.times if end is None else np.minimum(gain.times, end - as_of)
        total = total + until * (run.price if gain.is_dollars else run.rate)
    return total


def _candidates(account: Account, step: Standing, going: frozenset[str]) -> Iterator[Candidate]:
    runs: dict[str, list[Running]] = {}
    for each in account.running:
        pod = account.world.pods.get(each.uid)
        if pod is not None and each.uid not in going and is_alive(pod) and each.start <= account.world.now:
            runs.setdefault(unit_of(pod), []).append(each)
    every = units(account.world, (each.uid for found in runs.values() for each in found))
    spared = _spared(account)
    for name, found in runs.items():
        unit = every[name]
        if name not in spared and _may_go(account, step, unit):
            yield Candidate(unit, tuple(found))


def _may_go(account: Account, step: Standing, unit: Unit) -> bool:
    now = account.world.now
    for pod in unit.pods:
        released = times.moment(note(pod, marks.RELEASED_AT))
        if is_protected(pod) or (released is not None and now - released < account.horizon):
            return False  # what was let start is not stopped again at once
        if step.action == "Suspend" and is_alive(pod) and suspends(account.world, pod) is None:
            return False
    return step.action == "Suspend" or not is_looping(account, unit)


def _spared(account: Account) -> set[str]:
    """Units that would not go when they were asked lately."""
    return {
        each.unit
        for each in account.status.stopped
        if each.outcome == "Blocked" and account.world.now - (times.moment(each.at) or 0) < SPARED_MS + GIVE_UP_MS
    }


def turns(account: Account) -> Iterator[int]:
    """When something may be stopped that must not be now."""
    for each in account.status.stopped:
        if each.outcome == "Blocked":
            yield (times.moment(each.at) or 0) + SPARED_MS + GIVE_UP_MS
    for uid, _ in account.rows.places(sorted(account.world.pods.annotated)):
        pod = account.world.pods.get(uid)
        released = times.moment(note(pod, marks.RELEASED_AT)) if pod is not None else None
        if released is not None:
            yield released + account.horizon


def is_looping(account: Account, unit: Unit) -> bool:
    """Whether evicting a unit is of no use, since its owner makes it anew at once and nothing holds that."""
    is_held = account.has_step("Hold") and not account.world.hold_problem
    if is_held and not any(is_queued(account.world, pod) for pod in unit.pods):
        return False
    owners = {owner for pod in unit.pods if (owner := owner_of(pod))}
    evicted = [
        each.owner
        for each in account.status.stopped
        if each.action == "Evict" and each.outcome == "Stopped" and each.owner
    ]
    return any(evicted.count(owner) >= MOST_OF_OWNER for owner in owners)


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
        uids=tuple(pod.uid for pod in pods),
        pods=tuple(pod.key for pod in pods[:SHOWN_PODS]),
        owner=next((owner for pod in pods if (owner := owner_of(pod))), ""),
    )


def alive(account: Account, victim: Victim) -> list[Pod]:
    """Those of its pods that are not seen to go yet."""
    found = (account.world.pods.get(uid) for uid in victim.uids)
    return [pod for pod in found if pod is not None and is_alive(pod)]


def stops(account: Account, victim: Victim) -> Iterator[Action]:
    """What is due for the one that is being stopped."""
    if victim.by:
        return
    owners: dict[Action, None] = {}
    for pod in alive(account, victim):
        owner = suspends(account.world, pod)
        if victim.action == "Evict":
            yield evicts(pod)
        elif owner is not None:
            owners[SuspendOwner(kind=owner[0], object=owner[1])] = None
    yield from owners


def record(victim: Victim, outcome: str) -> Stopped:
    """What the status keeps of it afterwards."""
    return Stopped(
        unit=victim.unit,
        action=victim.action,
        at=victim.at,
        pods=victim.pods,
        by=victim.by,
        owner=victim.owner,
        outcome=outcome,
    )
