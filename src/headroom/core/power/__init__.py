"""Power: which machines to wake for pending pods and which idle ones to let sleep.

So far it only validates its resource and says so; the decisions come with the capability itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from headroom.model.decisions import Decision
from headroom.model.plans import Plan, affected, standing
from headroom.model.world import Changes, World

KIND = "PowerPool"
SAYS = "The pool is valid; this version of Headroom neither wakes machines nor lets them sleep yet."


def decide(world: World, changes: Changes) -> Iterator[Decision]:
    """One decision for each resource that may need a new one."""
    for ref, resource in affected(world, KIND, changes):
        yield standing(world, ref, resource, SAYS)


PLAN = Plan(name="power", kind=KIND, wakes_on=frozenset({KIND}), at_most_every_ms=1000, decide=decide)
