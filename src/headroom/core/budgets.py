"""Rolling-window GPU budgets: what a team has used, when that reaches its quota, and who is told.

Every pass adds everything up anew from the rows of usage, so a restart, a replay or a mistake in one pass heals itself. Enforcement
beyond alerts comes with its own capability; until then a budget that asks for more says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api.budget_index import IndexEntry
from headroom.api.budgets import Forecast, GPUWorkloadBudgetSpec, GPUWorkloadBudgetStatus, TopPod
from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.core import usage
from headroom.core.usage import DOLLAR, GPU_HOUR, KIND, Ledgered, Quota, Reckoning, Scope, quota_of
from headroom.model import conditions, times
from headroom.model.actions import Action, ApplyBudgetIndex, EmitEvent
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, affected, judgement
from headroom.model.world import Changes, World

TOP: Final = 5
FRESH_MS: Final = 10_000
"""Who used most is worked out anew once the written answer is this old."""
LOOK_AGAIN_MS: Final = 30_000
TURN_MS: Final = 500
_DECIMALS: Final = 12
_OTHER: Final = frozenset({"usage", "namespaces", "claims", "prices", "index", "ledger", "settings"})


class Verdict(NamedTuple):
    """Type, whether it holds, why for machines, why for people."""

    type: str
    holds: bool
    reason: str
    message: str


def decide(world: World, changes: Changes) -> Iterator[Decision]:
    """One decision for each budget that may need a new one; all of them when anything about usage changed."""
    if changes.everything or _OTHER & changes.outside or not changes.pods.isdisjoint(world.usage.kept):
        chosen = dict(world.of_kind(KIND))
    else:
        chosen = dict(affected(world, KIND, changes))
        if changes.pods:
            # What a pod uses is news of usage; that it is there at all matters to budgets that count none yet.
            chosen |= {ref: each for ref, each in world.of_kind(KIND) if not each.status.tracked_pods}
    usage.arrange(world, (each for each in chosen.values() if each.spec is not None))
    letting_go = usage.removals(world)
    for ref in sorted(chosen):
        yield _decision(world, ref, chosen[ref], letting_go.get(ref, ()))


def chores(world: World) -> Iterator[Action]:
    """What is due although no budget asks for it: finalizers of pods that no exact budget covers, an outdated index."""
    yield from usage.removals(world).get(None, ())
    wanted = index_of(world)
    listed = {each.budget for each in wanted}
    for entry in world.index or ():
        if entry.budget not in listed:
            yield ApplyBudgetIndex(budget=entry.budget)


def _decision(world: World, ref: Ref, budget: AnyResource, letting_go: Sequence[Action]) -> Decision:
    if budget.problems:
        return _invalid(world, ref, budget)
    if not world.complete:
        return _blind(world, ref, budget)
    if not world.ledger.loaded:
        return _without_history(world, ref, budget)
    return _counted(world, ref, budget, letting_go)


# --- budgets that cannot be counted ---------------------------------------------------------------------------------------------


def _invalid(world: World, ref: Ref, budget: AnyResource) -> Decision:
    listed = "; ".join(f"{each.field} {each.message}" for each in budget.problems)
    in_selector = any(each.field.startswith("spec.selector") for each in budget.problems)
    reason = "InvalidSelector" if in_selector else "InvalidSpec"
    return _with(world, budget, judgement(world, ref, budget, (False, reason, listed)), [_degraded(reason, listed)])


def _blind(world: World, ref: Ref, budget: AnyResource) -> Decision:
    says = "The view of the cluster is not complete, so nothing is counted; the last numbers stand."
    decision = judgement(world, ref, budget, (False, "ListPodsFailed", says))
    return _with(world, budget, decision, [_degraded("ListPodsFailed", says)])


def _without_history(world: World, ref: Ref, budget: AnyResource) -> Decision:
    if not world.ledger.problem:
        # It is just being read, which takes a moment at every start: no news.
        return Decision(resource=ref, status=budget.status, reason="Starting", message="The ledger is being read.")
    says = f"The ledger cannot be read, so nothing is counted; the last numbers stand. {world.ledger.problem}"
    decision = judgement(world, ref, budget, (False, "LedgerUnavailable", says))
    return _with(world, budget, decision, [_degraded("LedgerUnavailable", says)])


def _degraded(reason: str, message: str) -> Verdict:
    return Verdict("Degraded", True, reason, message)


def _with(world: World, budget: AnyResource, decision: Decision, verdicts: list[Verdict]) -> Decision:
    status = structs.replace(decision.status, conditions=_judged(world, budget, decision.status.conditions, verdicts))
    return structs.replace(decision, status=status)


def _judged(
    world: World, budget: AnyResource, known: tuple[Condition, ...], verdicts: list[Verdict]
) -> tuple[Condition, ...]:
    """The conditions with these verdicts in place of older ones of the same type."""
    new = [conditions.judged(budget, each.type, each.holds, each.reason, each.message, world.now) for each in verdicts]
    types = {each.type for each in new}
    return (*(each for each in known if each.type not in types), *new)


# --- counting -------------------------------------------------------------------------------------------------------------------


def _counted(world: World, ref: Ref, budget: AnyResource, letting_go: Sequence[Action]) -> Decision:
    spec: GPUWorkloadBudgetSpec = budget.spec
    scope = usage.scope_of(world, budget)
    rows = Ledgered(world, scope, spec.quota.window_hours * times.HOUR)
    quota = quota_of(spec)
    found = rows.reckoned(quota)
    status = _status(budget, found, quota, rows)
    exceeded = _exceeded(found, spec, status)
    verdicts = [exceeded, _health(world, budget, found), _requesting(world, scope, found)]
    ready = judgement(world, ref, budget, (True, *_ready(world, budget, exceeded)))
    status = structs.replace(
        status,
        observed_generation=budget.generation,
        conditions=_judged(world, budget, ready.status.conditions, verdicts),
    )
    if structs.replace(status, as_of=budget.status.as_of) == budget.status:
        status = budget.status  # what has not moved needs no new date
    actions: tuple[Action, ...] = ()
    if not spec.paused and not world.stopped:
        actions = (*ready.actions, *_alert(world, ref, budget, exceeded, status), *_index(world, budget), *letting_go)
    return Decision(
        resource=ref,
        status=status,
        reason=exceeded.reason if not spec.paused and not world.stopped else ready.reason,
        message=exceeded.message if spec.enforcement.action == "AlertOnly" else f"{exceeded.message} {_unable(spec)}",
        actions=actions,
        look_again_ms=_look_again(found),
    )


def _status(budget: AnyResource, found: Reckoning, quota: Quota, rows: Ledgered) -> GPUWorkloadBudgetStatus:
    before: GPUWorkloadBudgetStatus = budget.status
    has_money = quota.usd_ms is not None or bool(found.usd_ms)
    return structs.replace(
        before,
        as_of=times.text(found.as_of),
        consumed_gpu_hours=decimal(found.gpu_ms, GPU_HOUR),
        upper_gpu_hours=decimal(found.upper_gpu_ms, GPU_HOUR),
        remaining_gpu_hours=_remaining(quota.gpu_ms, found.gpu_ms, GPU_HOUR),
        burn_rate_gpus=decimal(found.burn, 1_000_000),
        consumed_usd=decimal(found.usd_ms, DOLLAR) if has_money else "",
        # What has no price has no bound either.
        upper_usd=decimal(found.upper_usd_ms, DOLLAR) if has_money and not found.unpriced_gpu_ms else "",
        remaining_usd=_remaining(quota.usd_ms, found.usd_ms, DOLLAR),
        unpriced_gpu_hours=decimal(found.unpriced_gpu_ms, GPU_HOUR) if has_money else "",
        forecast=_forecast(found),
        top_pods=_top_pods(budget, found, rows),
        tracked_pods=found.tracked,
    )


def _remaining(quota: int | None, used: int, whole: int) -> str:
    return "" if quota is None else decimal(max(quota - used, 0), whole)


def _forecast(found: Reckoning) -> Forecast | None:
    exhausted = _moment(found.exhausted_at)
    recovers = _moment(found.recovers_at) if found.exceeded else ""
    return Forecast(exhausted_at=exhausted, recovers_at=recovers) if exhausted or recovers else None


def _moment(at: int | None) -> str:
    """A moment as text; what lies beyond the calendar is never."""
    return "" if at is None or at > times.LAST else times.text(at)


def _top_pods(budget: AnyResource, found: Reckoning, rows: Ledgered) -> tuple[TopPod, ...]:
    before: GPUWorkloadBudgetStatus = budget.status
    written = times.moment(before.as_of)
    turned = bool(found.exceeded) != _was_exceeded(budget)
    known = before.top_pods and before.observed_generation == budget.generation and not turned
    if known and written is not None and 0 <= found.as_of - written < FRESH_MS:
        return before.top_pods
    return tuple(
        TopPod(
            pod=each.pod,
            gpu_hours=decimal(each.gpu_ms, GPU_HOUR),
            usd=decimal(each.usd_ms, DOLLAR) if each.usd_ms else "",
        )
        for each in rows.top(TOP)
    )


def decimal(amount: int, whole: int) -> str:
    """An amount as decimal text, rounded only beyond the twelfth decimal."""
    scaled = (2 * amount * 10**_DECIMALS + whole) // (2 * whole)
    digits, rest = divmod(scaled, 10**_DECIMALS)
    return f"{digits}.{rest:0{_DECIMALS}d}".rstrip("0").rstrip(".")


# --- judging --------------------------------------------------------------------------------------------------------------------


def _exceeded(found: Reckoning, spec: GPUWorkloadBudgetSpec, status: GPUWorkloadBudgetStatus) -> Verdict:
    parts = []
    quota = quota_of(spec)
    if quota.gpu_ms is not None:
        parts.append(f"{_short(found.gpu_ms, GPU_HOUR)} of {decimal(quota.gpu_ms, GPU_HOUR)} GPU-hours")
    if quota.usd_ms is not None:
        parts.append(f"{_short(found.usd_ms, DOLLAR)} of {decimal(quota.usd_ms, DOLLAR)} dollars")
    used = f"{' and '.join(parts)} used in the last {spec.quota.window_hours} h"
    if quota.usd_ms is not None and found.unpriced_gpu_ms:
        used += f", and {_short(found.unpriced_gpu_ms, GPU_HOUR)} GPU-hours whose price is not known"
    forecast = status.forecast or Forecast()
    if found.exceeded:
        later = (
            f"below the quota again at {forecast.recovers_at} if" if forecast.recovers_at else "it does not fall while"
        )
        return Verdict("QuotaExceeded", True, "QuotaReached", f"{used}; {later} what runs goes on.")
    later = f"; reached at {forecast.exhausted_at} if what runs goes on" if forecast.exhausted_at else ""
    return Verdict("QuotaExceeded", False, "WithinBudget", f"{used}{later}.")


def _short(amount: int, whole: int) -> str:
    return f"{(2000 * amount + whole) // (2 * whole) / 1000:.3f}"


def _health(world: World, budget: AnyResource, found: Reckoning) -> Verdict:
    spec: GPUWorkloadBudgetSpec = budget.spec
    if world.ledger.problem:
        return _degraded(
            "LedgerUnavailable", f"{world.ledger.problem} Usage is still counted; nothing is enforced on it."
        )
    if spec.namespace_selector is not None and budget.namespace != world.own_namespace:
        says = f"namespaceSelector counts only for budgets in {world.own_namespace}; this one covers its own namespace."
        return _degraded("NamespaceSelectorIgnored", says)
    if found.unreadable:
        says = f"A pod asks for an amount of {found.unreadable} that cannot be read; what it uses is not counted."
        return _degraded("UnreadableRequest", says)
    if spec.quota.usd is not None and 100 * found.unpriced_gpu_ms > found.gpu_ms:
        hours = _short(found.unpriced_gpu_ms, GPU_HOUR)
        says = f"{hours} GPU-hours have no price, so dollars are not all counted; name what their nodes cost in a price book."
        return _degraded("PriceUnknown", says)
    if found.stale and spec.home_cluster == world.cluster:
        says = f"Clusters not heard of lately: {', '.join(found.stale)}; the upper bound includes what they may use."
        return _degraded("ClusterStale", says)
    return Verdict("Degraded", False, "ReconcileSucceeded", "Everything that happened is counted.")


def _requesting(world: World, scope: Scope, found: Reckoning) -> Verdict:
    """A budget that counts a resource which none of its pods asks for is most likely misspelt."""
    names = ", ".join(name for name, _ in scope.weights)
    type_ = "NoPodsRequestResource"
    if found.tracked or found.gpu_ms:
        return Verdict(type_, False, "ResourceRequested", f"Pods of this budget request {names}.")
    matching = usage.pods_matching(world, scope)
    if matching.requesting or not matching.pods:
        which = "request it" if matching.requesting else "are there to request it"
        reason = "ResourceRequested" if matching.requesting else "NoPods"
        return Verdict(type_, False, reason, f"{matching.requesting or 'No'} pods of this budget {which}: {names}.")
    says = f"{matching.pods} pods match the selector, and none of them requests {names}; is the name right?"
    return Verdict(type_, True, "ResourceNotRequested", says)


def _ready(world: World, budget: AnyResource, exceeded: Verdict) -> tuple[str, str]:
    spec: GPUWorkloadBudgetSpec = budget.spec
    if spec.home_cluster and spec.home_cluster != world.cluster:
        return "DecidedElsewhere", f"Counted here, decided in cluster {spec.home_cluster}."
    if world.stopped:
        return "Stopped", f"{exceeded.message} All effects are stopped cluster-wide."
    if spec.paused:
        return "Paused", f"{exceeded.message} It is paused."
    if spec.enforcement.action != "AlertOnly":
        return "Reconciled", f"Counted. {_unable(spec)}"
    return "Reconciled", "Counted; alerts are given when the quota is reached."


def _unable(spec: GPUWorkloadBudgetSpec) -> str:
    return f"This version of Headroom alerts, and does not {spec.enforcement.action} yet."


def _alert(
    world: World, ref: Ref, budget: AnyResource, exceeded: Verdict, status: GPUWorkloadBudgetStatus
) -> Iterator[Action]:
    """An event when the quota is reached and when it holds again, once each."""
    spec: GPUWorkloadBudgetSpec = budget.spec
    if _was_exceeded(budget) == exceeded.holds or (spec.home_cluster and spec.home_cluster != world.cluster):
        return
    if exceeded.holds:
        top = status.top_pods[0] if status.top_pods else None
        most = f" Most was used by {top.pod}: {top.gpu_hours} GPU-hours." if top else ""
        message = conditions.shortened(f"{exceeded.message}{most}")
        yield EmitEvent(object=str(ref), event_type="Warning", reason="QuotaExceeded", message=message)
    else:
        yield EmitEvent(object=str(ref), event_type="Normal", reason="WithinBudget", message=exceeded.message)


def _was_exceeded(budget: AnyResource) -> bool:
    before = conditions.find(budget.status.conditions, "QuotaExceeded")
    return before is not None and before.status == "True"


def _look_again(found: Reckoning) -> int:
    """At the latest when a quota is reached or holds again, or what just began or ended counts: nothing else may happen until then."""
    turns = [each - found.as_of for each in (found.exhausted_at, found.recovers_at) if each is not None]
    if found.turns_at is not None:
        # Not at every tick, should the view be held up and never reach it.
        turns.append(max(TURN_MS, found.turns_at - found.as_of))
    soon = min([each for each in turns if each > 0], default=LOOK_AGAIN_MS)
    return max(100, min(LOOK_AGAIN_MS, soon))


# --- the index ------------------------------------------------------------------------------------------------------------------


def index_of(world: World) -> tuple[IndexEntry, ...]:
    """What the API server's policies must know: every budget with exact accounting."""
    return tuple(
        _entry(world, each) for each in usage.budgets_of(world) if each.spec.accounting == "Exact" and not each.deleting
    )


def _entry(world: World, budget: AnyResource) -> IndexEntry:
    scope = usage.scope_of(world, budget)
    return IndexEntry(
        budget=f"{budget.namespace}/{budget.name}",
        namespaces=tuple(sorted(scope.namespaces)),
        match_labels=dict(sorted(scope.selector.match_labels.items())),
        match_expressions=scope.selector.match_expressions,
        resources=tuple(name for name, _ in scope.weights),
        exact=True,
    )


def _index(world: World, budget: AnyResource) -> Iterator[Action]:
    if budget.spec.accounting == "Exact" and not budget.deleting and _entry(world, budget) not in (world.index or ()):
        yield ApplyBudgetIndex(budget=f"{budget.namespace}/{budget.name}")


PLAN = Plan(
    name="budgets",
    kind=KIND,
    wakes_on=frozenset({KIND, "pods", "outside"}),
    at_most_every_ms=250,
    decide=decide,
    chores=chores,
)
