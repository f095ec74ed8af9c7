"""What `headroom explain` says of a budget: what is used and what comes, its steps, who used most, who waits, what was stopped or released, and what is in the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headroom.cli import output

if TYPE_CHECKING:
    from headroom.api.budgets import Following, GPUWorkloadBudgetStatus
    from headroom.api.enforcement import RefusedEviction
    from headroom.api.kinds import AnyResource

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
    quota = budget.spec.quota
    if not status.as_of:
        yield "Used", "nothing is counted yet"
        return
    pods = output.counted(status.tracked_pods or 0, "pod")
    yield "In use now", f"{output.counted(status.burn_rate_gpus or '0', 'GPU')}, by {pods}"
    for used, whole, left, most, unit in (
        (status.consumed_gpu_hours, quota.gpu_hours, status.remaining_gpu_hours, status.upper_gpu_hours, "GPU-hours"),
        (status.consumed_usd, quota.usd, status.remaining_usd, status.upper_usd, "dollars"),
    ):
        if whole is not None:
            bound = f", at most {most}" if most not in ("", used) else ""
            yield "Used", f"{used} of {whole} {unit} in {quota.window_hours} h{bound}; {left} left"
        elif used not in ("", "0"):
            yield "Used", f"{used} {unit}, without a limit"
    if status.unpriced_gpu_hours not in ("", "0"):
        yield "Without a price", f"{status.unpriced_gpu_hours} GPU-hours"
    if status.forecast and status.forecast.exhausted_at:
        yield "Used up", f"at {status.forecast.exhausted_at} if what runs goes on"
    if status.forecast and status.forecast.recovers_at:
        yield "Holds again", f"at {status.forecast.recovers_at} if what runs goes on"
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
        yield "Last acted", f"at {status.last_enforcement_at}"


def _decided(following: Following) -> str:
    """Whose verdict the budget follows."""
    verdict = f"holds since {following.since}" if following.holding else "does not hold"
    late = "; not heard of for two minutes, so what is queued stays queued" if following.stale else ""
    return f"cluster {following.cluster}, which {verdict}{late}"


def _refused(refused: RefusedEviction) -> str:
    """Who keeps pods from being evicted, and what comes of it."""
    by = f"PodDisruptionBudget {' and '.join(refused.by)}" if refused.by else "a PodDisruptionBudget"
    then = f"deleted at {refused.deleted_at} if that lasts" if refused.deleted_at else "others are tried"
    return f"{refused.unit} since {refused.since}, by {by}; {then}"


def _tables(budget: AnyResource, status: GPUWorkloadBudgetStatus) -> Iterator[Table]:
    since = {(each.at, each.action): each.since for each in status.steps}
    steps = [
        (each.at, each.action, since.get((each.at, each.action), "not reached"))
        for each in budget.spec.enforcement.ladder
    ]
    yield "Steps", ("AT", "ACTION", "SINCE"), steps
    if any(each.usd for each in status.top_pods):
        priced = [(each.pod, each.gpu_hours, each.usd) for each in status.top_pods]
        yield "Most was used by", ("POD", "GPU-HOURS", "DOLLARS"), priced
    else:
        yield "Most was used by", ("POD", "GPU-HOURS"), [(each.pod, each.gpu_hours) for each in status.top_pods]
    held = status.held
    queue = [
        (each.unit, each.gpus, each.pods, each.since, each.starts_at or "not known", each.state)
        for each in (held.queue if held else ())
    ]
    more = f", the first {len(queue)} of {held.units}" if held and held.units > len(queue) else ""
    yield f"Waiting{more}", ("UNIT", "GPUS", "PODS", "SINCE", "STARTS", "STATE"), queue
    released = [
        (each.owner, each.gpus, each.used_gpus or "0", each.at, each.until, each.request or "its turn")
        for each in status.released
    ]
    columns = ("OWNER", "GPUS", "IN USE", "AT", "UNTIL", "BY")
    yield "Released, and may start again", columns, released[:MOST_RELEASED]
    stopped = [(each.unit, each.action, each.at, each.outcome) for each in status.stopped]
    yield "Stopped lately", ("UNIT", "ACTION", "AT", "OUTCOME"), stopped
