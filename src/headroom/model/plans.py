"""Plan: a pure function from the world to decisions, with what wakes it and how often at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct, structs

from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent
from headroom.model.decisions import Decision, Ref
from headroom.model.world import Changes, World


class Plan(Struct, frozen=True, kw_only=True):
    """One capability's way to decide.

    The law that every plan keeps: the decisions of an earlier pass, brought up to date with `decide(world, changes)`, equal
    `decide(world, EVERYTHING)`. So the loop may ask for little, and a full pass now and then finds any plan that forgot.
    """

    name: str
    kind: str
    wakes_on: frozenset[str]
    """The kind itself, and any of pods, unbound, nodes, outside."""
    at_most_every_ms: int
    decide: Callable[[World, Changes], Iterable[Decision]]
    chores: Callable[[World], Iterable[Action]] = lambda _world: ()
    """What is due although no resource asks for it."""


def affected(world: World, kind: str, changes: Changes) -> Iterator[tuple[Ref, AnyResource]]:
    """The resources of a kind that must be decided anew when only they and the kill switch matter."""
    if changes.everything or "settings" in changes.outside:
        yield from world.of_kind(kind)
        return
    for ref in sorted(changes.resources):
        if ref.kind == kind and ref in world.resources:
            yield ref, world.resources[ref]


def standing(world: World, ref: Ref, resource: AnyResource, says: str) -> Decision:
    """The decision on a resource about which nothing needs to be done: `Ready` if it is valid, and why not if it is not."""
    if resource.problems:
        listed = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return judgement(world, ref, resource, (False, "InvalidSpec", listed))
    if world.stopped:
        return judgement(world, ref, resource, (True, "Stopped", f"{says} All effects are stopped cluster-wide."))
    if resource.spec.paused:
        return judgement(world, ref, resource, (True, "Paused", f"{says} It is paused."))
    return judgement(world, ref, resource, (True, "Reconciled", says))


def judgement(world: World, ref: Ref, resource: AnyResource, verdict: tuple[bool, str, str]) -> Decision:
    """A decision that says whether a resource is `Ready`, with an event when that turned."""
    good, reason, message = verdict
    ready = conditions.judged(resource, "Ready", good, reason, message, world.now)
    kept = tuple(each for each in resource.status.conditions if each.type != "Ready")
    status = structs.replace(resource.status, conditions=(ready, *kept), observed_generation=resource.generation)
    before = conditions.find(resource.status.conditions, "Ready")
    return Decision(resource=ref, status=status, reason=reason, message=message, actions=_event(ref, before, ready))


def _event(ref: Ref, before: Condition | None, ready: Condition) -> tuple[Action, ...]:
    # A new resource that is fine is no news; one that turned is.
    if (before.status if before else "True") == ready.status:
        return ()
    kind: Literal["Normal", "Warning"] = "Normal" if ready.status == "True" else "Warning"
    return (EmitEvent(object=str(ref), event_type=kind, reason=ready.reason, message=ready.message),)
