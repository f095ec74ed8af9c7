"""A tick: the plans are asked one after the other, and each sees what those before it have decided, written or not.

So nothing is made for pods whose budget finds in this very tick that it is over quota. Of its own kinds a plan sees only what is
written: an intent that nobody has written was never acted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan
from headroom.model.world import World


class Tick:
    """One look at the world, by plans in their order."""

    def __init__(self, world: World, plans: Sequence[Plan], known: Mapping[Ref, Decision] | None = None) -> None:
        """`known` are the newest decisions of earlier ticks."""
        self.world, self._plans = world, tuple(plans)
        self._decided: dict[str, dict[Ref, Decision]] = {}
        self.learn((known or {}).values())

    def seen_by(self, plan: Plan) -> World:
        """The world as a plan sees it: with what earlier plans have decided."""
        earlier = self._plans[: self._plans.index(plan)]
        kinds = [kind for each in earlier for kind in each.kinds if self._decided.get(kind)]
        if not kinds:
            return self.world
        statuses = {ref: each.status for kind in kinds for ref, each in self._decided[kind].items()}
        return structs.replace(self.world, resources=self.world.resources.overlaid(statuses))

    def ask(self, plan: Plan, changes: Changes) -> list[Decision]:
        """What a plan decides now."""
        plan.prepare(self.world)
        found = list(plan.decide(self.seen_by(plan), changes))
        self.learn(found)
        return found

    def learn(self, decisions: Iterable[Decision]) -> None:
        """Later plans see these."""
        for each in decisions:
            self._decided.setdefault(each.resource.kind, {})[each.resource] = each


def as_seen_by(plan: Plan, world: World, plans: Sequence[Plan]) -> World:
    """The world as a plan sees it once all plans before it were asked about everything."""
    tick = Tick(world, plans)
    for each in plans[: plans.index(plan)]:
        tick.ask(each, EVERYTHING)
    return tick.seen_by(plan)


def decide_all(world: World, plans: Sequence[Plan]) -> list[Decision]:
    """What every plan decides on everything, in one tick."""
    tick = Tick(world, plans)
    return [decision for plan in plans for decision in tick.ask(plan, EVERYTHING)]
