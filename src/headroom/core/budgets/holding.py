"""Hold: the API server lets no new pods of a budget start, and those that were made before and have not started are dealt with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import BudgetHoldSpec, hold_name
from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount, is_acting
from headroom.core.budgets.units import (
    SINGLE,
    evicts,
    is_alive,
    is_exempt,
    is_protected,
    naming_job,
    note,
    owner_of,
    suspends,
    units,
)
from headroom.core.budgets.unseen import is_unclear, knows
from headroom.core.budgets.waiting import SKEW_MS, Matcher
from headroom.model import sight
from headroom.model.actions import Action, ApplyBudgetHold, DeleteBudgetHold, ResumeOwner, SuspendOwner
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.world import World

_LONGEST: Final = 1000
_NOT_SUSPENDED: Final = ("", "Pod")
"""Owners of Workloads that Kueue stops by deleting their pods."""
SHARED: Final = "New pods are queued until the budget has quota for them."


def hold_of(world: World, budget: AnyResource) -> BudgetHoldSpec:
    """What a hold of this budget says, but for the reason."""
    scope = usage.scope_of(world, budget)
    return BudgetHoldSpec(
        budget=f"{budget.namespace}/{budget.name}",
        namespaces=tuple(sorted(each for each in scope.namespaces if not is_exempt(world, each))),
        match_labels=dict(sorted(scope.selector.match_labels.items())),
        match_expressions=scope.selector.match_expressions,
        resources=usage.counted_names(scope.weights, world.devices),
        uid=budget.uid,
    )


def with_reason(account: BudgetAccount, due: Iterable[Action], used: str) -> Iterator[Action]:
    """The actions, of which a hold says why new pods wait, as it is written onto them.

    What a budget over several tenants has used is not for each of them to read.
    """
    is_shared = account.scope.namespace_selector is not None or bool(account.spec.home_cluster)
    because = SHARED if is_shared else used[:_LONGEST]
    return (structs.replace(each, because=because) if isinstance(each, ApplyBudgetHold) else each for each in due)


def stands(account: BudgetAccount) -> bool:
    """Whether a hold of the budget is there, whatever it says."""
    return hold_name(account.key) in account.world.holds


def holds(account: BudgetAccount, *, wanted: bool) -> Iterator[Action]:
    """Begin or end the hold of a budget; one that says everything but the newest hours stays."""
    if wanted and not account.world.hold_problem:
        spec, known = hold_of(account.world, account.budget), account.world.holds.get(hold_name(account.key))
        if known is None or known.spec is None or structs.replace(known.spec, because="") != spec:
            yield ApplyBudgetHold(budget=account.key, spec=spec)
    if not wanted and stands(account):
        yield DeleteBudgetHold(budget=account.key)


def left_over(world: World) -> Iterator[Action]:
    """Holds of budgets that are gone or do nothing: nobody would release what they hold."""
    for name, hold in sorted(world.holds.items()):
        key = hold.spec.budget if hold.spec is not None else name.replace(".", "/", 1)
        namespace, _, rest = key.partition("/")
        budget = world.resources.get(Ref(usage.KIND, namespace, rest))
        is_judged = (
            budget is not None and budget.spec is None and not budget.deleting
        )  # what cannot be read stays as it is
        if not is_judged and (budget is None or not is_acting(world, budget)):
            yield DeleteBudgetHold(budget=key)


def let_go(world: World, matcher: Matcher) -> Iterator[Action]:
    """Released owners that need no mark of it any more: none of them would be stopped again, or taken for one that waits."""
    for key, each in sorted(world.workloads.items()):
        if not knows(world, each.kind):
            continue
        if each.suspended_by and each.admitted and not each.suspended:
            # Somebody else let it go on, and it may be suspended again until it is over.
            yield ResumeOwner(kind=each.kind, object=key.partition("/")[2], uid=each.uid)
        if each.released_at is None or each.suspended:
            continue
        is_awaited = each.kind == "Workload" and not each.admitted and bool(world.holds)
        asked = [matcher.of_part(each.namespace, part) for part in each.parts]
        # What makes its pods count may not stand in its template.
        horizon = max((account.horizon for matched in asked for account, _ in matched), default=matcher.longest_horizon)
        is_fresh = 0 <= world.now - each.released_at + SKEW_MS < horizon + SKEW_MS
        if not is_fresh and not is_awaited:
            yield ResumeOwner(kind=each.kind, object=key.partition("/")[2], uid=each.uid)


class Sweep(NamedTuple):
    """What is done about pods that were made before the hold and have not started."""

    actions: tuple[Action, ...]
    bare: tuple[str, ...]
    """Pods that cannot be held without harm, so they are left alone: namespace/name."""


def sweep(account: BudgetAccount, matcher: Matcher, *, is_there: bool, waits: Sequence[Pod] = ()) -> Sweep:
    """Owners none of whose pods started are suspended; other pods are evicted and come back gated. Nothing that ran is lost.

    Evictions wait until the hold is there: before that, what is evicted would come back without a gate. What has begun is left
    alone as a whole: a gang is worth nothing without its last rank, and a Job counts an evicted pod as a failed one.

    `waits` are the pods behind gates that were judged and have to wait.
    """
    world, queued = account.world, account.queued
    chosen = [pod for pod in matcher.pending_of(account) if _is_early(account, pod)]
    every = units(world, (pod.uid for pod in chosen))
    actions: dict[Action, Action] = {}
    bare = []
    for pod in sorted(chosen, key=lambda pod: pod.key):
        unit = every[pod.uid]
        has_begun = any(each.started is not None for each in unit.pods)
        owner = suspends(queued, pod, account.scope.selector)
        if not owner_of(pod) or (has_begun and not unit.name.startswith("Pod/")):
            bare.append(pod.key)
        elif any(is_unclear(world, each) for each in unit.pods):
            continue
        elif owner is not None:
            # Suspending it would take away one that is protected too.
            if any(is_protected(world, each) for each in unit.pods):
                bare.append(pod.key)
            else:
                actions.setdefault(owner, naming_job(owner, pod))
        elif is_there and sight.sees(world, *sight.POLICIES):
            actions[evicts(pod)] = evicts(pod)
    actions |= {each: each for each in _queued(account, matcher, waits)}
    return Sweep(tuple(actions.values()), tuple(bare))


def _is_early(account: BudgetAccount, pod: Pod) -> bool:
    """Whether it was made before the hold, without a gate.

    Whoever set a gate, the API server lets nobody lift the last one while the hold stands: it waits there.
    """
    return not pod.gates and not _is_left_alone(account.world, pod)


def _is_left_alone(world: World, pod: Pod) -> bool:
    return is_protected(world, pod) or bool(note(pod, marks.RELEASED_AT)) or not is_alive(pod)


def _queued(account: BudgetAccount, matcher: Matcher, waits: Sequence[Pod]) -> Iterator[Action]:
    """Kueue's Workloads that have to wait, admitted or not: they do so as a whole, and take none of Kueue's quota meanwhile."""
    if not knows(account.world, "Workload"):
        return
    idle = _idle(account, waits)
    for key, each in sorted(account.world.workloads.items()):
        if each.kind != "Workload" or each.suspended or each.released_at is not None:
            continue
        if each.admitted and key not in idle:
            continue
        asked = [matcher.of_part(each.namespace, part) for part in each.parts]
        if any(known is account for matched in asked for known, _ in matched):
            yield SuspendOwner(kind=each.kind, object=key.partition("/")[2], uid=each.uid)


def _idle(account: BudgetAccount, waits: Sequence[Pod]) -> set[str]:
    """Workloads that Kueue has admitted and none of whose pods may start.

    Kueue deletes the pods of a Workload that is set inactive. So only those are meant whose owner Kueue suspends with it: others would
    never make their pods again, or at once.
    """
    world, found = account.world, dict[str, list[Pod]]()
    for pod in waits:
        workload = account.queued.of(pod, account.scope.selector)
        if workload is not None and workload.admitted and workload.owner.partition("/")[0] not in _NOT_SUSPENDED:
            found.setdefault(workload.key, []).append(pod)
    every = units(world, (pod.uid for pods in found.values() for pod in pods))
    uids = {pod.uid for pod in waits}
    members = {key: [each for pod in pods for each in every[pod.uid].pods] for key, pods in found.items()}
    return {
        key
        for key, pods in members.items()
        if all(each.uid in uids and _is_ranked(each) and not is_unclear(world, each) for each in pods)
    }


def _is_ranked(pod: Pod) -> bool:
    """Whether an owner made it that starts and stops as a whole."""
    return pod.owner is not None and pod.owner.kind not in SINGLE
