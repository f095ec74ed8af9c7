"""Hold: the API server lets no new pods of a budget start, and those that were made before and have not started are dealt with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import BudgetHoldSpec, hold_name
from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.budgets.accounts import Account, is_acting, note
from headroom.core.budgets.units import (
    Unit,
    is_alive,
    is_protected,
    is_queued,
    owner_of,
    pending,
    suspends,
    unit_of,
    units,
)
from headroom.core.budgets.waiting import Matcher
from headroom.model import conditions
from headroom.model.actions import Action, ApplyBudgetHold, DeleteBudgetHold, EvictPod, SuspendOwner
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.world import World

_LONGEST: Final = 1000


def hold_of(world: World, budget: AnyResource) -> BudgetHoldSpec:
    """What a hold of this budget says."""
    scope = usage.scope_of(world, budget)
    exceeded = conditions.find(budget.status.conditions, "QuotaExceeded")
    return BudgetHoldSpec(
        budget=f"{budget.namespace}/{budget.name}",
        namespaces=tuple(sorted(scope.namespaces)),
        match_labels=dict(sorted(scope.selector.match_labels.items())),
        match_expressions=scope.selector.match_expressions,
        resources=tuple(name for name, _ in scope.weights),
        uid=budget.uid,
        because=(exceeded.message if exceeded else "")[:_LONGEST],
        kueue=world.kueue,
    )


def stands(account: Account) -> bool:
    """Whether a hold of the budget is there, whatever it says."""
    return hold_name(account.key) in account.world.holds


def _is_current(account: Account) -> bool:
    known = account.world.holds.get(hold_name(account.key))
    if known is None or known.spec is None:
        return False
    wanted = hold_of(account.world, account.budget)
    return structs.replace(wanted, because=known.spec.because) == known.spec


def holds(account: Account, *, wanted: bool) -> Iterator[Action]:
    """Begin or end the hold of a budget."""
    if wanted and not _is_current(account) and not account.world.hold_problem:
        yield ApplyBudgetHold(budget=account.key)
    if not wanted and stands(account):
        yield DeleteBudgetHold(budget=account.key)


def left_over(world: World) -> Iterator[Action]:
    """Holds of budgets that are gone or do nothing: nobody would let go what they hold."""
    for name, hold in sorted(world.holds.items()):
        key = hold.spec.budget if hold.spec is not None else name.replace(".", "/", 1)
        namespace, _, rest = key.partition("/")
        budget = world.resources.get(Ref(usage.KIND, namespace, rest))
        is_judged = (
            budget is not None and budget.spec is None and not budget.deleting
        )  # what cannot be read stays as it is
        if not is_judged and (budget is None or not is_acting(world, budget)):
            yield DeleteBudgetHold(budget=key)


class Sweep(NamedTuple):
    """What is done about pods that were made before the hold and have not started."""

    actions: tuple[Action, ...]
    bare: tuple[str, ...]
    """Pods that nobody would make anew, so they are left alone: namespace/name."""


def sweep(account: Account, matcher: Matcher, *, is_there: bool) -> Sweep:
    """Owners none of whose pods started are suspended; other pods are evicted and come back gated. Nothing that ran is lost.

    Evictions wait until the hold is there: before that, what is evicted would come back without a gate.
    """
    world = account.world
    chosen = [
        pod
        for pod in pending(world)
        if not pod.gates and any(each is account for each, _ in matcher.of_pod(pod)) and not _is_left_alone(world, pod)
    ]
    every = units(world, (pod.uid for pod in chosen))
    actions: dict[Action, None] = {}
    bare = []
    for pod in sorted(chosen, key=lambda pod: pod.key):
        unit = every[unit_of(pod)]
        has_begun = any(each.started is not None for each in unit.pods)
        owner = suspends(world, pod)
        if owner is not None and not has_begun:
            actions[SuspendOwner(kind=owner[0], object=owner[1])] = None
        elif has_begun and _is_gang(unit):
            continue  # it has begun, and is worth nothing without its last rank
        elif owner_of(pod):
            actions |= {evicts(pod): None} if is_there else {}
        else:
            bare.append(pod.key)
    for each in _queued(account, matcher):
        actions[each] = None
    return Sweep(tuple(actions), tuple(bare))


def evicts(pod: Pod) -> EvictPod:
    """Evict exactly this pod, as it is now, with the time that it asks for."""
    return EvictPod(pod=pod.key, uid=pod.uid, resource_version=pod.resource_version, grace_seconds=pod.grace_seconds)


def _is_left_alone(world: World, pod: Pod) -> bool:
    return is_protected(pod) or is_queued(world, pod) or bool(note(pod, marks.RELEASED_AT)) or not is_alive(pod)


def _is_gang(unit: Unit) -> bool:
    return unit.name.partition("/")[0] not in ("Pod", "Job")


def _queued(account: Account, matcher: Matcher) -> Iterator[Action]:
    """Kueue's Workloads that it has not let start yet."""
    for key, each in sorted(account.world.workloads.items()):
        if each.kind == "Workload" and not each.suspended and not each.admitted:
            asked = [matcher(each.namespace, part.labels, part.requests) for part in each.parts]
            if any(known is account for matched in asked for known, _ in matched):
                yield SuspendOwner(kind=each.kind, object=key.partition("/")[2])
