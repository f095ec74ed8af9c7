"""The capacity plan as the loop knows it. What decides is loaded with the first resource that brings machines: many clusters have none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.model.actions import Action
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision
from headroom.model.facts import Node
from headroom.model.plans import Plan
from headroom.model.world import World

if TYPE_CHECKING:
    from headroom.core.capacity import SupplySource
    from headroom.core.demand import RoomResources


class MachineCapability(Protocol):
    """What a capability that brings machines has at its front door."""

    @property
    def SOURCE(self) -> SupplySource:  # noqa: N802  a constant of a module
        """What it brings to the capacity round."""
        ...

    def owns_node(self, world: World, resource: AnyResource, node: Node, /) -> bool:
        """Whether a resource of it may cordon that node: a cordon of one that may not, or that is gone, is lifted."""
        ...


def plan_of(
    kinds: Iterable[str],
    sources: Callable[[], Sequence[SupplySource]],
    resources: Callable[[World], RoomResources | None] = lambda _world: None,
    chores: Callable[[World], Iterable[Action]] = lambda _world: (),
) -> Plan:
    """The plan that asks all sources; `resources` are what else rooms have, and the chores those that come of their machines."""

    def decide(world: World, changes: Changes) -> Iterable[Decision]:
        from headroom.core import capacity  # noqa: PLC0415  loaded once there is something to decide

        return capacity.decide(world, changes, sources(), resources)

    return Plan(
        name="capacity",
        kinds=tuple(kinds),
        reads=(usage.KIND,),
        wakes_on=frozenset(
            {
                Topic.UNBOUND,
                Topic.NODES,
                Topic.MACHINES,
                Topic.INSTANCES,
                Topic.OFFERS,
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
