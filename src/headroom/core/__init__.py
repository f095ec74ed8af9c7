"""The decisions, pure: one module per capability, in the order in which they are asked.

One record says all that the rest of the house needs to know of a capability; what people see of it stands in `cli/capabilities.py`. Budgets come first, so that no capacity is made for pods that are about to be held or evicted.
"""

from collections.abc import Callable

from msgspec import Struct

from headroom.api.kinds import AnyResource
from headroom.core import bandwidth, budgets, capacity, cordons, offers, power, spot_pools
from headroom.model.plans import Plan


class Capability(Struct, frozen=True, kw_only=True):
    """One thing that Headroom does."""

    name: str
    plans: tuple[Plan, ...] = ()
    """Its own, in their order."""
    source: capacity.Source | None = None
    """What it brings to the capacity round, if it brings machines."""
    owns_node: Callable[[AnyResource, str], bool] | None = None
    """Whether a resource of it may cordon that node: a cordon of one that may not, or that is gone, is lifted. None for one that cordons none."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Whose resources it decides on."""
        brought = (self.source.kind,) if self.source else ()
        return (*(kind for plan in self.plans for kind in plan.kinds), *brought)


CAPABILITIES = (
    Capability(name="budgets", plans=(budgets.PLAN, budgets.REQUESTS)),
    Capability(name="offers", plans=(offers.PLAN,)),
    Capability(name="power", source=power.SOURCE, owns_node=power.owns_node),
    Capability(name="spot pools", source=spot_pools.SOURCE, owns_node=spot_pools.owns_node),
    Capability(name="bandwidth", plans=(bandwidth.PLAN,)),
)
SOURCES = tuple(each.source for each in CAPABILITIES if each.source is not None)
"""What brings machines."""
CORDON = {kind: each.owns_node for each in CAPABILITIES if each.owns_node is not None for kind in each.kinds}
"""The kinds whose resources cordon nodes, each with which."""
CAPACITY = capacity.plan_of(SOURCES, lambda world: cordons.left_over(world, CORDON))


def _plans() -> tuple[Plan, ...]:
    """The plans of all capabilities; the capacity round stands where the first one stands that brings machines."""
    every: list[Plan] = []
    for each in CAPABILITIES:
        every += [CAPACITY] if each.source is not None and CAPACITY not in every else []
        every += each.plans
    return tuple(every)


PLANS = _plans()
