"""Release requests: somebody who may asks, and the operator releases what is queued at that moment, once.

What is released is settled when the request is carried out, by uid, and stands in the status before anything is done: whatever the
owner makes later queues like everything else. Who asked is written by the API server, so a request without a name is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.releases import (
    FINISHED,
    MOST_RECORDS,
    MOST_TARGETS,
    BudgetRelease,
    Phase,
    ReleaseRequestSpec,
    Why,
)
from headroom.core import usage
from headroom.core.budgets.records import REQUEST, key_of
from headroom.core.budgets.releasing import releases
from headroom.core.budgets.requested import FORMING_MS, ReleaseQueue, RequestedPods
from headroom.core.budgets.waiting import WaitingUnit
from headroom.model import conditions, sight, times
from headroom.model.actions import Action, DeleteReleaseRequest
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, judgement
from headroom.model.world import World

KIND: Final = REQUEST
KEPT_MS: Final = times.HOUR
"""A finished request stays for so long."""
EXPIRES_MS: Final = 10 * times.MINUTE
"""One that cannot be carried out for so long is refused: nobody expects it any more, and who asked may have lost the right since."""
LOOKING_MS: Final = 2_000
"""What it names may come into view a moment after the request."""
TAKEN_MS: Final = times.MINUTE
"""By then what the budgets' statuses say of a request has long been written."""
MOST_FINISHED: Final = 100
"""Finished requests that a namespace keeps."""
MOST_OPEN: Final = 100
"""Requests of one namespace that are worked on at a time."""


def decide(world: World, _changes: Changes) -> Iterator[Decision]:
    """One decision for each request: there are few, and each depends on all that is queued."""
    requests = world.of_kind(KIND)
    queue = ReleaseQueue(world)
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
    """A finished request: nothing but its removal is due any more, once its budgets remember what was released."""
    status, age = request.status, world.now - (times.moment(request.status.finished_at) or 0)
    if age >= TAKEN_MS:
        status = structs.replace(status, released=_untaken(world, request))
    left = KEPT_MS - age
    goes = (is_surplus or left < 0) and not (request.deleting or world.stopped or not world.complete)
    removal = DeleteReleaseRequest(request=f"{ref.namespace}/{ref.name}", uid=request.uid)
    return Decision(
        resource=ref,
        status=status,
        reason=status.reason,
        message=status.message,
        actions=(removal,) if goes else (),
        look_again_ms=min(max(left + 1, 1_000), KEPT_MS if age >= TAKEN_MS else TAKEN_MS - age),
        next_turn_ms=left + 1 if left >= 0 else None,
    )


def _untaken(world: World, request: AnyResource) -> tuple[BudgetRelease, ...]:
    """What was released and its budget's own status does not say yet."""
    found = []
    for each in request.status.released if request.status.phase == "Done" else ():
        budget = world.resources.get(Ref(usage.KIND, *each.budget.split("/", 1)))
        if budget is not None and key_of(each.release) not in map(key_of, budget.status.released):
            found.append(each)
    return tuple(found)


# --- one request ----------------------------------------------------------------------------------------------------------------


class _Told(NamedTuple):
    """What is said of a request."""

    phase: Phase
    reason: Why
    message: str
    look_again_ms: int = 60_000


class _Open:
    """A request that is not finished."""

    def __init__(self, world: World, ref: Ref, request: AnyResource, queue: ReleaseQueue) -> None:
        self._world, self._ref, self._request, self._queue = world, ref, request, queue
        self._spec: ReleaseRequestSpec = request.spec
        self._what = f"{self._spec.target.kind} {ref.namespace}/{self._spec.target.name}"
        self._age = world.now - request.created if request.created else 0

    def decided(self, *, too_many: bool) -> Decision:
        status, told = self._request.status, self._obstacle()
        if told is None and (self._request.deleting or self._spec.paused):
            why = "The request is being deleted" if self._request.deleting else "The request is paused"
            told = _Told(status.phase, "Paused", f"{why}: nothing is released.")
        if self._age > EXPIRES_MS and not self._request.deleting:
            told = _Told("Refused", "Expired", self._expired(told))
        if told is not None:
            return self._said(told)
        if too_many and status.phase == "Pending":
            most = f"{MOST_OPEN} requests of namespace {self._ref.namespace} are not finished; create the request again later."
            return self._said(_Told("Refused", "TooManyRequests", most))
        return self._carried_out() if status.phase == "Releasing" else self._judged()

    def _obstacle(self) -> _Told | None:
        """Why nothing is carried out now, whatever is asked for."""
        world, phase = self._world, self._request.status.phase
        if world.stopped:
            return _Told(phase, "Stopped", "All effects are stopped cluster-wide: nothing is released.")
        if not world.complete or not sight.sees(world, *sight.BESIDE):
            why = sight.incomplete(world)[1] if not world.complete else f"Cannot be read: {sight.listed(sight.BESIDE)}"
            return _Told(phase, "ViewIncomplete", f"{why}: nothing is released.")
        if not world.ledger.trusted:
            why = world.ledger.problem or "The ledger cannot be trusted."
            return _Told(phase, "LedgerUntrusted", f"{why} Nothing is released until the ledger can be trusted.")
        return None

    def _expired(self, told: _Told | None) -> str:
        left = len(self._left()) if told is None and self._request.status.phase == "Releasing" else 0
        why = (
            f" {told.message}"
            if told
            else f" {left} of {len(self._request.status.targets)} are still queued."
            if left
            else ""
        )
        return f"The request did not finish within 10 minutes.{why}"

    # Judging

    def _judged(self) -> Decision:
        """Settle what is released: all that is queued now."""
        told = self._not_vouched_for()
        if told is not None:
            return self._said(told)
        named = self._queue.of(self._request)
        if not named.units:
            if self._request.created and self._age < LOOKING_MS:
                return self._said(_Told("Pending", "Looking", f"Looking for {self._what}.", LOOKING_MS))
            return self._said(_Told("Refused", "NothingQueued", self._nothing(named)))
        found = named.units
        told = self._unready(found) or self._ambiguous(named) or self._not_allowed(found)
        if told is not None:
            return self._said(told)
        released = self._queue.judged(found, self._request)
        if len(released) > MOST_RECORDS and any(pod.has_claims for each in found for pod in each.pods):
            says = f"{self._what} has pods of too many owners whose claims may still change; request its parts."
            return self._said(_Told("Refused", "TooManyPods", says))
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
            released=released[:MOST_RECORDS],
            budgets=tuple(sorted({key for each in found for key in self._queue.budgets(each)}))[:64],
        )

    def _not_vouched_for(self) -> _Told | None:
        """Why it is not known who asked. One that was made without the policies is not carried out once they are there either."""
        world = self._world
        if not sight.sees(world, *sight.POLICIES):
            return _Told(
                "Pending", "ViewIncomplete", f"Cannot be read: {sight.listed(world.unseen)}. Nothing is released."
            )
        if world.hold_problem:
            why = f"The requester cannot be verified: {world.hold_problem} Create the request again once that is fixed."
            return _Told("Refused", "PoliciesMissing", why)
        if not self._spec.requested_by:
            why = "The requester cannot be verified: the API server sets spec.requestedBy when a request is created."
            return _Told("Refused", "RequesterUnknown", why)
        return None

    def _releasing(self, judged_at: str) -> _Told:
        says = f"Releasing the pods of {self._what} that were queued at {judged_at}; {self._asked_for}."
        return _Told("Releasing", "Releasing", says, 1_000)

    @property
    def _asked_for(self) -> str:
        because = f" ({self._spec.reason})" if self._spec.reason else ""
        return f"requested by {self._spec.requested_by}{because}"

    def _nothing(self, named: RequestedPods) -> str:
        exactly = f" with uid {self._spec.target.uid}" if self._spec.target.uid else ""
        return f"No budget queues {self._what}{exactly}: there is nothing to release.{named.left_out}"

    def _ambiguous(self, named: RequestedPods) -> _Told | None:
        if len(named.uids) < 2:
            return None
        says = f"{len(named.uids)} owners are called {self._what}: set spec.target.uid to choose one."
        return _Told("Refused", "SeveralOwners", says)

    def _unready(self, found: Sequence[WaitingUnit]) -> _Told | None:
        """Why it cannot be settled yet."""
        grown_at = max(each.grown_at for each in found)
        if self._spec.target.kind != "Pod" and grown_at > self._world.now and self._age < FORMING_MS:
            says = f"{self._what} is still creating pods; it is released once it has them all."
            return _Told("Pending", "GangForming", says, grown_at - self._world.now)
        if not all(self._queue.is_clear(each) for each in found):
            why = f"Cannot be read: {sight.listed(self._world.unseen)}."
            return _Told("Pending", "ViewIncomplete", f"{why} {self._what} may depend on it.")
        if not all(self._queue.is_known(each) for each in found):
            says = f"The request of {self._what} is unknown: its claims, their templates or their device classes cannot be read."
            return _Told("Pending", "DemandUnknown", says)
        return None

    def _not_allowed(self, found: Sequence[WaitingUnit]) -> _Told | None:
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
            says = f"{self._what} is also queued by {others}: leave out the budget, which needs the right to release from all of them."
            return _Told("Refused", "QueuedByOthers", says)
        return None

    # Carrying out

    def _left(self) -> list[WaitingUnit]:
        """What of the settled is still queued."""
        chosen = frozenset(self._request.status.targets)
        found = (_chosen(each, chosen) for each in self._queue.of(self._request).units)
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
        told = _Told("Done", "Released", f"{done}; {self._asked_for}.")
        return self._said(told, pods_released=count, released=self._queue.settled(self._request))

    def _said(self, told: _Told, actions: Sequence[Action] = (), **more: object) -> Decision:
        request, now = self._request, self._world.now
        is_over = told.phase in FINISHED
        reason = told.reason if told.reason in ("Stopped", "Paused") else "Reconciled"
        good = told.reason not in ("ViewIncomplete", "LedgerUntrusted")
        decision = judgement(self._world, self._ref, request, (good, reason if good else told.reason, told.message))
        released = conditions.judged(request, "Released", told.phase == "Done", told.reason, told.message, now)
        kept = tuple(each for each in decision.status.conditions if each.type != "Released")
        if is_over:
            more = {"targets": (), "released": (), "finished_at": times.text(now), **more}
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


def _targets(each: WaitingUnit) -> Iterator[str]:
    yield from (f"{owner.kind}/{owner.uid}" for owner in each.owners)
    yield from (f"Pod/{pod.uid}" for pod in each.pods)


def _chosen(each: WaitingUnit, targets: frozenset[str]) -> WaitingUnit:
    return each._replace(
        pods=tuple(pod for pod in each.pods if f"Pod/{pod.uid}" in targets),
        owners=tuple(owner for owner in each.owners if f"{owner.kind}/{owner.uid}" in targets),
    )


PLAN: Final = Plan(
    name="releases",
    kinds=(KIND,),
    reads=(usage.KIND,),
    wakes_on=frozenset({Topic.PODS, Topic.WORKLOADS, Topic.HOLDS, Topic.LEDGER, Topic.SIGHT, Topic.NAMESPACES}),
    at_most_every_ms=250,
    decide=decide,
)
