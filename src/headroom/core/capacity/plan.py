"""The capacity plan: one round over all supplies, since they share the pods that are pending, and one decision for each resource.

A supply that raises is left out, and the others are decided as if it were not there; only its resource says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from headroom.api.kinds import AnyResource
from headroom.core import demand
from headroom.core.capacity import opening, rounds
from headroom.core.capacity.rounds import CapacityRound, guarded
from headroom.core.capacity.supplies import Supply, SupplyFailed
from headroom.core.demand import RoomResources
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import raised
from headroom.model.world import World

OF_PENDING: Final = frozenset({Topic.CLAIMS, Topic.NAMESPACES, Topic.KARPENTER})
"""What makes no difference while no pod is pending."""


ResourcesOf = Callable[[World], RoomResources | None]
"""What else pods may ask for and rooms have, in a world."""


class SupplySource(Struct, frozen=True, kw_only=True):
    """A kind whose resources bring machines."""

    kind: str
    supplies: Callable[[World, Collection[Ref]], Iterable[Supply]]
    """One for each resource that can be read, but for some that are left out."""
    concerned: Callable[[World, Changes], Collection[Ref] | None] | None = None
    """Which resources are to be decided anew while no pod is pending, given what changed; None for all.

    A source without it has all of them decided, every time.
    """
    lead_ms: Callable[[World], int] | None = None
    """The longest of their lead times. Without it everything counts while anybody could announce pods, however far ahead."""
    undecided: Callable[[World, Ref, AnyResource], Decision]
    """What is said of a resource that is no supply: it cannot be read, or the view is not complete."""


def decide(
    world: World, changes: Changes, sources: Sequence[SupplySource], resources: ResourcesOf = lambda _world: None
) -> Iterator[Decision]:
    """One decision for each resource while pods are pending, since what one supply does, the others must know; else for few."""
    return _decided(world, sources, _concerned(world, sources, changes), resources)


def round_of(
    world: World,
    sources: Sequence[SupplySource],
    failed: dict[Ref, Exception] | None = None,
    without: Collection[Ref] = (),
    resources: ResourcesOf = lambda _world: None,
) -> CapacityRound:
    """Who is pending, where they go, and what each supply does, but for some. Those that raised are noted in `failed`."""
    failed = {} if failed is None else failed
    while True:
        try:
            return _round(world, sources, {*failed, *without}, resources)
        except SupplyFailed as found:
            if found.ref in failed:
                raise
            failed[found.ref] = found.error


def _round(
    world: World, sources: Sequence[SupplySource], failed: Collection[Ref], resources: ResourcesOf
) -> CapacityRound:
    supplies = [supply for each in sources for supply in each.supplies(world, failed)]
    supplies = [supply for supply in supplies if supply.ref not in failed]
    terms = {each.ref: guarded(each.ref, getattr, each, "terms") for each in supplies}
    supplies.sort(key=lambda each: (terms[each.ref].order, each.ref))
    found = rounds.begin(world, supplies, resources(world))
    for supply, outcome in zip(supplies, opening.serve(found), strict=True):
        found.decisions[supply.ref] = guarded(supply.ref, supply.settle, outcome)
    return found


def _concerned(world: World, sources: Sequence[SupplySource], changes: Changes) -> frozenset[Ref] | None:
    """Which resources are to be decided anew; None for all."""
    # While pods are pending, or were until now, all supplies are asked.
    if changes.everything or changes.asking or not world.complete or demand.may_be_wanted(world, _lead(world, sources)):
        return None
    if changes.facts.keys() - {Topic.MACHINES, Topic.INSTANCES, Topic.OFFERS, *OF_PENDING}:
        return None
    kinds, found = {each.kind for each in sources}, set[Ref]()
    for ref in changes.resources:
        resource = world.resources.get(ref)
        if ref.kind in kinds and (resource is None or resource.generation != resource.status.observed_generation):
            return None  # what one of them is, others may depend on: they may name the same machines
    for each in sources:
        mine = each.concerned(world, changes) if each.concerned is not None else None
        if mine is None:
            return None
        found.update(mine)
    return frozenset(found)


def _lead(world: World, sources: Sequence[SupplySource]) -> int | None:
    """How long before they start announced pods matter; None if nobody knows."""
    leads = [each.lead_ms(world) if each.lead_ms is not None else None for each in sources]
    known = [each for each in leads if each is not None]
    return max(known, default=0) if len(known) == len(leads) else None


def _decided(
    world: World, sources: Sequence[SupplySource], concerned: Collection[Ref] | None, resources: ResourcesOf
) -> Iterator[Decision]:
    """One decision for each resource, or for each that is concerned, while no pod is pending."""
    if concerned is not None and not concerned:
        return
    failed: dict[Ref, Exception] = {}
    every = [ref for each in sources for ref, _ in world.of_kind(each.kind)] if concerned is not None else []
    others = frozenset(every) - frozenset(concerned or ())
    decisions = round_of(world, sources, failed, others, resources).decisions if world.complete else {}
    for source in sources:
        for ref, resource in world.of_kind(source.kind):
            if ref in others:
                continue
            if ref in decisions:
                yield decisions[ref]
            elif ref in failed:
                yield raised(world, ref, resource, failed[ref])
            else:
                yield source.undecided(world, ref, resource)
