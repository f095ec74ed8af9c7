"""Plays a case under some policies: from one moment at which something happens to the next.

Between two such moments nothing changes that the plans could see, so they are not asked. Each is asked again when a decision said
that the clock alone would change it, a second after something it waits for or did itself, and for what people do at most once in `every`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

from msgspec import Struct, structs

from headroom.api.kinds import KINDS, AnyResource
from headroom.core import PLANS
from headroom.model import times
from headroom.model.actions import Action
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan
from headroom.sim.whatif.carrying import Hands
from headroom.sim.whatif.cluster import Cluster
from headroom.sim.whatif.lives import Log
from headroom.sim.whatif.outside import Makes
from headroom.sim.whatif.switching import Switching
from headroom.sim.whatif.work import Case

SHORTEST_MS: Final = 10 * times.SECOND
LONGEST_MS: Final = 5 * times.MINUTE
LOOKS: Final = 20_000
"""Arrivals and ends are gathered for this part of the time, within these bounds, before the plans are asked about them."""
LONG_QUEUE: Final = 100
"""With so many that wait they are gathered twice as long, with twice as many three times, up to the longest."""
SOON_MS: Final = times.SECOND
"""And so soon after something that the plans did or wait for."""
CHORES_MS: Final = 5 * times.MINUTE
OUTSIDE: Final[tuple[Makes, ...]] = (Switching,)
"""What is played beside the cluster."""
"""Chores tidy up marks and what policies that are gone left behind; policies do not go in a replay, so this is often enough."""
PRUNED_MS: Final = 24 * times.HOUR
"""How often what no window reaches any more is forgotten."""
NEVER: Final = 2**62
Progress = Callable[[float], None]
"""Told how much of the time is played, from 0 to 1."""


def replay(
    case: Case,
    resources: Mapping[Ref, AnyResource],
    *,
    every: int | None = None,
    progress: Progress = lambda _share: None,
) -> Log:
    """What becomes of a case's work under these policies."""
    fresh = {ref: structs.replace(each, status=KINDS[each.kind].status()) for ref, each in resources.items()}
    return _Replay(case, fresh, pace_of(case) if every is None else every, progress).play()


def pace_of(case: Case) -> int:
    """For how long what people do is gathered, unless somebody says otherwise."""
    return max(SHORTEST_MS, min(LONGEST_MS, (case.end - case.begin) // LOOKS))


class _Turn(Struct, kw_only=True):
    """A plan, and when it was asked."""

    plan: Plan
    asked_at: int
    turns_at: int
    """When the clock alone will change what it says."""
    tidied_at: int


class _Replay:
    def __init__(self, case: Case, resources: Mapping[Ref, AnyResource], every: int, progress: Progress) -> None:
        self._case, self._every, self._progress = case, every, progress
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = count()
        self.cluster = Cluster(case, resources, self._later, OUTSIDE)
        self._hands = Hands(self.cluster)
        kinds = {ref.kind for ref in resources}
        self._turns = [
            _Turn(plan=plan, asked_at=case.begin - every, turns_at=case.begin, tidied_at=case.begin)
            for plan in PLANS
            if not kinds.isdisjoint(plan.kinds)
        ]
        self._pruned_at = case.begin
        windows = [each.spec.quota.window_hours for each in resources.values() if each.kind == "GPUWorkloadBudget"]
        self._window = max(windows, default=24) * times.HOUR

    def _later(self, at: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._number), do))

    def play(self) -> Log:
        case, cluster = self._case, self.cluster
        for work in case.works:
            if work.began is not None:
                cluster.resume(work)
            else:
                self._later(work.arrives, lambda work=work: cluster.arrive(work))  # type: ignore[misc]  # mypy knows no default of a lambda
        while True:
            at = min([self._events[0][0] if self._events else NEVER, *map(self._due_at, self._turns)])
            if at >= case.end:
                break
            cluster.now = max(cluster.now, at)
            while self._events and self._events[0][0] <= cluster.now:
                heapq.heappop(self._events)[2]()
            cluster.place()
            if any(self._due_at(turn) <= cluster.now for turn in self._turns):
                self._ask()
                cluster.place()
            self._progress((cluster.now - case.begin) / max(1, case.end - case.begin))
        cluster.now = case.end
        self._progress(1.0)
        return cluster.log

    # --- asking the plans -------------------------------------------------------------------------------------------------

    def _due_at(self, turn: _Turn) -> int:
        """When a plan is asked next."""
        cluster = self.cluster
        soon = turn.asked_at + SOON_MS
        if not cluster.urgent.isdisjoint(turn.plan.kinds):
            return soon
        # A long queue makes every look dear, and the moment of one arrival matter less: it waits for hours anyway.
        longer = self._every * (1 + len(cluster.pods.gated) // LONG_QUEUE)
        gathered = turn.asked_at + max(self._every, min(longer, LONGEST_MS)) if self._has_news(turn) else NEVER
        return min(gathered, max(soon, turn.turns_at))

    def _has_news(self, turn: _Turn) -> bool:
        return not (self.cluster.changed | self.cluster.urgent).isdisjoint(turn.plan.kinds)

    def _ask(self) -> None:
        """Ask the plans that are due, and before each of them those with news that it must not miss."""
        cluster = self.cluster
        cluster.log.passes += 1
        due = [self._due_at(turn) <= cluster.now for turn in self._turns]
        for place, turn in enumerate(self._turns):
            if not due[place] and not (self._has_news(turn) and any(due[place:])):
                continue
            cluster.changed.difference_update(turn.plan.kinds)
            cluster.urgent.difference_update(turn.plan.kinds)
            turn.asked_at, turn.turns_at = cluster.now, NEVER
            world = cluster.world()
            turn.plan.prepare(world)
            decisions = list(turn.plan.decide(world, EVERYTHING))
            chores: list[Action] = []
            if cluster.now - turn.tidied_at >= CHORES_MS:
                turn.tidied_at = cluster.now
                chores = list(turn.plan.chores(world))
            for decision in decisions:
                self._take(turn, decision)
            self._hands.carry_out(chores, None)
        if cluster.now - self._pruned_at >= PRUNED_MS:
            self._pruned_at = cluster.now
            cluster.usage.prune(cluster.now - self._window)

    def _take(self, turn: _Turn, decision: Decision) -> None:
        cluster = self.cluster
        after = decision.next_turn_ms
        if after is None:
            # It does not say more than that it wants to be looked at now and then.
            after = max(decision.look_again_ms, self._every, turn.plan.at_most_every_ms)
        turn.turns_at = min(turn.turns_at, cluster.now + after)
        resource = cluster.resources.get(decision.resource)
        if resource is None:  # it does not exist yet, so it has no status
            self._hands.carry_out(decision.actions, None)
            return
        resource = structs.replace(resource, status=decision.status)
        cluster.resources.put(decision.resource, resource)
        if resource.spec is not None and not resource.spec.paused:
            self._hands.carry_out(decision.actions, resource)
