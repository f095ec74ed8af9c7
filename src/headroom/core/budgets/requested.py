"""What a release request is for: of all that is queued, what it names and what was there when it was made.

Whoever has a pod made writes its labels and owners. A pod is released with an owner only if the API server says that the owner's
controller made it, which then is one of those that the owner's template describes. Whatever came after the request was not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api.budget_hold import hold_name
from headroom.api.kinds import AnyResource
from headroom.api.releases import BudgetRelease
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount, is_acting
from headroom.core.budgets.allowances import Allowances
from headroom.core.budgets.records import judged
from headroom.core.budgets.units import owner_of
from headroom.core.budgets.unseen import is_unclear, knows
from headroom.core.budgets.waiting import Matcher, WaitingUnit, held_back, waiting
from headroom.model.facts import Pod, Workload
from headroom.model.gangs import gang_of
from headroom.model.world import World

FORMING_MS: Final = 30_000
"""A gang that goes on growing is waited for no longer than this."""
_KEEPING: Final = ("Hold", "Suspend")


class RequestedPods(NamedTuple):
    """What a request names, of which it releases what was there."""

    units: tuple[WaitingUnit, ...]
    strangers: int = 0
    """Pods that name the owner as theirs, and that its controller did not make."""
    late: int = 0
    """What was made after the request."""
    changed: int = 0
    """Owners whose spec is not the one that is asked for."""
    uids: frozenset[str] = frozenset()
    """Of all owners that have this name."""

    @property
    def left_out(self) -> str:
        """What is not released, in words."""
        strangers = f"Queued pods that name it as their owner but were not created by its controller: {self.strangers}."
        late = f"Created after the request: {self.late}."
        changed = "It has changed since the request: check it and create a new request."
        said = ((self.strangers, strangers), (self.late, late), (self.changed, changed))
        return "".join(f" {words}" for count, words in said if count)


class ReleaseQueue:
    """All that is queued, by every name that a request may give it; looked at once for all requests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._matcher: Matcher | None = None
        self._allowances: Allowances | None = None
        self._named: dict[str, list[WaitingUnit]] = {}

    @property
    def matcher(self) -> Matcher:
        """Of all budgets that act, or keep pods from starting though they are paused."""
        if self._matcher is None:
            world = self._world
            budgets = [each for each in usage.budgets_of(world) if is_acting(world, each) or _keeps(world, each)]
            self._matcher = Matcher(world, [BudgetAccount(world, each) for each in budgets])
            for each in waiting(world, self._matcher, frozenset()):
                owners = (name for owner in each.owners for name in _names_of(owner))
                for name in {each.unit, *owners, *(name for pod in each.pods for name in _names(pod))}:
                    self._named.setdefault(name, []).append(each)
        return self._matcher

    def of(self, request: AnyResource) -> RequestedPods:
        """What a request is for, each without what is not named."""
        assert self.matcher is not None
        wanted = request.spec.target
        target = f"{wanted.kind}/{request.namespace}/{wanted.name}"
        every = [_part(each, target, wanted.uid) for each in self._named.get(target, ())]
        proven = [each._replace(pods=tuple(pod for pod in each.pods if _is_of(pod, target))) for each in every]
        there = [_before(each, request.created) if request.created else each for each in proven]
        as_asked = [_of_generation(each, target, wanted.generation) for each in there]
        uids = {pod.owner.uid for each in there for pod in each.pods if pod.owner is not None and _owner(pod) == target}
        return RequestedPods(
            tuple(each for each in as_asked if each.pods or each.owners),
            strangers=_count(every, proven),
            late=_count(proven, there),
            changed=_count(there, as_asked),
            uids=frozenset(uids | {owner.uid for each in there for owner in each.owners}),
        )

    def budgets(self, each: WaitingUnit) -> set[str]:
        """The budgets that queue it now."""
        matched = [self.matcher.of_pod(pod) for pod in each.pods]
        matched += [self.matcher.of_part(owner.namespace, part) for owner in each.owners for part in owner.parts]
        found = {account.key for every in matched for account, _ in every if _keeps(self._world, account.budget)}
        return found | {owner.suspended_by.partition("/")[2] for owner in each.owners}

    def judged(self, found: Iterable[WaitingUnit], request: AnyResource) -> tuple[BudgetRelease, ...]:
        """What is judged of all that a request releases; only for the budget that it names, where it names one."""
        name, only = f"{request.namespace}/{request.name}", request.spec.budget
        return tuple(
            BudgetRelease(budget=key, release=structs.replace(record, request=name))
            for each in found
            for key, record in judged(self.matcher, each)
            if only in (None, key)
        )

    def settled(self, request: AnyResource) -> tuple[BudgetRelease, ...]:
        """The same once it is released, without what was given to the same pods before."""
        if self._allowances is None:
            self._allowances = Allowances(self._world, self.matcher, held_back(self._world, self.matcher))
        found = []
        for each in request.status.released:
            target = f"{each.release.owner.partition('/')[0]}/{each.release.uid}"
            is_owner = target in request.status.targets and not target.startswith("Pod/")
            release = self._allowances.settled(each.budget, each.release, is_owner=is_owner)
            if release is not None:
                found.append(structs.replace(each, release=release))
        return tuple(found)

    def is_known(self, each: WaitingUnit) -> bool:
        """Whether everything is there that says what it asks for."""
        return all(self.matcher.is_known(pod) for pod in each.pods) and all(
            self.matcher.is_known_part(owner.namespace, part) for owner in each.owners for part in owner.parts
        )

    def is_clear(self, each: WaitingUnit) -> bool:
        """Whether every kind is seen that says what must be done with it."""
        seen = all(knows(self._world, owner.kind) for owner in each.owners)
        return seen and not any(is_unclear(self._world, pod) for pod in each.pods)


def _keeps(world: World, budget: AnyResource) -> bool:
    """Whether a budget keeps pods from starting, be it paused or not."""
    stands = hold_name(f"{budget.namespace}/{budget.name}") in world.holds
    return stands or any(step.action in _KEEPING for step in budget.status.steps)


def _names(pod: Pod) -> Iterator[str]:
    yield f"Pod/{pod.key}"
    if pod.owner is not None:
        yield owner_of(pod)
        yield _owner(pod)


def _names_of(owner: Workload) -> tuple[str, str]:
    """A Workload of Kueue waits in the place of the Job, or such, that it queues."""
    return owner.key, owner.owner


def _owner(pod: Pod) -> str:
    return "" if pod.owner is None else f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"


def _part(each: WaitingUnit, target: str, uid: str) -> WaitingUnit:
    """The part of a unit that a request names: all of it by the unit's own name, else the pods that are or belong to the target."""
    pods, owners = each.pods, each.owners
    if each.unit != target:
        pods = tuple(pod for pod in pods if target in _names(pod))
        owners = tuple(owner for owner in owners if target in _names_of(owner))
    if uid:
        owners = tuple(owner for owner in owners if uid in (owner.uid, *owner.owner_uids))
        pods = tuple(pod for pod in pods if _uid(pod, target, uid))
    return each._replace(pods=pods, owners=owners)


def _uid(pod: Pod, target: str, uid: str) -> bool:
    """Whether the target, the pod itself or its controller, is the one with this uid."""
    if target == f"Pod/{pod.key}":
        return pod.uid == uid
    return pod.owner is not None and _owner(pod) == target and pod.owner.uid == uid


def _is_of(pod: Pod, target: str) -> bool:
    """Whether a pod is the target itself, or one that the target's controller made; or whether labels alone make up that gang."""
    is_made = pod.owner is not None and pod.maker == pod.owner.uid
    if target.startswith("JobSet/"):
        return is_made and owner_of(pod) == target
    return is_made or target in (f"Pod/{pod.key}", gang_of(pod))


def _before(each: WaitingUnit, made: int) -> WaitingUnit:
    """What was there when the request was made. A gang that was just coming may have its last pods a little later."""
    oldest = min((pod.created for pod in each.pods), default=made)
    until = max(made, oldest + FORMING_MS) if oldest <= made and not each.unit.startswith("Pod/") else made
    return each._replace(
        pods=tuple(pod for pod in each.pods if pod.created <= until),
        owners=tuple(owner for owner in each.owners if owner.created <= made),
    )


def _of_generation(each: WaitingUnit, target: str, generation: int | None) -> WaitingUnit:
    """Without a target that was changed since: a larger Job is not the one that was asked for.

    For a Job that was changed, Kueue makes a Workload anew, which is later than the request.
    """
    owners = tuple(owner for owner in each.owners if owner.key != target or generation in (None, owner.generation))
    return each._replace(owners=owners)


def _count(more: Iterable[WaitingUnit], less: Iterable[WaitingUnit]) -> int:
    return sum(len(each.pods) + len(each.owners) for each in more) - sum(
        len(each.pods) + len(each.owners) for each in less
    )
