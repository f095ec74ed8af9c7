"""The outcome of a replay in numbers: hours, dollars, waits, evictions and suspensions, and the lines of the charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Amounts, Pairs
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable
from headroom.model.usage import UsageRow
from headroom.model.world import World
from headroom.sim.whatif.lives import EVICTED, FINISHED, SUSPENDED, Life, ReplayLog
from headroom.sim.whatif.machine_time import machine_time
from headroom.sim.whatif.measures import ChartLines, OfBudget, OfTeam, PolicyOutcome, Sums, Waits
from headroom.sim.whatif.steps import Floats, Steps
from headroom.sim.whatif.work import Case

POINTS: Final = 400
"""Points of a line: a chart shows no more."""
HAIR: Final = 1e-6


def outcome(case: Case, resources: Mapping[Ref, AnyResource], log: ReplayLog) -> PolicyOutcome:
    """The outcome of a case under some policies."""
    done: dict[str, int] = {}
    for (action, _), times_ in sorted(log.done.items()):
        done[action] = done.get(action, 0) + times_
    measured = _Measured(case, log)
    held = [life for life in log.lives if life.held_by]
    # A record without work has no duration.
    machines = machine_time(case, resources, log)
    moments = np.linspace(case.begin, max(case.end, case.begin + 1), POINTS + 1)
    limited = measured.limited(resources)
    teams: dict[str, list[Life]] = {}
    for life in log.lives:
        teams.setdefault(case.team(life.work), []).append(life)
    return PolicyOutcome(
        total=measured.sums(log.lives),
        mean_gpus=measured.gpu_ms / max(1, case.end - case.begin) / usage.MICRO,
        peak_gpus=measured.peak,
        held=len(held),
        released=sum(1 for life in held if life.released is not None),
        suspensions=done.get("SuspendOwner", 0),
        evictions=sum(1 for life in log.lives if life.end == EVICTED),
        pauses=done.get("PausePod", 0),
        wakes=done.get("WakeMachine", 0),
        sleeps=done.get("SleepMachine", 0),
        machine_hours=machines.hours,
        energy_kwh=machines.kwh,
        saved_kwh=machines.saved_kwh,
        switches=sum(done.get(each, 0) for each in ("WakeMachine", "SleepMachine", "ApplyNodePool")),
        actions=done,
        teams=[OfTeam(team=team, sums=measured.sums(lives)) for team, lives in sorted(teams.items())],
        budgets=[measured.of_budget(each) for each in limited],
        lines=ChartLines(
            moments=(moments / times.SECOND).round(1).tolist(),
            gpus_held=_means(measured.held, moments),
            waiting=_means(measured.waiting, moments),
            machines_on=_means(machines.on, moments),
            budgets={
                each.key: _drawn(each.gpus, each.window, moments) for each in limited if each.gpu_limit is not None
            },
            budgets_usd={
                each.key: _drawn(each.dollars, each.window, moments) for each in limited if each.usd_limit is not None
            },
        ),
        passes=log.passes,
    )


def _means(steps: Steps, moments: Floats) -> list[float]:
    """The mean between moments; the last one is repeated so that every moment has one."""
    sums = steps.upto(moments)
    means = np.diff(sums) / np.diff(moments)
    return [round(float(each), 3) for each in (*means, *means[-1:])]


class _Measured:
    """The measures of all lives of a replay."""

    def __init__(self, case: Case, log: ReplayLog) -> None:
        self._case, self._log = case, log
        begun = [life for life in log.lives if life.started is not None]
        starts = [float(max(life.started or 0, case.begin)) for life in begun]
        self.held = Steps(
            starts, [float(self._end(life)) for life in begun], [life.gpus / usage.MICRO for life in begun]
        )
        self.peak = self.held.peak(case.begin, case.end)
        self.gpu_ms = sum(self._gpu_ms(life) for life in log.lives)
        waited = [life for life in log.lives if life.work.began is None or life.made > life.work.arrives]
        bounds = [(life.made, self._first(life.bound, life.ended)) for life in waited]
        self.waiting = Steps([float(a) for a, _ in bounds], [float(b) for _, b in bounds], [1.0] * len(bounds))

    def _first(self, *moments: int | None) -> int:
        return min([each for each in moments if each is not None] + [self._case.end])

    def _end(self, life: Life) -> int:
        return self._first(life.ended)

    def _held_ms(self, life: Life) -> int:
        """How long it had its GPUs within the replayed time."""
        if life.started is None:
            return 0
        return max(0, self._end(life) - max(life.started, self._case.begin))

    def _gpu_ms(self, life: Life) -> int:
        return life.gpus * self._held_ms(life)

    def sums(self, lives: Sequence[Life]) -> Sums:
        """The sums of some lives."""
        usd_ms = sum((life.price or 0) * self._held_ms(life) for life in lives if life.price is not None)
        unpriced = sum(self._gpu_ms(life) for life in lives if life.price is None)
        first: dict[int, Life] = {}
        for life in lives:
            known = first.get(id(life.work))
            if known is None or (known.bound is None and life.bound is not None):
                first[id(life.work)] = life
        arrived = [life for life in first.values() if life.work.began is None]
        waits = [(life.bound - life.work.arrives) / times.SECOND for life in arrived if life.bound is not None]
        stopped = [life for life in lives if life.end in (EVICTED, SUSPENDED) and life.started is not None]
        lost = sum(self._gpu_ms(life) for life in stopped if not life.work.is_service)
        used = sum(self._gpu_ms(life) for life in lives)
        return Sums(
            gpu_hours=_hours(used),
            usd=None if unpriced else usd_ms / usage.DOLLAR,
            unpriced_gpu_hours=_hours(unpriced),
            asked=len(first),
            never_started=sum(1 for life in arrived if life.bound is None),
            finished=sum(1 for life in lives if life.end == FINISHED),
            queued=sum(1 for life in lives if life.held_by),
            waits=_waits(waits),
            evictions=sum(1 for life in lives if life.end == EVICTED),
            suspended_pods=sum(1 for life in lives if life.end == SUSPENDED),
            lost_gpu_hours=_hours(lost),
            counted_gpu_hours=_hours(used - lost),
        )

    # --- budgets ----------------------------------------------------------------------------------------------------------

    def limited(self, resources: Mapping[Ref, AnyResource]) -> list[_Limited]:
        """All budgets with their usage."""
        case = self._case
        world = World(
            now=case.end,
            cluster=case.cluster,
            own_namespace=case.own_namespace,
            resources=ResourceTable(resources),
            nodes=NodeTable(),
            namespaces=case.namespaces,
        )
        found = []
        for budget in usage.budgets_of(world):
            scope = usage.scope_of(world, budget)
            gpus, dollars = self._counted(scope)
            limited = _Limited(budget, gpus, dollars)
            limited.recorded_ms = self._recorded(scope)
            limited.counts_pods = bool(len(gpus.at)) or any(usage.rate_of(scope, row) for row in self._never_begun())
            found.append(limited)
        return found

    def _counted(self, scope: usage.BudgetScope) -> tuple[Steps, Steps]:
        """The usage of a budget, history included: GPUs, and dollars per hour."""
        begins, ends, gpus, prices = [], [], [], []
        rates: dict[tuple[str, str, Pairs, Amounts], int] = {}
        for row, end in self._rows():
            kind = (row.cluster, row.namespace, row.labels, row.amounts)
            if kind not in rates:
                rates[kind] = usage.rate_of(scope, row)
            if rates[kind]:
                begins.append(float(row.start))
                ends.append(float(end))
                gpus.append(rates[kind] / usage.MICRO)
                prices.append((row.price or 0) / usage.MICRO)
        return Steps(begins, ends, gpus), Steps(begins, ends, prices)

    def _recorded(self, scope: usage.BudgetScope) -> int:
        """A budget's usage in the record, in millionths x milliseconds."""
        begin, end = self._case.begin, self._case.end
        return sum(
            usage.rate_of(scope, row) * max(0, min(over, end) - max(row.start, begin))
            for row, over in self._case.record
        )

    def _rows(self) -> Iterator[tuple[UsageRow, int]]:
        """All rows of the ledger at the end, each with its end."""
        for life in self._log.lives:
            if life.row is not None:
                yield life.row, self._end(life)
        for row in self._case.history:
            yield row, row.seen_until if row.closed is None else row.closed

    def _never_begun(self) -> Iterator[UsageRow]:
        """Rows for pods that never started."""
        for life in self._log.lives:
            if life.row is None:
                work, made = life.work, life.made
                yield UsageRow(
                    cluster=self._case.cluster,
                    uid=life.uid,
                    start=made,
                    earliest=made,
                    seen_until=made,
                    namespace=work.namespace,
                    labels=work.labels,
                    amounts=work.shape.requests,
                )

    def of_budget(self, limited: _Limited) -> OfBudget:
        """One budget in numbers."""
        case, key, quota = self._case, limited.key, limited.quota
        within = limited.gpus.upto(np.array([case.begin, case.end], np.float64))
        peak, over = limited.over_quota(case.begin, case.end)
        held = [life for life in self._log.lives if life.held_by == key]
        done = self._log.done
        return OfBudget(
            budget=key,
            quota_gpu_hours=None if quota.gpu_ms is None else quota.gpu_ms / usage.GPU_HOUR,
            quota_usd=None if quota.usd_ms is None else quota.usd_ms / usage.DOLLAR,
            window_hours=limited.window // times.HOUR,
            counts_pods=limited.counts_pods,
            gpu_hours=float(within[1] - within[0]) / times.HOUR,
            recorded_gpu_hours=_hours(limited.recorded_ms),
            peak_share=peak,
            hours_over=over / times.HOUR,
            held=len(held),
            released=sum(1 for life in held if life.released is not None),
            evictions=done["EvictPod", key],
            suspensions=done["SuspendOwner", key],
            pauses=done["PausePod", key],
        )


class _Limited:
    """A budget: its usage over time, and its quotas."""

    def __init__(self, budget: AnyResource, gpus: Steps, dollars: Steps) -> None:
        self.key = f"{budget.namespace}/{budget.name}"
        self.window = budget.spec.quota.window_hours * times.HOUR
        self.quota = usage.quota_of(budget.spec)
        self.gpus, self.dollars = gpus, dollars
        self.counts_pods = False
        self.recorded_ms = 0
        self.gpu_limit = None if self.quota.gpu_ms is None else self.quota.gpu_ms / usage.GPU_HOUR
        self.usd_limit = None if self.quota.usd_ms is None else self.quota.usd_ms / usage.DOLLAR

    def over_quota(self, begin: int, end: int) -> tuple[float | None, float]:
        """The peak share of a quota, and for how many milliseconds usage was over quota."""
        pairs = [(self.gpus, self.gpu_limit), (self.dollars, self.usd_limit)]
        limits = [(steps, limit) for steps, limit in pairs if limit is not None]
        # The slope of the sums changes only where usage begins, ends, or leaves the window.
        bends = np.concatenate([self.gpus.at, self.gpus.at + self.window])
        turns = np.unique(np.concatenate([[begin, end], bends[(bends > begin) & (bends < end)]]))
        crossings = [_crossings(turns, _in_window(steps, self.window, turns) - limit) for steps, limit in limits]
        turns = np.unique(np.concatenate([turns, *crossings]))
        shares, over = [], np.zeros(len(turns) - 1, np.bool_)
        for steps, limit in limits:
            used = _in_window(steps, self.window, turns)
            # Between two turns usage is either over quota all the time or never; a sum of floats may miss the quota by a hair.
            over |= (used[:-1] + used[1:]) / 2 >= limit * (1 - HAIR)
            shares += [float(used.max()) / limit] if limit else []
        return max(shares, default=None), float((np.diff(turns) * over).sum())


def _crossings(turns: Floats, gaps: Floats) -> Floats:
    """Where the line through these points crosses zero."""
    first, second = gaps[:-1], gaps[1:]
    crosses = first * second < 0
    parts = first[crosses] / (first[crosses] - second[crosses])
    found: Floats = turns[:-1][crosses] + parts * np.diff(turns)[crosses]
    return found


def _drawn(steps: Steps, window: int, moments: Floats) -> list[float]:
    return [round(float(each), 3) for each in _in_window(steps, window, moments)]


def _in_window(steps: Steps, window: int, moments: Floats) -> Floats:
    """The usage in the window that ends at each moment, in hours."""
    found: Floats = (steps.upto(moments) - steps.upto(moments - window)) / times.HOUR
    return np.maximum(found, 0)


def _hours(gpu_ms: int) -> float:
    return gpu_ms / usage.GPU_HOUR


def _waits(seconds: Iterable[float]) -> Waits:
    found: Any = np.array(sorted(seconds), np.float64)
    if not len(found):
        return Waits()
    median, p95 = np.percentile(found, [50, 95])
    return Waits(median=float(median), p95=float(p95), longest=float(found[-1]))
