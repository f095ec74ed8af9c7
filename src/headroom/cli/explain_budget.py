"""What `headroom explain` says of a budget: what is used and what comes, its steps, who used most, who waits, what was stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headroom.cli import output

if TYPE_CHECKING:
    from headroom.api.budgets import GPUWorkloadBudgetStatus
    from headroom.api.kinds import AnyResource

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
    if status.victim is not None:
        doing = "suspended" if status.victim.action == "Suspend" else "evicted"
        yield "Being stopped", f"{status.victim.unit}, {doing} since {status.victim.at}"
    if status.last_enforcement_at:
        yield "Last acted", f"at {status.last_enforcement_at}"
    yield "As of", status.as_of


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
    stopped = [(each.unit, each.action, each.at, each.outcome) for each in status.stopped]
    yield "Stopped lately", ("UNIT", "ACTION", "AT", "OUTCOME"), stopped
