"""Conditions: standing judgements with the moment they last changed, kept from one status to the next."""

from __future__ import annotations

from collections.abc import Iterable

from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.model import times


def judged(resource: AnyResource, type_: str, verdict: bool, reason: str, message: str, now: int) -> Condition:
    """A condition about `resource`; its moment is kept from the last status unless the verdict turned."""
    status = "True" if verdict else "False"
    before = find(resource.status.conditions, type_)
    unchanged = before is not None and before.status == status
    return Condition(
        type=type_,
        status="True" if verdict else "False",
        reason=reason,
        message=message,
        last_transition_time=before.last_transition_time
        if unchanged and before
        else times.text(now - now % times.SECOND),
        observed_generation=resource.generation,
    )


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((each for each in conditions if each.type == type_), None)
