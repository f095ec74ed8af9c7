"""The plan: one decision for each budget, from what was used and from one round of enforcement over all that act.

Every pass adds everything up anew from the rows of usage, so a restart, a replay or a mistake in one pass heals itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import structs

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.core import usage
from headroom.core.budgets import counting, holding, index, ladder, pausing, telling
from headroom.core.budgets.accounts import BudgetAccount, is_acting
from headroom.core.budgets.counting import BudgetCondition, degraded
from headroom.core.budgets.enforcing import Enforced, EnforcementRound
from headroom.core.budgets.records import REQUEST, asked_for, records_of
from headroom.core.budgets.releasing import releases
from headroom.core.budgets.stopping import Past
from headroom.core.budgets.waiting import Matcher, waiting
from headroom.core.usage import KIND, Reckoning
from headroom.model import conditions, sight, times
from headroom.model.actions import Action
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, affected, judgement
from headroom.model.starts import starts_of
from headroom.model.world import World, ref_of

LOOK_AGAIN_MS: Final = 30_000
TURN_MS: Final = 500
_PASSING: Final = frozenset({"Holding", "EnforcementBlocked", "HistoryIncomplete", "ClockSuspect", "Indexed"})
"""Conditions that are there only where they have something to say."""
_COUNTED: Final = frozenset(
    {
        *(Topic.USAGE, Topic.NAMESPACES, Topic.CLAIMS, Topic.DEVICES, Topic.PRICES, Topic.INDEX, Topic.LEDGER),
        *(Topic.SETTINGS, Topic.HOLDS, Topic.WORKLOADS, Topic.POLICIES, Topic.REFUSALS, Topic.RIGHTS, Topic.SIGHT),
    }
)
"""Facts that concern every budget."""


def decide(world: World, changes: Changes) -> Iterator[Decision]:
    """One decision for each budget that may need a new one; all of them when anything about usage changed."""
    chosen = _chosen(world, changes)
    letting_go = usage.removals(world)
    counts = world.complete and world.ledger.loaded
    counted = (ref for ref, each in sorted(chosen.items()) if counts and each.spec is not None)
    accounts = {ref: BudgetAccount(world, chosen[ref]) for ref in counted if usage.is_read(world, chosen[ref])}
    round_ = EnforcementRound(world, [each for each in accounts.values() if is_acting(world, each.budget)])
    for ref in sorted(chosen):
        if ref in accounts:
            account = accounts[ref]
            result = round_.results.get(account.key) or _only_counted(account)
            yield _counted(account, result, letting_go.get(ref, ()))
        else:
            yield _uncounted(world, ref, chosen[ref])


def _chosen(world: World, changes: Changes) -> dict[Ref, AnyResource]:
    is_asked = any(ref.kind == REQUEST for ref in changes.resources)
    is_for_all = is_asked or bool(changes.facts.keys() & _COUNTED)
    if changes.everything or is_for_all or not changes.pods.isdisjoint(world.usage.kept):
        return dict(world.of_kind(KIND))
    chosen = dict(affected(world, KIND, changes))
    if changes.pods:
        # What a pod uses is news of usage; that it is there at all matters to budgets that count none yet.
        chosen |= {ref: each for ref, each in world.of_kind(KIND) if not each.status.tracked_pods}
    if changes.pods or any(ref.kind == KIND for ref in changes.resources):
        # They share caps and pods, so they are decided together.
        chosen |= {ref: each for ref, each in world.of_kind(KIND) if is_acting(world, each)}
    return chosen


def chores(world: World) -> Iterator[Action]:
    """What is due although no budget asks for it: what budgets that are gone, or that only alert now, have left behind."""
    yield from usage.removals(world).get(None, ())
    yield from index.due(world)
    if not world.ledger.loaded:
        return
    yield from holding.left_over(world)
    yield from pausing.left_over(world)
    if not (world.pods.queued or world.pods.annotated or world.holds or world.workloads):
        return  # nobody was held, released or marked; matching pods with very many budgets takes its time
    acting = [each for each in usage.budgets_of(world) if is_acting(world, each)]
    matcher = Matcher(world, [BudgetAccount(world, each) for each in acting])
    if world.pods.queued or world.holds or world.workloads:
        # What a budget suspended for the sake of its pods stays so while the step is active, whatever its template says.
        standing = frozenset(str(ref_of(each)) for each in acting if _keeps_suspended(each))
        for each in waiting(world, matcher, standing):
            if not each.demands and each.is_ready:
                yield from releases(each)
    yield from holding.let_go(world, matcher)
    yield from pausing.unmarked(world, matcher)


def _keeps_suspended(budget: AnyResource) -> bool:
    return any(step.action in ("Hold", "Suspend") for step in budget.status.steps)


# --- budgets that cannot be counted ---------------------------------------------------------------------------------------------


def _uncounted(world: World, ref: Ref, budget: AnyResource) -> Decision:
    if budget.problems:
        return _invalid(world, ref, budget)
    return _blind(world, ref, budget) if not world.complete else _without_history(world, ref, budget)


def _invalid(world: World, ref: Ref, budget: AnyResource) -> Decision:
    listed = "; ".join(f"{each.field} {each.message}" for each in budget.problems)
    in_selector = any(each.field.startswith("spec.selector") for each in budget.problems)
    reason = "InvalidSelector" if in_selector else "InvalidSpec"
    return _with(world, budget, judgement(world, ref, budget, (False, reason, listed)), [degraded(reason, listed)])


def _blind(world: World, ref: Ref, budget: AnyResource) -> Decision:
    reason, why = sight.incomplete(world)
    says = f"{why}, so usage is not counted; the status keeps its last numbers."
    decision = judgement(world, ref, budget, (False, reason, says))
    return _with(world, budget, decision, [degraded(reason, says)])


def _without_history(world: World, ref: Ref, budget: AnyResource) -> Decision:
    if not world.ledger.problem:
        # It is just being read, which takes a moment at every start: no news.
        return Decision(resource=ref, status=budget.status, reason="Starting", message="The ledger is being read.")
    if world.ledger.lost:
        says = f"The ledger lost its history, so usage is not counted; the status keeps its last numbers. {world.ledger.problem}"
        decision = judgement(world, ref, budget, (False, "HistoryLost", says))
        return _with(world, budget, decision, [degraded("HistoryLost", says)])
    says = (
        f"The ledger cannot be read, so usage is not counted; the status keeps its last numbers. {world.ledger.problem}"
    )
    decision = judgement(world, ref, budget, (False, "LedgerUnavailable", says))
    return _with(world, budget, decision, [degraded("LedgerUnavailable", says)])


def _with(world: World, budget: AnyResource, decision: Decision, verdicts: list[BudgetCondition]) -> Decision:
    status = structs.replace(decision.status, conditions=_judged(world, budget, decision.status.conditions, verdicts))
    return structs.replace(decision, status=status)


def _judged(
    world: World, budget: AnyResource, known: tuple[Condition, ...], verdicts: list[BudgetCondition]
) -> tuple[Condition, ...]:
    """The conditions with these verdicts in place of older ones of the same type."""
    new = [conditions.judged(budget, each.type, each.holds, each.reason, each.message, world.now) for each in verdicts]
    types = {each.type for each in new}
    return (*(each for each in known if each.type not in types), *new)


# --- counting -------------------------------------------------------------------------------------------------------------------


def _only_counted(account: BudgetAccount) -> Enforced:
    """A budget that only alerts, or that does nothing now: it keeps what it remembers."""
    before = account.status
    past = Past(before.stopped, before.evictions)
    steps = ladder.standing(account)
    # Steps come and go while it is paused too, or a grace of long ago would count when it acts again.
    entered = ladder.entered(steps)
    if account.spec.paused:
        released = tuple(records_of(account, asked_for(account.world)))
        kept = Enforced(entered=entered, held=before.held, released=released, victim=before.victim, past=past)
        kept.refused = before.refused
        return kept
    return Enforced(steps=steps, entered=entered, past=past, turns=list(ladder.turns(account, steps)))


def _counted(account: BudgetAccount, result: Enforced, letting_go: Sequence[Action]) -> Decision:
    world, ref, budget, spec = account.world, account.ref, account.budget, account.spec
    status = counting.status(account)
    exceeded = counting.exceeded(account, status)
    verdicts = [exceeded, counting.health(account), counting.requesting(account), *telling.verdicts(account, result)]
    verdicts += counting.doubts(account)
    ready = judgement(world, ref, budget, (True, *_ready(account, exceeded)))
    types = _PASSING - {each.type for each in verdicts}
    known = tuple(each for each in ready.status.conditions if each.type not in types)
    status = structs.replace(
        status,
        observed_generation=budget.generation,
        conditions=_judged(world, budget, known, verdicts),
        steps=result.entered,
        held=result.held,
        released=result.released,
        following=account.followed.told() if account.followed is not None and account.has_step("Hold") else None,
        victim=result.victim,
        stopped=result.past.stopped,
        evictions=result.past.evictions,
        refused=result.refused,
        last_enforcement_at=_last(account.status, result),
    )
    if structs.replace(status, as_of=budget.status.as_of) == budget.status:
        status = budget.status  # what has not moved needs no new date
    actions: tuple[Action, ...] = ()
    next_turn = min(_turns(account.found, result, world.now), default=account.window)
    if not spec.paused and not world.stopped:
        told = () if account.followed is not None else telling.events(account, result, exceeded, status)
        actions = (*ready.actions, *told, *holding.with_reason(account, result.actions, exceeded.message), *letting_go)
    return Decision(
        resource=ref,
        status=status,
        reason=exceeded.reason if not spec.paused and not world.stopped else ready.reason,
        message=f"{exceeded.message} {telling.sentence(account, result)}".strip(),
        actions=actions,
        look_again_ms=max(100, min(LOOK_AGAIN_MS, next_turn)),
        next_turn_ms=next_turn,
    )


def _last(before: GPUWorkloadBudgetStatus, result: Enforced) -> str:
    known = times.moment(before.last_enforcement_at)
    if result.last_at is None or (known is not None and known >= result.last_at):
        return before.last_enforcement_at
    return times.text(result.last_at)


def _ready(account: BudgetAccount, exceeded: BudgetCondition) -> tuple[str, str]:
    world, spec = account.world, account.spec
    if account.followed is not None:
        return "DecidedElsewhere", f"Usage is counted here; cluster {spec.home_cluster} decides."
    if world.stopped:
        return "Stopped", f"{exceeded.message} All effects are stopped cluster-wide."
    if spec.paused:
        return "Paused", f"{exceeded.message} This budget is paused."
    steps = ", ".join(f"{each.action} at {each.at}" for each in spec.enforcement.ladder)
    return "Reconciled", f"Usage is counted; steps: {steps}."


def _turns(found: Reckoning, result: Enforced, now: int) -> Iterator[int]:
    """When a budget goes over quota or back under it, or what just began or ended counts: nothing else may happen until then."""
    turns = [each - found.as_of for each in found.if_nothing_ends if each is not None]
    turns += [each - now for each in result.turns]
    if found.recheck_at is not None:
        # Not at every tick, should the view be held up and never reach it.
        turns.append(max(TURN_MS, found.recheck_at - found.as_of))
    return (each for each in turns if each > 0)


PLAN = Plan(
    name="budgets",
    kinds=(KIND,),
    hears_of=(REQUEST,),
    wakes_on=frozenset({Topic.PODS, *_COUNTED}),
    at_most_every_ms=250,
    prepare=usage.arrange,
    decide=decide,
    chores=chores,
    announces=starts_of,
)
