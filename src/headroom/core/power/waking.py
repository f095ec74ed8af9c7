"""Which machines may be woken, which are for those who are pending, and as many as must stay on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from headroom.api.power_status import MOST_NAMESPACES, MOST_SHAPES
from headroom.core.capacity import SupplyOutcome, may_hold
from headroom.core.demand import Candidate, Room, Unit
from headroom.core.power import breaking, coming, energy, states, warmth
from headroom.core.power.members import Cordon, PoolMachine, PowerPoolState, told
from headroom.core.power.news import TransitionReason
from headroom.model import times
from headroom.model.actions import WakeMachine
from headroom.model.world import World

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint by which an administrator says that a node that is off stays off."""
ASLEEP: Final = ("Off", "Unknown", "Failed")
UNWANTED: Final = ("BelowPriorityFloor", "BudgetExhausted", "FruitlessWakes", "SharedWithKarpenter")
"""Why no machine wakes for pods that would take whatever is on."""


class Bar(NamedTuple):
    """Why a machine may not be woken now, and when that ends by itself."""

    why: str
    until: int | None = None


def wake(world: World, pool: PowerPoolState, outcome: SupplyOutcome) -> None:
    """Wake and keep on what a round needs, and as many as must be on beside."""
    members = {machine.name: machine for machine in pool.members}
    for each in outcome.kept:
        states.stay_on(members[each.name], pool.now, TransitionReason.PODS_FIT, count=len(each.pods))
        members[each.name].assigned = dict(each.assigned)
    for each in outcome.opened:
        _wake(
            pool,
            members[each.name],
            TransitionReason.ON_TRIAL if each.on_trial else TransitionReason.FOR_PODS,
            each.assigned,
        )
        named = outcome.round.namespaces_of(each.pods) or {each.on_trial.partition("/")[0]} - {""}
        members[each.name].woken_for = tuple(sorted(named))[:MOST_NAMESPACES]
    if not pool.halted:
        _send_again(pool, outcome)
        on_trial = frozenset[str]().union(*outcome.round.seated.values())
        # Pods that are only announced put nothing to use yet.
        soon = outcome.round.announced.keys()
        used = {name for name in outcome.used if not soon or not soon >= set(outcome.into.get(name, ("",)))}
        coming = {machine.name for machine in pool.members if not machine.busy and machine.name in used} - on_trial
        warmth.measure(pool, len(coming))
        unwanted = [unit for unit, reason in outcome.passed if reason in UNWANTED]
        _keep_floor(world, pool, unwanted, outcome.round.furnished)


def bar(pool: PowerPoolState, machine: PoolMachine) -> Bar | None:
    """Why a machine that is not on may not be woken now; None if it may."""
    now, policy = pool.now, pool.policy
    if machine.cordon is Cordon.FOREIGN:
        return Bar("somebody else cordoned its node")
    if breaking.is_open(pool):
        why = f"the last {pool.boots_failed} did not join after they woke, so none wakes before {told(pool.breaker_until)}"
        return Bar(why, pool.breaker_until)
    if machine.node is not None and any(each.key == OUT_OF_SERVICE for each in machine.node.taints):
        return Bar("somebody took its node out of service")
    if machine.bound and machine.power_is != "Off":
        return Bar(f"pod {machine.bound} is bound to it and may still run there")
    if machine.retry_after is not None and machine.retry_after > now:
        return Bar(
            f"it failed {machine.failures} times in a row; next attempt at {told(machine.retry_after)}",
            machine.retry_after,
        )
    if machine.state == "Unknown" and (machine.is_up or states.may_still_join_until(machine, pool.boot_ms) > now):
        return Bar("its power state is not known yet", states.may_still_join_until(machine, pool.boot_ms))
    if machine.power_is == "PoweringOff":
        return Bar("it is still shutting down")
    rested = states.rests_until(machine, policy.min_off_seconds * times.SECOND)
    if rested > now:
        return Bar(
            f"it went to sleep at {told(machine.slept_at)} and stays off until {told(rested)} (minOffSeconds)", rested
        )
    lately = machine.lately(now)
    if len(lately) >= policy.toggles_per_hour:
        until = lately[-policy.toggles_per_hour] + times.HOUR
        return Bar(f"it was switched {len(lately)} times in an hour; next wake at {told(until)}", until)
    return None


# --- for pods that are pending ----------------------------------------------------------------------------------------------------


def candidates(world: World, pool: PowerPoolState) -> Iterator[Candidate]:
    """What may be woken."""
    for machine in pool.are(*ASLEEP):
        if bar(pool, machine) is None:
            room = pool.closed[machine.name] = coming.room_of(world, pool, machine)
            yield Candidate(
                room=room,
                cost=_cost(pool, machine),
                failed=bool(machine.failures),
                opened_at=machine.woken_at or 0,
            )


def _cost(pool: PowerPoolState, machine: PoolMachine) -> tuple[int, ...]:
    """Machines that failed less often come first, whatever they cost beside that."""
    idle, busy = energy.watts(machine.spec, pool.spec.template)
    return machine.failures, (busy or idle or 0) if pool.policy.prefer == "FewestWatts" else 0, machine.gpus


def slots(pool: PowerPoolState) -> int | None:
    """How many more may boot now; None for any number."""
    limits = [each for each in (pool.policy.max_concurrent_wakes, breaking.at_once(pool)) if each is not None]
    return max(0, min(limits) - len(pool.are("Booting"))) if limits else None


def _wake(
    pool: PowerPoolState, it: PoolMachine, why: TransitionReason, assigned: Mapping[str, int] | None = None
) -> None:
    it.switch(pool.now)
    it.woken_at, it.resent_at, it.retry_after, it.assigned = pool.now, None, None, dict(assigned or {})
    it.woken_for = ()
    it.tried_for = tuple(sorted(it.assigned))[:MOST_SHAPES] if why is TransitionReason.ON_TRIAL else ()
    it.become("Booting", pool.now)
    it.due.append(WakeMachine(pool=pool.ref.name, machine=it.name))
    it.tell(why)


def _send_again(pool: PowerPoolState, outcome: SupplyOutcome) -> None:
    """What did not hear its wake is told again; one that failed so and that nobody needs any more is let be."""
    for it in pool.are("Booting"):
        if it.is_untaken and it.failures and it.resent_at is not None and it.name not in outcome.needed:
            states.give_up(it, pool.now)
        elif it.is_untaken:
            states.resend(it, pool.now)
            it.due.append(WakeMachine(pool=pool.ref.name, machine=it.name))


# --- for those who want machines on ---------------------------------------------------------------------------------------------


def _keep_floor(world: World, pool: PowerPoolState, unwanted: list[Unit], furnished: Callable[[Room], Room]) -> None:
    """Have as many machines on, or coming, as must be: first those that were about to sleep, then the smallest, or what is used most."""
    least = warmth.least_on(pool)
    closed = sum(machine.cordon is Cordon.FOREIGN for machine in pool.are("On", "Booting"))
    least = least._replace(machines=min(least.machines + closed, len(pool.members)))
    usual = warmth.usual_size(pool) if least.machines > pool.floor else 0
    asleep = sorted(pool.are("Draining"), key=lambda machine: _like(machine, usual))
    for machine in asleep[: max(0, least.machines - len(pool.are("On", "Booting")))]:
        states.stay_on(machine, pool.now, TransitionReason.WARM)
    short = least.machines - len(pool.are("On", "Booting"))
    if short <= 0:
        return
    asleep = sorted(
        (machine for machine in pool.are(*ASLEEP) if bar(pool, machine) is None),
        key=lambda machine: _like(machine, usual),
    )
    free = slots(pool)
    must = pool.floor + closed - len(pool.are("On", "Booting"))
    for number, machine in enumerate(asleep[: short if free is None else min(short, free)]):
        room = furnished(coming.room_of(world, pool, machine))
        if number < must or not any(may_hold(unit, room) for unit in unwanted):
            _wake(pool, machine, TransitionReason.FOR_FLOOR)
    pool.wants = len(pool.are("On", "Booting")) < least.machines


def _like(machine: PoolMachine, usual: int) -> tuple[int, int, int, str]:
    return machine.failures, abs(machine.gpus - usual), machine.gpus, machine.name


def bars(pool: PowerPoolState) -> Mapping[str, Bar]:
    """The machines that may not be woken now though they are not on, each with the reason."""
    return {machine.name: found for machine in pool.are(*ASLEEP) if (found := bar(pool, machine)) is not None}
