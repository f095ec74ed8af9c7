"""The one that is being stopped: what is due for it, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from headroom.api.enforcement import Stopped, Victim
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.ladder import ActiveStep
from headroom.core.budgets.stopping import StopCandidate
from headroom.core.budgets.units import (
    deletes,
    evicts,
    goes_on,
    is_protected,
    names_of,
    naming_job,
    owner_of,
    suspends,
    units,
)
from headroom.model import times
from headroom.model.actions import Action
from headroom.model.facts import Pod

MOST_UIDS: Final = 500
SHOWN_PODS: Final = 8
OWN_WORD_MS: Final = 10_000
"""So long the mark of an owner that we suspended may be seen later than its pods going."""


def victim_of(candidate: StopCandidate, step: ActiveStep, now: int) -> Victim:
    """A unit as the one that is being stopped."""
    pods = candidate.unit.pods
    return Victim(
        unit=candidate.unit.name,
        action=step.action,
        at=times.text(now),
        uids=tuple(pod.uid for pod in pods)[:MOST_UIDS],
        pods=tuple(pod.key for pod in pods[:SHOWN_PODS]),
        owner=next((owner for pod in pods if (owner := owner_of(pod))), ""),
    )


def alive(account: BudgetAccount, victim: Victim) -> list[Pod]:
    """Those of its pods that are not seen to go yet, and that may still be stopped: as they are now, not as when they were chosen."""
    found = [pod for uid in victim.uids if (pod := account.world.pods.get(uid)) is not None]
    if len(victim.uids) == MOST_UIDS:
        # A gang of so many is known by its name; what was made since it was chosen is new.
        before = _at(victim.at) - times.SECOND
        every = units(account.world, (pod.uid for pod in found)).values()
        more = {pod.uid: pod for unit in every if unit.name == victim.unit for pod in unit.pods if pod.created < before}
        found = list((more | {pod.uid: pod for pod in found}).values())
    world = account.world
    return [pod for pod in found if goes_on(pod, world.now) and not is_protected(world, pod)]


def was_stopped(account: BudgetAccount, victim: Victim) -> bool:
    """Whether a unit that has gone did so because it was stopped, not by itself or by somebody else's doing.

    The API server writes into a pod that it granted an eviction; an owner that was suspended has our mark, which it guards.
    """
    if victim.action == "Suspend":
        return _is_suspended(account, victim)
    pods = account.world.pods
    found = ((pods.evicted.get(uid), pods.get(uid)) for uid in victim.uids)
    granted = [at if at is not None or pod is None else pod.evicted for at, pod in found]
    # A pod may still have the mark of an eviction that came to nothing long before.
    since = _at(victim.at) - times.MINUTE
    return any(at is not None and at >= since for at in granted)


def vanished(account: BudgetAccount, victim: Victim) -> bool:
    """Whether a unit has gone and nobody saw why, as after a restart: it may have been stopped."""
    pods = account.world.pods
    unseen = (uid for uid in victim.uids if uid not in pods and uid not in pods.seen_going)
    return victim.action == "Evict" and any(unseen)


def _is_suspended(account: BudgetAccount, victim: Victim) -> bool:
    by = f"{account.ref.kind}/{victim.by}" if victim.by else str(account.ref)
    names = {victim.owner, victim.unit} - {""}
    return any(
        each.suspended_by == by and not names.isdisjoint(names_of(each))
        for each in account.world.workloads.values()
        if each.suspended
    )


def still_goes(account: BudgetAccount, victim: Victim) -> bool:
    """Whether the one that is being stopped may still be: as it is now, not as it was when it was chosen."""
    left = alive(account, victim)
    # By the rows that make up the sums: what they do not count is no victim.
    return any(account.rows.counts(pod.uid) for pod in left)


def stops(account: BudgetAccount, victim: Victim, overdue: Collection[str] = ()) -> Iterator[Action]:
    """What is due for the one that is being stopped; `overdue` are pods that disruption budgets kept for too long."""
    if victim.by:
        return
    owners: dict[Action, Action] = {}
    for pod in alive(account, victim):
        owner = suspends(account.queued, pod, account.scope.selector)
        if victim.action == "Evict":
            yield deletes(pod) if pod.uid in overdue else evicts(pod)
        elif owner is not None:
            owners.setdefault(owner, naming_job(owner, pod))
    yield from owners.values()


def _at(text: str) -> int:
    return times.moment(text) or 0


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
