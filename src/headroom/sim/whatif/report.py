"""A comparison as people read it, the same text on the terminal and on the page: the question, the answer in three lines, then figures.

What got better and what got worse comes first, and what is the same on both sides is folded into one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headroom.model import times
from headroom.sim.whatif.comparing import Closeness, Comparison, machines_slept
from headroom.sim.whatif.measures import OfBudget, PolicyOutcome, Sums

UNKNOWN: Final = "unknown"
NONE: Final = "-"
SAME: Final = "same"
MOST_NAMED: Final = 5
MOST_CLAUSES: Final = 3
"""In one line of the verdict."""


class Section(NamedTuple):
    """A table, and what is left out of it because it is the same on both sides."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    names: int
    """How many of the first columns are names; all others are numbers."""
    unchanged: str = ""


class WhatIfReport(NamedTuple):
    """All that there is to read."""

    title: str
    verdict: list[str]
    played: str
    changes: list[str]
    sections: list[Section]
    closeness: list[str]
    """How far a replay of the unchanged policy is from the record, in sentences."""
    notes: list[str]


def report(found: Comparison) -> WhatIfReport:
    """What people read of a comparison."""
    lines = (*_LINES, *(_MACHINES if machines_slept(found) else ()))
    sections = [*_whole(lines, found), *_parts(found)]
    return WhatIfReport(
        title=_title(found),
        verdict=list(_verdict(found)),
        played=_played(found),
        changes=found.changes,
        sections=sections,
        closeness=list(_closeness(found.closeness())),
        notes=found.case.notes,
    )


# --- words and numbers ------------------------------------------------------------------------------------------------------------


def hours(value: float) -> str:
    """GPU-hours."""
    return f"{value:,.1f}"


def money(value: float) -> str:
    """Dollars."""
    return f"${value:,.2f}"


def span(seconds: float) -> str:
    """A time to wait, in words."""
    if seconds < 1:
        return "0s"
    if seconds < 120:
        return f"{seconds:.0f}s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3600:.1f}h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f}d"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _energy(value: float) -> str:
    return f"{value:,.1f} kWh"


def _share(value: float) -> str:
    return f"{value:.0%}"


def _difference(before: float | None, after: float | None, form: Callable[[float], str]) -> str:
    """By how much the second is more, and by what part."""
    if before is None or after is None:
        return NONE
    gap = after - before
    if form(before) == form(after):
        return SAME
    share = f" ({gap / before:+.0%})" if before and abs(gap / before) >= 0.005 and form is not _share else ""
    return f"{'+' if gap > 0 else '-'}{form(abs(gap))}{share}"


def _title(found: Comparison) -> str:
    return f"What if {' and '.join(found.clauses) or 'nothing changed'}?"


def _played(found: Comparison) -> str:
    case = found.case
    machines = f"{len(case.nodes):,} nodes" if case.nodes else "nodes without number"
    days = (case.end - case.begin) / times.HOUR / 24
    return (
        f"{case.title}: {len(case.works):,} pods on {machines}, {days:.1f} days from "
        f"{times.text(case.begin)[:10]} to {times.text(case.end)[:10]}, played twice: before the change and after it."
    )


# --- the answer in three lines ----------------------------------------------------------------------------------------------------


def _verdict(found: Comparison) -> Iterator[str]:
    """Who notices the change, who most of all first."""
    pairs = _of_teams(found)
    told = [(_weight(*pair), team, list(_clauses(*pair))) for team, pair in pairs.items()]
    touched = sorted(
        ((weight, team, clauses) for weight, team, clauses in told if clauses), key=lambda one: (-one[0], one[1])
    )
    if not touched:
        yield "This change would make no difference to anybody's work."
        return
    [(_, most, clauses), *others] = touched
    yield f"With this change {most} would {_and(clauses[:MOST_CLAUSES])}."
    if others:
        yield f"{others[0][1]} would {_and(others[0][2][:MOST_CLAUSES])}."
    elif clauses[MOST_CLAUSES:]:
        yield f"It would also {_and(clauses[MOST_CLAUSES:])}."
    more = len(others) - 1
    same = sorted(pairs.keys() - {team for _, team, _ in touched})
    if more > 0:
        yield f"{more} more {'team' if more == 1 else 'teams'} would notice it; see below."
    elif same:
        yield f"Nothing would change for {_and(same[:MOST_NAMED])}{' and others' if len(same) > MOST_NAMED else ''}."


def _of_teams(found: Comparison) -> dict[str, tuple[Sums | None, Sums | None]]:
    before, after = ({each.team: each.sums for each in side.teams} for side in (found.before, found.after))
    return {team: (before.get(team), after.get(team)) for team in sorted(before.keys() | after.keys())}


def _weight(before: Sums | None, after: Sums | None) -> float:
    """How much a team notices: by the work that counts, and by pods that are queued or never start."""
    gaps = [_gap(before, after, value) for value in (_counted, _never, _queued)]
    return sum(abs(each) for each in gaps)


def _counted(it: Sums) -> float:
    return it.counted_gpu_hours


def _never(it: Sums) -> float:
    return it.never_started


def _queued(it: Sums) -> float:
    return it.queued


def _gap(before: Sums | None, after: Sums | None, value: Callable[[Sums], float]) -> float:
    pair = [0.0 if each is None else value(each) for each in (before, after)]
    return pair[1] - pair[0]


def _clauses(before: Sums | None, after: Sums | None) -> Iterator[str]:
    """What would change for a team: what it would do more or less of."""
    queued, never = _gap(before, after, _queued), _gap(before, after, _never)
    stopped = _gap(before, after, lambda it: it.evictions + it.suspended_pods)
    if queued:
        yield f"queue {_more(queued, 'pod')}"
    if before is not None and after is not None and before.usd is not None and after.usd is not None:
        spent = after.usd - before.usd
        if money(abs(spent)) != money(0):
            yield f"spend {_dollars(abs(spent))} {'more' if spent > 0 else 'less'}"
    if never:
        yield f"leave {_more(never, 'pod')} without a machine"
    if stopped:
        yield f"have {_more(stopped, 'pod')} stopped"
    counted = _gap(before, after, _counted)
    if hours(abs(counted)) != hours(0):
        yield f"get {hours(abs(counted))} GPU-hours {'more' if counted > 0 else 'less'} of work done"
    if before is not None and after is not None:
        waits = before.waits.longest or 0.0, after.waits.longest or 0.0
        if span(waits[0]) != span(waits[1]):
            yield f"wait {span(waits[1])} at most instead of {span(waits[0])}"


def _dollars(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else money(value)


def _more(gap: float, noun: str) -> str:
    return f"{abs(gap):,.0f} {'more' if gap > 0 else 'fewer'} {noun}{'' if abs(gap) == 1 else 's'}"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# --- the tables -------------------------------------------------------------------------------------------------------------------

_HEADS: Final = ("BEFORE", "AFTER", "DIFFERENCE")


class _Line(NamedTuple):
    """One figure: what it is called, and whether more of it is better (1), worse (-1), or neither."""

    name: str
    value: Callable[[PolicyOutcome], float | None]
    good: int
    form: Callable[[float], str] = _count
    unknown: str = NONE


_LINES: Final = (
    _Line("work that counted, GPU-hours", lambda it: it.total.counted_gpu_hours, 1, hours),
    _Line("GPU-hours used", lambda it: it.total.gpu_hours, 0, hours),
    _Line("GPU-hours lost", lambda it: it.total.lost_gpu_hours, -1, hours),
    _Line("cost", lambda it: it.total.usd, -1, money, UNKNOWN),
    _Line("GPUs allocated, mean", lambda it: it.mean_gpus, 0, hours),
    _Line("GPUs allocated, most", lambda it: it.peak_gpus, 0, hours),
    _Line("wait for a machine, median", lambda it: it.total.waits.median, -1, span),
    _Line("wait for a machine, 95 of 100 within", lambda it: it.total.waits.p95, -1, span),
    _Line("wait for a machine, longest", lambda it: it.total.waits.longest, -1, span),
    _Line("pods requested", lambda it: it.total.asked, 0),
    _Line("pods finished", lambda it: it.total.finished, 1),
    _Line("pods that never got a machine", lambda it: it.total.never_started, -1),
    _Line("pods queued by a budget", lambda it: it.held, -1),
    _Line("pods released again", lambda it: it.released, 0),
    _Line("owners suspended", lambda it: it.suspensions, -1),
    _Line("pods evicted", lambda it: it.evictions, -1),
    _Line("pods paused", lambda it: it.pauses, -1),
    _Line("switches of machines and node pools", lambda it: it.switches, 0),
)
_MACHINES: Final = (
    _Line("hours that machines were on", lambda it: it.machine_hours, -1, hours),
    _Line("machines woken", lambda it: it.wakes, 0),
    _Line("machines put to sleep", lambda it: it.sleeps, 0),
    _Line("energy drawn, where watts are known", lambda it: it.energy_kwh, -1, _energy, UNKNOWN),
    _Line("energy saved by sleeping", lambda it: it.saved_kwh, 1, _energy, UNKNOWN),
)


def _whole(lines: Sequence[_Line], found: Comparison) -> Iterator[Section]:
    """Everything, by how it changed; what did not change is folded."""
    rows: dict[int, list[tuple[str, ...]]] = {1: [], -1: [], 0: []}
    same = []
    for line in lines:
        before, after = line.value(found.before), line.value(found.after)
        words = [line.unknown if each is None else line.form(each) for each in (before, after)]
        if words[0] == words[1]:
            same.append(f"{line.name} ({words[0]})")
            continue
        way = 0 if before is None or after is None else line.good * (1 if after > before else -1)
        if way > 0 and line.form is span and found.after.total.never_started > found.before.total.never_started:
            way = 0  # those who waited longest wait still
        rows[way].append((line.name, *words, _difference(before, after, line.form)))
    named = [(title, rows[way]) for title, way in (("Better", 1), ("Worse", -1), ("Different", 0)) if rows[way]]
    folded = f"Unchanged: {', '.join(same)}." if same else ""
    for number, (title, found_rows) in enumerate(named):
        is_last = number == len(named) - 1
        yield Section(title, ("", *_HEADS), found_rows, 1, folded if is_last else "")
    if not named:
        yield Section("Everything", ("", *_HEADS), [], 1, folded)


class _Part(NamedTuple):
    """A figure of one team or one budget, as text."""

    name: str
    before: str
    after: str
    difference: str


def _parts(found: Comparison) -> Iterator[Section]:
    teams = {team: list(_of_team(*pair)) for team, pair in _of_teams(found).items()}
    if len(teams) > 1:
        yield _folded("By team", "TEAM", teams)
    before, after = ({each.budget: each for each in side.budgets} for side in (found.before, found.after))
    budgets = {key: list(_of_budget(before.get(key), after.get(key))) for key in sorted(before.keys() | after.keys())}
    if budgets:
        yield _folded("By budget", "BUDGET", budgets)


def _folded(title: str, head: str, parts: dict[str, list[_Part]]) -> Section:
    """A table of what changed for each; the unchanged ones are named below it."""
    rows, same = list[tuple[str, ...]](), list[str]()
    for name, figures in parts.items():
        changed = [each for each in figures if each.before != each.after]
        rows += ((name if not number else "", *each) for number, each in enumerate(changed))
        if not changed:
            same.append(name)
    return Section(title, (head, "", *_HEADS), rows, 2, f"Unchanged: {', '.join(same)}." if same else "")


def _figure(name: str, pair: Iterable[float | None], form: Callable[[float], str], unknown: str = NONE) -> _Part:
    before, after = pair
    words = [unknown if each is None else form(each) for each in (before, after)]
    return _Part(name, words[0], words[1], _difference(before, after, form))


def _of_team(before: Sums | None, after: Sums | None) -> Iterator[_Part]:
    sides = (before, after)

    def both(value: Callable[[Sums], float | None]) -> Iterator[float | None]:
        return (None if each is None else value(each) for each in sides)

    yield _figure("work that counted, GPU-hours", both(lambda it: it.counted_gpu_hours), hours)
    yield _figure("GPU-hours used", both(lambda it: it.gpu_hours), hours)
    yield _figure("GPU-hours lost", both(lambda it: it.lost_gpu_hours), hours)
    yield _figure("cost", both(lambda it: it.usd), money, UNKNOWN)
    yield _figure("wait, median", both(lambda it: it.waits.median), span)
    yield _figure("wait, 95 of 100 within", both(lambda it: it.waits.p95), span)
    yield _figure("pods queued", both(lambda it: it.queued), _count)
    yield _figure("pods that never got a machine", both(lambda it: it.never_started), _count)


def _of_budget(before: OfBudget | None, after: OfBudget | None) -> Iterator[_Part]:
    sides = (before, after)

    def both(value: Callable[[OfBudget], float | None]) -> Iterator[float | None]:
        return (None if each is None else value(each) for each in sides)

    quotas = [NONE if each is None else quota(each) for each in sides]
    yield _Part("quota", quotas[0], quotas[1], "" if quotas[0] != quotas[1] else SAME)
    yield _figure("GPU-hours", both(lambda it: it.gpu_hours), hours)
    yield _figure("most of its quota used at once", both(lambda it: it.peak_share), _share)
    yield _figure("hours over quota", both(lambda it: it.hours_over), hours)
    yield _figure("pods queued", both(lambda it: it.held), _count)
    yield _figure("pods evicted and owners suspended", both(lambda it: it.evictions + it.suspensions), _count)


def quota(budget: OfBudget) -> str:
    """A quota in words."""
    parts = [] if budget.quota_gpu_hours is None else [f"{budget.quota_gpu_hours:,g} h"]
    parts += [] if budget.quota_usd is None else [f"${budget.quota_usd:,g}"]
    return f"{' and '.join(parts)} in {budget.window_hours} h"


# --- how far to trust it ----------------------------------------------------------------------------------------------------------


def _closeness(found: Sequence[Closeness]) -> Iterator[str]:
    """How near a replay of the unchanged policy comes to what happened, by budget."""
    for each in found:
        gap = "the record has none" if each.gap is None else f"{each.gap:+.1%}"
        yield f"{each.budget}: {hours(each.replayed)} GPU-hours replayed, {hours(each.recorded)} recorded ({gap})."
    far = [each.budget for each in found if each.is_far]
    if far:
        verb = "differs" if len(far) == 1 else "differ"
        yield f"Warning: {_and(far)} {verb} by more than 2% from the record, so trust no smaller change there."
