"""Bandwidth: what each node's links carry and who holds it.

So far it only validates its resource and says so; the decisions come with the capability itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from headroom.model.changes import Changes
from headroom.model.decisions import Decision
from headroom.model.plans import Plan, affected, standing
from headroom.model.world import World

KIND = "Bandwidth"
SAYS = "The capacity is valid; this version of Headroom does not account for bandwidth yet."


def decide(world: World, changes: Changes) -> Iterator[Decision]:
    """One decision for each resource that may need a new one."""
    for ref, resource in affected(world, KIND, changes):
        yield standing(world, ref, resource, SAYS)


PLAN = Plan(name="bandwidth", kinds=(KIND,), at_most_every_ms=1000, decide=decide)
