"""The decisions, pure: one module per capability, in the order in which they are asked.

One record says all that the rest of the house needs to know of a capability; what people see of it stands in `cli/capabilities.py`. Budgets come first, so that no capacity is made for pods that are about to be held or evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from headroom.api.kinds import AnyResource
from headroom.core import bandwidth, budgets, cordons, machines, offers
from headroom.core.machines import MachineCapability
from headroom.model.facts import Node
from headroom.model.plans import Plan
from headroom.model.world import World

if TYPE_CHECKING:
    from headroom.core.capacity import CapacityRound, SupplySource


class Capability(Struct, frozen=True, kw_only=True):
    """One thing that Headroom does."""

    name: str
    plans: tuple[Plan, ...] = ()
    """Its own, in their order."""
    brings: str = ""
    """The kind whose resources bring machines and may cordon their nodes, if there is one."""
    machines: Callable[[], MachineCapability] | None = None
    """How they do."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Whose resources it decides on."""
        return (*(kind for plan in self.plans for kind in plan.kinds), *((self.brings,) if self.brings else ()))


def _power() -> MachineCapability:
    """Power pools."""
    from headroom.core import power  # noqa: PLC0415  loaded once there is one

    return power


def _spot_pools() -> MachineCapability:
    """Spot pools."""
    from headroom.core import spot_pools  # noqa: PLC0415  loaded once there is one

    return spot_pools


CAPABILITIES = (
    Capability(name="budgets", plans=(budgets.PLAN, budgets.REQUESTS)),
    Capability(name="offers", plans=(offers.PLAN,)),
    Capability(name="power", brings="PowerPool", machines=_power),
    Capability(name="spot pools", brings="Spotpool", machines=_spot_pools),
    Capability(name="bandwidth", plans=(bandwidth.PLAN,)),
)
_BRINGING = {each.brings: each.machines for each in CAPABILITIES if each.machines is not None}


def sources() -> tuple[SupplySource, ...]:
    """What brings machines."""
    return tuple(load().SOURCE for load in _BRINGING.values())


def owns_node(world: World, resource: AnyResource, node: Node) -> bool:
    """Whether a resource may cordon that node."""
    load = _BRINGING.get(resource.kind)
    return load is not None and load().owns_node(world, resource, node)


def capacity_round(world: World) -> CapacityRound:
    """Who is pending and which machine is for whom."""
    from headroom.core.capacity import round_of  # noqa: PLC0415  loaded once somebody asks

    return round_of(world, sources(), resources=bandwidth.room_links)


CAPACITY = machines.plan_of(
    _BRINGING, sources, bandwidth.room_links, lambda world: cordons.left_over(world, _BRINGING, owns_node)
)


def _plans() -> tuple[Plan, ...]:
    """The plans of all capabilities; the capacity round stands where the first one stands that brings machines."""
    every: list[Plan] = []
    for each in CAPABILITIES:
        every += [CAPACITY] if each.brings and CAPACITY not in every else []
        every += each.plans
    return tuple(every)


PLANS = _plans()
