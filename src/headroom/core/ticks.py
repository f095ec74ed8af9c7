"""A tick: the plans are asked one after the other, and each sees what those before it have decided, written or not.

So nothing is made for pods whose budget finds in this very tick that it is over quota. Of its own kinds a plan sees only what is
written: an intent that nobody has written was never acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import structs

from headroom.model import times
from headroom.model.actions import Action
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Decision, Ref, substance
from headroom.model.plans import Plan
from headroom.model.world import World

LEAST_MOVE_MS: Final = 30 * times.SECOND
MOVE_PART: Final = 10
"""An estimated start is news once it moved by so much, and by this part of how far ahead it lies: machines take minutes to boot, and
what starts in hours is looked at again before."""


class Tick:
    """One look at the world, by plans in their order."""

    def __init__(self, world: World, plans: Sequence[Plan], known: Mapping[Ref, Decision] | None = None) -> None:
        """`known` are the newest decisions of earlier ticks."""
        self.world, self._plans = world, tuple(plans)
        self._decided: dict[str, dict[Ref, Decision]] = {}
        self._seen: dict[tuple[str, ...], World] = {}
        """By the kinds that were decided before."""
        self.learn((known or {}).values())

    def seen_by(self, plan: Plan) -> World:
        """The world as a plan sees it: with what earlier plans have decided."""
        earlier = self._plans[: self._plans.index(plan)]
        kinds = tuple(kind for each in earlier for kind in each.kinds if self._decided.get(kind))
        if not kinds:
            return self.world
        if kinds not in self._seen:
            statuses = {ref: each.status for kind in kinds for ref, each in self._decided[kind].items()}
            self._seen[kinds] = structs.replace(self.world, resources=self.world.resources.overlaid(statuses))
        return self._seen[kinds]

    def chores(self, plan: Plan) -> tuple[Action, ...]:
        """What a plan has due although no resource asks for it."""
        return tuple(plan.chores(self.seen_by(plan)))

    def ask(self, plan: Plan, changes: Changes) -> list[Decision]:
        """What a plan decides now."""
        plan.prepare(self.world)
        world = self.seen_by(plan)
        if plan.decides_together and not any(True for kind in plan.kinds for _ in world.of_kind(kind)):
            return []  # a round of nobody: whoever is pending need not be looked for
        found = list(plan.decide(world, changes))
        self.learn(found)
        return found

    def learn(self, decisions: Iterable[Decision]) -> None:
        """Later plans see these."""
        for each in decisions:
            self._decided.setdefault(each.resource.kind, {})[each.resource] = each
            self._seen.clear()


class Heard:
    """What those who read a kind last heard of each decision; they are asked again once it says something else."""

    def __init__(self) -> None:
        self._known: dict[Ref, tuple[object, Mapping[str, int]]] = {}

    def is_news(self, plan: Plan, decision: Decision, now: int) -> bool:
        """Whether a decision of a plan says something else than what they heard; if it does, they hear it now."""
        told, starts = substance(decision), plan.announces(decision.status)
        known = self._known.get(decision.resource)
        # Starts are held against what was heard, not against the last decision: else one that moves by seconds would never be news.
        if known is not None and known[0] == told and not _moved(known[1], starts, now):
            return False
        self._known[decision.resource] = told, starts
        return True

    def forget(self, ref: Ref) -> None:
        """It is gone."""
        self._known.pop(ref, None)


def _moved(known: Mapping[str, int], starts: Mapping[str, int], now: int) -> bool:
    """Whether anybody starts at another moment than was heard, by enough to matter; that somebody came or went is always enough."""
    if known.keys() != starts.keys():
        return True
    return any(
        abs(start - known[name]) > max(LEAST_MOVE_MS, (min(start, known[name]) - now) // MOVE_PART)
        for name, start in starts.items()
    )


class Asker(Protocol):
    """One plan of those that are asked in order."""

    @property
    def plan(self) -> Plan:
        """Which."""
        ...

    def has_news(self) -> bool:
        """Whether something is new that it has not been asked about."""
        ...

    def hear(self, refs: Collection[Ref]) -> None:
        """An earlier plan says something else of these now."""
        ...


A = TypeVar("A", bound=Asker)


def ask_in_order(askers: Sequence[A], is_due: Callable[[A], bool], ask: Callable[[A], Collection[Ref] | None]) -> bool:
    """Ask the plans that are due, and before each of them those with news that it must not miss; whether any was asked.

    `ask` says of which resources the plan says something else now, and those who read their kind hear of it; None if it was not asked.
    """
    has_asked = False
    for place, each in enumerate(askers):
        later = askers[place + 1 :]
        if not (is_due(each) or (each.has_news() and any(map(is_due, later)))):
            continue
        turned = ask(each)
        has_asked = has_asked or turned is not None
        for other in later if turned else ():
            other.hear({ref for ref in turned or () if ref.kind in other.plan.reads})
    return has_asked


def as_seen_by(plan: Plan, world: World, plans: Sequence[Plan]) -> World:
    """The world as a plan sees it once all plans before it were asked about everything."""
    tick = Tick(world, plans)
    for each in plans[: plans.index(plan)]:
        tick.ask(each, EVERYTHING)
    return tick.seen_by(plan)


def whole_tick(world: World, plans: Sequence[Plan]) -> tuple[Tick, list[Decision]]:
    """A tick in which every plan was asked about everything, and what they decided."""
    tick = Tick(world, plans)
    return tick, [decision for plan in plans for decision in tick.ask(plan, EVERYTHING)]


def decide_all(world: World, plans: Sequence[Plan]) -> list[Decision]:
    """What every plan decides on everything, in one tick."""
    return whole_tick(world, plans)[1]
