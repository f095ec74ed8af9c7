"""What people read about enforcement: conditions, events and the sentences of decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import HARMLESS, EnteredStep, QueuedUnit, RefusedEviction
from headroom.api.quantities import NANO
from headroom.core.budgets.accounts import MOST_UNPRICED, STOPPING, BudgetAccount
from headroom.core.budgets.counting import BudgetCondition, was_exceeded
from headroom.core.budgets.enforcing import Enforced
from headroom.core.budgets.numbers import short
from headroom.core.budgets.wording import gpus, nano_of
from headroom.model import conditions, times
from headroom.model.actions import Action, EmitEvent

SHOWN: Final = 3


def verdicts(account: BudgetAccount, result: Enforced) -> Iterator[BudgetCondition]:
    """The conditions of a budget that does more than alert."""
    if account.has_step("Hold"):
        whose = f" {account.followed.words()}" if account.followed is not None else ""
        if result.holds:
            yield BudgetCondition(
                "Holding", True, "HoldStands", f"New pods are queued.{whose}{_queue(result)}{_bare(result)}"
            )
        else:
            yield BudgetCondition("Holding", False, "NotHolding", f"{_unheld(account, result)}{whose}{_queue(result)}")
    if account.has_step(*STOPPING):
        reason, message = _unpriced(account, result) or _blocked(result, account.world.now)
        yield BudgetCondition("EnforcementBlocked", bool(reason), reason or "NothingInTheWay", message)


def _unheld(account: BudgetAccount, result: Enforced) -> str:
    step = next((each for each in result.steps if each.action == "Hold"), None)
    if step is None or account.world.hold_problem:
        return "New pods start as always."
    if step.acts_from > account.world.now:
        return f"New pods start as always until the grace period ends at {times.text(step.acts_from)}."
    return "New pods are queued as soon as the API server has the BudgetHold."


def _queue(result: Enforced) -> str:
    if result.held is None:
        return ""
    held = result.held
    begin = next((each for each in held.queue if each.starts_at), None)
    soon = f" Estimated start of the first, {begin.unit}: {begin.starts_at}." if begin else ""
    never = [each.unit for each in held.queue if each.state == "NeverFits"]
    alone = f" Larger than the quota, so never released: {_few(never)}." if never else ""
    queued = "1 pod or gang is queued" if held.units == 1 else f"{held.units} pods or gangs are queued"
    return f" {queued}.{soon}{alone}"


def _bare(result: Enforced) -> str:
    if not result.bare:
        return ""
    return f" Created before the hold and left alone, since queueing them could harm them: {_few(list(result.bare))}."


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _unpriced(account: BudgetAccount, result: Enforced) -> tuple[str, str] | None:
    """Dollars alone ask for a step that stops pods, and too much of the usage has no price."""
    asked = [each for each in result.steps if each.action in STOPPING and account.has_reached(each.share)]
    if not asked or any(account.may_stop(each.share) for each in asked):
        return None
    found = account.found
    share = _percent(found.unpriced_gpu_ms, found.gpu_ms)
    return "PriceUnknown", (
        f"{share} of the GPU time in the window has no price. No pods are suspended or evicted for dollars "
        f"while that is more than {MOST_UNPRICED}%; add the prices of the nodes to a price book."
    )


def _percent(part: int, whole: int) -> str:
    """A share for people; never rounded down to the limit that it is above."""
    tenths = -(-1000 * part // whole)
    return f"{tenths // 10}.{tenths % 10}%" if tenths < 100 else f"{tenths // 10}%"


def _blocked(result: Enforced, now: int) -> tuple[str, str]:
    blocked = sorted(result.past.spared(now))
    if result.looping:
        names = _few(list(result.looping))
        return "EvictionLoop", (
            f"Evicted three times in this window and recreated each time, so left alone: {names}. "
            "A Hold step before Evict keeps them from starting again."
        )
    if result.refused:
        return "EvictionBlocked", " ".join(_refused(each) for each in result.refused[:SHOWN])
    if blocked and result.steps:
        return (
            "EvictionBlocked",
            f"Still running two minutes after they were stopped: {_few(blocked)}. Others are stopped instead.",
        )
    if result.helpless:
        return "NothingToStop", "Over quota, and no pod is left that may be stopped."
    return "", "Nothing blocks enforcement of this budget."


def _refused(each: RefusedEviction) -> str:
    by = f"PodDisruptionBudget {' and '.join(each.by)}" if each.by else "A PodDisruptionBudget"
    after = (
        f"Its pods are deleted at {each.deleted_at} unless the eviction succeeds before."
        if each.deleted_at
        else "Others are stopped instead."
    )
    return f"{by} has refused the eviction of {each.unit} since {each.since}. {after}"


def sentence(account: BudgetAccount, result: Enforced) -> str:
    """What enforcement does now, to be said after what was used."""
    said = []
    if result.holds:
        said.append(f"New pods are queued.{_queue(result)}")
    now = account.world.now
    waiting = [each for each in result.steps if each.acts_from > now and each.action != HARMLESS]
    said += [f"{each.action} takes effect at {times.text(each.acts_from)}, after its grace period." for each in waiting]
    acting = {each.action for each in result.steps if each.acts_from <= now}
    if "Hold" in acting and not result.holds:
        said.append("New pods cannot be queued." if account.world.hold_problem else "New pods will be queued.")
    if "Pause" in acting:
        said.append("Running pods are marked as paused.")
    if result.victim is not None:
        doing = "Suspending" if result.victim.action == "Suspend" else "Evicting"
        by = f" for budget {result.victim.by}" if result.victim.by else ""
        said.append(f"{doing} {result.victim.unit}{by}.")
    return " ".join(said)


# --- events -------------------------------------------------------------------------------------------------------------------


def events(
    account: BudgetAccount, result: Enforced, exceeded: BudgetCondition, told: GPUWorkloadBudgetStatus
) -> Iterator[Action]:
    """Events on the budget, once for each turn."""
    yield from _of_quota(account, exceeded, told)
    yield from _of_steps(account, result.entered, exceeded.message)
    if result.took is not None:
        doing = "Suspending" if result.took.action == "Suspend" else "Evicting"
        also = f" Budget {result.took.by} stops it, and this budget counts it too." if result.took.by else ""
        yield _event(account, "Warning", doing, f"{doing} {result.took.unit}.{also} {exceeded.message}")
    told_before = {(each.unit, each.since) for each in account.status.refused}
    for refused in result.refused:
        if (refused.unit, refused.since) not in told_before:
            yield _event(account, "Warning", "EvictionRefused", _refused(refused))
    for each in _newly_hopeless(account, result):
        says = f"{each.unit} requests {gpus(each.gpus)}, more than the quota allows on its own: it is never released, and does not delay others."
        yield _event(account, "Warning", "NeverFits", says)


def _event(account: BudgetAccount, kind: Literal["Normal", "Warning"], reason: str, message: str) -> EmitEvent:
    return EmitEvent(object=str(account.ref), event_type=kind, reason=reason, message=conditions.shortened(message))


def _of_quota(account: BudgetAccount, exceeded: BudgetCondition, told: GPUWorkloadBudgetStatus) -> Iterator[Action]:
    if was_exceeded(account.budget) == exceeded.holds:
        return
    if exceeded.holds:
        top = told.top_pods[0] if told.top_pods else None
        most = f" Largest user: {top.pod}, {short(nano_of(top.gpu_hours), NANO)} GPU-hours." if top else ""
        yield _event(account, "Warning", "QuotaExceeded", f"{exceeded.message}{most}")
    else:
        yield _event(account, "Normal", "WithinBudget", exceeded.message)


def _of_steps(account: BudgetAccount, entered: tuple[EnteredStep, ...], used: str) -> Iterator[Action]:
    """The one step of a budget without steps begins with the quota's own event."""
    before = {(each.at, each.action) for each in account.status.steps}
    now = {(each.at, each.action) for each in entered}
    of_quota = account.spec.enforcement.action is not None
    for at, action in sorted(now - before):
        if not of_quota:
            grace = account.spec.enforcement.grace_period_seconds
            later = f" in {grace}s" if grace and action != HARMLESS else ""
            yield _event(
                account, "Warning", "StepReached", f"{at} of the quota is used: step {action} is active{later}. {used}"
            )
    for at, action in sorted(before - now):
        if not of_quota or action != HARMLESS:
            yield _event(account, "Normal", "StepLeft", f"Below {at} of the quota: step {action} is cleared. {used}")


def _newly_hopeless(account: BudgetAccount, result: Enforced) -> list[QueuedUnit]:
    known = {
        each.unit for each in (account.status.held.queue if account.status.held else ()) if each.state == "NeverFits"
    }
    queue = result.held.queue if result.held else ()
    return [each for each in queue if each.state == "NeverFits" and each.unit not in known]
