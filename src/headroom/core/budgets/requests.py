"""Release requests: somebody who may asks, and the operator releases what is queued at that moment, once.

What is released is settled when the request is carried out, by uid, and stands in the status before anything is done: whatever the
owner makes later queues like everything else. Who asked is written by the API server, so a request without a name is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import hold_name
from headroom.api.kinds import AnyResource
from headroom.api.releases import FINISHED, MOST_TARGETS, Phase, ReleaseRequest, ReleaseRequestSpec, Why
from headroom.core import usage
from headroom.core.budgets.accounts import Account, is_acting
from headroom.core.budgets.releasing import releases
from headroom.core.budgets.units import owner_of
from headroom.core.budgets.unseen import is_unclear, knows
from headroom.core.budgets.waiting import Matcher, Waiting, waiting
from headroom.model import conditions, sight, times
from headroom.model.actions import Action, DeleteReleaseRequest
from headroom.model.decisions import Decision, Ref
from headroom.model.facts import Pod
from headroom.model.plans import Plan, judgement
from headroom.model.world import Changes, World

KIND: Final = ReleaseRequest.kind.name
KEPT_MS: Final = times.HOUR
"""A finished request stays for so long."""
EXPIRES_MS: Final = times.HOUR
"""One that cannot be carried out for so long is refused: nobody expects it to be any more."""
LOOKING_MS: Final = 2_000
"""What it names may come into view a moment after the request."""
FORMING_MS: Final = 30_000
"""A gang that goes on growing is waited for no longer than this."""
MOST_FINISHED: Final = 100
"""Finished requests that a namespace keeps."""
MOST_OPEN: Final = 100
"""Requests of one namespace that are worked on at a time."""
_KEEPING: Final = ("Hold", "Suspend")


def decide(world: World, _changes: Changes) -> Iterator[Decision]:
    """One decision for each request: there are few, and each depends on all that is queued."""
    requests = world.of_kind(KIND)
    queue = _Queue(world)
    too_many, surplus = _beyond(requests)
    for ref, request in requests:
        if request.spec is None:
            listed = "; ".join(f"{each.field} {each.message}" for each in request.problems)
            yield judgement(world, ref, request, (False, "InvalidSpec", listed))
        elif request.status.phase in FINISHED:
            yield _kept(world, ref, request, is_surplus=ref in surplus)
        else:
            yield _Open(world, ref, request, queue).decided(too_many=ref in too_many)


def _beyond(requests: Sequence[tuple[Ref, AnyResource]]) -> tuple[set[Ref], set[Ref]]:
    """The youngest open requests of each namespace beyond the limit, and the finished ones that were finished first."""
    opened: dict[str, list[tuple[int, Ref]]] = {}
    finished: dict[str, list[tuple[int, Ref]]] = {}
    for ref, each in requests:
        if each.status.phase in FINISHED:
            at = times.moment(each.status.finished_at) or 0
            finished.setdefault(ref.namespace, []).append((at, ref))
        elif each.spec is not None:
            opened.setdefault(ref.namespace, []).append((each.created, ref))
    return (
        {ref for found in opened.values() for _, ref in sorted(found)[MOST_OPEN:]},
        {ref for found in finished.values() for _, ref in sorted(found, reverse=True)[MOST_FINISHED:]},
    )


def _kept(world: World, ref: Ref, request: AnyResource, *, is_surplus: bool) -> Decision:
    """A finished request: nothing but its removal is due any more."""
    status = request.status
    left = (times.moment(status.finished_at) or 0) + KEPT_MS - world.now
    goes = (is_surplus or left < 0) and not (request.deleting or world.stopped or not world.complete)
    removal = DeleteReleaseRequest(request=f"{ref.namespace}/{ref.name}", uid=request.uid)
    return Decision(
        resource=ref,
        status=status,
        reason=status.reason,
        message=status.message,
        actions=(removal,) if goes else (),
        look_again_ms=min(max(left + 1, 1_000), KEPT_MS),
        next_turn_ms=left + 1 if left >= 0 else None,
    )


# --- what is queued -------------------------------------------------------------------------------------------------------------


class _Queue:
    """All that is queued, by every name that a request may give it; looked at once for all requests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._matcher: Matcher | None = None
        self._named: dict[str, list[Waiting]] = {}

    @property
    def matcher(self) -> Matcher:
        if self._matcher is None:
            world = self._world
            budgets = [each for each in usage.budgets_of(world) if is_acting(world, each) or _keeps(world, each)]
            self._matcher = Matcher(world, [Account(world, each) for each in budgets])
            for each in waiting(world, self._matcher, frozenset()):
                for name in {each.unit, *(name for pod in each.pods for name in _names(pod))}:
                    self._named.setdefault(name, []).append(each)
        return self._matcher

    def of(self, namespace: str, spec: ReleaseRequestSpec) -> list[Waiting]:
        """What a request names, each without what is not named."""
        assert self.matcher is not None
        target = f"{spec.target.kind}/{namespace}/{spec.target.name}"
        found = (_part(each, target, spec.target.uid) for each in self._named.get(target, ()))
        return [each for each in found if each.pods or each.owners]

    def budgets(self, each: Waiting) -> set[str]:
        """The budgets that queue it now."""
        matched = [self.matcher.of_pod(pod) for pod in each.pods]
        matched += [self.matcher.of_part(owner.namespace, part) for owner in each.owners for part in owner.parts]
        found = {account.key for every in matched for account, _ in every if _keeps(self._world, account.budget)}
        return found | {owner.suspended_by.partition("/")[2] for owner in each.owners}

    def is_known(self, each: Waiting) -> bool:
        """Whether everything is there that says what it asks for."""
        return all(self.matcher.is_known(pod) for pod in each.pods) and all(
            self.matcher.is_known_part(owner.namespace, part) for owner in each.owners for part in owner.parts
        )

    def is_clear(self, each: Waiting) -> bool:
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
        yield f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"


def _part(each: Waiting, target: str, uid: str) -> Waiting:
    """The part of a unit that a request names: all of it by the unit's own name, else the pods that are or belong to the target."""
    pods, owners = each.pods, each.owners
    if each.unit != target:
        pods = tuple(pod for pod in pods if target in _names(pod))
        owners = tuple(owner for owner in owners if owner.key == target)
    if uid:
        owners = tuple(owner for owner in owners if owner.uid == uid)
        pods = tuple(pod for pod in pods if _uid(pod, target, uid))
    return each._replace(pods=pods, owners=owners)


def _uid(pod: Pod, target: str, uid: str) -> bool:
    """Whether the target, the pod itself or its controller, is the one with this uid."""
    if target == f"Pod/{pod.key}":
        return pod.uid == uid
    return (
        pod.owner is not None
        and f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}" == target
        and pod.owner.uid == uid
    )


# --- one request ----------------------------------------------------------------------------------------------------------------


class _Told(NamedTuple):
    """What is said of a request."""

    phase: Phase
    reason: Why
    message: str
    look_again_ms: int = 60_000


class _Open:
    """A request that is not finished."""

    def __init__(self, world: World, ref: Ref, request: AnyResource, queue: _Queue) -> None:
        self._world, self._ref, self._request, self._queue = world, ref, request, queue
        self._spec: ReleaseRequestSpec = request.spec
        self._what = f"{self._spec.target.kind} {ref.namespace}/{self._spec.target.name}"
        self._age = world.now - request.created if request.created else 0

    def decided(self, *, too_many: bool) -> Decision:
        status, told = self._request.status, self._obstacle()
        if told is None and (self._request.deleting or self._spec.paused):
            why = "It is being deleted" if self._request.deleting else "It is paused"
            told = _Told(status.phase, "Paused", f"{why}: nothing is released.")
        if self._age > EXPIRES_MS and not self._request.deleting:
            told = _Told("Refused", "Expired", self._expired(told))
        if told is not None:
            return self._said(told)
        if too_many and status.phase == "Pending":
            most = f"{MOST_OPEN} requests of namespace {self._ref.namespace} are not finished: make it anew later."
            return self._said(_Told("Refused", "TooManyRequests", most))
        return self._carried_out() if status.phase == "Releasing" else self._judged()

    def _obstacle(self) -> _Told | None:
        """Why nothing is carried out now, whatever is asked for."""
        world, phase = self._world, self._request.status.phase
        if world.stopped:
            return _Told(phase, "Stopped", "All effects are stopped cluster-wide: nothing is released.")
        if not world.complete or not sight.sees(world, *sight.BESIDE):
            why = sight.incomplete(world)[1] if not world.complete else f"Not seen: {sight.listed(sight.BESIDE)}"
            return _Told(phase, "ViewIncomplete", f"{why}: nothing is released.")
        if not world.ledger.trusted:
            why = world.ledger.problem or "The ledger cannot be trusted now."
            return _Told(phase, "LedgerUntrusted", f"Nothing is released until it can be trusted. {why}")
        return None

    def _expired(self, told: _Told | None) -> str:
        left = len(self._left()) if told is None and self._request.status.phase == "Releasing" else 0
        why = (
            f" {told.message}" if told else f" {left} of {len(self._request.status.targets)} are left." if left else ""
        )
        return f"It could not be carried out within an hour.{why}"

    # Judging

    def _judged(self) -> Decision:
        """Settle what is released: all that is queued now."""
        told = self._not_vouched_for()
        if told is not None:
            return self._said(told)
        found = self._queue.of(self._ref.namespace, self._spec)
        if not found:
            if self._request.created and self._age < LOOKING_MS:
                return self._said(_Told("Pending", "Looking", f"Looking for {self._what}.", LOOKING_MS))
            return self._said(_Told("Refused", "NothingQueued", self._nothing()))
        told = self._unready(found) or self._not_allowed(found)
        if told is not None:
            return self._said(told)
        actions = tuple(action for each in found for action in releases(each))
        judged_at, targets = (
            times.text(self._world.now),
            tuple(sorted(name for each in found for name in _targets(each))),
        )
        return self._said(
            self._releasing(judged_at),
            actions,
            judged_at=judged_at,
            targets=targets,
            budgets=tuple(sorted({key for each in found for key in self._queue.budgets(each)}))[:64],
        )

    def _not_vouched_for(self) -> _Told | None:
        """Why it is not known who asked. One that was made without the policies is not carried out once they are there either."""
        world = self._world
        if not sight.sees(world, *sight.POLICIES):
            return _Told("Pending", "ViewIncomplete", f"Not seen: {sight.listed(world.unseen)}: nothing is released.")
        if world.hold_problem:
            why = f"Nobody vouches for who asked: make the request anew once that is mended. {world.hold_problem}"
            return _Told("Refused", "PoliciesMissing", why)
        if not self._spec.requested_by:
            why = "Nobody vouches for who asked: spec.requestedBy is written by the API server when a request is made."
            return _Told("Refused", "RequesterUnknown", why)
        return None

    def _releasing(self, judged_at: str) -> _Told:
        says = f"Releasing what was queued of {self._what} at {judged_at}, {self._asked_for}."
        return _Told("Releasing", "Releasing", says, 1_000)

    @property
    def _asked_for(self) -> str:
        because = f" ({self._spec.reason})" if self._spec.reason else ""
        return f"asked for by {self._spec.requested_by}{because}"

    def _nothing(self) -> str:
        exactly = f" with uid {self._spec.target.uid}" if self._spec.target.uid else ""
        return f"No budget queues {self._what}{exactly}: there is nothing to release."

    def _unready(self, found: Sequence[Waiting]) -> _Told | None:
        """Why it cannot be settled yet."""
        grown_at = max(each.grown_at for each in found)
        if self._spec.target.kind != "Pod" and grown_at > self._world.now and self._age < FORMING_MS:
            says = f"{self._what} has new pods: it is released once no more come."
            return _Told("Pending", "GangForming", says, grown_at - self._world.now)
        if not all(self._queue.is_clear(each) for each in found):
            why = f"Not seen: {sight.listed(self._world.unseen)}."
            return _Told("Pending", "ViewIncomplete", f"{why} {self._what} may depend on it.")
        if not all(self._queue.is_known(each) for each in found):
            says = f"What {self._what} asks for is not known: its claims, their templates or their device classes are not seen."
            return _Told("Pending", "DemandUnknown", says)
        return None

    def _not_allowed(self, found: Sequence[Waiting]) -> _Told | None:
        """Why it is not released at all."""
        count = sum(len(each.pods) + len(each.owners) for each in found)
        if count > MOST_TARGETS:
            says = f"{self._what} has {count} queued pods; one request releases at most {MOST_TARGETS}."
            return _Told("Refused", "TooManyPods", says)
        only = self._spec.budget
        if not only:
            return None
        budgets = {key for each in found for key in self._queue.budgets(each)}
        others = ", ".join(sorted(budgets - {only}))
        if only not in budgets:
            says = f"Budget {only} does not queue {self._what}" + (f"; {others} does." if others else ".")
            return _Told("Refused", "NotQueuedByBudget", says)
        if others:
            says = (
                f"{self._what} is queued by {others} too: ask without a budget, which takes the right to release all."
            )
            return _Told("Refused", "QueuedByOthers", says)
        return None

    # Carrying out

    def _left(self) -> list[Waiting]:
        """What of the settled is still queued."""
        chosen = frozenset(self._request.status.targets)
        found = (_chosen(each, chosen) for each in self._queue.of(self._ref.namespace, self._spec))
        return [each for each in found if each.pods or each.owners]

    def _carried_out(self) -> Decision:
        left = self._left()
        if left:
            actions = tuple(action for each in left for action in releases(each))
            return self._said(self._releasing(self._request.status.judged_at), actions)
        targets = [each.partition("/") for each in self._request.status.targets]
        pods = [self._world.pods.get(uid) for kind, _, uid in targets if kind == "Pod"]
        count = sum(pod is not None and marks.GATE not in pod.gates for pod in pods)
        done = f"Released {count} of {len(pods)} queued pods of {self._what}" if pods else f"Resumed {self._what}"
        if len(pods) not in (0, len(targets)):
            done += " and resumed it"
        return self._said(_Told("Done", "Released", f"{done}, {self._asked_for}."), pods_released=count)

    def _said(self, told: _Told, actions: Sequence[Action] = (), **more: object) -> Decision:
        request, now = self._request, self._world.now
        is_over = told.phase in FINISHED
        reason = told.reason if told.reason in ("Stopped", "Paused") else "Reconciled"
        good = told.reason not in ("ViewIncomplete", "LedgerUntrusted")
        decision = judgement(self._world, self._ref, request, (good, reason if good else told.reason, told.message))
        released = conditions.judged(request, "Released", told.phase == "Done", told.reason, told.message, now)
        kept = tuple(each for each in decision.status.conditions if each.type != "Released")
        if is_over:
            more = {"targets": (), "finished_at": times.text(now), **more}
        status = structs.replace(
            decision.status,
            conditions=(*kept, released),
            phase=told.phase,
            reason=told.reason,
            message=conditions.shortened(told.message),
            **more,
        )
        return structs.replace(
            decision,
            status=status,
            reason=told.reason,
            message=told.message,
            actions=(*decision.actions, *actions),
            look_again_ms=max(100, told.look_again_ms),
        )


def _targets(each: Waiting) -> Iterator[str]:
    yield from (f"{owner.kind}/{owner.uid}" for owner in each.owners)
    yield from (f"Pod/{pod.uid}" for pod in each.pods)


def _chosen(each: Waiting, targets: frozenset[str]) -> Waiting:
    return each._replace(
        pods=tuple(pod for pod in each.pods if f"Pod/{pod.uid}" in targets),
        owners=tuple(owner for owner in each.owners if f"{owner.kind}/{owner.uid}" in targets),
    )


PLAN: Final = Plan(
    name="releases",
    kind=KIND,
    wakes_on=frozenset({KIND, "pods", "outside"}),
    at_most_every_ms=250,
    decide=decide,
)
