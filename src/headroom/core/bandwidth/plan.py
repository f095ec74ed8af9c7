"""One decision for each node: its Bandwidth with what its links carry, whether the object exists yet or not.

What is decided for a node rests on its own pods and, for pods that talk only to siblings, on where those are. Who brings the news names
the nodes of a pod that changed, and the one node whose siblings may have become, or ceased to be, all that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, structs

from headroom.api.bandwidth import NODE_UID, Bandwidth, BandwidthSpec, BandwidthStatus, LinkQuantities
from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.core.bandwidth import configuring, native, overlays, telling
from headroom.core.bandwidth.accounting import AskedCache, account
from headroom.core.bandwidth.capacity import Capacity, MachineTypes, capacity_of
from headroom.model import conditions, sight, times
from headroom.model.actions import Action, ApplyBandwidth, DeleteBandwidth
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision, Ref
from headroom.model.facts import Node
from headroom.model.plans import Plan, judgement
from headroom.model.world import World

KIND: Final = Bandwidth.kind.name
OVERCOMMITTED: Final = "Overcommitted"
NATIVE_PLACEMENT: Final = "NativePlacement"
"""In native mode: whether kube-scheduler places pods here by their bandwidth."""
NOT_DONE_MS: Final = 10_000
_FOR_ALL: Final = frozenset({Topic.SETTINGS, Topic.SIGHT, Topic.OFFERS})
"""Facts that concern every node."""
_NEW: Final = BandwidthSpec(capacity=LinkQuantities())
"""The object that Headroom makes says nothing of capacity, so that what the node says counts."""


class _Scene(Struct, frozen=True):
    """What all decisions of one pass share."""

    world: World
    catalog: MachineTypes
    reading: AskedCache
    rules: str
    """The digest of the settings."""


def decide(world: World, changes: Changes) -> Iterator[Decision]:
    """One decision for each node, or object, that may need a new one."""
    scene = _Scene(world, MachineTypes(world), AskedCache(world.bandwidth), telling.digest_of(world.bandwidth))
    is_for_all = changes.everything or not _FOR_ALL.isdisjoint(changes.facts)
    for name in sorted(_all(world) if is_for_all else _changed(changes)):
        node, resource = world.nodes.get(name), world.resources.get(Ref(KIND, "", name))
        if resource is not None:
            yield _of_object(scene, node, resource)
        elif node is not None and world.complete:
            yield _missing(scene, node)
        elif not is_for_all and name in changes.nodes:
            # It may have been decided before that an object is due here, and a pass over everything would say nothing of it.
            ref = Ref(KIND, "", name)
            yield Decision(resource=ref, status=BandwidthStatus(), reason="NodeGone", message="", routine=True)


def _all(world: World) -> set[str]:
    return {*world.nodes.names(), *(ref.name for ref, _ in world.of_kind(KIND))}


def _changed(changes: Changes) -> set[str]:
    return changes.nodes | {ref.name for ref in changes.resources if ref.kind == KIND}


def _missing(scene: _Scene, node: Node) -> Decision:
    """A node whose object is to be made; its status is known already."""
    nobody = AnyResource(kind=KIND, namespace="", name=node.name, generation=0, spec=_NEW, status=BandwidthStatus())
    decision = _accounted(scene, node, nobody)
    made = ApplyBandwidth(node=node.name, spec=_NEW, uid=node.uid)
    return structs.replace(decision, actions=(made,))


def _of_object(scene: _Scene, node: Node | None, resource: AnyResource) -> Decision:
    world = scene.world
    if not world.complete:
        reason, why = sight.incomplete(world)
        says = f"{why}, so the status keeps its last numbers."
        return judgement(world, Ref(KIND, "", resource.name), resource, (False, reason, says))
    if node is not None:
        return _accounted(scene, node, resource)
    return _without_node(world, resource)


def _without_node(world: World, resource: AnyResource) -> Decision:
    """The node is gone, and the object goes with it; or there never was one, and a person who wrote it should know."""
    ref = Ref(KIND, "", resource.name)
    if resource.status.node_uid or resource.annotations.get(NODE_UID):
        due = () if resource.deleting else (DeleteBandwidth(node=resource.name),)
        says = f"Node {resource.name} is gone, so its Bandwidth is deleted."
        return Decision(
            resource=ref, status=resource.status, reason="NodeGone", message=says, actions=due, routine=True
        )
    status = BandwidthStatus(conditions=resource.status.conditions)
    if resource.problems:
        verdict = (False, "InvalidSpec", _problems(resource))
    else:
        verdict = (False, "NodeNotFound", f"There is no node {resource.name}; a Bandwidth has the name of its node.")
    return judgement(world, ref, structs.replace(resource, status=status), verdict)


def _accounted(scene: _Scene, node: Node, resource: AnyResource) -> Decision:
    world, before = scene.world, resource.status
    known = telling.remembered(before, scene.rules)
    capacity = capacity_of(world, node, resource.spec, scene.catalog)
    found = account(world, node.name, known, scene.reading)
    status = telling.status_of(before, node, capacity, found, scene.rules)
    if resource.problems:
        status = structs.replace(status, status="Error", error_reason=conditions.shortened(_problems(resource)))
    ref = Ref(KIND, "", resource.name)
    offer = native.offer_of(world, node, capacity.links, found)
    says = telling.summary(status, offer, world.bandwidth)
    verdict = _verdict(world, resource, capacity, says)
    decision = judgement(world, ref, structs.replace(resource, status=status), verdict)
    after = structs.replace(decision.status, conditions=(*_ready(decision), *_judged(world, resource, status, offer)))
    if after != before:
        after = structs.replace(after, updated_at=times.text(world.now - world.now % times.SECOND))
    # Nodes come and go by the thousand; what pods have to report are events on these.
    is_over = conditions.holds(after.conditions, OVERCOMMITTED)
    routine = decision.reason == "Reconciled" and not (is_over or offer.tainted)
    decision = structs.replace(decision, status=after, routine=routine)
    if world.stopped or not resource.uid:
        return decision
    told = telling.events(before, found)
    # Of an object that is wrong it is not known what people want of the node.
    is_open = not (resource.problems or resource.spec.paused or resource.deleting or node.deleting is not None)
    due = tuple(native.due(node, offer)) if is_open else ()
    # What was undone just after it was done is not done again at once.
    look_again_ms = NOT_DONE_MS if due else decision.look_again_ms
    actions = (*decision.actions, *told, *due)
    return structs.replace(decision, actions=actions, look_again_ms=look_again_ms)


def _ready(decision: Decision) -> Iterator[Condition]:
    """What is not said anew in each pass."""
    return (each for each in decision.status.conditions if each.type not in (OVERCOMMITTED, NATIVE_PLACEMENT))


def _judged(
    world: World, resource: AnyResource, status: BandwidthStatus, offer: native.NodeOffer
) -> Iterator[Condition]:
    yield conditions.judged(resource, OVERCOMMITTED, *telling.overcommitted(status, offer), world.now)
    if offer.reason:
        yield conditions.judged(resource, NATIVE_PLACEMENT, *telling.placed(offer, world.bandwidth), world.now)


def _verdict(world: World, resource: AnyResource, capacity: Capacity, says: str) -> tuple[bool, str, str]:
    if resource.problems:
        return False, "InvalidSpec", _problems(resource)
    if capacity.malformed:
        listed = "; ".join(map(telling.unreadable, capacity.malformed))
        return False, "InvalidAnnotation", f"{listed}. It is ignored until it is fixed. {says}"
    if world.stopped:
        return True, "Stopped", f"{says} All effects are stopped cluster-wide."
    if resource.spec.paused:
        return True, "Paused", f"{says} This Bandwidth is paused."
    return True, "Reconciled", says


def _problems(resource: AnyResource) -> str:
    return "; ".join(f"{each.field} {each.message}" for each in resource.problems)


def _chores(world: World) -> Iterator[Action]:
    yield from configuring.due(world)
    yield from overlays.due(world)


PLAN = Plan(
    name="bandwidth",
    kinds=(KIND,),
    at_most_every_ms=1000,
    decide=decide,
    wakes_on=frozenset({Topic.PODS, Topic.NODES, Topic.POLICIES, Topic.SIGHT, Topic.OFFERS, Topic.KARPENTER}),
    chores=_chores,
)
"""The nodes of pods that changed are among those that it hears of (`Changes.nodes`)."""
