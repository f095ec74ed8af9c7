"""Pods that a pool launches nothing for: how many, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headroom.api.power_status import Unserved
from headroom.core import demand
from headroom.core.capacity import CapacityRound, SupplyOutcome, Why
from headroom.core.demand import Room, Unit
from headroom.core.spot_pools import launching, rooms
from headroom.core.spot_pools.alternatives import LaunchChoice
from headroom.core.spot_pools.places import SpotPoolState
from headroom.core.spot_pools.wording import of_machines, small

MOST: Final = 10
LONGEST: Final = 2048
SILENT: Final = ("OtherGpus", "OtherNamespace", "BudgetExhausted")
"""Why a pool has nothing to say of a pod: it is not for its machines, or a budget says it all."""
HALTED: Final = {
    "Stopped": "All effects are stopped cluster-wide.",
    "Paused": "The pool is paused.",
    "Deleting": "The pool is being deleted.",
}


def tell(pool: SpotPoolState, outcome: SupplyOutcome, choose: Callable[[], LaunchChoice]) -> None:
    """Write into a pool what it does not serve."""
    if not pool.on_demand:
        return
    concerned = [(unit, reason) for unit, reason in outcome.unserved if reason not in SILENT]
    told = [(unit, late(pool)) for unit in outcome.waiting[:MOST]]
    told += [(unit, why(pool, outcome, choose, unit, reason)) for unit, reason in concerned[:MOST]]
    for unit, found in sorted(told, key=lambda pair: pair[0].queue_position)[:MOST]:
        pool.unserved.append(
            Unserved(pod=unit.first, pods=unit.count, reason=found.reason, message=found.message[:LONGEST])
        )


def late(pool: SpotPoolState) -> Why:
    """Why pods wait for which a machine will be launched."""
    limit = launching.purchases(pool)
    return Why(limit.why, limit.says)


def why(
    pool: SpotPoolState, outcome: SupplyOutcome, choose: Callable[[], LaunchChoice], unit: Unit, reason: str
) -> Why:
    """Why a pool launches nothing for a unit, the round's reason as a sentence."""
    if reason in HALTED:
        return Why(reason, HALTED[reason])
    if reason:
        return Why(reason, _declined(outcome, unit, reason))
    if pool.unlisted or pool.braked:
        return Why(pool.unlisted or "Braked", pool.unlisted_says or pool.braked)
    every = [rooms.promised(pool, pool.key, each, pool.spec.all_zones[0]) for each in pool.spec.types]
    if (lacking := _lacking(outcome.round, unit, every)) is not None:
        return lacking
    room = every[0]
    nearest = demand.impossible([unit], [outcome.round.furnished(room)])
    if nearest:
        return Why("NoMachineFits", f"No machine of the pool can hold it: {small(next(iter(nearest.values())))}")
    if not (choice := choose()).open:
        return Why(choice.why, choice.says)
    if pool.counted() >= pool.spec.maximum:
        says = f"{of_machines(pool.counted())} run or are being launched, the most that the pool may have (maximum: {pool.spec.maximum})."
        return Why("MaximumReached", says)
    limit = launching.limit(pool)
    return (
        Why(limit.why, limit.says)
        if not limit.machines
        else Why("NotEnoughMachines", "It needs more machines than the pool may have (maximum).")
    )


def _lacking(round_: CapacityRound, unit: Unit, every: list[Room]) -> Why | None:
    """Why no machine holds a unit, if that is for want of what rooms have beside what nodes say."""
    if round_.resources is None:
        return None
    furnished = [round_.furnished(each) for each in every]
    found = (round_.resources.lacking(part.shape, furnished) for part in unit.parts)
    return next((Why(*each) for each in found if each is not None), None)


def _declined(outcome: SupplyOutcome, unit: Unit, reason: str) -> str:
    match reason:
        case "SharedWithKarpenter":
            return f"{demand.served_words(outcome.round.world, outcome.round.node_pool_for(unit))}."
        case "BelowPriorityFloor":
            return f"Its priority {unit.priority} is too low to launch a machine for it."
        case "Unmodelled":
            return "kube-scheduler does not place it where it would fit, and no machine can be launched on trial now."
        case _:
            return "Its start is not due yet."
