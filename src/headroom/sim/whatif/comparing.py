"""Two outcomes side by side, as numbers for programs; `report` turns them into text."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from headroom.model import times
from headroom.model.usage import DAY
from headroom.sim.whatif.measures import PolicyOutcome
from headroom.sim.whatif.work import Case

FAR: Final = 0.02
"""A replay that differs more than this from its record gets a warning."""


class Closeness(NamedTuple):
    """A budget's usage in the record, and in a replay of it."""

    budget: str
    recorded: float
    replayed: float

    @property
    def gap(self) -> float | None:
        """The relative difference of the replay; None if the record has no usage to compare with."""
        if self.recorded:
            return self.replayed / self.recorded - 1
        return None if self.replayed else 0.0

    @property
    def is_far(self) -> bool:
        """Whether the report should warn."""
        return self.gap is None or abs(self.gap) > FAR

    def wire(self) -> dict[str, Any]:
        """The form for programs."""
        return {
            "budget": self.budget,
            "recordedGpuHours": self.recorded,
            "replayedGpuHours": self.replayed,
            "gap": self.gap,
        }


class Comparison(Struct, frozen=True, kw_only=True):
    """What was replayed, what was changed, and both outcomes."""

    case: Case
    changes: list[str]
    every: int
    """How long arrivals and ends are gathered before the plans are asked, in milliseconds."""
    before: PolicyOutcome
    after: PolicyOutcome
    clauses: list[str] = []
    """The same changes as clauses of the question: what if ...?"""
    is_record: bool = False
    """Whether the policies before are those of the record, so that the first replay can be compared with it."""

    def closeness(self) -> list[Closeness]:
        """How far a replay of the unchanged policy is from the record, by budget; empty without such a record."""
        if not self.is_record:
            return []
        return [Closeness(each.budget, each.recorded_gpu_hours, each.gpu_hours) for each in self.before.budgets]

    def wire(self, *, lines: bool = True) -> dict[str, Any]:
        """The form that `-o json` prints, without the long lines of the charts."""
        case = self.case
        found: dict[str, Any] = {
            "played": case.title,
            "from": times.text(case.begin),
            "to": times.text(case.end),
            "days": (case.end - case.begin) / DAY,
            "work": len(case.works),
            "nodes": len(case.nodes),
            "gatheredForSeconds": self.every / times.SECOND,
            "recordedGpuHours": case.recorded_gpu_ms / 3.6e12,
            "replayOfTheRecord": [each.wire() for each in self.closeness()],
            "changes": self.changes,
            "notes": case.notes,
            "before": msgspec.to_builtins(self.before),
            "after": msgspec.to_builtins(self.after),
        }
        if not lines:
            del found["before"]["lines"], found["after"]["lines"]
        return found


def machines_slept(found: Comparison) -> bool:
    """Whether any machine was off for a time, on either side."""
    return any(each.wakes or each.sleeps or each.saved_kwh for each in (found.before, found.after))


def unmatched(found: Comparison, remedy: str) -> list[str]:
    """A sentence for each budget that counts no pod at all on one of the sides."""
    before, after = ({each.budget: each for each in it.budgets} for it in (found.before, found.after))
    said = []
    for key in sorted(before.keys() | after.keys()):
        sides = [("before", before.get(key)), ("after", after.get(key))]
        idle = [name for name, each in sides if each is not None and not each.counts_pods]
        when = f" {idle[0]} the change" if len(idle) == 1 and key in before and key in after else ""
        if idle:
            said.append(f"Budget {key} matches no pod{when}, so it has no effect: {remedy}.")
    return said
