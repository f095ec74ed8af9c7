"""Plan: a pure function from the world to decisions, with what wakes it and how often at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct, structs

from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition, Status
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

INTERNAL_ERROR: Final = "InternalError"
RETRY_AFTER_BUG_MS: Final = 60_000


class Plan(Struct, frozen=True, kw_only=True):
    """One capability's way to decide.

    The law that every plan keeps: the decisions of an earlier pass, brought up to date with `decide(world, changes)`, equal
    `decide(world, EVERYTHING)`. So the loop may ask for little, and a full pass now and then finds any plan that forgot.
    """

    name: str
    kinds: tuple[str, ...]
    """Whose resources it decides on."""
    reads: tuple[str, ...] = ()
    """Kinds that earlier plans decide on: it is asked again when one of those decisions turned."""
    hears_of: tuple[str, ...] = ()
    """Kinds that later plans decide on: it is asked again when one of those is written."""
    wakes_on: frozenset[Topic] = frozenset()
    """What else it is asked again for."""
    at_most_every_ms: int
    decides_together: bool = False
    """One round over all its resources, which rests on what they remember: it is not asked while a status of theirs is being written."""
    prepare: Callable[[World], None] = lambda _world: None
    """Has the tables tell apart what it will ask them about. Done before it is asked, since nobody writes inside a plan."""
    decide: Callable[[World, Changes], Iterable[Decision]]
    chores: Callable[[World], Iterable[Action]] = lambda _world: ()
    """What is due although no resource asks for it."""
    announces: Callable[[Status], Mapping[str, int]] = lambda _status: {}
    """When somebody starts whom it queues, by a status of its own: later plans make room in time, so they are asked again when that moves."""

    @property
    def parts(self) -> frozenset[str]:
        """Of what it is told when something is new there: kinds and topics."""
        return frozenset({*self.kinds, *self.hears_of, *self.wakes_on})


def affected(world: World, kind: str, changes: Changes) -> Iterator[tuple[Ref, AnyResource]]:
    """The resources of a kind that must be decided anew when only they and the kill switch matter."""
    if changes.everything or Topic.SETTINGS in changes.facts:
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
        return judgement(world, ref, resource, (True, "Paused", f"{says} The resource is paused."))
    return judgement(world, ref, resource, (True, "Reconciled", says))


def judgement(world: World, ref: Ref, resource: AnyResource, verdict: tuple[bool, str, str]) -> Decision:
    """A decision that says whether a resource is `Ready`, with an event when that turned."""
    good, reason, message = verdict
    ready = conditions.judged(resource, "Ready", good, reason, message, world.now)
    kept = tuple(each for each in resource.status.conditions if each.type != "Ready")
    status = structs.replace(resource.status, conditions=(ready, *kept), observed_generation=resource.generation)
    before = conditions.find(resource.status.conditions, "Ready")
    return Decision(resource=ref, status=status, reason=reason, message=message, actions=_event(ref, before, ready))


def raised(world: World, ref: Ref, resource: AnyResource, error: Exception) -> Decision:
    """What is said of a resource on which deciding raised: that is a bug, so everything stays as it is, and it is tried again."""
    says = f"deciding raised {type(error).__name__}: {error}"
    decision = judgement(world, ref, resource, (False, INTERNAL_ERROR, says))
    return structs.replace(decision, look_again_ms=RETRY_AFTER_BUG_MS)


def _event(ref: Ref, before: Condition | None, ready: Condition) -> tuple[Action, ...]:
    # A new resource that is fine is no news; one that turned is.
    if (before.status if before else "True") == ready.status:
        return ()
    kind: Literal["Normal", "Warning"] = "Normal" if ready.status == "True" else "Warning"
    since = ready.last_transition_time
    return (EmitEvent(object=str(ref), event_type=kind, reason=ready.reason, message=ready.message, since=since),)
