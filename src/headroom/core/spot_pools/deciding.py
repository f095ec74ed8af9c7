"""The decision on one pool: what turns, its status, what is due, and when to look again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.power_status import TrialStatus
from headroom.api.spot_pools_status import PoolInstance
from headroom.core.capacity import SupplyOutcome
from headroom.core.spot_pools import announced, breaking, ending, gateway, launching, orphans, resting, telling
from headroom.core.spot_pools.alternatives import LaunchChoice
from headroom.core.spot_pools.fleet import SpotFleet
from headroom.core.spot_pools.launching import LaunchOrder
from headroom.core.spot_pools.places import SpotPoolState
from headroom.model import sight, times
from headroom.model.actions import Action, RemoveFinalizer
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import judgement
from headroom.model.world import World

UNDER_WAY_MS: Final = 10 * times.SECOND
LOOK_AGAIN_MS: Final = 40 * times.SECOND
SOONEST_MS: Final = times.SECOND
LATEST_MS: Final = 24 * times.HOUR


def undecided(world: World, ref: Ref, resource: AnyResource) -> Decision:
    """What is said of a pool that cannot be read, or while the view is not complete."""
    if resource.problems:
        listed = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return judgement(world, ref, resource, (False, "InvalidSpec", listed))
    reason, why = sight.incomplete(world)
    says = f"{why}, so no machine is launched or ended; the status keeps its last states."
    decision = judgement(world, ref, resource, (False, reason, says))
    return structs.replace(decision, actions=(), look_again_ms=LOOK_AGAIN_MS)


def transition(
    pool: SpotPoolState,
    fleet: SpotFleet,
    outcome: SupplyOutcome,
    choose: Callable[[], LaunchChoice],
    orders: list[LaunchOrder],
) -> None:
    """All that turns in a pool: what is replaced leaves the count first, then what is missing is launched, then what leaves goes on."""
    if pool.halted in ("Paused", "Deleting"):
        ending.cancel(pool, "Paused" if pool.halted == "Paused" else "Deleted")
    if not pool.may_act:
        return
    if pool.halted == "Deleting":
        _delete(pool)
    else:
        ending.reclaim(pool)
        ending.give_up(pool)
        ending.shrink(pool, outcome.needed)
        if pool.on_demand:
            ending.let_idle_go(pool, outcome.needed)
        launching.launch(pool, orders)
        launching.fill(pool, choose, pool.least - pool.counted())
    ending.drain(pool)
    orphans.end(pool, fleet)


def _delete(pool: SpotPoolState) -> None:
    """End what the pool has, or leave it as it is. What is somebody else's is not waited for: its slot is free."""
    pool.places = [each for each in pool.places if not each.is_others]
    for each in pool.are("Running") if pool.spec.deletion_policy == "Terminate" else ():
        if each.is_ours:
            ending.leave(pool, each, "Deleted")


def _is_done(pool: SpotPoolState) -> bool:
    """Whether a pool that is being deleted may go: every launch has its outcome, and nothing is left to end."""
    if pool.are("Launching", "Cancelling"):
        return False
    # Once the pool is gone, nobody knows whose cordon it is on a node that still looks ready, and it is lifted.
    return pool.spec.deletion_policy == "Retain" or not (pool.places or pool.left or pool.closing)


def _due(pool: SpotPoolState) -> list[Action]:
    if not pool.may_act:
        return []
    found: list[Action] = []
    if pool.halted != "Deleting":
        found += launching.calls(pool)
    if pool.halted != "Deleting" or pool.spec.deletion_policy == "Terminate":
        found += ending.calls(pool)
    found += pool.due
    found += gateway.calls(pool)
    if pool.halted == "Deleting" and marks.POOL_FINALIZER in pool.resource.finalizers and _is_done(pool):
        found.append(RemoveFinalizer(object=str(pool.ref)))
    return found


def decided(pool: SpotPoolState, outcome: SupplyOutcome, trials: tuple[TrialStatus, ...] = ()) -> Decision:
    """The decision, once everything has turned."""
    due = _due(pool)
    said = telling.sentence(pool)
    verdict = (
        (False, pool.unlisted, said.message) if pool.unlisted else (True, pool.halted or "Reconciled", said.message)
    )
    ready = judgement(pool.world, pool.ref, pool.resource, verdict)
    instances = [each for each in pool.places if each.slot.instance_id and each.instance is not None and each.is_ours]
    status = structs.replace(
        pool.before,
        observed_generation=pool.resource.generation,
        conditions=telling.judged(pool, ready.status.conditions[0]),
        size=len(instances),
        instances=tuple(
            PoolInstance(instance_id=each.slot.instance_id, public_ip=each.instance.public_ip if each.instance else "")
            for each in instances
        ),
        account=pool.account,
        slots=tuple(each.slot for each in pool.places),
        purchases=launching.status(pool),
        sold_out=resting.status(pool),
        breaker=breaking.status(pool),
        orphans=tuple(pool.orphans),
        orphan_count=pool.orphan_count or None,
        unserved=tuple(pool.unserved),
        expected=tuple(each for _, each in sorted(pool.expected.items())),
        missed=tuple(announced.status(pool)),
        trials=trials,
    )
    turns = [each - pool.now for each in (*pool.recheck, *_rests(pool), outcome.recheck_at) if each and each > pool.now]
    next_turn = max(SOONEST_MS, min(turns, default=LATEST_MS))
    is_under_way = any(each.slot.state != "Running" or not each.joined for each in pool.places)
    return Decision(
        resource=pool.ref,
        status=status,
        reason=said.reason,
        message=said.message,
        actions=() if pool.halted == "Stopped" else (*due, *ready.actions, *telling.events(pool)),
        look_again_ms=min(UNDER_WAY_MS if is_under_way else LOOK_AGAIN_MS, next_turn),
        next_turn_ms=next_turn,
    )


def _rests(pool: SpotPoolState) -> list[int | None]:
    """When something that rests may be tried again."""
    if not (pool.wants or pool.unserved):
        return []
    found = [resting.until(pool, each.instance_type, each.zone) for each in resting.standing(pool)]
    hour = [minute + launching.HOUR_MS for minute in pool.bought]
    return [*found, *hour, pool.breaker_until]
