"""The capacity plan: one round over all supplies, since they share the pods that are pending, and one decision for each resource.

A supply that raises is left out, and the others are decided as if it were not there; only its resource says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.capacity import opening, rounds
from headroom.core.capacity.rounds import Round, guarded
from headroom.core.capacity.supplies import Supply, SupplyFailed
from headroom.model.actions import Action
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, raised
from headroom.model.world import World


class Source(Struct, frozen=True, kw_only=True):
    """A kind whose resources bring machines."""

    kind: str
    supplies: Callable[[World, Collection[Ref]], Iterable[Supply]]
    """One for each resource that can be read, but for some that are left out."""
    undecided: Callable[[World, Ref, AnyResource], Decision]
    """What is said of a resource that is no supply: it cannot be read, or the view is not complete."""


def plan_of(sources: Sequence[Source], chores: Callable[[World], Iterable[Action]] = lambda _world: ()) -> Plan:
    """The plan that asks all of them; the chores are those that come of their machines."""

    def decide(world: World, _changes: Changes) -> Iterator[Decision]:
        """One decision for each resource, whatever changed: what one supply does, the others must know."""
        return _decided(world, sources)

    return Plan(
        name="capacity",
        kinds=tuple(each.kind for each in sources),
        reads=(usage.KIND,),
        wakes_on=frozenset(
            {
                Topic.UNBOUND,
                Topic.NODES,
                Topic.MACHINES,
                Topic.KARPENTER,
                Topic.NAMESPACES,
                Topic.WORKLOADS,
                Topic.BATCH,
                Topic.CLAIMS,
                Topic.DEVICES,
                Topic.SIGHT,
            }
        ),
        at_most_every_ms=1000,
        decides_together=True,
        decide=decide,
        chores=chores,
    )


def round_of(world: World, sources: Sequence[Source], failed: dict[Ref, Exception] | None = None) -> Round:
    """Who is pending, where they go, and what each supply does. Those that raised are noted in `failed`."""
    failed = {} if failed is None else failed
    while True:
        try:
            return _round(world, sources, failed)
        except SupplyFailed as found:
            if found.ref in failed:
                raise
            failed[found.ref] = found.error


def _round(world: World, sources: Sequence[Source], failed: Collection[Ref]) -> Round:
    supplies = [supply for each in sources for supply in each.supplies(world, failed)]
    supplies = [supply for supply in supplies if supply.ref not in failed]
    terms = {each.ref: guarded(each.ref, getattr, each, "terms") for each in supplies}
    supplies.sort(key=lambda each: (terms[each.ref].order, each.ref))
    found = rounds.begin(world, supplies)
    for supply, outcome in zip(supplies, opening.serve(found), strict=True):
        found.decisions[supply.ref] = guarded(supply.ref, supply.settle, outcome)
    return found


def _decided(world: World, sources: Sequence[Source]) -> Iterator[Decision]:
    failed: dict[Ref, Exception] = {}
    decisions = round_of(world, sources, failed).decisions if world.complete else {}
    for source in sources:
        for ref, resource in world.of_kind(source.kind):
            if ref in decisions:
                yield decisions[ref]
            elif ref in failed:
                yield raised(world, ref, resource, failed[ref])
            else:
                yield source.undecided(world, ref, resource)
