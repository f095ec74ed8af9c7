"""What the rows of one budget come to: hours, dollars, bounds, what runs, who used most, and when it goes over quota."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from headroom.api.budgets import GPUWorkloadBudgetSpec
from headroom.api.quantities import InvalidQuantity, nano
from headroom.core.usage import forecasts
from headroom.core.usage.coverage import BudgetScope, counted
from headroom.core.usage.devices import MICRO
from headroom.core.usage.forecasts import UsageForecast
from headroom.core.usage.hearing import heard_of
from headroom.core.usage.windows import Curve, Numbers, RowRates, WindowSpan, largest, overlaps, rates_of
from headroom.model.numbering import Ints
from headroom.model.times import HOUR
from headroom.model.usage_table import OPEN, UsageTable
from headroom.model.world import World

GPU_HOUR: Final = MICRO * HOUR
"""Millionths of a GPU x milliseconds."""
DOLLAR: Final = MICRO * HOUR
"""Millionths of a dollar an hour x milliseconds."""
_NANO: Final = 1_000_000_000


class Top(NamedTuple):
    """One pod and what it used."""

    pod: str
    gpu_ms: int
    usd_ms: int | None
    """None if some of its price is not known."""


class QuotaLimits(NamedTuple):
    """What may be used, in the units of a reckoning; None for what has no limit."""

    gpu_ms: int | None
    usd_ms: int | None


def quota_of(spec: GPUWorkloadBudgetSpec) -> QuotaLimits:
    """The quota in millionths x milliseconds."""
    return QuotaLimits(_units(spec.quota.gpu_hours, GPU_HOUR), _units(spec.quota.usd, DOLLAR))


def _units(amount: str | int | None, whole: int) -> int | None:
    if amount is None:
        return None
    found = nano(amount)
    # Billionths divide an hour of millionths without a rest.
    return None if isinstance(found, InvalidQuantity) else found * whole // _NANO


class Outlook(NamedTuple):
    """When a budget is over quota, or back under it."""

    exhausted_at: int | None = None
    """When some quota will be reached; None if never, or if it is reached already."""
    recovers_at: int | None = None
    """When the budget is back under quota, where it is over it now; None if never."""


class Reckoning(NamedTuple):
    """Sums over the window that ends at `as_of`. Amounts are millionths x milliseconds."""

    as_of: int
    gpu_ms: int
    """For certain."""
    upper_gpu_ms: int
    """At most."""
    usd_ms: int
    upper_usd_ms: int
    unpriced_gpu_ms: int
    burn: int
    """The burn rate at `World.now`, in millionths of a GPU: which later news may still correct."""
    tracked: int
    """Pods in view that are counted."""
    if_nothing_ends: Outlook
    """What comes if nothing that runs ended by itself: the first moment at which anything can change."""
    exceeded: tuple[str, ...]
    """Which quotas are reached: gpuHours, usd."""
    unreadable: str
    """A resource of which some pod in view asks for an amount that nobody can read."""
    stale: tuple[str, ...]
    """Other clusters that were not heard of for long, so that the bounds are wider."""
    recheck_at: int | None
    """When something is known to begin or end that is too new to be counted; None if nothing is."""


class Running(NamedTuple):
    """A pod in view of which a row is still open."""

    place: int
    """Which of the rows it is."""
    uid: str
    start: int
    """When this row began."""
    begun: int
    """When the pod did: a new price or label begins a new row, and the pod runs on."""
    rate: int
    """Millionths of a GPU."""
    price: int
    """Millionths of a dollar an hour; 0 if that is not known."""


class ByRow(NamedTuple):
    """Rows, and what each used inside the window, in millionths x milliseconds: Python's integers, which are never cut off."""

    rows: Ints
    gpus: Numbers
    usd: Numbers
    is_priced: Numbers


class BudgetUsage:
    """The rows of one scope, looked at once."""

    def __init__(self, world: World, scope: BudgetScope, length: int) -> None:
        heard = heard_of(world, scope)
        self._table, self._span, self.stale = world.usage, WindowSpan(heard.as_of, length), tuple(sorted(heard.stale))
        self._now = world.now
        self._counted = counted(world.usage, scope)
        self.rows: Ints = world.usage.rows_of(self._counted.rates)
        self._group = _of(world.usage, "group", self.rows)
        self._start = _of(world.usage, "start", self.rows)
        self._end = heard.ends(world.usage, self._group, _of(world.usage, "low_end", self.rows))
        self._gpu_rates = self._rates(self._counted.rates)
        self.gpus = self._curve(self._gpu_rates)
        self._prices = self._counted.prices
        self._usd: Curve | None = None

    def summarize(self, quota: QuotaLimits) -> Reckoning:
        """All sums, and what they mean for a quota."""
        as_of, limits = self._span.as_of, [("gpuHours", self.gpus, quota.gpu_ms)]
        if quota.usd_ms is not None:
            limits.append(("usd", self.usd, quota.usd_ms))
        known = [(name, curve, limit) for name, curve, limit in limits if limit is not None]
        exceeded = tuple(name for name, curve, limit in known if curve.total >= limit)
        extra_gpus, extra_usd = self._uncertain()
        return Reckoning(
            as_of=as_of,
            gpu_ms=self.gpus.total,
            upper_gpu_ms=self.gpus.total + extra_gpus,
            usd_ms=self.usd.total,
            upper_usd_ms=self.usd.total + extra_usd,
            unpriced_gpu_ms=self._unpriced(),
            burn=self.gpus.rate_at(self._now),
            tracked=int(np.count_nonzero(_of(self._table, "current", self.rows) == 1)),
            if_nothing_ends=turns_of([(curve, limit) for _, curve, limit in known], exceeded=bool(exceeded)),
            exceeded=exceeded,
            unreadable=self._unreadable(),
            stale=self.stale,
            recheck_at=self.gpus.next_turn,
        )

    @property
    def span(self) -> WindowSpan:
        """The window that they are added up over."""
        return self._span

    def by_row(self) -> ByRow:
        """What each of them used."""
        held = self.gpus.held.astype(object)
        priced = np.zeros(len(self._table.groups), np.bool_)
        priced[list(self._prices)] = True
        rates, prices = self._column(self._counted.rates), self._column(self._prices)
        return ByRow(self.rows, held * rates, held * prices, priced[self._group])

    @property
    def usd(self) -> Curve:
        """The same in dollars; rows without a price count nothing."""
        if self._usd is None:
            self._usd = self._curve(self._rates(self._prices), self.gpus.held) if self._prices else _nothing(self._span)
        return self._usd

    def running(self, world: World) -> list[Running]:
        """The pods of this cluster that hold something now, or will in a moment, by uid."""
        found = []
        for place in np.flatnonzero(self._end == OPEN).tolist():
            uid, group = self._table.uid(int(self.rows[place])), int(self._group[place])
            if uid in world.pods and self._table.groups[group].terms.cluster == world.cluster:
                rate, price = self._counted.rates[group], self._prices.get(group, 0)
                found.append(Running(place, uid, int(self._start[place]), self.begun_at(place), rate, price))
        return sorted(found, key=lambda each: each.uid)

    def used_by(self, places: Iterable[int]) -> dict[int, int]:
        """What the pods of some rows used inside the window, split or not."""
        firsts = _of(self._table, "first", self.rows)
        used = (self.gpus.held * self._gpu_rates.values).astype(object) * self._gpu_rates.unit
        return {place: int(used[firsts == firsts[place]].sum()) for place in places}

    @cached_property
    def _open(self) -> dict[int, int]:
        """Rows that are held on, each with its place among ours."""
        places = np.flatnonzero(self._end == OPEN)
        return dict(zip(self.rows[places].tolist(), places.tolist(), strict=True))

    def places(self, uids: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Those of some pods of which a row is held on, each with its place."""
        for uid in uids:
            number = self._table.last_of(uid)
            if number in self._open:
                yield uid, self._open[number]

    def open_pods(self) -> Iterator[tuple[str, int]]:
        """The pods of which a row is held on, each with its place."""
        return ((self._table.uid(number), place) for number, place in self._open.items())

    def counts(self, uid: str) -> bool:
        """Whether the last row of a pod of this cluster is one of ours."""
        number = self._table.last_of(uid)
        return number is not None and int(self._table.column("group")[number]) in self._counted.rates

    def begun_at(self, place: int) -> int:
        """When the pod of the row at a place began, by the first of its rows."""
        first = int(self._table.column("first")[self.rows[place]])
        return int(self._table.column("start")[first])

    def forecasts(
        self, ends: Mapping[int, int], others: int = OPEN, until: int = OPEN
    ) -> tuple[UsageForecast, UsageForecast]:
        """What the window will hold of GPUs and of dollars, up to `until`.

        The rows at the places in `ends` end then, all others that are held on end at `others`.
        """
        end = self._ended(ends, others)
        span = forecasts.ForecastSpan(self._span.as_of, self._span.length, until)

        def forecast(of_group: dict[int, int], total: int) -> UsageForecast:
            return UsageForecast.of(span, total, forecasts.Runs(self._start, end, self._column(of_group)))

        return forecast(self._counted.rates, self.gpus.total), forecast(self._prices, self.usd.total)

    def _ended(self, ends: Mapping[int, int], others: int) -> Ints:
        end: Ints = np.where(self._end == OPEN, others, self._end)
        for place, moment in ends.items():
            end[place] = max(moment, int(self._start[place]))
        return end

    def course(self, since: int, ends: Mapping[int, int]) -> tuple[UsageForecast, UsageForecast]:
        """What the window held of GPUs and of dollars from a moment on, and will hold; the rows at the places in `ends` end then."""
        end = self._ended(ends, OPEN)
        before = _per_group(overlaps(self._start, self._end, WindowSpan(since, self._span.length)), self._group)

        def course(of_group: dict[int, int]) -> UsageForecast:
            runs = forecasts.Runs(self._start, end, self._column(of_group))
            span = forecasts.ForecastSpan(since, self._span.length)
            return UsageForecast.of(span, _exact_sum(before, of_group), runs)

        return course(self._counted.rates), course(self._prices)

    def _column(self, of_group: dict[int, int]) -> Numbers:
        """The rate of every row; Python's integers where one is beyond all reason."""
        fits = max(of_group.values(), default=0) < OPEN
        known: Numbers = np.zeros(len(self._table.groups), np.int64 if fits else object)
        for number, rate in of_group.items():
            known[number] = rate
        return known[self._group]

    @cached_property
    def dearest(self) -> tuple[int, int]:
        """The highest price that was paid for GPUs inside the window: millionths of a dollar an hour, for so many millionths of a GPU."""
        inside = np.unique(self._group[(self.gpus.held > 0) | (self._end == OPEN)]).tolist()
        paid = [(self._prices[number], self._counted.rates[number]) for number in inside if number in self._prices]
        return max(paid, key=lambda each: (Fraction(*each), each), default=(0, 1))

    def top(self, count: int) -> list[Top]:
        """The pods that used most."""
        if not len(self.rows):
            return []
        used = self.gpus.held * self._gpu_rates.values
        pods, sums = _of(self._table, "first", self.rows), used
        is_split = bool((pods != self.rows).any())
        if is_split:
            pods, where = np.unique(pods, return_inverse=True)
            sums = np.zeros(len(pods), used.dtype)
            np.add.at(sums, where, used)
        chosen = largest(sums, count, lambda place: self._table.pod(int(pods[place])))
        return [
            self._top(int(pods[place]), np.flatnonzero(where == place) if is_split else [place]) for place in chosen
        ]

    def _top(self, first: int, places: Iterable[int]) -> Top:
        gpu_ms, usd_ms, is_priced = 0, 0, True
        for place in places:
            held, group = int(self.gpus.held[place]), int(self._group[place])
            gpu_ms += held * self._counted.rates[group]
            usd_ms += held * self._prices.get(group, 0)
            is_priced = is_priced and (group in self._prices or not held)
        return Top(self._table.pod(first), gpu_ms, usd_ms if is_priced else None)

    def _curve(self, rates: RowRates, held: Ints | None = None) -> Curve:
        return Curve(self._start, self._end, rates, self._span, held)

    def _rates(self, of_group: dict[int, int]) -> RowRates:
        return rates_of(of_group, len(self._table.groups), self._group, self._span.length)

    def _unpriced(self) -> int:
        if not self._prices:
            return self.gpus.total
        missing = {number: rate for number, rate in self._counted.rates.items() if number not in self._prices}
        if not missing:
            return 0
        rates = self._rates(missing)
        return int(np.sum(self.gpus.held * rates.values)) * rates.unit

    def _uncertain(self) -> tuple[int, int]:
        """How much more it may have been: rows whose begin or end was not seen, and rows whose labels were not."""
        gpus, usd = self._possible()
        if not self._table.uncertain and not self.stale:
            return gpus, usd
        high_end, high_start = _of(self._table, "high_end", self.rows), _of(self._table, "high_start", self.rows)
        mask = (high_end != self._end) | (high_start != self._start)
        most = overlaps(high_start[mask], high_end[mask], self._span) - self.gpus.held[mask]
        more = _per_group(most, self._group[mask])
        return gpus + _exact_sum(more, self._counted.rates), usd + _exact_sum(more, self._prices)

    def _possible(self) -> tuple[int, int]:
        rates = self._counted.possible
        if not rates:
            return 0, 0
        rows = self._table.rows_of(rates)
        most = overlaps(_of(self._table, "high_start", rows), _of(self._table, "high_end", rows), self._span)
        prices = {number: self._table.groups[number].terms.price or 0 for number in rates}
        more = _per_group(most, _of(self._table, "group", rows))
        return _exact_sum(more, rates), _exact_sum(more, prices)

    def _unreadable(self) -> str:
        if not self._counted.unreadable:
            return ""
        rows = self._table.rows_of(self._counted.unreadable)
        seen = rows[_of(self._table, "current", rows) == 1]
        return self._counted.unreadable[int(_of(self._table, "group", seen[:1])[0])] if len(seen) else ""


def turns_of(courses: Sequence[tuple[Curve | UsageForecast, int]], *, exceeded: bool) -> Outlook:
    """What comes of some quotas, each with the course of its sum."""
    if exceeded:
        holds = [course.falls_below(limit) for course, limit in courses]
        return Outlook(None, None if None in holds else max((each for each in holds if each is not None), default=None))
    reached = [course.reaches(limit) for course, limit in courses]
    return Outlook(min((each for each in reached if each is not None), default=None), None)


def _nothing(span: WindowSpan) -> Curve:
    none = np.empty(0, np.int64)
    return Curve(none, none, RowRates(none, 1), span)


def _of(table: UsageTable, name: str, rows: Ints) -> Ints:
    return table.column(name)[rows]


def _per_group(held: Ints, groups: Ints) -> list[tuple[int, int]]:
    """The milliseconds of each group that has any."""
    if not len(groups):
        return []
    # Not by sorting the groups, which costs more than all the rest where most rows are uncertain, as after every start.
    sums = np.zeros(int(groups.max()) + 1, np.int64)
    np.add.at(sums, groups, held)
    return [(number, int(sums[number])) for number in np.flatnonzero(sums).tolist()]


def _exact_sum(per_group: list[tuple[int, int]], rates: dict[int, int]) -> int:
    """Added up per group before, so that only few are multiplied as Python's integers."""
    return sum(total * rates.get(number, 0) for number, total in per_group)
