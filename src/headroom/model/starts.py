"""When pods start that budgets queue, as the budgets' statuses say."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import QueuedUnit
from headroom.api.resources import Status
from headroom.model import times

_moment: Final = lru_cache(maxsize=65536)(times.moment)


def starts_of(status: Status) -> dict[str, int]:
    """When those start that a budget queues, as its status says, by Kind/namespace/name; far in the future where it does not know."""
    held = status.held if isinstance(status, GPUWorkloadBudgetStatus) else None
    return {each.unit: start_of(each) for each in held.queue} if held is not None else {}


def start_of(queued: QueuedUnit) -> int:
    """When one of them starts: 0 if it is being released, far in the future where nobody knows."""
    if queued.state == "Releasing":
        return 0
    start = _moment(queued.starts_at) if queued.starts_at and queued.state != "NeverFits" else None
    return times.LAST if start is None else start
