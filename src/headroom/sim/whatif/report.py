"""A comparison as text, the same on the terminal and on the page: the question, a verdict in three lines, then tables.

Better and worse figures come first; figures that are the same on both sides are folded into one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headroom.model import times
from headroom.sim.whatif.comparing import FAR, Closeness, Comparison, machines_slept
from headroom.sim.whatif.measures import OfBudget, PolicyOutcome, Sums

UNKNOWN: Final = "unknown"
NONE: Final = "-"
SAME: Final = "same"
MOST_NAMED: Final = 5
NEAR: Final = 0.001
"""A replay that is nearer to its record than this is folded."""
MOST_CLAUSES: Final = 3
"""Clauses in one line of the verdict."""


class Section(NamedTuple):
    """A table, and a line below it for the rows that are folded."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    names: int
    """How many of the first columns are names; all others are numbers."""
    folded: str = ""


class WhatIfReport(NamedTuple):
    """The whole text of a report."""

    title: str
    verdict: list[str]
    played: str
    changes: list[str]
    sections: list[Section]
    accuracy: Section | None
    """How far a replay of the unchanged policy is from the record, by budget; None without a record of it."""
    notes: list[str]


def report(found: Comparison) -> WhatIfReport:
    """The text of a comparison."""
    lines = (*_LINES, *(_MACHINES if machines_slept(found) else ()))
    sections = [_overall(lines, found), *_parts(found)]
    return WhatIfReport(
        title=_title(found),
        verdict=list(_verdict(found)),
        played=_played(found),
        changes=found.changes,
        sections=sections,
        accuracy=_accuracy(found.closeness()),
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
    """A duration in its two largest units: `12h 18m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours_, minutes = divmod(minutes, 60)
    days, hours_ = divmod(hours_, 24)
    parts = [(days, "d"), (hours_, "h"), (minutes, "m"), (rest, "s")]
    first = next((place for place, (amount, _) in enumerate(parts) if amount), len(parts) - 1)
    return " ".join(f"{amount}{unit}" for amount, unit in parts[first : first + 2] if amount) or "0s"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _energy(value: float) -> str:
    return f"{value:,.1f} kWh"


def _share(value: float) -> str:
    return f"{value:.0%}"


def _difference(before: float | None, after: float | None, form: Callable[[float], str]) -> str:
    """The absolute and the relative change; of a share, the change in percentage points."""
    if before is None or after is None:
        return NONE
    gap = after - before
    if form(before) == form(after):
        return SAME
    if form is _share:
        return f"{100 * gap:+.0f} points"
    share = f" ({gap / before:+.0%})" if before and abs(gap / before) >= 0.005 else ""
    return f"{'+' if gap > 0 else '-'}{form(abs(gap))}{share}"


def _title(found: Comparison) -> str:
    return f"What if {' and '.join(found.clauses) or 'nothing changed'}?"


def _played(found: Comparison) -> str:
    case = found.case
    machines = _counted_as(len(case.nodes), "node") if case.nodes else "unlimited nodes"
    begin, end = (f"{times.text(each)[:10]} {times.text(each)[11:16]}" for each in (case.begin, case.end))
    return (
        f"{_counted_as(len(case.works), 'pod')} on {machines}, from {begin} to {end} UTC, replayed before and after the "
        f"change. Source: {case.title}."
    )


# --- the verdict ------------------------------------------------------------------------------------------------------------------


def _verdict(found: Comparison) -> Iterator[str]:
    """The teams that the change affects, the most affected one first."""
    pairs = _of_teams(found)
    told = [(_weight(*pair), team, list(_clauses(*pair))) for team, pair in pairs.items()]
    touched = sorted(
        ((weight, team, clauses) for weight, team, clauses in told if clauses), key=lambda one: (-one[0], one[1])
    )
    if not touched:
        yield "This change would make no difference to anyone's work."
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
        yield f"It would affect {_counted_as(more, 'more team')}; see the table by team."
    elif same:
        yield f"Nothing would change for {_and(same[:MOST_NAMED])}{' and others' if len(same) > MOST_NAMED else ''}."


def _of_teams(found: Comparison) -> dict[str, tuple[Sums | None, Sums | None]]:
    before, after = ({each.team: each.sums for each in side.teams} for side in (found.before, found.after))
    return {team: (before.get(team), after.get(team)) for team in sorted(before.keys() | after.keys())}


def _weight(before: Sums | None, after: Sums | None) -> float:
    """How much the change affects a team: by work that counted, and by pods that are queued or do not start."""
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
    """The effects on a team, as verb phrases."""
    queued, never = _gap(before, after, _queued), _gap(before, after, _never)
    stopped = _gap(before, after, lambda it: it.evictions + it.suspended_pods)
    if queued:
        yield f"queue {_more(queued, 'pod')}"
    if before is not None and after is not None and before.usd is not None and after.usd is not None:
        spent = after.usd - before.usd
        if money(abs(spent)) != money(0):
            yield f"spend {_dollars(abs(spent))} {'more' if spent > 0 else 'less'}"
    if never:
        yield f"start {_more(-never, 'pod')}"
    if stopped:
        yield f"have {_more(stopped, 'pod')} stopped"
    counted = _gap(before, after, _counted)
    if hours(abs(counted)) != hours(0):
        yield f"get {hours(abs(counted))} {'more' if counted > 0 else 'fewer'} GPU-hours of work done"
    if before is not None and after is not None:
        waits = before.waits.longest or 0.0, after.waits.longest or 0.0
        # Pods that do not start at all have no wait, so fewer starts shorten waits without being a gain.
        if span(waits[0]) != span(waits[1]) and not (never > 0 and waits[1] < waits[0]):
            yield f"wait up to {span(waits[1])} instead of {span(waits[0])}"


def _dollars(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else money(value)


def _counted_as(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _more(gap: float, noun: str) -> str:
    return f"{abs(gap):,.0f} {'more' if gap > 0 else 'fewer'} {noun}{'' if abs(gap) == 1 else 's'}"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# --- the tables -------------------------------------------------------------------------------------------------------------------

_HEADS: Final = ("BEFORE", "AFTER", "DIFFERENCE")


class _Line(NamedTuple):
    """One figure: its name, and whether more of it is better (1), worse (-1), or neither (0)."""

    name: str
    value: Callable[[PolicyOutcome], float | None]
    good: int
    form: Callable[[float], str] = _count
    unknown: str = NONE


_LINES: Final = (
    _Line("GPU-hours of work that counted", lambda it: it.total.counted_gpu_hours, 1, hours),
    _Line("GPU-hours used", lambda it: it.total.gpu_hours, 0, hours),
    _Line("GPU-hours lost", lambda it: it.total.lost_gpu_hours, -1, hours),
    _Line("cost", lambda it: it.total.usd, -1, money, UNKNOWN),
    _Line("average GPUs allocated", lambda it: it.mean_gpus, 0, hours),
    _Line("peak GPUs allocated", lambda it: it.peak_gpus, 0, hours),
    _Line("median wait for a machine", lambda it: it.total.waits.median, -1, span),
    _Line("95th percentile wait for a machine", lambda it: it.total.waits.p95, -1, span),
    _Line("longest wait for a machine", lambda it: it.total.waits.longest, -1, span),
    _Line("pods requested", lambda it: it.total.asked, 0),
    _Line("pods finished", lambda it: it.total.finished, 1),
    _Line("pods not started", lambda it: it.total.never_started, -1),
    _Line("pods queued by a budget", lambda it: it.held, -1),
    _Line("pods released", lambda it: it.released, 0),
    _Line("owners suspended", lambda it: it.suspensions, -1),
    _Line("pods evicted", lambda it: it.evictions, -1),
    _Line("pods paused", lambda it: it.pauses, -1),
    _Line("machine and node pool switches", lambda it: it.switches, 0),
)
_MACHINES: Final = (
    _Line("machine-hours powered on", lambda it: it.machine_hours, -1, hours),
    _Line("machines woken", lambda it: it.wakes, 0),
    _Line("machines put to sleep", lambda it: it.sleeps, 0),
    _Line("energy used by machines of known wattage", lambda it: it.energy_kwh, -1, _energy, UNKNOWN),
    _Line("energy saved by sleeping", lambda it: it.saved_kwh, 1, _energy, UNKNOWN),
)


def _overall(lines: Sequence[_Line], found: Comparison) -> Section:
    """All figures of the whole cluster by the way they changed."""
    rows: dict[int, list[tuple[str, ...]]] = {1: [], -1: [], 0: []}
    same, nil = list[str](), list[str]()
    for line in lines:
        before, after = line.value(found.before), line.value(found.after)
        words = [line.unknown if each is None else line.form(each) for each in (before, after)]
        if words[0] == words[1]:
            same += [f"{line.name} {words[0]}"] if before != 0 else []
            nil += [line.name] if before == 0 else []
            continue
        way = 0 if before is None or after is None else line.good * (1 if after > before else -1)
        left = _left_waiting(found.before.total, found.after.total) if way > 0 and line.form is span else ""
        rows[0 if left else way].append((line.name, *words, left or _difference(before, after, line.form)))
    told = [
        (title if not number else "", *row)
        for title, way in (("Better", 1), ("Worse", -1), ("Other", 0))
        for number, row in enumerate(rows[way])
    ]
    folded = [f"Unchanged: {', '.join(same)}."] if same else []
    folded += [f"Zero on both sides: {', '.join(nil)}."] if nil else []
    return Section("Overall", ("", "", *_HEADS), told, 2, " ".join(folded))


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
    """A table of the changed figures of each team or budget; the unchanged ones are named below it."""
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


def _left_waiting(before: Sums, after: Sums) -> str:
    """What stands in the place of a shorter wait's gain: pods that do not start any more have no wait."""
    more = after.never_started - before.never_started
    return f"{_count(more)} more not started" if more > 0 else ""


def _of_team(before: Sums | None, after: Sums | None) -> Iterator[_Part]:
    sides = (before, after)

    def both(value: Callable[[Sums], float | None]) -> Iterator[float | None]:
        return (None if each is None else value(each) for each in sides)

    yield _figure("GPU-hours of work that counted", both(lambda it: it.counted_gpu_hours), hours)
    yield _figure("GPU-hours used", both(lambda it: it.gpu_hours), hours)
    yield _figure("GPU-hours lost", both(lambda it: it.lost_gpu_hours), hours)
    yield _figure("cost", both(lambda it: it.usd), money, UNKNOWN)
    for name, value in (("median", lambda it: it.waits.median), ("95th percentile", lambda it: it.waits.p95)):
        waits = tuple(both(value))
        part = _figure(f"{name} wait for a machine", waits, span)
        left = _left_waiting(before, after) if before and after and (waits[1] or 0.0) < (waits[0] or 0.0) else ""
        yield part._replace(difference=left) if left else part
    yield _figure("pods queued", both(lambda it: it.queued), _count)
    yield _figure("pods not started", both(lambda it: it.never_started), _count)


def _of_budget(before: OfBudget | None, after: OfBudget | None) -> Iterator[_Part]:
    sides = (before, after)
    quotas = ["no budget" if each is None else quota(each) for each in sides]
    yield _Part("quota", quotas[0], quotas[1], "" if quotas[0] != quotas[1] else SAME)
    figures: tuple[tuple[str, Callable[[OfBudget], float | None], Callable[[float], str]], ...] = (
        ("GPU-hours used", lambda it: it.gpu_hours, hours),
        ("peak share of its quota", lambda it: it.peak_share, _share),
        ("hours over quota", lambda it: it.hours_over, hours),
        ("pods queued", lambda it: it.held, _count),
        ("evictions and suspensions", lambda it: it.evictions + it.suspensions, _count),
    )
    for name, value, form in figures:
        pair = [None if each is None else value(each) for each in sides]
        if set(pair) != {None, 0}:  # of a budget on one side only, what is zero there says nothing
            yield _figure(name, pair, form)


def quota(budget: OfBudget) -> str:
    """A quota in words."""
    parts = [] if budget.quota_gpu_hours is None else [f"{budget.quota_gpu_hours:,g} GPU-hours"]
    parts += [] if budget.quota_usd is None else [f"${budget.quota_usd:,g}"]
    return f"{' and '.join(parts)} in {budget.window_hours}h"


# --- how far to trust it ----------------------------------------------------------------------------------------------------------


def _accuracy(found: Sequence[Closeness]) -> Section | None:
    """How far a replay of the unchanged policy is from the record, with a warning for budgets where that is too far."""
    if not found:
        return None
    rows, near = list[tuple[str, ...]](), list[str]()
    for each in found:
        if each.gap is not None and abs(each.gap) < NEAR:
            near.append(each.budget)
        else:
            gap = "no record" if each.gap is None else f"{each.gap:+.1%}"
            rows.append((each.budget, hours(each.recorded), hours(each.replayed), gap))
    said = [f"Within {NEAR:.1%} of the record: {', '.join(near)}."] if near else []
    if far := [each.budget for each in found if each.is_far]:
        verb = "differs" if len(far) == 1 else "differ"
        said.append(
            f"Warning: {_and(far)} {verb} from the record by more than {FAR:.0%}; do not trust smaller changes there."
        )
    return Section(
        "Accuracy of the replay, in GPU-hours",
        ("BUDGET", "RECORDED", "REPLAYED", "DIFFERENCE"),
        rows,
        1,
        " ".join(said),
    )
