"""The decision on one pool: its status, what is due, and when to look again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs

from headroom.api import power_status
from headroom.api.kinds import AnyResource
from headroom.core.capacity import SupplyOutcome, Trial, newest_trials
from headroom.core.power import breaking, energy, fruitless, sleeping, states, telling, turns, waking, warmth
from headroom.core.power.members import CHANGING, PoolMachine, PowerPoolState, told
from headroom.core.power.states import ABORT_MS
from headroom.model import conditions, sight, times
from headroom.model.actions import Action, CordonNode, DrainNode, SleepMachine, UncordonNode, WakeMachine
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import judgement
from headroom.model.world import World

LOOK_AGAIN_MS: Final = 30 * times.SECOND
"""While anything is on or changing: pods may end without anybody telling."""
SOONEST_MS: Final = times.SECOND
LATEST_MS: Final = 24 * times.HOUR
_ORDER: Final = (WakeMachine, UncordonNode, CordonNode, DrainNode, SleepMachine)
"""Pending pods are served first."""


def undecided(world: World, ref: Ref, resource: AnyResource) -> Decision:
    """What is said of a pool that cannot be read, or while the view is not complete."""
    if resource.problems:
        listed = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return judgement(world, ref, resource, (False, "InvalidSpec", listed))
    reason, why = sight.incomplete(world)
    says = f"{why}, so no machine wakes or goes to sleep; the status keeps its last states."
    decision = judgement(world, ref, resource, (False, reason, says))
    braked = conditions.judged(resource, "Braked", True, reason, says, world.now)
    others = tuple(each for each in decision.status.conditions if each.type != "Braked")
    return structs.replace(
        decision,
        status=structs.replace(decision.status, conditions=(*others, braked)),
        actions=(),
        look_again_ms=LOOK_AGAIN_MS,
    )


def decided(pool: PowerPoolState, outcome: SupplyOutcome) -> Decision:
    """What a round means for a pool."""
    said = telling.sentence(outcome, pool)
    ready = judgement(outcome.round.world, pool.ref, pool.resource, (True, pool.halted or "Reconciled", said.message))
    status = structs.replace(
        pool.before,
        observed_generation=pool.resource.generation,
        conditions=telling.judged(pool, ready.status.conditions[0]),
        machines=tuple(machine.status(turns.reason_of(pool, machine)) for machine in pool.members),
        on=len(pool.are("On")),
        off=len(pool.are("Off")),
        changing=len(pool.are("Booting", "Draining", "Sleeping")),
        failed=len(pool.are("Failed")),
        energy=energy.counted(pool),
        unserved=tuple(pool.unserved),
        trials=tuple(map(_remembered, newest_trials(pool.trials))),
        in_use=warmth.in_use(pool),
        peaks=warmth.peaks(pool),
        breaker=breaking.status(pool),
        fruitless=fruitless.status(pool),
        expected=tuple(each for _, each in sorted(pool.expected.items())),
    )
    next_turn = max(0, min(_turns(pool, outcome), default=pool.now + LATEST_MS) - pool.now)
    rests = all(machine.state not in ("On", *CHANGING) for machine in pool.members) and not pool.wants
    return Decision(
        resource=pool.ref,
        status=status,
        reason=said.reason,
        message=said.message,
        actions=() if pool.halted else (*_due(pool), *ready.actions, *telling.events(pool, outcome)),
        look_again_ms=max(SOONEST_MS, min(2 * LOOK_AGAIN_MS if rests else LOOK_AGAIN_MS, next_turn)),
        next_turn_ms=max(SOONEST_MS, next_turn),
    )


def _remembered(trial: Trial) -> power_status.TrialStatus:
    return power_status.TrialStatus(
        shape=trial.shape,
        machine=trial.room,
        at=told(trial.at),
        in_vain=trial.in_vain,
        refused_at=told(trial.refused_at or None),
        until=told(trial.until or None),
        placed=True if trial.placed else None,
    )


def _due(pool: PowerPoolState) -> list[Action]:
    """All that is due, by kind: alike actions are carried out side by side."""
    return sorted(pool.actions(), key=lambda action: _ORDER.index(type(action)))


# --- when the clock alone changes something -------------------------------------------------------------------------------------


def _turns(pool: PowerPoolState, outcome: SupplyOutcome) -> Iterator[int]:
    known = [pool.floor_recheck_at, pool.brake_ends_at, pool.breaker_until, warmth.recheck_at(pool), outcome.recheck_at]
    known += [pool.ration_ends_at] if pool.fruitless or pool.unserved_pods else []
    known += [each for machine in pool.members for each in _turns_of(pool, machine)]
    known += [machine.since + states.NEW_MS for machine in pool.are("On") if machine.name in outcome.into]
    known += fruitless.expected_turns(pool)
    if pool.wants:
        known += [bar.until for bar in waking.bars(pool).values()]
    return (each for each in known if each is not None and each > pool.now)


def _turns_of(pool: PowerPoolState, machine: PoolMachine) -> Iterator[int | None]:
    if machine.state == "Booting":
        yield (machine.woken_at or machine.since) + pool.boot_ms
        yield states.resends_at(machine) if machine.power_is == "Off" else None
    elif machine.state == "Failed":
        yield (machine.woken_at or machine.since) + max(2 * pool.boot_ms, pool.policy.min_on_seconds * times.SECOND)
    elif machine.state == "Sleeping":
        yield (machine.slept_at or machine.since) + pool.boot_ms
    elif machine.state == "Draining":
        yield from (machine.since + sleeping.SETTLE_MS, machine.since + ABORT_MS)
    elif machine.state == "On":
        why = sleeping.awake(pool, machine)
        yield why.until if why is not None else None
    elif states.is_joining(machine, pool.now, pool.boot_ms):
        yield states.may_still_join_until(machine, pool.boot_ms)
