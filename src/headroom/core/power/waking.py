"""Which machines may be woken, which are for those who are pending, and as many as must stay on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from headroom.api.power_status import MOST_NAMESPACES, MOST_SHAPES
from headroom.core.capacity import Outcome, may_hold
from headroom.core.demand import Candidate, Unit
from headroom.core.power import breaking, coming, energy, states, warmth
from headroom.core.power.members import Cordon, Member, Pool, told
from headroom.core.power.news import Turn
from headroom.model import times
from headroom.model.actions import WakeMachine
from headroom.model.world import World

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint by which an administrator says that a node that is off stays off."""
ASLEEP: Final = ("Off", "Unknown", "Failed")
UNWANTED: Final = ("BelowPriorityFloor", "BudgetExhausted", "FruitlessWakes", "SharedWithKarpenter")
"""Why nothing is woken for pods that would take whatever is on."""


class Bar(NamedTuple):
    """Why a machine may not be woken now, and when that ends by itself."""

    why: str
    until: int | None = None


def wake(world: World, pool: Pool, outcome: Outcome) -> None:
    """Wake and keep on what a round needs, and as many as must be on beside."""
    members = {it.name: it for it in pool.members}
    for each in outcome.kept:
        states.stay_on(members[each.name], pool.now, Turn.PODS_FIT, count=len(each.pods))
        members[each.name].assigned = dict(each.assigned)
    for each in outcome.opened:
        _wake(pool, members[each.name], Turn.ON_TRIAL if each.on_trial else Turn.FOR_PODS, each.assigned)
        named = outcome.round.namespaces_of(each.pods) or {each.on_trial.partition("/")[0]} - {""}
        members[each.name].woken_for = tuple(sorted(named))[:MOST_NAMESPACES]
    if not pool.halted:
        _send_again(pool, outcome)
        on_trial = frozenset[str]().union(*outcome.round.seated.values())
        # Pods that are only announced put nothing to use yet.
        soon = outcome.round.announced.keys()
        used = {name for name in outcome.used if not soon or not soon >= set(outcome.into.get(name, ("",)))}
        coming = {it.name for it in pool.members if not it.busy and it.name in used} - on_trial
        warmth.measure(pool, len(coming))
        _keep_floor(world, pool, [unit for unit, reason in outcome.passed if reason in UNWANTED])


def bar(pool: Pool, it: Member) -> Bar | None:
    """Why a machine that is not on may not be woken now; None if it may."""
    now, policy = pool.now, pool.policy
    if it.cordon is Cordon.FOREIGN:
        return Bar("its node is cordoned, and not by Headroom")
    if breaking.is_open(pool):
        why = f"the last {pool.boots_failed} that were woken did not join, so none is before {told(pool.breaker_until)}"
        return Bar(why, pool.breaker_until)
    if it.node is not None and any(each.key == OUT_OF_SERVICE for each in it.node.taints):
        return Bar("somebody took its node out of service")
    if it.bound and it.power_is != "Off":
        return Bar(f"pod {it.bound} is bound to it and may still run there")
    if it.retry_after is not None and it.retry_after > now:
        return Bar(f"it failed {it.failures} times in a row, so not before {told(it.retry_after)}", it.retry_after)
    if it.state == "Unknown" and (it.is_up or states.may_still_join_until(it, pool.boot_ms) > now):
        return Bar("nobody knows yet whether it is on", states.may_still_join_until(it, pool.boot_ms))
    if it.power_is == "PoweringOff":
        return Bar("it is still shutting down")
    rested = states.rests_until(it, policy.min_off_seconds * times.SECOND)
    if rested > now:
        return Bar(f"it was sent to sleep at {told(it.slept_at)}, so not before {told(rested)} (minOffSeconds)", rested)
    lately = it.lately(now)
    if len(lately) >= policy.toggles_per_hour:
        until = lately[-policy.toggles_per_hour] + times.HOUR
        return Bar(f"it was switched {len(lately)} times in an hour, so not before {told(until)}", until)
    return None


# --- for pods that are pending ----------------------------------------------------------------------------------------------------


def candidates(world: World, pool: Pool) -> Iterator[Candidate]:
    """What may be woken."""
    for it in pool.are(*ASLEEP):
        if bar(pool, it) is None:
            room = pool.closed[it.name] = coming.room_of(world, pool, it)
            yield Candidate(
                room=room,
                cost=_cost(pool, it),
                failed=bool(it.failures),
                opened_at=it.woken_at or 0,
            )


def _cost(pool: Pool, it: Member) -> tuple[int, ...]:
    """Machines that failed less often come first, whatever they cost beside that."""
    idle, busy = energy.watts(it.spec, pool.spec.template)
    return it.failures, (busy or idle or 0) if pool.policy.prefer == "FewestWatts" else 0, it.gpus


def slots(pool: Pool) -> int | None:
    """How many more may boot now; None for any number."""
    limits = [each for each in (pool.policy.max_concurrent_wakes, breaking.at_once(pool)) if each is not None]
    return max(0, min(limits) - len(pool.are("Booting"))) if limits else None


def _wake(pool: Pool, it: Member, why: Turn, assigned: Mapping[str, int] | None = None) -> None:
    it.switch(pool.now)
    it.woken_at, it.resent_at, it.retry_after, it.assigned = pool.now, None, None, dict(assigned or {})
    it.woken_for = ()
    it.tried_for = tuple(sorted(it.assigned))[:MOST_SHAPES] if why is Turn.ON_TRIAL else ()
    it.become("Booting", pool.now)
    it.due.append(WakeMachine(pool=pool.ref.name, machine=it.name))
    it.tell(why)


def _send_again(pool: Pool, outcome: Outcome) -> None:
    """What did not hear its wake is told again; one that failed so and that nobody needs any more is let be."""
    for it in pool.are("Booting"):
        if it.is_untaken and it.failures and it.resent_at is not None and it.name not in outcome.needed:
            states.give_up(it, pool.now)
        elif it.is_untaken:
            states.resend(it, pool.now)
            it.due.append(WakeMachine(pool=pool.ref.name, machine=it.name))


# --- for those who want machines on ---------------------------------------------------------------------------------------------


def _keep_floor(world: World, pool: Pool, unwanted: list[Unit]) -> None:
    """Have as many machines on, or coming, as must be: first those that were about to sleep, then the smallest, or what is used most."""
    least = warmth.least_on(pool)
    closed = sum(it.cordon is Cordon.FOREIGN for it in pool.are("On", "Booting"))
    least = least._replace(machines=min(least.machines + closed, len(pool.members)))
    usual = warmth.usual_size(pool) if least.machines > pool.floor else 0
    asleep = sorted(pool.are("Draining"), key=lambda it: _like(it, usual))
    for it in asleep[: max(0, least.machines - len(pool.are("On", "Booting")))]:
        states.stay_on(it, pool.now, Turn.WARM)
    short = least.machines - len(pool.are("On", "Booting"))
    if short <= 0:
        return
    asleep = sorted((it for it in pool.are(*ASLEEP) if bar(pool, it) is None), key=lambda it: _like(it, usual))
    free = slots(pool)
    must = pool.floor + closed - len(pool.are("On", "Booting"))
    for number, it in enumerate(asleep[: short if free is None else min(short, free)]):
        room = coming.room_of(world, pool, it)
        if number < must or not any(may_hold(unit, room) for unit in unwanted):
            _wake(pool, it, Turn.FOR_FLOOR)
    pool.wants = len(pool.are("On", "Booting")) < least.machines


def _like(it: Member, usual: int) -> tuple[int, int, int, str]:
    return it.failures, abs(it.gpus - usual), it.gpus, it.name


def bars(pool: Pool) -> Mapping[str, Bar]:
    """The machines that may not be woken now though they are not on, each with the reason."""
    return {it.name: found for it in pool.are(*ASLEEP) if (found := bar(pool, it)) is not None}
