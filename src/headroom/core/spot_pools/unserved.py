"""Pods that a pool launches nothing for: how many, and why."""

from __future__ import annotations

from typing import Final

from headroom.api.power_status import Unserved
from headroom.core import demand
from headroom.core.capacity import Outcome, Why
from headroom.core.demand import Unit
from headroom.core.spot_pools import launching, rooms
from headroom.core.spot_pools.alternatives import Choice
from headroom.core.spot_pools.places import Pool
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


def tell(pool: Pool, outcome: Outcome, choice: Choice) -> None:
    """Write into a pool what it does not serve."""
    if not pool.on_demand:
        return
    concerned = [(unit, reason) for unit, reason in outcome.unserved if reason not in SILENT]
    pool.unserved_pods = sum(unit.count for unit, _ in concerned)
    for unit, reason in concerned[:MOST]:
        found = why(pool, outcome, choice, unit, reason)
        pool.unserved.append(
            Unserved(pod=unit.first, pods=unit.count, reason=found.reason, message=found.message[:LONGEST])
        )


def why(pool: Pool, outcome: Outcome, choice: Choice, unit: Unit, reason: str) -> Why:
    """Why a pool launches nothing for a unit, the round's reason as a sentence."""
    if reason in HALTED:
        return Why(reason, HALTED[reason])
    if reason:
        return Why(reason, _declined(pool, outcome, unit, reason))
    if not pool.on_demand:
        return Why("NotOnDemand", "The pool launches nothing for pending pods (desired is not Demand).")
    if pool.unlisted or pool.braked:
        return Why(pool.unlisted or "Braked", pool.unlisted_says or pool.braked)
    room = rooms.promised(pool, pool.key, pool.spec.types[0], pool.spec.all_zones[0])
    nearest = demand.impossible([unit], [room])
    if nearest:
        return Why("NoMachineFits", f"No machine of the pool can hold it: {small(next(iter(nearest.values())))}")
    if not choice.open:
        return Why(choice.why, choice.says)
    if pool.counted() >= pool.spec.maximum:
        says = f"{of_machines(pool.counted())} run or are being launched, of at most {pool.spec.maximum} (maximum)."
        return Why("MaximumReached", says)
    limit = launching.limit(pool)
    return (
        Why(limit.why, limit.says)
        if not limit.machines
        else Why("NotEnoughMachines", "More machines than the pool may have.")
    )


def _declined(pool: Pool, outcome: Outcome, unit: Unit, reason: str) -> str:
    match reason:
        case "SharedWithKarpenter":
            return f"Karpenter's NodePool {outcome.round.node_pool_for(unit)} could serve it."
        case "OtherNamespace":
            return f"The pool serves pods of namespace {pool.ref.namespace} only, unless an administrator lists more."
        case "BudgetExhausted":
            return "Its budget is over quota."
        case "BelowPriorityFloor":
            return f"Its priority {unit.priority} is too low for a machine to be launched."
        case "Unmodelled":
            return "kube-scheduler does not place it where it would fit, and no machine can be tried for it now."
        case _:
            return "The pool has no such GPUs." if reason == "OtherGpus" else "It is not due yet."
