"""What people see of budgets: what is used and what comes, the steps, the largest users, the queue, what was stopped or released, and what is in the way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headroom.cli import output
from headroom.cli.face import Face

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.api.budgets import Following, GPUWorkloadBudgetStatus
    from headroom.api.enforcement import RefusedEviction
    from headroom.api.kinds import AnyResource
    from headroom.api.resources import Status
    from headroom.api.schema import Problem
    from headroom.cli.face import Story
    from headroom.model.decisions import Decision
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.web.page import Page

MOST_BUDGETS: Final = 20
MOST_NAMESPACES: Final = 10
MOST_REFUSED: Final = 3
MOST_RELEASED: Final = 10
Table = tuple[str, tuple[str, ...], Sequence[Sequence[object]]]
"""A title, the columns, the rows."""


def show(budget: AnyResource, status: GPUWorkloadBudgetStatus) -> None:
    """Print the numbers of a budget as sentences and short tables."""
    output.as_fields(_numbers(budget, status))
    for title, columns, rows in _tables(budget, status):
        if rows:
            output.line()
            output.line(title)
            output.as_table(columns, rows, texts=0, indent=2)


def _numbers(budget: AnyResource, status: GPUWorkloadBudgetStatus) -> Iterator[tuple[str, str]]:
    from headroom.core.budgets import amount

    quota = budget.spec.quota
    if not status.as_of:
        yield "Used", "no usage is counted yet"
        return
    pods = output.counted(status.tracked_pods or 0, "pod")
    yield "Burn rate", f"{output.counted(status.burn_rate_gpus or '0', 'GPU')}, by {pods}"
    for used, whole, left, most, unit in (
        (status.consumed_gpu_hours, quota.gpu_hours, status.remaining_gpu_hours, status.upper_gpu_hours, "GPU-hours"),
        (status.consumed_usd, quota.usd, status.remaining_usd, status.upper_usd, "dollars"),
    ):
        if whole is not None:
            bound = f", at most {amount(most, unit)}" if most not in ("", used) else ""
            window = f"{quota.window_hours}h"
            yield "Used", f"{amount(used, unit)} of {whole} {unit} in {window}{bound}; {amount(left, unit)} left"
        elif used not in ("", "0"):
            yield "Used", f"{amount(used, unit)} {unit}, no quota"
    if status.unpriced_gpu_hours not in ("", "0"):
        yield "Without a price", f"{amount(status.unpriced_gpu_hours, 'GPU-hours')} GPU-hours"
    if (ahead := status.forecast) is not None:
        told = (("Over quota", ahead.exhausted_at), ("Back under quota", ahead.recovers_at))
        yield from ((name, f"at {at}, with pods ending when they declare") for name, at in told if at)
        other = ahead.exhausted_at_if_nothing_ends or ahead.recovers_at_if_nothing_ends
        if other:
            words = "over quota" if ahead.exhausted_at_if_nothing_ends else "back under quota"
            yield "If nothing ended", f"{words} at {other}"
    yield from _enforced(status)
    yield "As of", status.as_of


def _enforced(status: GPUWorkloadBudgetStatus) -> Iterator[tuple[str, str]]:
    if status.victim is not None:
        doing = "suspended" if status.victim.action == "Suspend" else "evicted"
        yield "Being stopped", f"{status.victim.unit}, {doing} since {status.victim.at}"
    if status.following is not None:
        yield "Decided by", _decided(status.following)
    for each in status.refused[:MOST_REFUSED]:
        yield "Eviction refused", _refused(each)
    if status.last_enforcement_at:
        yield "Last enforced", f"at {status.last_enforcement_at}"


def _decided(following: Following) -> str:
    """Whose verdict the budget follows."""
    verdict = f"queues new pods since {following.since}" if following.holding else "lets new pods run"
    late = "; it has not reported for two minutes, so queued pods stay queued" if following.stale else ""
    return f"cluster {following.cluster}, which {verdict}{late}"


def _refused(refused: RefusedEviction) -> str:
    """Who keeps pods from being evicted, and what comes of it."""
    by = f"PodDisruptionBudget {' and '.join(refused.by)}" if refused.by else "a PodDisruptionBudget"
    then = (
        f"deleted at {refused.deleted_at} unless evicted before" if refused.deleted_at else "others are stopped instead"
    )
    return f"{refused.unit} since {refused.since}, by {by}; {then}"


def _tables(budget: AnyResource, status: GPUWorkloadBudgetStatus) -> Iterator[Table]:
    from headroom.core.budgets import amount

    since = {(each.at, each.action): each.since for each in status.steps}
    steps = [
        (each.at, each.action, since.get((each.at, each.action), "not active"))
        for each in budget.spec.enforcement.ladder
    ]
    yield "Steps", ("AT", "ACTION", "SINCE"), steps
    if any(each.usd for each in status.top_pods):
        priced = [
            (each.pod, amount(each.gpu_hours, "GPU-hours"), amount(each.usd, "dollars")) for each in status.top_pods
        ]
        yield "Largest users", ("POD", "GPU-HOURS", "DOLLARS"), priced
    else:
        used = [(each.pod, amount(each.gpu_hours, "GPU-hours")) for each in status.top_pods]
        yield "Largest users", ("POD", "GPU-HOURS"), used
    held = status.held
    queue = [
        (each.unit, each.gpus, each.pods, each.since, each.starts_at or "unknown", each.state)
        for each in (held.queue if held else ())
    ]
    more = f", the first {len(queue)} of {held.units}" if held and held.units > len(queue) else ""
    yield f"Queued{more}", ("POD OR GANG", "GPUS", "PODS", "SINCE", "ESTIMATED START", "STATE"), queue
    released = [
        (each.owner, each.gpus, each.used_gpus or "0", each.at, each.until, each.request or "queue")
        for each in status.released
    ]
    columns = ("OWNER", "GPUS", "ALLOCATED", "AT", "UNTIL", "BY")
    yield "Released, may start without queueing again", columns, released[:MOST_RELEASED]
    stopped = [(each.unit, each.action, each.at, each.outcome) for each in status.stopped]
    yield "Stopped recently", ("POD OR GANG", "ACTION", "AT", "OUTCOME"), stopped


# --- in `headroom status` -----------------------------------------------------------------------------------------------------


def _row(_world: World, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.web.pages.parts import budget_row

    row = budget_row(resource, decision)
    if resource.problems:
        row["problems"] = [{"field": each.field, "message": each.message} for each in resource.problems]
    if decision is None and resource.spec is not None:
        row["message"] = " ".join(_written(resource.status))
    return row


def _written(status: Status) -> Iterator[str]:
    """What stands in a status, as sentences."""
    from headroom.model import conditions

    found = [conditions.find(status.conditions, type_) for type_ in ("QuotaExceeded", "Holding", "Degraded")]
    told = [each.message for each in found if each and (each.status == "True" or each.type == "QuotaExceeded")]
    yield from told or ("No usage is counted yet.",)


def _table(found: dict[str, Any], everything: bool) -> None:
    from headroom.model import times

    rows = sorted(found["budgets"], key=lambda each: (-each.get("percent", 0), each["namespace"], each["name"]))
    if not rows:
        _say_there_is_none(found)
        return
    output.line()
    most = len(rows) if everything or not output.is_terminal() else MOST_BUDGETS
    at = times.moment(found["at"]) or 0
    table = [
        (
            f"{each['namespace']}/{each['name']}",
            output.bar(each.get("percent", 0)),
            output.percent(each.get("percent", 0)),
            of_quota(each),
            each.get("burnRateGpus", ""),
            output.Toned(each["state"], each["tone"]),
            outlook(each, at),
        )
        for each in rows[:most]
    ]
    output.as_table(("BUDGET", "USED", "", "QUOTA", "GPUS", "STATE", "OUTLOOK"), table)
    if len(rows) > most:
        output.line(f"and {output.counted(len(rows) - most, 'budget')} more, less used; --all lists them")


def _say_there_is_none(found: dict[str, Any]) -> None:
    """Without budgets nothing is said of them, unless somebody looks for one or there is nothing else."""
    says = _no_budget(found)
    if says:
        output.line()
        output.line(says)


def _no_budget(found: dict[str, Any]) -> str:
    from headroom.cli.capabilities import FACES
    from headroom.cli.explain import offered

    if any(each.startswith("gpuworkloadbudgets") for each in found["unread"]):
        return "You may not list budgets."
    if "namespace" not in found:
        is_all = any(found[each.section] for each in FACES.values() if each.section) or found["others"]
        return "" if is_all else "There is no budget; see docs/examples."
    others = found["otherNamespaces"]
    near = offered(found["namespace"], {each: each for each in others})
    known = f"; there are budgets in {', '.join(others[:MOST_NAMESPACES])}" if others and not near else ""
    return f"There is no budget in namespace {found['namespace']}{near}{known}."


def of_quota(row: dict[str, Any]) -> str:
    """What may be used, and in how many hours: 47.5h/24h, $500/168h."""
    from headroom.api.quantities import InvalidQuantity, nano
    from headroom.web.pages.parts import decimal

    found = []
    for name, form in (("quotaGpuHours", "{}h"), ("quotaUsd", "${}")):
        amount = nano(row.get(name, ""))
        if not isinstance(amount, InvalidQuantity):
            found.append(form.format(decimal(amount // 1000)))
    window = f"/{row['windowHours']}h" if "windowHours" in row else ""
    return "+".join(found) + window


def outlook(row: dict[str, Any], at: int) -> str:
    """When a budget goes over quota or back under it, in a few words."""
    from headroom.model import times

    held = f"; {output.counted(row['heldPods'], 'pod')} queued" if row.get("heldPods") else ""
    for key, words in (("exhaustedAt", "over quota"), ("recoversAt", "back under quota")):
        moment = times.moment(row.get(key))
        if moment is not None:
            return f"{words} in {output.spoken(max(0, moment - at))}{held}" if moment > at else f"{words} now{held}"
    if row["state"] == "Invalid":
        first, *others = row["problems"]
        more = f"; and {output.counted(len(others), 'problem')} more" if others else ""
        return f"{first['field']} {first['message']}{more}"
    if row["state"] == "Waiting":
        return str(row["message"])
    if row.get("percent", 0) >= 100:
        return f"stays over quota{held}"
    return f"{'nothing runs' if row.get('burnRateGpus') == '0' else 'stays within quota'}{held}"


# --- elsewhere ----------------------------------------------------------------------------------------------------------------


def _advice(budget: AnyResource, given: Collection[str], _others: Iterable[AnyResource]) -> list[Problem]:
    from headroom.api import advice

    return advice.of_budget(budget, given)


def _pages() -> tuple[Page, ...]:
    from headroom.web.page import Page
    from headroom.web.pages.budget import BudgetPage

    path = "budgets/{namespace}/{name}"
    return (Page(path, "budget", lambda: BudgetPage().model, kind="GPUWorkloadBudget", noun="budget"),)


def _metrics(registry: CollectorRegistry) -> Measure:
    from headroom.runtime.budget_metrics import BudgetMetrics

    return BudgetMetrics(registry)


def _story() -> Story:
    from headroom.cli.story_budgets import BudgetStory

    return BudgetStory()


FACE: Final = Face(
    show=show,
    advice=_advice,
    pages=_pages,
    section="budgets",
    row=_row,
    table=_table,
    metrics=_metrics,
    story=_story,
)
