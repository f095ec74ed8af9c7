"""One moment for several pages: the world as it is now, and what budgets come to on just this world.

The loop decides a moment after something happened, and more seldom on what only moves with time, so its last decisions and the world
around them are of two moments. Here the budgets are decided on once more. Nothing comes of that: looking changes neither what is done
nor when.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from headroom.core import budgets, usage
from headroom.model import times
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.runtime.loop import Bell
from headroom.web.view import OperatorView


class DecidedNow(Struct, frozen=True, kw_only=True):
    """A loop, as if it had decided just now."""

    decisions: Mapping[Ref, Decision]
    ticks: int
    bell: Bell


def at_one_moment(view: OperatorView) -> OperatorView:
    """The view as it is now and stays; good until the next await."""
    world = view.world()
    decided = {each.resource: each for each in _budgets(world)}
    loop = DecidedNow(decisions={**view.loop.decisions, **decided}, ticks=view.loop.ticks, bell=view.loop.bell)
    return structs.replace(view, moment=world, loop=loop)


def _budgets(world: World) -> list[Decision]:
    budgets.PLAN.prepare(world)
    return [_dated(world, each) for each in budgets.PLAN.decide(world, EVERYTHING)]


def _dated(world: World, decision: Decision) -> Decision:
    """With the moment that its numbers are true for: the status keeps an earlier one while they do not move, for nothing to be written."""
    budget, status = world.resources[decision.resource], decision.status
    is_counted = budget.spec is not None and world.complete and world.ledger.loaded and usage.is_read(world, budget)
    if status is not budget.status or not is_counted:
        return decision
    as_of = times.text(usage.heard_of(world, usage.scope_of(world, budget)).as_of)
    return structs.replace(decision, status=structs.replace(status, as_of=as_of))
