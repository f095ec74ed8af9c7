"""What pods really held, by the API's own timestamps: nothing of Headroom is used to find it.

Amounts are millionths of a GPU, moments milliseconds; their product is exact.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

MICRO_MS_PER_GPU_HOUR = 3_600_000 * 10**6
ENDED = ("Succeeded", "Failed")


class Held(NamedTuple):
    """So much, from then to then; no end means that it is held still."""

    micro: int
    start: int
    end: int | None


def held(pod: Mapping[str, Any], resource: str) -> Held | None:
    """What a pod held, by its last state; None if it never started."""
    status = pod["status"]
    runs = [
        state[how]
        for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
        for state in (container.get("state", {}), container.get("lastState", {}))
        for how in ("running", "terminated")
        if how in state
    ]
    if not runs:
        return None
    ends = [moment(run["finishedAt"]) for run in runs if "finishedAt" in run]
    micro = sum(_micro(container["resources"]["requests"][resource]) for container in pod["spec"]["containers"])
    end = max(ends) if status["phase"] in ENDED else None
    return Held(micro, min(moment(run["startedAt"]) for run in runs), end)


def used(holders: Iterable[Held], as_of: int, window: int) -> int:
    """Millionths of a GPU times milliseconds inside the window that ends at `as_of`."""
    total = 0
    for each in holders:
        end = as_of if each.end is None else min(each.end, as_of)
        total += each.micro * max(0, end - max(each.start, as_of - window))
    return total


def moment(text: str) -> int:
    """Milliseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _micro(quantity: str) -> int:
    return int(quantity[:-1]) * 1000 if quantity.endswith("m") else int(quantity) * 10**6
