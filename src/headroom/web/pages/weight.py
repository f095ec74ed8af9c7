"""The type of a decision, from its actions and reason, so that evictions and failures stand out from routine wakes."""

from __future__ import annotations

import re
from typing import Final

from headroom.model import actions
from headroom.runtime.journal import Noted

TYPES: Final = ("stops", "failures", "queue", "machines", "other")
"""Most important first; an entry gets the first type that matches."""
_DONE: Final = {
    "stops": (actions.EvictPod, actions.DeletePod, actions.SuspendOwner, actions.PausePod),
    "queue": (
        actions.ReleasePod,
        actions.ResumeOwner,
        actions.ResumePod,
        actions.ApplyBudgetHold,
        actions.DeleteBudgetHold,
    ),
    "machines": (
        actions.WakeMachine,
        actions.SleepMachine,
        actions.LaunchInstance,
        actions.TerminateInstance,
        actions.CordonNode,
        actions.UncordonNode,
        actions.DrainNode,
    ),
}
_OF_ACTION: Final = {each.__name__: name for name, classes in _DONE.items() for each in classes}
_FAILURE: Final = re.compile(r"Fail|Invalid|Refused|Conflict|Blocked|Unknown|Lost|Missing|Error|Degraded")
_QUEUE: Final = re.compile(r"Hold|Held|Releas|Queue|Quota|Exhausted|Recover")
_KINDS: Final = ("PowerPool", "Spotpool", "LeftoverNodePool")


def type_of(entry: Noted) -> str:
    """The type of an entry."""
    done = {_OF_ACTION.get(each.partition(" ")[0], "") for each in entry.actions}
    reasons = (entry.reason, *(each.reason for each in entry.news))
    if "stops" in done:
        return "stops"
    if any(map(_FAILURE.search, reasons)):
        return "failures"
    if "queue" in done or any(map(_QUEUE.search, reasons)):
        return "queue"
    return "machines" if "machines" in done or entry.ref.kind in _KINDS else "other"
