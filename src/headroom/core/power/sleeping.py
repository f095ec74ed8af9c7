"""Which machines go to sleep, and how: cordon, settle, empty by policy, switch off; and back at once if somebody comes."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from headroom.api.power_status import MOST_NAMESPACES
from headroom.core.capacity import SupplyOutcome, refused_beside, trials_if_closed
from headroom.core.power import fruitless, idling, states
from headroom.core.power.members import Cordon, PoolMachine, PowerPoolState, cordon_of, told
from headroom.core.power.news import TransitionReason
from headroom.core.power.states import ABORT_MS, doubled
from headroom.core.power.warmth import Warm, least_on, recheck_at
from headroom.core.power.wording import of_machines
from headroom.model import times
from headroom.model.actions import CordonNode, DrainNode, SleepMachine, UncordonNode
from headroom.model.world import World

SETTLE_MS: Final = 10 * times.SECOND
"""From the moment the cordon is seen: kube-scheduler may have decided on a pod just before it saw it."""
REFUSED_MS: Final = times.HOUR
"""For so long an idle machine is kept for pods that would fit on it and are refused."""
LEAST_DRAINS: Final = 3
MOST_PERCENT: Final = 30
"""So many machines of a pool, or this part of it if that is more, begin to drain within idleSeconds at most,"""
SHORTEST_WINDOW_MS: Final = 60 * times.SECOND
"""or within a minute, where idleSeconds are fewer."""


class Awake(NamedTuple):
    """Why a machine that is on does not go to sleep now, and when that ends by itself."""

    why: str
    until: int | None = None


class Drains(NamedTuple):
    """The machines of a pool that began to drain lately."""

    most: int
    """How many may."""
    window: int
    """Within how long."""
    begun: list[int]
    """When they began, the latest first."""


def let_sleep(pool: PowerPoolState, outcome: SupplyOutcome) -> None:
    """Take every machine that is not needed one step further on its way."""
    _keep_for_refused(pool, outcome)
    if pool.halted:
        return
    for machine in pool.are("Draining"):
        _drain(pool, machine)
    _cordon_more(pool, outcome)
    for machine in pool.are("Failed"):
        _put_back(pool, machine)
    for machine in pool.members:
        _open_up(machine)
    for name in pool.elsewhere:
        _let_go(outcome.round.world, pool, name)


def _keep_for_refused(pool: PowerPoolState, outcome: SupplyOutcome) -> None:
    """Keep on what would hold pods that kube-scheduler refuses. What was woken while they waited has its answer."""
    members = {machine.name: machine for machine in pool.members} if outcome.round.verdicts else {}
    for each in refused_beside(
        outcome.round, lambda name, since: name in members and (members[name].woken_at or 0) < since
    ):
        _keep(pool, members[each.room], each.namespaces, each.since)


def _is_needed(pool: PowerPoolState, machine: PoolMachine, outcome: SupplyOutcome) -> bool:
    """Whether pods are about to be bound to a machine. They may say so for an hour, however often they are recreated."""
    uids = outcome.into.get(machine.name, ())
    if machine.name not in outcome.needed or machine.name in outcome.reserved:
        return machine.name in outcome.needed
    if any(outcome.round.announced.get(uid) == "" for uid in uids):
        return True  # a budget has said when it releases them; what others announce is only their word
    if machine.idle_since is None or _stays_until(pool, machine, machine.idle_since) > pool.now:
        return True
    namespaces = outcome.round.namespaces_of(uids)
    _note_kept(pool, machine, namespaces)
    may = any(pool.keeps.get(name, 1) for name in namespaces)
    return may and not was_kept_in_vain(pool, machine)


def was_kept_in_vain(pool: PowerPoolState, machine: PoolMachine) -> bool:
    """Whether an idle machine was kept on for refused pods for so long that it is not any more."""
    until = kept_until(machine)
    return until is not None and until <= pool.now


def kept_until(machine: PoolMachine) -> int | None:
    """Until when an idle machine is kept on for pods that are not bound to it; None if it is not."""
    return machine.kept_since + REFUSED_MS if machine.kept_since is not None else None


def _note_kept(pool: PowerPoolState, machine: PoolMachine, namespaces: set[str]) -> None:
    machine.kept_for = tuple(sorted({*machine.kept_for, *namespaces}))[:MOST_NAMESPACES]
    machine.kept_since = machine.kept_since or pool.now


def _keep(pool: PowerPoolState, machine: PoolMachine, namespaces: set[str], since: int) -> None:
    """Keep one on for pods of some namespaces, as far as that was of use before: else who recreates pods would keep it on for ever."""
    if machine.idle_since is None:
        return
    kept = Counter(name for each in pool.are("On") if each is not machine for name in each.kept_for)
    may = {
        name for name in namespaces if name in machine.kept_for or kept[name] < pool.keeps.get(name, len(pool.members))
    }
    # Since when it is kept so, whoever it is for, is remembered: from then on an hour must do.
    until = min(max(since, machine.idle_since), machine.kept_since or pool.now) + REFUSED_MS
    if not may or until <= pool.now:
        return
    machine.wanted_until = max(machine.wanted_until, until)
    if _stays_until(pool, machine, machine.idle_since) <= pool.now:
        _note_kept(pool, machine, may)


def _drains(pool: PowerPoolState) -> Drains:
    """How many machines may begin to drain now. Many that look idle together may be a fault of the view: a few go, not the fleet."""
    most = max(LEAST_DRAINS, len(pool.members) * MOST_PERCENT // 100)
    window = max(pool.policy.idle_seconds * times.SECOND, SHORTEST_WINDOW_MS)
    began = (machine.drained_at or 0 for machine in pool.members)
    return Drains(most, window, sorted((each for each in began if each > pool.now - window), reverse=True))


def _brake(pool: PowerPoolState, drains: Drains) -> None:
    """No more for now."""
    pool.brake_ends_at = drains.begun[drains.most - 1] + drains.window
    pool.braked = (
        f"{len(drains.begun)} of {of_machines(len(pool.members))} began to drain within {drains.window // times.SECOND}s, "
        f"and no more do before {told(pool.brake_ends_at)}: so many idle machines at once may be a wrong observation."
    )


# --- on the way -----------------------------------------------------------------------------------------------------------------


def _drain(pool: PowerPoolState, it: PoolMachine) -> None:
    now = pool.now
    why = _comes_back(pool, it)
    if why:
        states.stay_on(it, now, why, count=pool.floor)
    elif now - it.since >= ABORT_MS and (it.evictable_pods or it.cordon is not Cordon.OURS):
        it.put_off(now, doubled(ABORT_MS, it.failures, times.HOUR))
        states.stay_on(it, now, TransitionReason.NOT_EMPTIED)
    elif it.cordon is not Cordon.OURS:
        it.due.append(CordonNode(node=it.name))
    elif now < it.since + SETTLE_MS:
        pass
    elif it.evictable_pods:
        it.due.append(DrainNode(node=it.name))
    else:
        it.switch(now)
        it.slept_at = now
        it.become("Sleeping", now)
        it.due.append(SleepMachine(pool=pool.ref.name, machine=it.name))
        it.tell(TransitionReason.IDLE, at=it.idle_since)
        it.idle_since, it.tried_for = None, ()


def _put_back(pool: PowerPoolState, it: PoolMachine) -> None:
    """Send a machine to sleep that was woken and never joined, or did not go off: it draws power, and nobody can use it."""
    is_kept = it.bound or it.shares_switch or idling.is_protected(pool, it) or it.cordon is Cordon.FOREIGN
    # One that is only late is not switched off a moment before it comes.
    is_late = pool.now - (it.woken_at or 0) < max(2 * pool.boot_ms, pool.policy.min_on_seconds * times.SECOND)
    if it.cause not in ("NeverJoined", "StillOn") or is_kept or is_late or it.power_is == "Off":
        return
    if (it.slept_at or 0) > (it.woken_at or 0) and (it.retry_after or 0) > pool.now:
        return  # it was told so, and did not
    if len(it.lately(pool.now)) >= pool.policy.toggles_per_hour:
        return
    if it.node is not None and it.cordon is not Cordon.OURS:
        it.leaves = True
        it.due.append(CordonNode(node=it.name))
        return
    it.switch(pool.now)
    it.slept_at = pool.now
    it.tried_for = ()
    it.become("Sleeping", pool.now, it.new("Sleeping", TransitionReason.PUT_BACK), it.cause)
    it.due.append(SleepMachine(pool=pool.ref.name, machine=it.name))
    it.tell(TransitionReason.PUT_BACK)


def _comes_back(pool: PowerPoolState, machine: PoolMachine) -> TransitionReason | None:
    """Why a machine does not go to sleep after all; pending pods that fit on it have been asked before."""
    if machine.idle_since is None:
        return TransitionReason.POD_CAME
    if len(pool.are("On")) < pool.floor:
        return TransitionReason.MUST_BE_ON
    return TransitionReason.PROTECTED if idling.is_protected(pool, machine) else None


def _cordon_more(pool: PowerPoolState, outcome: SupplyOutcome) -> None:
    """Begin with the largest."""
    free = most_at_once(pool) - len(pool.are("Draining", "Sleeping"))
    spare = len(pool.are("On")) - least_on(pool).machines
    warm, drains = Warm(pool), _drains(pool)
    for machine in sorted(pool.are("On"), key=lambda each: (-each.gpus, each.name)):
        if free <= 0 or spare <= 0:
            return
        if _is_needed(pool, machine, outcome) or awake(pool, machine) is not None:
            continue
        machine.held = warm.holds()
        if machine.held:
            continue
        if len(drains.begun) >= drains.most:
            _brake(pool, drains)
            return
        warm.let_go()
        free, spare = free - 1, spare - 1
        machine.drained_at = pool.now
        fruitless.note(pool, machine)
        drains.begun.insert(0, pool.now)
        machine.become("Draining", pool.now, machine.new("Draining", TransitionReason.IDLE), "Cordoning")
        machine.due.append(CordonNode(node=machine.name))
        machine.tell(TransitionReason.IDLE, at=machine.idle_since)
        pool.trials += trials_if_closed(outcome.round, machine.name)


def most_at_once(pool: PowerPoolState) -> int:
    """How many machines may be on their way to sleep."""
    most = pool.policy.max_concurrent_sleeps
    return max(1, len(pool.members) // 5) if most is None else most


def awake(pool: PowerPoolState, machine: PoolMachine) -> Awake | None:
    """Why an idle machine does not go to sleep now; None if it may."""
    if machine.idle_since is None:
        return Awake("pods use it")
    if idling.is_protected(pool, machine):
        return Awake("it is protected")
    if machine.shares_switch:
        return Awake(f"its switch also switches off {machine.shares_switch}")
    if machine.cordon is not Cordon.NOBODY:
        return Awake("somebody else cordoned its node")
    if machine.wanted_until > pool.now:
        return Awake("a pending pod fits on it, and its scheduler does not place it there", machine.wanted_until)
    if machine.held:
        return Awake(machine.held, recheck_at(pool))
    if due := fruitless.due_until(pool, machine):
        return Awake("it woke for pods that should start now", due)
    until = _stays_until(pool, machine, machine.idle_since)
    return Awake("it was in use, woken or tried recently", until) if until > pool.now else None


def _stays_until(pool: PowerPoolState, machine: PoolMachine, idle_since: int) -> int:
    policy, lately = pool.policy, machine.lately(pool.now)
    came = max(machine.woken_at or 0, (machine.node.ready_since or 0) if machine.node is not None else 0)
    # The last switch of an hour is kept for waking it: a machine that sleeps must not be out of reach.
    most = max(1, policy.toggles_per_hour - 1)
    # One that came without its GPUs is not woken again so soon, which is no reason to keep it on.
    came_short = machine.failures and (machine.woken_at or 0) > (machine.drained_at or 0)
    return max(
        idle_since + policy.idle_seconds * times.SECOND,
        came + policy.min_on_seconds * times.SECOND,
        0 if came_short else machine.retry_after or 0,
        lately[-most] + times.HOUR if len(lately) >= most else 0,
    )


# --- and open again -------------------------------------------------------------------------------------------------------------


def _open_up(machine: PoolMachine) -> None:
    """Lift a cordon of ours where it has no purpose any more. What is off may keep it until it wakes."""
    is_open = (
        machine.state in ("On", "Booting")
        or (machine.state == "Failed" and not machine.leaves)
        or (machine.state == "Unknown" and not machine.is_up)
    )
    if is_open and machine.cordon in (Cordon.OURS, Cordon.LIFTED):
        machine.due.append(UncordonNode(node=machine.name))


def _let_go(world: World, pool: PowerPoolState, name: str) -> None:
    node = world.nodes.get(name)
    if cordon_of(node, pool.ref) in (Cordon.OURS, Cordon.LIFTED):
        pool.due.append(UncordonNode(node=name))
