"""What a budget's status says of usage, and the conditions that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api.budgets import Forecast, GPUWorkloadBudgetStatus, RoundedUsage, TopPod
from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.budgets import index, unseen
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.numbers import beside, decimal, dollars, gpus, short
from headroom.core.budgets.wording import spoken
from headroom.core.usage import DOLLAR, GPU_HOUR, BudgetUsage, QuotaLimits, Reckoning
from headroom.model import conditions, times

TOP: Final = 5
DELETE_FORBIDDEN: Final = (
    "A step has `afterDeadline: Delete`, but the operator may not delete pods, so pods whose eviction is refused keep running. "
    "Bind the ClusterRole headroom-pod-deleter to its ServiceAccount."
)
FRESH_MS: Final = 10_000
"""Who used most is worked out anew once the written answer is this old."""


class BudgetCondition(NamedTuple):
    """Type, whether it holds, why for machines, why for people."""

    type: str
    holds: bool
    reason: str
    message: str


def status(account: BudgetAccount) -> GPUWorkloadBudgetStatus:
    """The numbers of a budget."""
    budget, found, quota, rows = account.budget, account.found, account.quota, account.rows
    before = account.status
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
        rounded=_rounded(found, quota, has_money=has_money),
        forecast=_forecast(account),
        top_pods=_top_pods(budget, found, rows),
        tracked_pods=found.tracked,
    )


def _rounded(found: Reckoning, quota: QuotaLimits, *, has_money: bool) -> RoundedUsage:
    return RoundedUsage(
        consumed_gpu_hours=short(found.gpu_ms, GPU_HOUR),
        remaining_gpu_hours="" if quota.gpu_ms is None else short(max(quota.gpu_ms - found.gpu_ms, 0), GPU_HOUR),
        burn_rate_gpus=gpus(found.burn),
        consumed_usd=dollars(found.usd_ms, DOLLAR) if has_money else "",
    )


def _remaining(quota: int | None, used: int, whole: int) -> str:
    return "" if quota is None else decimal(max(quota - used, 0), whole)


def _forecast(account: BudgetAccount) -> Forecast | None:
    outlook, other = account.outlook, account.found.if_nothing_ends
    found = Forecast(
        exhausted_at=_moment(outlook.exhausted_at),
        recovers_at=_moment(outlook.recovers_at),
        exhausted_at_if_nothing_ends=_moment(other.exhausted_at) if other != outlook else "",
        recovers_at_if_nothing_ends=_moment(other.recovers_at) if other != outlook else "",
    )
    return None if found == Forecast() else found


def _moment(at: int | None) -> str:
    """A moment as text; what lies beyond the calendar is never."""
    return "" if at is None or at > times.LAST else times.text(at)


def _top_pods(budget: AnyResource, found: Reckoning, rows: BudgetUsage) -> tuple[TopPod, ...]:
    before: GPUWorkloadBudgetStatus = budget.status
    written = times.moment(before.as_of)
    turned = bool(found.exceeded) != was_exceeded(budget)
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


# --- judging --------------------------------------------------------------------------------------------------------------------


def exceeded(account: BudgetAccount, told: GPUWorkloadBudgetStatus) -> BudgetCondition:
    """Whether the budget is over quota."""
    found, quota, parts = account.found, account.quota, []
    if quota.gpu_ms is not None:
        parts.append(f"{beside(found.gpu_ms, quota.gpu_ms, GPU_HOUR)} of {decimal(quota.gpu_ms, GPU_HOUR)} GPU-hours")
    if quota.usd_ms is not None:
        parts.append(
            f"{beside(found.usd_ms, quota.usd_ms, DOLLAR, dollars)} of {decimal(quota.usd_ms, DOLLAR)} dollars"
        )
    used = f"{' and '.join(parts)} in the last {account.spec.quota.window_hours}h"
    if quota.usd_ms is not None and found.unpriced_gpu_ms:
        used += f", and {short(found.unpriced_gpu_ms, GPU_HOUR)} GPU-hours have no price"
    forecast = told.forecast or Forecast()
    if found.exceeded:
        later = "Usage stays over quota while the current pods run."
        if forecast.recovers_at:
            later = f"Back under quota at {forecast.recovers_at}."
        return BudgetCondition("QuotaExceeded", True, "QuotaReached", f"Over quota: {used}. {later}")
    later = f" Over quota at {forecast.exhausted_at}." if forecast.exhausted_at else ""
    return BudgetCondition("QuotaExceeded", False, "WithinBudget", f"Within quota: {used}.{later}")


def health(account: BudgetAccount) -> BudgetCondition:
    """Whether everything that happened is counted, and everything can be done that is asked for."""
    world, budget, spec, found = account.world, account.budget, account.spec, account.found
    if world.ledger.problem:
        return degraded(
            "LedgerUnavailable", f"{world.ledger.problem} Usage is still counted; nothing is enforced on it."
        )
    if world.ledger.rival:
        says = (
            f"Another operator ({world.ledger.rival}) writes to the ledger as cluster {world.cluster}; this happens after a cluster is cloned. "
            "Neither operator prunes or enforces until one of them stops or gets its own --cluster-id."
        )
        return degraded("ClusterIdShared", says)
    if spec.namespace_selector is not None and budget.namespace != world.own_namespace:
        says = f"namespaceSelector has an effect only in namespace {world.own_namespace}; this budget covers its own namespace."
        return degraded("NamespaceSelectorIgnored", says)
    if found.unreadable:
        says = f"A pod requests an unreadable amount of {found.unreadable}; its usage is not counted."
        return degraded("UnreadableRequest", says)
    if spec.quota.usd is not None and not account.is_priced:
        hours = short(found.unpriced_gpu_ms, GPU_HOUR)
        says = f"{hours} GPU-hours have no price, so usage in dollars is incomplete; add the prices of their nodes to a price book."
        return degraded("PriceUnknown", says)
    if found.stale and spec.home_cluster == world.cluster:
        says = f"No recent usage from clusters: {', '.join(found.stale)}; the upper bound includes what they may have used."
        return degraded("ClusterStale", says)
    if hindered := _hindered(account):
        return degraded(*hindered)
    if _is_incomplete(account):
        return BudgetCondition("Degraded", False, "HistoryIncomplete", _incomplete(account))
    return BudgetCondition("Degraded", False, "ReconcileSucceeded", "All usage is counted.")


def _hindered(account: BudgetAccount) -> tuple[str, str] | None:
    """What the budget asks for and cannot be done here."""
    world = account.world
    if world.hold_problem and account.has_step("Hold"):
        return "HoldUnavailable", f"New pods cannot be queued. {world.hold_problem}"
    if not world.caps.deletes and any(step.after_deadline == "Delete" for step in account.spec.enforcement.ladder):
        return "DeleteForbidden", DELETE_FORBIDDEN
    limits = unseen.limits(world)
    return ("KindNotSeen", limits) if limits else None


def doubts(account: BudgetAccount) -> Iterator[BudgetCondition]:
    """Conditions that are there only while something is in doubt."""
    world, ledger = account.world, account.world.ledger
    if world.index_problem and not index.is_known(world, account.budget):
        says = "The BudgetIndex cannot be written, so the API server's policies use an outdated copy of this budget."
        yield BudgetCondition("Indexed", False, "IndexNotWritten", f"{says} {world.index_problem}")
    if _is_incomplete(account):
        yield BudgetCondition("HistoryIncomplete", True, "LedgerIsYounger", _incomplete(account))
    if ledger.clock_offset_ms:
        where = "ahead of" if ledger.clock_offset_ms > 0 else "behind"
        says = f"The operator's clock is {spoken(abs(ledger.clock_offset_ms))} {where} the API server's."
        later = "Usage is still counted; nothing is enforced, released or pruned until they agree."
        yield BudgetCondition("ClockSuspect", True, "ClockOffset", f"{says} {later}")
    elif ledger.clock_step_ms:
        where = "forward" if ledger.clock_step_ms > 0 else "back"
        says = f"The operator's clock jumped {where} by {spoken(abs(ledger.clock_step_ms))}."
        yield BudgetCondition(
            "ClockSuspect", True, "ClockStepped", f"{says} Usage is still counted; nothing is pruned for now."
        )


def _is_incomplete(account: BudgetAccount) -> bool:
    """Whether the ledger began, or began anew, inside the window."""
    since: int = account.world.as_of - account.window
    return account.world.ledger.known_since > since


def _incomplete(account: BudgetAccount) -> str:
    since = account.world.ledger.known_since
    return (
        f"Usage has been counted since {times.text(since)}; pods deleted earlier are unknown. "
        f"The history covers the whole window from {times.text(since + account.window)}."
    )


def requesting(account: BudgetAccount) -> BudgetCondition:
    """A budget that counts a resource which none of its pods asks for is most likely misspelt."""
    scope, found = account.scope, account.found
    names = ", ".join(name for name, _ in scope.weights)
    type_ = "NoPodsRequestResource"
    if found.tracked or found.gpu_ms:
        return BudgetCondition(type_, False, "ResourceRequested", f"Pods of this budget request {names}.")
    matching = usage.pods_matching(account.world, scope)
    if matching.requesting or not matching.pods:
        which = "request it" if matching.requesting else "match the selector yet"
        reason = "ResourceRequested" if matching.requesting else "NoPods"
        return BudgetCondition(
            type_, False, reason, f"{matching.requesting or 'No'} pods of this budget {which}: {names}."
        )
    says = f"{matching.pods} pods match the selector, and none of them requests {names}; check the resource name."
    return BudgetCondition(type_, True, "ResourceNotRequested", says)


def degraded(reason: str, message: str) -> BudgetCondition:
    """Something is not as it should be."""
    return BudgetCondition("Degraded", True, reason, message)


def was_exceeded(budget: AnyResource) -> bool:
    """Whether the budget was over quota when the status was written."""
    before = conditions.find(budget.status.conditions, "QuotaExceeded")
    return before is not None and before.status == "True"
