"""What people are told of enforcement: conditions, events and the sentences of decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import HARMLESS, EnteredStep, QueuedUnit, RefusedEviction
from headroom.api.quantities import NANO
from headroom.core.budgets.accounts import MOST_UNPRICED, STOPPING, Account
from headroom.core.budgets.counting import Verdict, was_exceeded
from headroom.core.budgets.enforcing import Enforced
from headroom.core.budgets.numbers import short
from headroom.core.budgets.wording import gpus, nano_of
from headroom.model import conditions, times
from headroom.model.actions import Action, EmitEvent

SHOWN: Final = 3


def verdicts(account: Account, result: Enforced) -> Iterator[Verdict]:
    """The conditions of a budget that does more than alert."""
    if account.has_step("Hold"):
        whose = f" {account.followed.words()}" if account.followed is not None else ""
        if result.holds:
            yield Verdict("Holding", True, "HoldStands", f"New pods wait.{whose}{_queue(result)}{_bare(result)}")
        else:
            yield Verdict("Holding", False, "NotHolding", f"{_unheld(account, result)}{whose}{_queue(result)}")
    if account.has_step(*STOPPING):
        reason, message = _unpriced(account, result) or _blocked(result, account.world.now)
        yield Verdict("EnforcementBlocked", bool(reason), reason or "NothingInTheWay", message)


def _unheld(account: Account, result: Enforced) -> str:
    step = next((each for each in result.steps if each.action == "Hold"), None)
    if step is None or account.world.hold_problem:
        return "New pods start as ever."
    if step.acts_from > account.world.now:
        return f"New pods start as ever until {times.text(step.acts_from)}, when the grace is over."
    return "New pods will wait as soon as the API server knows."


def _queue(result: Enforced) -> str:
    if result.held is None:
        return ""
    held = result.held
    begin = next((each for each in held.queue if each.starts_at), None)
    soon = f" The first may start at {begin.starts_at}: {begin.unit}." if begin else ""
    never = [each.unit for each in held.queue if each.state == "NeverFits"]
    alone = f" Too much even with nothing else, so never to start: {_few(never)}." if never else ""
    waits = "1 gang or pod waits" if held.units == 1 else f"{held.units} gangs or pods wait"
    return f" {waits}.{soon}{alone}"


def _bare(result: Enforced) -> str:
    if not result.bare:
        return ""
    return f" Made before that and not to be held without harm: {_few(list(result.bare))}."


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _unpriced(account: Account, result: Enforced) -> tuple[str, str] | None:
    """Dollars alone ask for a step that stops pods, and too much of the usage has no price."""
    asked = [each for each in result.steps if each.action in STOPPING and account.has_reached(each.share)]
    if not asked or any(account.may_stop(each.share) for each in asked):
        return None
    found = account.found
    share = _percent(found.unpriced_gpu_ms, found.gpu_ms)
    return "PriceUnknown", (
        f"{share} of the GPU time in the window has no price. No pods are suspended or evicted for dollars "
        f"while that is more than {MOST_UNPRICED}%; name what the nodes cost in a price book."
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
            f"Evicted three times in the window and made anew each time, so left alone: {names}. "
            "A Hold step before Evict would keep them from starting again."
        )
    if result.refused:
        return "EvictionBlocked", " ".join(_refused(each) for each in result.refused[:SHOWN])
    if blocked and result.steps:
        return "EvictionBlocked", f"Would not go within two minutes: {_few(blocked)}. Others are tried."
    if result.helpless:
        return "NothingToStop", "The quota is exceeded, and nothing is left that may be stopped."
    return "", "Nothing is in the way of this budget."


def _refused(each: RefusedEviction) -> str:
    by = f"PodDisruptionBudget {' and '.join(each.by)}" if each.by else "A PodDisruptionBudget"
    after = f"Its pods are deleted at {each.deleted_at} if that lasts." if each.deleted_at else "Others are tried."
    return f"{by} has refused the eviction of {each.unit} since {each.since}. {after}"


def sentence(account: Account, result: Enforced) -> str:
    """What enforcement does now, to be said after what was used."""
    said = []
    if result.holds:
        said.append(f"New pods wait.{_queue(result)}")
    now = account.world.now
    waiting = [each for each in result.steps if each.acts_from > now and each.action != HARMLESS]
    said += [f"{each.action} acts from {times.text(each.acts_from)}, after its grace." for each in waiting]
    acting = {each.action for each in result.steps if each.acts_from <= now}
    if "Hold" in acting and not result.holds:
        said.append("New pods cannot be held." if account.world.hold_problem else "New pods will be held.")
    if "Pause" in acting:
        said.append("What runs is marked as paused.")
    if result.victim is not None:
        doing = "Suspending" if result.victim.action == "Suspend" else "Evicting"
        by = f" for budget {result.victim.by}" if result.victim.by else ""
        said.append(f"{doing} {result.victim.unit}{by}.")
    return " ".join(said)


# --- events -------------------------------------------------------------------------------------------------------------------


def events(account: Account, result: Enforced, exceeded: Verdict, told: GPUWorkloadBudgetStatus) -> Iterator[Action]:
    """Events on the budget, once for each turn."""
    yield from _of_quota(account, exceeded, told)
    yield from _of_steps(account, result.entered, exceeded.message)
    if result.took is not None:
        doing = "Suspending" if result.took.action == "Suspend" else "Evicting"
        also = f" It is stopped for budget {result.took.by}, and this one counts it too." if result.took.by else ""
        yield _event(account, "Warning", doing, f"{doing} {result.took.unit}.{also} {exceeded.message}")
    told_before = {(each.unit, each.since) for each in account.status.refused}
    for refused in result.refused:
        if (refused.unit, refused.since) not in told_before:
            yield _event(account, "Warning", "EvictionRefused", _refused(refused))
    for each in _newly_hopeless(account, result):
        says = f"{each.unit} asks for {gpus(each.gpus)}, too much even with nothing else: it never starts, and holds up nobody."
        yield _event(account, "Warning", "NeverFits", says)


def _event(account: Account, kind: Literal["Normal", "Warning"], reason: str, message: str) -> EmitEvent:
    return EmitEvent(object=str(account.ref), event_type=kind, reason=reason, message=conditions.shortened(message))


def _of_quota(account: Account, exceeded: Verdict, told: GPUWorkloadBudgetStatus) -> Iterator[Action]:
    if was_exceeded(account.budget) == exceeded.holds:
        return
    if exceeded.holds:
        top = told.top_pods[0] if told.top_pods else None
        most = f" Most was used by {top.pod}: {short(nano_of(top.gpu_hours), NANO)} GPU-hours." if top else ""
        yield _event(account, "Warning", "QuotaExceeded", f"{exceeded.message}{most}")
    else:
        yield _event(account, "Normal", "WithinBudget", exceeded.message)


def _of_steps(account: Account, entered: tuple[EnteredStep, ...], used: str) -> Iterator[Action]:
    """The one step of a budget without steps begins with the quota's own event."""
    before = {(each.at, each.action) for each in account.status.steps}
    now = {(each.at, each.action) for each in entered}
    of_quota = account.spec.enforcement.action is not None
    for at, action in sorted(now - before):
        if not of_quota:
            grace = account.spec.enforcement.grace_period_seconds
            later = f" after {grace} s" if grace and action != HARMLESS else ""
            yield _event(account, "Warning", "StepReached", f"{at} of the quota are used: {action}{later}. {used}")
    for at, action in sorted(before - now):
        if not of_quota or action != HARMLESS:
            yield _event(account, "Normal", "StepLeft", f"{action} at {at} of the quota has ended. {used}")


def _newly_hopeless(account: Account, result: Enforced) -> list[QueuedUnit]:
    known = {
        each.unit for each in (account.status.held.queue if account.status.held else ()) if each.state == "NeverFits"
    }
    queue = result.held.queue if result.held else ()
    return [each for each in queue if each.state == "NeverFits" and each.unit not in known]
