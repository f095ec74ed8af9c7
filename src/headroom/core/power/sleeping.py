"""Which machines go to sleep, and how: cordon, settle, empty by policy, switch off; and back at once if somebody comes."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from headroom.api.power_status import MOST_NAMESPACES
from headroom.core.capacity import Outcome, refused_beside, trials_if_closed
from headroom.core.power import fruitless, idling, states
from headroom.core.power.members import Cordon, Member, Pool, cordon_of, told
from headroom.core.power.news import Turn
from headroom.core.power.states import ABORT_MS, doubled
from headroom.core.power.warmth import Warm, least_on, turns_at
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


def let_sleep(pool: Pool, outcome: Outcome) -> None:
    """Take every machine that is not needed one step further on its way."""
    _keep_for_refused(pool, outcome)
    if pool.halted:
        return
    for it in pool.are("Draining"):
        _drain(pool, it)
    _cordon_more(pool, outcome)
    for it in pool.are("Failed"):
        _put_back(pool, it)
    for it in pool.members:
        _open_up(it)
    for name in pool.elsewhere:
        _let_go(outcome.round.world, pool, name)


def _keep_for_refused(pool: Pool, outcome: Outcome) -> None:
    """Keep on what would hold pods that kube-scheduler refuses. What was woken while they waited has its answer."""
    members = {it.name: it for it in pool.members} if outcome.round.verdicts else {}
    for each in refused_beside(
        outcome.round, lambda name, since: name in members and (members[name].woken_at or 0) < since
    ):
        _keep(pool, members[each.room], each.namespaces, each.since)


def _is_needed(pool: Pool, it: Member, outcome: Outcome) -> bool:
    """Whether pods are about to be bound to a machine. They may say so for an hour, however often they are made anew."""
    uids = outcome.into.get(it.name, ())
    if it.name not in outcome.needed or it.name in outcome.reserved:
        return it.name in outcome.needed
    if any(outcome.round.announced.get(uid) == "" for uid in uids):
        return True  # a budget has said when it releases them; what others announce is only their word
    if it.idle_since is None or _stays_until(pool, it, it.idle_since) > pool.now:
        return True
    namespaces = outcome.round.namespaces_of(uids)
    _note_kept(pool, it, namespaces)
    may = any(pool.keeps.get(name, 1) for name in namespaces)
    return may and not was_kept_in_vain(pool, it)


def was_kept_in_vain(pool: Pool, it: Member) -> bool:
    """Whether an idle machine was kept on for refused pods for so long that it is not any more."""
    until = kept_until(it)
    return until is not None and until <= pool.now


def kept_until(it: Member) -> int | None:
    """Until when an idle machine is kept on for pods that are not bound to it; None if it is not."""
    return it.kept_since + REFUSED_MS if it.kept_since is not None else None


def _note_kept(pool: Pool, it: Member, namespaces: set[str]) -> None:
    it.kept_for = tuple(sorted({*it.kept_for, *namespaces}))[:MOST_NAMESPACES]
    it.kept_since = it.kept_since or pool.now


def _keep(pool: Pool, it: Member, namespaces: set[str], since: int) -> None:
    """Keep one on for pods of some namespaces, as far as that was of use before: else who makes pods anew would keep it on for ever."""
    if it.idle_since is None:
        return
    kept = Counter(name for each in pool.are("On") if each is not it for name in each.kept_for)
    may = {name for name in namespaces if name in it.kept_for or kept[name] < pool.keeps.get(name, len(pool.members))}
    # Since when it is kept so, whoever it is for, is remembered: from then on an hour must do.
    until = min(max(since, it.idle_since), it.kept_since or pool.now) + REFUSED_MS
    if not may or until <= pool.now:
        return
    it.wanted_until = max(it.wanted_until, until)
    if _stays_until(pool, it, it.idle_since) <= pool.now:
        _note_kept(pool, it, may)


def _drains(pool: Pool) -> Drains:
    """How many machines may begin to drain now. Many that look idle together may be a fault of the view: a few go, not the fleet."""
    most = max(LEAST_DRAINS, len(pool.members) * MOST_PERCENT // 100)
    window = max(pool.policy.idle_seconds * times.SECOND, SHORTEST_WINDOW_MS)
    began = (it.drained_at or 0 for it in pool.members)
    return Drains(most, window, sorted((each for each in began if each > pool.now - window), reverse=True))


def _brake(pool: Pool, drains: Drains) -> None:
    """No more for now."""
    pool.brake_ends_at = drains.begun[drains.most - 1] + drains.window
    pool.braked = (
        f"{len(drains.begun)} of {of_machines(len(pool.members))} began to drain within {drains.window // times.SECOND} s, "
        f"and no more do before {told(pool.brake_ends_at)}: so many that look idle may be a fault of the view."
    )


# --- on the way -----------------------------------------------------------------------------------------------------------------


def _drain(pool: Pool, it: Member) -> None:
    now = pool.now
    why = _comes_back(pool, it)
    if why:
        states.stay_on(it, now, why, count=pool.floor)
    elif now - it.since >= ABORT_MS and (it.lodgers or it.cordon is not Cordon.OURS):
        it.put_off(now, doubled(ABORT_MS, it.failures, times.HOUR))
        states.stay_on(it, now, Turn.NOT_EMPTIED)
    elif it.cordon is not Cordon.OURS:
        it.due.append(CordonNode(node=it.name))
    elif now < it.since + SETTLE_MS:
        pass
    elif it.lodgers:
        it.due.append(DrainNode(node=it.name))
    else:
        it.switch(now)
        it.slept_at = now
        it.become("Sleeping", now)
        it.due.append(SleepMachine(pool=pool.ref.name, machine=it.name))
        it.tell(Turn.IDLE, at=it.idle_since)
        it.idle_since, it.tried_for = None, ()


def _put_back(pool: Pool, it: Member) -> None:
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
    it.become("Sleeping", pool.now, it.new("Sleeping", Turn.PUT_BACK), it.cause)
    it.due.append(SleepMachine(pool=pool.ref.name, machine=it.name))
    it.tell(Turn.PUT_BACK)


def _comes_back(pool: Pool, it: Member) -> Turn | None:
    """Why a machine does not go to sleep after all; pods that wait and fit on it have been asked before."""
    if it.idle_since is None:
        return Turn.POD_CAME
    if len(pool.are("On")) < pool.floor:
        return Turn.MUST_BE_ON
    return Turn.PROTECTED if idling.is_protected(pool, it) else None


def _cordon_more(pool: Pool, outcome: Outcome) -> None:
    """Begin with the largest."""
    free = most_at_once(pool) - len(pool.are("Draining", "Sleeping"))
    spare = len(pool.are("On")) - least_on(pool).machines
    warm, drains = Warm(pool), _drains(pool)
    for it in sorted(pool.are("On"), key=lambda each: (-each.gpus, each.name)):
        if free <= 0 or spare <= 0:
            return
        if _is_needed(pool, it, outcome) or awake(pool, it) is not None:
            continue
        it.held = warm.holds()
        if it.held:
            continue
        if len(drains.begun) >= drains.most:
            _brake(pool, drains)
            return
        warm.let_go()
        free, spare = free - 1, spare - 1
        it.drained_at = pool.now
        fruitless.note(pool, it)
        drains.begun.insert(0, pool.now)
        it.become("Draining", pool.now, it.new("Draining", Turn.IDLE), "Cordoning")
        it.due.append(CordonNode(node=it.name))
        it.tell(Turn.IDLE, at=it.idle_since)
        pool.trials += trials_if_closed(outcome.round, it.name)


def most_at_once(pool: Pool) -> int:
    """How many machines may be on their way to sleep."""
    most = pool.policy.max_concurrent_sleeps
    return max(1, len(pool.members) // 5) if most is None else most


def awake(pool: Pool, it: Member) -> Awake | None:
    """Why a machine that is on and that nobody waits for does not go to sleep now; None if it may."""
    if it.idle_since is None:
        return Awake("pods use it")
    if idling.is_protected(pool, it):
        return Awake("it is protected")
    if it.shares_switch:
        return Awake(f"its switch would switch off {it.shares_switch} too")
    if it.cordon is not Cordon.NOBODY:
        return Awake("its node is cordoned, and not for this")
    if it.wanted_until > pool.now:
        return Awake("a pod waits that would fit on it, and its scheduler refuses it", it.wanted_until)
    if it.held:
        return Awake(it.held, turns_at(pool))
    if due := fruitless.due_until(pool, it):
        return Awake("it was woken for pods that should start now", due)
    until = _stays_until(pool, it, it.idle_since)
    return Awake("it was busy, woken or tried a short time ago", until) if until > pool.now else None


def _stays_until(pool: Pool, it: Member, idle_since: int) -> int:
    policy, lately = pool.policy, it.lately(pool.now)
    came = max(it.woken_at or 0, (it.node.ready_since or 0) if it.node is not None else 0)
    # The last switch of an hour is kept for waking it: a machine that sleeps must not be out of reach.
    most = max(1, policy.toggles_per_hour - 1)
    # One that came without its GPUs is not woken again so soon, which is no reason to keep it on.
    came_short = it.failures and (it.woken_at or 0) > (it.drained_at or 0)
    return max(
        idle_since + policy.idle_seconds * times.SECOND,
        came + policy.min_on_seconds * times.SECOND,
        0 if came_short else it.retry_after or 0,
        lately[-most] + times.HOUR if len(lately) >= most else 0,
    )


# --- and open again -------------------------------------------------------------------------------------------------------------


def _open_up(it: Member) -> None:
    """Lift a cordon of ours where it has no purpose any more. What is off may keep it until it wakes."""
    is_open = (
        it.state in ("On", "Booting")
        or (it.state == "Failed" and not it.leaves)
        or (it.state == "Unknown" and not it.is_up)
    )
    if is_open and it.cordon in (Cordon.OURS, Cordon.LIFTED):
        it.due.append(UncordonNode(node=it.name))


def _let_go(world: World, pool: Pool, name: str) -> None:
    node = world.nodes.get(name)
    if cordon_of(node, pool.ref) in (Cordon.OURS, Cordon.LIFTED):
        pool.due.append(UncordonNode(node=name))
