"""What must be true of every run of the ladder, judged afterwards by what the auditor saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headroom.model.times import duration, text
from tests.scenarios.auditor import HOUR, Auditor, Ledger, Life, Stop

MINUTE, SECOND = 60_000, 1000
RACE = 5000
"""What is about to be held may start at that very moment."""
NO_LIMIT = 10**9
MOST_UNPRICED = 0.01
ROUNDING = 0.995
"""Decisions are made on numbers that are some seconds old."""


def ledger_of(document: dict[str, Any], namespaces: set[str]) -> Ledger:
    """A budget's document as the auditor reads it."""
    spec, metadata = document["spec"], document["metadata"]
    enforcement = spec["enforcement"]
    return Ledger(
        name=f"{metadata['namespace']}/{metadata['name']}",
        namespaces=namespaces if "namespaceSelector" in spec else {metadata["namespace"]},
        labels=spec["selector"]["matchLabels"],
        quota=round(float(spec["quota"].get("gpuHours", NO_LIMIT)) * HOUR),
        window=spec["quota"]["windowHours"] * HOUR,
        steps=[(int(each["at"][:-1]), each["action"]) for each in enforcement["steps"]],
        grace=enforcement["gracePeriodSeconds"] * 1000,
        horizon=duration(enforcement.get("releaseHorizon", "1h")) or HOUR,
        cap=enforcement.get("evictionsPerMinute", 10),
        in_dollars="usd" in spec["quota"],
    )


class Judge:
    """Says what was wrong in a run; nothing, if all is well."""

    def __init__(
        self,
        auditor: Auditor,
        budgets: list[Ledger],
        caps: tuple[int, int],
        *,
        patience: int = 30_000,
        unseen: float = 0.02,
    ) -> None:
        """`caps` are those of the cluster and of a namespace; `patience` is how long a release may take.

        `unseen` is which part of a quota may have been used while no operator looked: only what is certain counts.
        """
        self._auditor, self._caps, self._patience, self._unseen = auditor, caps, patience, unseen
        self._budgets = {each.name: each for each in budgets}
        self._stops = auditor.stops()
        self._first_start: dict[str, int] = {}
        for life in auditor.lives.values():
            if life.started is not None:
                self._first_start[life.unit] = min(life.started, self._first_start.get(life.unit, life.started))

    def problems(self) -> list[str]:
        """All that is wrong, in words."""
        checks = (
            self.twice,
            self.sawtooth,
            self.unjust,
            self.torn,
            self.over_caps,
            self.unpriced,
            self.invented,
            self.leaks,
            self.overfilled,
            self.overtaken,
            self.starved,
        )
        return [f"{check.__name__}: {each}" for check in checks for each in check()]

    def _of(self, life: Life) -> list[Ledger]:
        return [each for each in self._budgets.values() if each.counts(life)]

    def _holding(self, budget: Ledger, at: int) -> tuple[int, int] | None:
        for begin, end in self._auditor.holds.get(budget.name, ()):
            if begin <= at < end:
                return begin, end
        return None

    # --- stopping -----------------------------------------------------------------------------------------------------------------

    def twice(self) -> Iterator[str]:
        """No pod is evicted that is on its way out already."""
        for at, life in self._auditor.evictions():
            if life is None:
                yield f"at {text(at)} a pod was evicted that was going already"

    def sawtooth(self) -> Iterator[str]:
        """What was let start is not stopped again within the horizon."""
        for stop in self._stops:
            for life in stop.lives:
                horizon = max([each.horizon for each in self._of(life)], default=HOUR)
                if life.released is not None and stop.at - life.released < horizon:
                    yield f"{life.name} was released at {text(life.released)}, {stop.action} at {text(stop.at)}"

    def unjust(self) -> Iterator[str]:
        """What is stopped matches a budget whose step stands, after its grace; nothing that only waits to start is lost."""
        for stop in self._stops:
            for life in stop.lives:
                if life.protected or life.namespace == "kube-system":
                    yield f"{life.name} must never be stopped, and was at {text(stop.at)}"
            budget = self._budgets.get(stop.budget)
            held = any(self._holding(each, stop.at) for life in stop.lives for each in self._of(life))
            if held and not stop.ran(RACE):
                continue  # it had not started when it was looked at
            if budget is None:
                yield f"{stop.unit} was stopped at {text(stop.at)}, and no budget's status says why"
            else:
                yield from self._unjust(stop, budget)

    def _unjust(self, stop: Stop, budget: Ledger) -> Iterator[str]:
        share = budget.share_of(stop.action)
        if share is None:
            yield f"{budget.name} has no step {stop.action}, and stopped {stop.unit} at {text(stop.at)}"
            return
        used, wanted = self._auditor.used(budget, stop.at), budget.quota * share // 100
        if used < wanted * ROUNDING and not budget.in_dollars:
            yield f"{stop.unit} stopped at {text(stop.at)}: {used / HOUR:.2f} of {wanted / HOUR:.2f} GPU-hours used"
        since = next((begin for begin, end in self._auditor.exceeded[budget.name] if begin <= stop.at < end), stop.at)
        if stop.at - since < budget.grace - SECOND:
            yield f"{stop.unit} stopped at {text(stop.at)}, within the grace of {budget.grace // SECOND} s"
        if not any(budget.counts(life) and life.gpus and life.started is not None for life in stop.lives):
            yield f"{stop.unit} is none of {budget.name}'s, and was stopped for it at {text(stop.at)}"

    def torn(self) -> Iterator[str]:
        """A gang loses all its ranks or none."""
        for stop in self._stops:
            if stop.unit.startswith("Pod/") or not stop.ran():
                continue
            for life in self._auditor.lives.values():
                if life.unit == stop.unit and life.started is not None and life.started <= stop.at:
                    soon = stop.at + 2 * self._patience
                    if not life.is_over(stop.at) and not (life.is_over(soon) or (life.going or soon) < soon):
                        yield f"{life.name} of {stop.unit} was left behind at {text(stop.at)}"

    def over_caps(self) -> Iterator[str]:
        """In any minute, no more are stopped than the cluster, the namespace and the budget allow."""
        cluster, namespace = self._caps
        ran = [each for each in self._stops if each.ran()]
        for place, first in enumerate(ran):
            recent = [each for each in ran[place:] if each.at - first.at < MINUTE]
            places: dict[str, int] = {}
            for each in recent:
                for name in {f"namespace {each.unit.split('/')[1]}", f"budget {each.budget}"}:
                    places[name] = places.get(name, 0) + 1
            limits = {f"budget {each.name}": each.cap for each in self._budgets.values()}
            for name, count in {**places, "cluster": len(recent)}.items():
                most = cluster if name == "cluster" else limits.get(name, namespace)
                if count > most:
                    yield f"{name}: {count} in the minute from {text(first.at)}"

    def unpriced(self) -> Iterator[str]:
        """Nothing is stopped for dollars alone while more than one per cent of the GPU time has no price."""
        for at, name, victim in self._auditor.victims:
            budget, part = self._budgets.get(name), self._auditor.unpriced[name, victim["unit"], victim["at"]]
            if budget is None or not budget.in_dollars or part <= MOST_UNPRICED:
                continue
            share = budget.share_of(victim["action"]) or 0
            if self._auditor.used(budget, at) < budget.quota * share // 100 * ROUNDING:
                yield f"{victim['unit']} stopped for dollars at {text(at)}, and {part:.1%} of the time has no price"

    def invented(self) -> Iterator[str]:
        """No status records a stop, or counts an eviction, that was not granted before."""
        granted = [(at, life) for at, life in self._auditor.evictions() if life is not None]
        for (name, unit, _), (at, record) in self._auditor.stopped.items():
            if record.get("outcome", "Stopped") != "Stopped" or record.get("by"):
                continue
            names = {unit, record.get("owner", "")}
            evicted = any(life.unit == unit and when <= at for when, life in granted)
            suspended = any(each.unit in names and each.at <= at for each in self._auditor.suspended)
            if not (evicted if record["action"] == "Evict" else suspended):
                yield f"{name} says at {text(at)} that it stopped {unit}, which nobody did"
        for at, name, owner, count in self._auditor.counted:
            found = [life for when, life in granted if when <= at and owner in (life.owner, life.unit)]
            if count > len(found):
                yield f"{name} counts {count} evictions of {owner} at {text(at)}, and {len(found)} were granted"

    # --- starting -----------------------------------------------------------------------------------------------------------------

    def leaks(self) -> Iterator[str]:
        """No pod that was made while a hold stood starts under it, unless it was released."""
        for life in self._auditor.lives.values():
            if life.started is None or life.released is not None or life.protected:
                continue
            for budget in self._of(life):
                span = self._holding(budget, life.started)
                if span and life.created > span[0]:
                    yield f"{life.name} started at {text(life.started)} under the hold of {budget.name}"
                elif (
                    span and life.owner and life.started - span[0] > 2 * self._patience and life.unit.startswith("Pod/")
                ):
                    yield f"{life.name} was there before the hold of {budget.name}, and started at {text(life.started)}"

    def _units(self) -> dict[str, list[Life]]:
        """What waited, by unit and by when it was let go, if ever."""
        found: dict[str, list[Life]] = {}
        for life in self._auditor.lives.values():
            if life.gated:
                found.setdefault(life.unit, []).append(life)
        return found

    def overfilled(self) -> Iterator[str]:
        """What is let start together finds room for as long as it is taken to run, beside all that runs."""
        released = sorted({life.released for life in self._auditor.lives.values() if life.released is not None})
        for place, at in enumerate(released):
            if place and at - released[place - 1] < RACE:
                continue  # it belongs to those before
            lives = [each for each in self._auditor.lives.values() if at <= (each.released or 0) < at + RACE]
            for budget in {each.name: each for life in lives for each in self._of(life)}.values():
                if not self._auditor.fits([budget], lives, at, spare=-self._unseen):
                    yield f"{', '.join(life.name for life in lives)} found no room in {budget.name} at {text(at)}"

    def overtaken(self) -> Iterator[str]:
        """No younger unit of the same budgets that asks for as much or more starts before an older one."""
        units = self._units()
        for unit, lives in units.items():
            for at in sorted({life.released for life in lives if life.released is not None}):
                mine = [life for life in lives if life.released == at]
                for other, rest in units.items():
                    theirs = [
                        each for each in rest if each.waits(at + self._patience) and each.waits(at - self._patience)
                    ]
                    if other != unit and theirs and self._should_be_first(theirs, mine):
                        yield f"{unit} was released at {text(at)} before {other}, which waits since {text(self._since(theirs))}"

    def _should_be_first(self, older: list[Life], younger: list[Life]) -> bool:
        if self._since(older) >= self._since(younger) - self._patience:
            return False
        mine, theirs = ({each.name for life in lives for each in self._of(life)} for lives in (older, younger))
        longest = [max(life.length or HOUR for life in lives) for lives in (older, younger)]
        declared = [all(life.length for life in lives) for lives in (older, younger)]
        gpus = [sum(life.gpus for life in lives) for lives in (older, younger)]
        asks_less = longest[0] <= longest[1] and gpus[0] <= gpus[1] and (declared[0] or not declared[1])
        return bool(mine) and mine == theirs and asks_less

    def starved(self, every: int = 10 * MINUTE) -> Iterator[str]:
        """The oldest of its budgets starts as soon as there is room for it."""
        units = self._units()
        begin = min((life.created for lives in units.values() for life in lives), default=self._auditor.end)
        for at in range(begin, self._auditor.end - self._patience, every):
            waiting = {
                unit: found for unit, lives in units.items() if (found := [each for each in lives if each.waits(at)])
            }
            for unit, lives in waiting.items():
                ready = max(life.created for life in lives) < at - self._patience
                if ready and self._is_oldest(unit, waiting, at) and self._had_room(lives, at):
                    yield f"{unit} waits since {text(self._since(lives))} although there is room for it at {text(at)}"

    def _is_oldest(self, unit: str, waiting: dict[str, list[Life]], at: int) -> bool:
        budgets = {each.name for life in waiting[unit] for each in self._of(life)}
        for other, lives in waiting.items():
            shares = budgets & {each.name for life in lives for each in self._of(life)}
            if other != unit and shares and (self._since(lives), other) < (self._since(waiting[unit]), unit):
                return False
        return bool(budgets) and not self._is_resting(budgets, at)

    def _is_resting(self, budgets: set[str], at: int) -> bool:
        """Whether an owner of these budgets waits too, and may have been there before."""
        for owner, spans in self._auditor.resting.items():
            if any(begin <= at < end for begin, end in spans):
                lives = [life for life in self._auditor.lives.values() if life.unit == owner]
                if budgets & {each.name for life in lives for each in self._of(life)}:
                    return True
        return False

    def _since(self, lives: list[Life]) -> int:
        """Since when a unit waits: what was suspended before it could start keeps its place, what has run begins anew.

        What has run and was suspended makes its pods only when it is released, but waits since it was suspended.
        """
        unit, created = lives[0].unit, min(life.created for life in lives)
        if self._first_start.get(unit, created) >= created:
            return min(created, self._auditor.made.get(unit, created))
        rests = [(begin, end) for begin, end in self._auditor.resting.get(unit, ()) if end <= created]
        begin, end = max(rests, default=(created, created))
        starts = (life.started for life in self._auditor.lives.values() if life.unit == unit)
        return created if any(at is not None and end <= at < created for at in starts) else begin

    def _had_room(self, lives: list[Life], at: int) -> bool:
        later = at + self._patience
        budgets = list({each.name: each for life in lives for each in self._of(life)}.values())
        return all(life.waits(later) for life in lives) and all(
            self._auditor.fits(budgets, lives, moment, spare=0.01) for moment in (at, later)
        )
