"""Replays a case under some policies, from event to event.

Between two events nothing changes for the plans, so they are not asked. Each is asked again when a decision said
that the clock alone would change it, a second after its own effects or a change it waits for, and for arrivals and ends at most once in `every`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Final

from msgspec import Struct, structs

from headroom.api.kinds import KINDS, AnyResource
from headroom.core import PLANS
from headroom.core.ticks import Heard, Tick, ask_in_order
from headroom.model import times
from headroom.model.actions import Action
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan
from headroom.sim.whatif.carrying import Hands
from headroom.sim.whatif.cluster import ReplayCluster
from headroom.sim.whatif.ladders import Ladders
from headroom.sim.whatif.lives import ReplayLog
from headroom.sim.whatif.outside import Makes
from headroom.sim.whatif.switching import Switching
from headroom.sim.whatif.work import Case

SHORTEST_MS: Final = 10 * times.SECOND
LONGEST_MS: Final = 5 * times.MINUTE
LOOKS: Final = 20_000
"""Arrivals and ends are gathered for this share of the replayed time, within these bounds, before the plans are asked."""
LONG_QUEUE: Final = 100
"""With this many queued pods they are gathered twice as long, with twice as many three times, up to the longest."""
SOON_MS: Final = times.SECOND
"""The delay after effects of the plans, or changes they wait for."""
OUTSIDE: Final[tuple[Makes, ...]] = (Switching, Ladders)
"""The stand-ins for things outside the cluster."""
CHORES_MS: Final = 5 * times.MINUTE
"""Chores clean up after removed policies; policies stay in a replay, so this is often enough."""
PRUNED_MS: Final = 24 * times.HOUR
"""How often usage outside all windows is dropped."""
NEVER: Final = 2**62
Progress = Callable[[float], None]
"""Called with the replayed share of the time, from 0 to 1."""
UNPLAYED: Final = frozenset({"Bandwidth"})
"""A report of each node, on which nothing else that is played rests: to make it anew at each step would take nearly all the time."""


def replay(
    case: Case,
    resources: Mapping[Ref, AnyResource],
    *,
    every: int | None = None,
    progress: Progress = lambda _share: None,
) -> ReplayLog:
    """The log of a case's work under these policies."""
    fresh = {ref: structs.replace(each, status=KINDS[each.kind].status()) for ref, each in resources.items()}
    return _Replay(case, fresh, pace_of(case) if every is None else every, progress).play()


def pace_of(case: Case) -> int:
    """How long arrivals and ends are gathered by default."""
    return max(SHORTEST_MS, min(LONGEST_MS, (case.end - case.begin) // LOOKS))


class _Turn(Struct, kw_only=True):
    """A plan, and when it was last asked."""

    plan: Plan
    asked_at: int
    recheck_at: int
    """When the clock alone will change its decisions."""
    tidied_at: int
    cluster: ReplayCluster

    def has_news(self) -> bool:
        """Whether something changed that may affect it."""
        return not (self.cluster.changed | self.cluster.urgent).isdisjoint(self.plan.kinds)

    def hear(self, refs: Collection[Ref]) -> None:
        """Resources whose decisions by an earlier plan changed: it waits for those."""
        if refs:
            self.cluster.urgent.update(self.plan.kinds)


class _Due(Struct, frozen=True, kw_only=True):
    """The decisions of a plan, carried out once all plans have been asked."""

    turn: _Turn
    decisions: list[Decision]
    chores: tuple[Action, ...]


class _Replay:
    def __init__(self, case: Case, resources: Mapping[Ref, AnyResource], every: int, progress: Progress) -> None:
        self._case, self._every, self._progress = case, every, progress
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = count()
        self.cluster = ReplayCluster(case, resources, self._later, OUTSIDE)
        self._hands = Hands(self.cluster)
        kinds = {ref.kind for ref in resources} - UNPLAYED
        self._turns = [
            _Turn(
                plan=plan,
                asked_at=case.begin - every,
                recheck_at=case.begin,
                tidied_at=case.begin,
                cluster=self.cluster,
            )
            for plan in PLANS
            if not kinds.isdisjoint(plan.kinds)
        ]
        self._heard = Heard()
        self._pruned_at = case.begin
        windows = [each.spec.quota.window_hours for each in resources.values() if each.kind == "GPUWorkloadBudget"]
        self._window = max(windows, default=24) * times.HOUR

    def _later(self, at: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._number), do))

    def play(self) -> ReplayLog:
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
        # A long queue makes every round expensive, and the exact time of one arrival matters less: it waits for hours anyway.
        longer = self._every * (1 + len(cluster.pods.queued) // LONG_QUEUE)
        gathered = turn.asked_at + max(self._every, min(longer, LONGEST_MS)) if turn.has_news() else NEVER
        return min(gathered, max(soon, turn.recheck_at))

    def _ask(self) -> None:
        """Ask the plans like the loop: each sees the decisions of earlier ones, and effects follow once all have been asked."""
        cluster = self.cluster
        cluster.log.passes += 1
        tick, found = Tick(cluster.world(), [turn.plan for turn in self._turns]), list[_Due]()
        ask_in_order(
            self._turns,
            lambda turn: self._due_at(turn) <= cluster.now,
            lambda turn: self._ask_one(turn, tick, found),
        )
        for due in found:
            for decision in due.decisions:
                self._take(due.turn, decision)
            self._hands.carry_out(due.chores, None)
        if cluster.now - self._pruned_at >= PRUNED_MS:
            self._pruned_at = cluster.now
            cluster.usage.prune(cluster.now - self._window)

    def _ask_one(self, turn: _Turn, tick: Tick, found: list[_Due]) -> set[Ref]:
        """Ask a plan; returns the resources whose decisions changed."""
        cluster, plan = self.cluster, turn.plan
        cluster.changed.difference_update(plan.kinds)
        cluster.urgent.difference_update(plan.kinds)
        turn.asked_at, turn.recheck_at = cluster.now, NEVER
        decisions, chores = tick.ask(plan, EVERYTHING), tuple[Action, ...]()
        if cluster.now - turn.tidied_at >= CHORES_MS:
            turn.tidied_at = cluster.now
            chores = tick.chores(plan)
        found.append(_Due(turn=turn, decisions=decisions, chores=chores))
        return {each.resource for each in decisions if self._heard.is_news(plan, each, cluster.now)}

    def _take(self, turn: _Turn, decision: Decision) -> None:
        cluster = self.cluster
        after = decision.next_turn_ms
        if after is None:
            # This only asks for a look now and then.
            after = max(decision.look_again_ms, self._every, turn.plan.at_most_every_ms)
        turn.recheck_at = min(turn.recheck_at, cluster.now + after)
        resource = cluster.resources.get(decision.resource)
        if resource is None:  # it does not exist yet, so it has no status
            self._hands.carry_out(decision.actions, None)
            return
        resource = structs.replace(resource, status=decision.status)
        cluster.resources.put(decision.resource, resource)
        if resource.spec is not None and not resource.spec.paused:
            self._hands.carry_out(decision.actions, resource)
