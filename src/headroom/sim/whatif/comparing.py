"""Two outcomes side by side: as numbers for programs, and as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from headroom.model import times
from headroom.model.usage import DAY
from headroom.sim.whatif.outcome import OfBudget, Outcome, Sums
from headroom.sim.whatif.work import Case

UNKNOWN: Final = "unknown"
NONE: Final = "-"


class Comparison(Struct, frozen=True, kw_only=True):
    """What was played, what was changed, and what came of it."""

    case: Case
    changes: list[str]
    every: int
    """For how long what people did was gathered before the plans were asked, in milliseconds."""
    before: Outcome
    after: Outcome

    def wire(self, *, lines: bool = True) -> dict[str, Any]:
        """The form that `-o json` prints; the lines to draw are long, and left out where nobody draws."""
        case = self.case
        found: dict[str, Any] = {
            "played": case.title,
            "from": times.text(case.begin),
            "to": times.text(case.end),
            "days": (case.end - case.begin) / DAY,
            "work": len(case.works),
            "nodes": len(case.nodes),
            "gatheredForSeconds": self.every / times.SECOND,
            "recordedGpuHours": None if case.recorded_gpu_ms is None else case.recorded_gpu_ms / 3.6e12,
            "changes": self.changes,
            "notes": case.notes,
            "before": msgspec.to_builtins(self.before),
            "after": msgspec.to_builtins(self.after),
        }
        if not lines:
            del found["before"]["lines"], found["after"]["lines"]
        return found


class Table(NamedTuple):
    """A table as people read it."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tables(found: Comparison) -> list[Table]:
    """Everything that is worth a look, the whole first."""
    out = [_both_sides("Everything", _LINES, found)]
    if machines_slept(found):
        out.append(_both_sides("Machines", _MACHINES, found))
    if len({each.team for each in (*found.before.teams, *found.after.teams)}) > 1:
        out.append(_teams(found))
    if found.before.budgets or found.after.budgets:
        out.append(_budgets(found))
    return out


def machines_slept(found: Comparison) -> bool:
    """Whether machines were off for a time, on either side."""
    return any(each.wakes or each.sleeps or each.saved_kwh for each in (found.before, found.after))


def unmatched(found: Comparison, remedy: str) -> list[str]:
    """A sentence for each budget that counts no pod at all, on either side."""
    before, after = ({each.budget: each for each in it.budgets} for it in (found.before, found.after))
    said = []
    for key in sorted(before.keys() | after.keys()):
        sides = [("before", before.get(key)), ("after", after.get(key))]
        idle = [name for name, each in sides if each is not None and not each.counts_pods]
        when = f" {idle[0]} the change" if len(idle) == 1 and key in before and key in after else ""
        if idle:
            said.append(f"Budget {key} counts none of these pods{when}, so it does nothing: {remedy}.")
    return said


# --- words ----------------------------------------------------------------------------------------------------------------------


def hours(value: float) -> str:
    """GPU-hours."""
    return f"{value:,.1f}"


def dollars(sums: Sums) -> str:
    """What it cost."""
    return UNKNOWN if sums.usd is None else f"${sums.usd:,.2f}"


def span(seconds: float | None) -> str:
    """A time to wait, in words."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return "0 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _difference(before: float | None, after: float | None, form: Callable[[float], str] = hours) -> str:
    """By how much the second is more, and by what part."""
    if before is None or after is None:
        return NONE
    gap = after - before
    if form(before) == form(after):
        return "same"
    share = f" ({gap / before:+.0%})" if before and abs(gap / before) >= 0.005 else ""
    return f"{'+' if gap > 0 else '-'}{form(abs(gap))}{share}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _energy(value: float) -> str:
    return f"{value:,.1f} kWh"


def _money(value: float) -> str:
    return f"${value:,.2f}"


# --- the tables -----------------------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    name: str
    value: Callable[[Outcome], float | None]
    form: Callable[[float], str] = _count
    unknown: str = NONE


_LINES: Final = (
    _Line("GPU-hours used", lambda it: it.total.gpu_hours, hours),
    _Line("cost", lambda it: it.total.usd, _money, UNKNOWN),
    _Line("GPUs held, mean", lambda it: it.mean_gpus, hours),
    _Line("GPUs held, most", lambda it: it.peak_gpus, hours),
    _Line("wait for a machine, median", lambda it: it.total.waits.median, span),
    _Line("wait for a machine, 95 of 100 within", lambda it: it.total.waits.p95, span),
    _Line("wait for a machine, longest", lambda it: it.total.waits.longest, span),
    _Line("pods asked for", lambda it: it.total.asked),
    _Line("pods finished", lambda it: it.total.finished),
    _Line("pods that never got a machine", lambda it: it.total.never_started),
    _Line("pods held by a budget", lambda it: it.held),
    _Line("pods released again", lambda it: it.released),
    _Line("owners suspended", lambda it: it.suspensions),
    _Line("pods evicted", lambda it: it.evictions),
    _Line("pods paused", lambda it: it.pauses),
    _Line("GPU-hours of work lost", lambda it: it.total.lost_gpu_hours, hours),
    _Line("machines woken", lambda it: it.wakes),
    _Line("switches of machines and node pools", lambda it: it.switches),
)
_MACHINES: Final = (
    _Line("hours that machines were on", lambda it: it.machine_hours, hours),
    _Line("machines woken", lambda it: it.wakes),
    _Line("machines sent to sleep", lambda it: it.sleeps),
    _Line("energy drawn, where watts are known", lambda it: it.energy_kwh, _energy, UNKNOWN),
    _Line("energy saved by sleeping", lambda it: it.saved_kwh, _energy, UNKNOWN),
)


def _both_sides(title: str, lines: Sequence[_Line], found: Comparison) -> Table:
    rows = []
    for line in lines:
        before, after = line.value(found.before), line.value(found.after)
        words = [line.unknown if each is None else line.form(each) for each in (before, after)]
        rows.append((line.name, *words, _difference(before, after, line.form)))
    return Table(title, ("", "BEFORE", "AFTER", "DIFFERENCE"), rows)


def _teams(found: Comparison) -> Table:
    before, after = ({each.team: each.sums for each in it.teams} for it in (found.before, found.after))
    rows = []
    for team in sorted(before.keys() | after.keys()):
        pair = [before.get(team), after.get(team)]
        used = [0.0 if each is None else each.gpu_hours for each in pair]
        rows.append(
            (
                team,
                _both(*(hours(each) for each in used)),
                _difference(used[0], used[1]),
                _both(*(NONE if each is None else dollars(each) for each in pair)),
                _both(*(NONE if each is None else span(each.waits.median) for each in pair)),
                _both(*(NONE if each is None else span(each.waits.p95) for each in pair)),
                _both(*(NONE if each is None else _count(each.never_started) for each in pair)),
                _both(*(NONE if each is None else hours(each.lost_gpu_hours) for each in pair)),
            )
        )
    heads = ("TEAM", "GPU-HOURS", "DIFFERENCE", "COST", "WAIT, MEDIAN", "WAIT, 95%", "NEVER STARTED", "HOURS LOST")
    return Table("By team", heads, rows)


def _budgets(found: Comparison) -> Table:
    before, after = ({each.budget: each for each in it.budgets} for it in (found.before, found.after))
    rows = []
    for key in sorted(before.keys() | after.keys()):
        pair = [before.get(key), after.get(key)]
        rows.append(
            (
                key,
                _both(*(NONE if each is None else _quota(each) for each in pair)),
                _both(*(NONE if each is None else hours(each.gpu_hours) for each in pair)),
                _both(*(NONE if each is None else _share(each.peak_share) for each in pair)),
                _both(*(NONE if each is None else f"{each.hours_over:,.1f}" for each in pair)),
                _both(*(NONE if each is None else _count(each.held) for each in pair)),
                _both(*(NONE if each is None else _count(each.evictions + each.suspensions) for each in pair)),
            )
        )
    heads = ("BUDGET", "QUOTA", "GPU-HOURS", "MOST USED AT ONCE", "HOURS USED UP", "HELD", "STOPPED")
    return Table("By budget", heads, rows)


def _both(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _share(share: float | None) -> str:
    return NONE if share is None else f"{share:.0%}"


def _quota(budget: OfBudget) -> str:
    parts = [] if budget.quota_gpu_hours is None else [f"{budget.quota_gpu_hours:,g} h"]
    parts += [] if budget.quota_usd is None else [f"${budget.quota_usd:,g}"]
    return f"{' and '.join(parts)} in {budget.window_hours} h"
