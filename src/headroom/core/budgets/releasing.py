"""Release: who of those that wait may start now, and when the others may.

Oldest first. A unit starts only if every budget that counts it stays below its quota for as long as the unit is taken to run,
beside all that runs and all that was released before. The oldest that cannot start has its start reserved: others pass it only if
they do not delay it. One that exceeds a quota alone is told so, and holds up nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from headroom.api import marks
from headroom.api.budgets import LONGEST_WINDOW_HOURS
from headroom.core.budgets.accounts import BudgetAccount, end_of
from headroom.core.budgets.allowances import Allowances
from headroom.core.budgets.units import note, pending
from headroom.core.budgets.waiting import Demand, Matcher, WaitingUnit
from headroom.core.usage import UsageForecast, UsageRun
from headroom.model.actions import Action, ReleasePod, ResumeOwner
from headroom.model.facts import Pod, Workload, WorkloadPart
from headroom.model.times import HOUR
from headroom.model.usage_table import OPEN
from headroom.model.world import World

State = Literal["Waiting", "Reserved", "NeverFits", "Releasing"]
FOR_EVER: Final = 10 * LONGEST_WINDOW_HOURS * HOUR
MOST_TRIED: Final = 20
"""Who could pass the oldest is looked for among so many, so that a long queue costs no more than a short one."""
MOST_ESTIMATED: Final = 10
"""For how many units it is worked out when they may start."""


class ReleaseOutcome(NamedTuple):
    """What becomes of a unit that waits."""

    waiting: WaitingUnit
    state: State
    starts_at: int | None = None
    """When it starts, if the current pods keep running; None if that is not known."""


class _Limit(NamedTuple):
    """One quota of one budget, and what is expected of it."""

    most: int
    forecast: UsageForecast

    def plus(self, run: UsageRun) -> _Limit:
        return _Limit(self.most, self.forecast.plus(run)) if run.rate else self


_Pair = tuple[_Limit | None, _Limit | None]
"""The quotas of a budget: GPUs and dollars."""


class RemainingQuota:
    """What budgets have room for, as far as it is given away already."""

    def __init__(self, limits: Mapping[str, _Pair], *, ends: bool) -> None:
        """Where nothing `ends` by itself, what declared no length goes on for ever."""
        self._limits, self._ends = dict(limits), ends

    def _of(self, demands: Sequence[Demand]) -> Iterator[tuple[_Limit, int, int]]:
        for each in demands:
            for limit, rate in zip(self._limits[each.account], (each.rate, each.price), strict=True):
                if limit is not None:
                    yield limit, rate, each.length

    def fits(self, demands: Sequence[Demand]) -> bool:
        """Whether it may start now."""
        return all(limit.forecast.fits(rate, length, limit.most) for limit, rate, length in self._of(demands))

    def never_fits(self, demands: Sequence[Demand]) -> bool:
        """Whether it would exceed some quota with nothing else there."""
        parts = self._of(demands)
        return any(rate * min(length, limit.forecast.window) >= limit.most for limit, rate, length in parts)

    def earliest(self, demands: Sequence[Demand], after: int = 0) -> int | None:
        """When it may start; None if never."""
        moment = max([limit.forecast.as_of for limit, _, _ in self._of(demands)] + [after])
        while True:
            begun = moment
            for limit, rate, length in self._of(demands):
                found = limit.forecast.earliest(rate, length, limit.most, moment)
                if found is None:
                    return None
                moment = found
            if moment == begun:
                return moment

    def plus(self, demands: Sequence[Demand], start: int | None = None) -> RemainingQuota:
        """What is left once it runs."""
        limits = dict(self._limits)
        for each in demands:
            gpus, dollars = (
                None if limit is None else limit.plus(self._run(limit, each, rate, start))
                for limit, rate in zip(limits[each.account], (each.rate, each.price), strict=True)
            )
            limits[each.account] = (gpus, dollars)
        return RemainingQuota(limits, ends=self._ends)

    def _run(self, limit: _Limit, each: Demand, rate: int, start: int | None) -> UsageRun:
        begin = limit.forecast.as_of if start is None else start
        return UsageRun(begin, begin + each.length if self._ends or each.is_declared else OPEN, rate)


class Rooms:
    """The same three times: near, for what may start now; and far, for when others may, with and without an end to what runs.

    Near looks only as far as the longest that waits would run, which is what makes it quick.
    """

    def __init__(self, world: World, allowances: Allowances, matcher: Matcher, queue: Sequence[WaitingUnit]) -> None:
        self._accounts, self._allowances = matcher.accounts, allowances
        self._starting = _starting(world, matcher)
        self._longest = max((demand.length for each in queue for demand in each.demands), default=0)
        self._given: list[tuple[Demand, ...]] = []
        self._far: dict[bool, RemainingQuota] = {}
        self.near = self._room(ends=False, far=False)

    def give(self, demands: tuple[Demand, ...]) -> None:
        """Let a unit start now."""
        self.near = self.near.plus(demands)
        self._given.append(demands)
        self._far = {ends: room.plus(demands) for ends, room in self._far.items()}

    def far(self, *, ends: bool) -> RemainingQuota:
        """What there will be room for later."""
        if ends not in self._far:
            room = self._room(ends=ends, far=True)
            for demands in _together(self._given):
                room = room.plus(demands)
            self._far[ends] = room
        return self._far[ends]

    def _room(self, *, ends: bool, far: bool) -> RemainingQuota:
        return RemainingQuota({each.key: self._limits(each, ends=ends, far=far) for each in self._accounts}, ends=ends)

    def _limits(self, account: BudgetAccount, *, ends: bool, far: bool) -> _Pair:
        as_of = account.found.as_of
        others, until = as_of + account.horizon if ends else OPEN, OPEN if far else as_of + self._longest
        forecasts = account.rows.forecasts(account.ends(), others, until)
        quotas = (account.quota.gpu_ms, account.quota.usd_ms)
        limits = [
            None if quota is None else _Limit(-(-quota * account.limit_share // 100), forecast)
            for quota, forecast in zip(quotas, forecasts, strict=True)
        ]
        for end, rate in self._beginning(account, others).items():
            held = (rate, account.price(rate))
            limits = [
                None if limit is None else limit.plus(UsageRun(as_of, end, each))
                for limit, each in zip(limits, held, strict=True)
            ]
        return limits[0], limits[1]

    def _beginning(self, account: BudgetAccount, others: int) -> dict[int, int]:
        """What is about to start, by when it will be over: millionths of a GPU."""
        found: dict[int, int] = {}
        as_of = account.found.as_of
        for each, rate in self._starting.get(account.key, ()):
            if isinstance(each, Pod):
                end = end_of(account.world, each, as_of, as_of)
            else:
                end = None if each.deadline is None else as_of + each.deadline
            over = others if end is None else end
            found[over] = found.get(over, 0) + rate
        for rate, end in self._allowances.coming(account):
            over = others if end is None else end
            found[over] = found.get(over, 0) + rate
        return found


def _starting(world: World, matcher: Matcher) -> dict[str, list[tuple[Pod | WorkloadPart, int]]]:
    """By budget: the pods that are about to start, and what Kueue was allowed to start and has not yet, each with its rate."""
    found: dict[str, list[tuple[Pod | WorkloadPart, int]]] = {}
    shared = set[str]()
    for pod in pending(world):
        if is_starting(pod):
            for account, rate in matcher.of_pod(pod, shared):
                found.setdefault(account.key, []).append((pod, rate))
            shared |= pod.claim_keys
    for each in world.workloads.values():
        for part in each.parts if is_queued(each) else ():
            for account, rate in matcher.of_part(each.namespace, part):
                found.setdefault(account.key, []).append((part, rate))
    return found


def is_starting(pod: Pod) -> bool:
    """Whether it could start any moment: nothing keeps it back, or we do so no more."""
    return marks.GATE not in pod.gates and (not pod.gates or bool(note(pod, marks.RELEASED_AT)))


def is_queued(each: Workload) -> bool:
    """Whether Kueue may start it and has not yet."""
    return each.kind == "Workload" and each.released_at is not None and not (each.admitted or each.suspended)


def _together(given: Sequence[tuple[Demand, ...]]) -> Iterator[tuple[Demand, ...]]:
    """Equal demands as one that is so many times as large."""
    for demands, count in Counter(given).items():
        yield tuple(each._replace(rate=each.rate * count, price=each.price * count) for each in demands)


class _Reservation(NamedTuple):
    waiting: WaitingUnit
    start: int
    ends: bool
    """Whether it holds only if what declared no length ends within the horizon."""


class _Queue:
    """One walk over all that waits."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._reserved: dict[str, _Reservation] = {}
        """By budget: the oldest unit that has to wait for it."""
        self._unfit: set[tuple[Demand, ...]] = set()
        self._tried = 0
        """How many could not pass those whose start is reserved."""

    def judge(self, each: WaitingUnit) -> ReleaseOutcome:
        demands = each.demands
        if each.is_free and each.is_ready:
            return ReleaseOutcome(each, "Releasing")
        if self._rooms.near.never_fits(demands):
            return ReleaseOutcome(each, "NeverFits")
        if not each.is_ready:
            return ReleaseOutcome(each, "Waiting")
        # Who passes nobody has a chance however many wait, most likely for other budgets.
        is_behind = any(demand.account in self._reserved for demand in demands)
        # What is given away only grows, so what found no room finds none later either.
        has_chance = demands not in self._unfit and (self._tried < MOST_TRIED or not is_behind)
        if has_chance and self._rooms.near.fits(demands) and not self._delays(demands):
            self._rooms.give(demands)
            return ReleaseOutcome(each, "Releasing")
        self._unfit.add(demands)
        if is_behind:
            self._tried += 1
            return ReleaseOutcome(each, "Waiting")
        return self._reserve(each)

    def _reserve(self, each: WaitingUnit) -> ReleaseOutcome:
        for ends in (False, True):
            start = self._rooms.far(ends=ends).earliest(each.demands)
            if start is not None:
                for demand in each.demands:
                    self._reserved[demand.account] = _Reservation(each, start, ends)
                return ReleaseOutcome(each, "Reserved", start)
        return ReleaseOutcome(each, "Waiting")

    def _delays(self, demands: tuple[Demand, ...]) -> bool:
        """Whether a start now would put off a reserved one."""
        concerned = sorted({each.account for each in demands} & self._reserved.keys())
        for kept in {self._reserved[account].waiting.unit: self._reserved[account] for account in concerned}.values():
            # What declared no length may run on for ever, and must not be in the way even then.
            lasting = [
                each if each.is_declared else each._replace(length=FOR_EVER, is_declared=True) for each in demands
            ]
            start = self._rooms.far(ends=kept.ends).plus(lasting).earliest(kept.waiting.demands)
            if start is None or start > kept.start:
                return True
        return False

    def estimated(self, outcomes: Sequence[ReleaseOutcome]) -> Iterator[ReleaseOutcome]:
        """The same with the moments at which the first of those that wait may start, one after the other.

        Nothing is said where it would rest on something ending that never said it would.
        """
        room, left = None, MOST_ESTIMATED
        for each in outcomes:
            demands = [demand._replace(is_declared=True) for demand in each.waiting.demands]
            if each.state == "Reserved" and self._reserved[demands[0].account].ends:
                yield each._replace(starts_at=None)
            elif each.state not in ("Waiting", "Reserved") or not each.waiting.is_ready or not left:
                yield each
            else:
                room, left = room or self._rooms.far(ends=False), left - 1
                start = each.starts_at if each.state == "Reserved" else self._behind(room, each)
                room = room if start is None else room.plus(demands, start)
                yield each._replace(starts_at=start)

    def _behind(self, room: RemainingQuota, each: ReleaseOutcome) -> int | None:
        """When a unit may start that must not start before the ones whose start is reserved."""
        demands = each.waiting.demands
        kept = [self._reserved[demand.account] for demand in demands if demand.account in self._reserved]
        if any(reserved.ends for reserved in kept):
            return None
        return room.earliest(demands, max((reserved.start for reserved in kept), default=0))


def judged(
    world: World, allowances: Allowances, matcher: Matcher, queue: Sequence[WaitingUnit]
) -> list[ReleaseOutcome]:
    """What becomes of each unit that waits, in the order in which they wait."""
    if not queue:
        return []
    rooms = Rooms(world, allowances, matcher, queue)
    # What goes free was given its room when it was released; its pods are new, and the older ones must not take it.
    for each in queue:
        if each.is_free:
            rooms.give(each.demands)
    walk = _Queue(rooms)
    return list(walk.estimated([walk.judge(each) for each in queue]))


def releases(each: WaitingUnit) -> Iterator[Action]:
    """Let a unit go."""
    for owner in each.owners:
        yield ResumeOwner(kind=owner.kind, object=f"{owner.namespace}/{owner.name}", uid=owner.uid)
    for pod in each.pods:
        yield ReleasePod(pod=pod.key, uid=pod.uid)
