"""Evictions that PodDisruptionBudgets refuse: since when, by which, and what becomes of the pods.

A refusal is the API server's own word, heard by whoever asked; since when, the status remembers. A tenant may write such budgets, so
they get only as much time as a step gives them where it says `afterDeadline: Delete`. Else others are tried, and the status says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import structs

from headroom.api import durations
from headroom.api.enforcement import PDB_GRACE, RefusedEviction, Stopped, Victim, percent
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.ladder import ActiveStep
from headroom.core.budgets.units import goes_on
from headroom.model import times
from headroom.model.facts import Pod

MOST_KEPT: Final = 50
"""So many gangs or pods a status names; those that are refused longest stay."""
SHOWN_PODS: Final = 8
SHOWN_NAMES: Final = 8
"""Of a thousand disruption budgets over one pod so many are named: a status that is too large could not be written at all."""


def deletes_after(account: BudgetAccount, steps: Iterable[ActiveStep]) -> int | None:
    """How long evictions must have been refused before their pods are deleted, by the steps that act; None if they never are."""
    acting = {(each.share, each.action) for each in steps if account.world.now >= each.acts_from}
    found = (
        durations.milliseconds(step.grace_for_disruption_budgets or PDB_GRACE)
        for step in account.spec.enforcement.ladder
        if step.after_deadline == "Delete" and (percent(step.at), step.action) in acting
    )
    return min((each for each in found if each is not None), default=None)


def kept(account: BudgetAccount, steps: Iterable[ActiveStep], victim: Victim | None) -> tuple[RefusedEviction, ...]:
    """What the status remembers: pods that go on, while a step that evicts stands, and those of the victim that were refused."""
    world, standing = account.world, list(steps)
    if not any(each.action == "Evict" for each in standing):
        return ()
    known = [left for each in account.status.refused if (left := _left(account, each)) is not None]
    named = {uid for each in known for uid in each.uids}
    fresh: dict[tuple[str, ...], list[tuple[int, Pod]]] = {}
    for uid in victim.uids if victim is not None and not victim.by and victim.action == "Evict" else ():
        refusal, pod = world.pods.refused.get(uid), world.pods.get(uid)
        if refusal is not None and pod is not None and uid not in named and goes_on(pod, world.now):
            fresh.setdefault(refusal.by[:SHOWN_NAMES], []).append((refusal.at, pod))
    for by, found in sorted(fresh.items()):
        pods = [pod for _, pod in found]
        known.append(
            RefusedEviction(
                unit=victim.unit if victim is not None else "",
                since=times.text(min(at for at, _ in found)),
                by=by,
                uids=tuple(pod.uid for pod in pods),
                pods=tuple(pod.key for pod in pods[:SHOWN_PODS]),
            )
        )
    after = deletes_after(account, standing)
    told = (structs.replace(each, deleted_at=_deadline(each, after)) for each in known)
    return tuple(sorted(told, key=lambda each: (since(each), each.unit))[:MOST_KEPT])


def _left(account: BudgetAccount, each: RefusedEviction) -> RefusedEviction | None:
    """What is left of it: pods that go on. Who refuses them may be another one by now."""
    world = account.world
    pods = [pod for uid in each.uids if (pod := world.pods.get(uid)) is not None and goes_on(pod, world.now)]
    if not pods:
        return None
    heard = [world.pods.refused[pod.uid] for pod in pods if pod.uid in world.pods.refused]
    by = max(heard, key=lambda refusal: refusal.at).by[:SHOWN_NAMES] if heard else each.by
    uids, names = tuple(pod.uid for pod in pods), tuple(pod.key for pod in pods[:SHOWN_PODS])
    return structs.replace(each, by=by, uids=uids, pods=names)


def _deadline(each: RefusedEviction, after: int | None) -> str:
    return "" if after is None else times.text(since(each) + after)


def since(each: RefusedEviction) -> int:
    """Since when it is refused."""
    return times.moment(each.since) or 0


def overdue(refused: Iterable[RefusedEviction], now: int, blocked: Iterable[Stopped] = ()) -> frozenset[str]:
    """The uids of pods that are deleted now if they cannot be evicted, without those of units that would not go since then."""
    tried = {each.unit: times.moment(each.at) or 0 for each in blocked if each.outcome == "Blocked"}
    due = ((each, moment) for each in refused if (moment := times.moment(each.deleted_at)) is not None)
    left = (each for each, moment in due if now >= moment and tried.get(each.unit, -1) < moment)
    return frozenset(uid for each in left for uid in each.uids)


def awaited(refused: Iterable[RefusedEviction], now: int) -> frozenset[str]:
    """The uids of pods that will be deleted at their deadline: nobody else goes in their place meanwhile."""
    every = tuple(refused)
    return frozenset(uid for each in every if each.deleted_at for uid in each.uids) - overdue(every, now)


def turns(refused: Iterable[RefusedEviction]) -> Iterator[int]:
    """When pods are deleted."""
    yield from (moment for each in refused if (moment := times.moment(each.deleted_at)) is not None)
