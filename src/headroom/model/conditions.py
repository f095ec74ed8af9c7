"""Conditions: standing judgements with the moment they last changed, kept from one status to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.model import times

LONGEST_MESSAGE: Final = 4000


def judged(resource: AnyResource, type_: str, verdict: bool, reason: str, message: str, now: int) -> Condition:
    """A condition about `resource`; its moment is kept from the last status unless the verdict turned."""
    before = find(resource.status.conditions, type_)
    status: Literal["True", "False"] = "True" if verdict else "False"
    unchanged = before is not None and before.status == status
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=shortened(message),
        last_transition_time=before.last_transition_time
        if unchanged and before
        else times.text(now - now % times.SECOND),
        observed_generation=resource.generation,
    )


def shortened(message: str) -> str:
    """A message that the API server will take, whatever was put into it."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[:LONGEST_MESSAGE]}... ({len(message)} characters)"


def holds(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition of that type is there and true."""
    return any(each.type == type_ and each.status == "True" for each in conditions)


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((each for each in conditions if each.type == type_), None)
