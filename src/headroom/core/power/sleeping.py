"""Which machines go to sleep, and how: cordon, settle, empty by policy, switch off; and back at once if somebody comes."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import structs

from headroom.core import demand
from headroom.core.demand import Unit
from headroom.core.power import idling, states, trials
from headroom.core.power.members import Cordon, Member, Pool, cordon_of, told
from headroom.core.power.serving import Service, without
from headroom.core.power.states import ABORT_MS, CORDONING, doubled
from headroom.core.power.warmth import LONGEST_MS, Warm, least_on
from headroom.core.power.wording import of_gpus, of_machines
from headroom.model import times
from headroom.model.actions import CordonNode, DrainNode, SleepMachine, UncordonNode

SETTLE_MS: Final = 10 * times.SECOND
"""From the moment the cordon is seen: kube-scheduler may have decided on a pod just before it saw it."""
ENOUGH_TRIED: Final = 3
REFUSED_MS: Final = times.HOUR
"""For so long an idle machine is kept for pods that would fit on it and are refused."""
NEWLY_IDLE_MS: Final = 60 * times.SECOND
LEAST_BRAKED: Final = 3
"""So many machines that turn idle together are no chance, if they are more than three in ten."""


class Awake(NamedTuple):
    """Why a machine that is on does not go to sleep now, and when that ends by itself."""

    why: str
    until: int | None = None


def let_sleep(service: Service) -> None:
    """Take every machine that is not needed one step further on its way."""
    nominated = _nominated(service)
    _keep_for_refused(service)
    for pool in service.pools:
        if pool.halted:
            continue
        _brake(pool)
        for it in pool.are("Draining"):
            _drain(pool, it)
        _cordon_more(service, pool, nominated)
        for it in pool.members:
            _open_up(it)
        for name in pool.elsewhere:
            _let_go(service, pool, name)


def _nominated(service: Service) -> frozenset[str]:
    """Nodes on which room is being made for somebody."""
    found = set()
    for uid, why in service.wanted.left_out.items():
        pod = service.world.pods.get(uid) if why.reason == "Nominated" else None
        if pod is not None:
            found.add(pod.nominated_node)
    return frozenset(found)


def _keep_for_refused(service: Service) -> None:
    """Keep on what would hold pods that kube-scheduler refuses: it may be right only for now."""
    waiting = (*service.wanted.units, *service.wanted.exhausted) if service.verdicts else ()
    for unit in waiting:
        since = _refused_since(service, unit)
        # By the time some were tried in vain, such pods have had an hour, however often they were made anew.
        digests = {part.digest for part in unit.parts if trials.in_vain(service.tried, part) < ENOUGH_TRIED}
        digests &= service.verdicts.keys()
        names = {name for digest in digests for name in service.verdicts[digest].rooms} & service.machines.keys()
        # What was woken while they waited has its answer.
        rooms = [service.rooms[name] for name in sorted(names) if (service.machines[name][1].woken_at or 0) < since]
        if rooms:
            unjudged = [structs.replace(without(service, room), source="Machine", ready_since=None) for room in rooms]
            for name in demand.place(service.world, [unit], unjudged).into:
                it = service.machines[name][1]
                it.wanted_until = max(it.wanted_until, max(since, it.idle_since or 0) + REFUSED_MS)


def _refused_since(service: Service, unit: Unit) -> int:
    """Since when kube-scheduler has refused the first of a unit's pods."""
    pods = (service.world.pods.get(uid) for part in unit.parts for uid in part.pods)
    return min((pod.unschedulable_since for pod in pods if pod and pod.unschedulable_since is not None), default=0)


def _brake(pool: Pool) -> None:
    """Too many machines that turn idle together may be a fault of the view."""
    now = pool.now
    new = [
        it.idle_since
        for it in pool.are("On", "Draining")
        if it.idle_since is not None and it.idle_since > now - NEWLY_IDLE_MS and _was_busy(it)
    ]
    if len(new) >= LEAST_BRAKED and 10 * len(new) > 3 * len(pool.members):
        pool.brake_ends_at = min(new) + NEWLY_IDLE_MS
        pool.braked = (
            f"{len(new)} of {len(pool.members)} machines turned idle within {NEWLY_IDLE_MS // times.SECOND} s, "
            "which may be a fault of the view; none goes to sleep."
        )


def _was_busy(it: Member) -> bool:
    """A machine that has just become ready was not."""
    ready = it.node.ready_since if it.node is not None else None
    return it.idle_since is not None and (ready is None or it.idle_since > ready)


# --- on the way -----------------------------------------------------------------------------------------------------------------


def _drain(pool: Pool, it: Member) -> None:
    now = pool.now
    why = _comes_back(pool, it)
    if why:
        states.stay_on(it, now, why)
    elif now - it.since >= ABORT_MS and (it.lodgers or it.cordon is not Cordon.OURS):
        it.put_off(now, doubled(ABORT_MS, it.failures, times.HOUR))
        states.stay_on(it, now, f"it could not be emptied within {ABORT_MS // times.MINUTE} minutes")
    elif it.cordon is not Cordon.OURS:
        it.due.append(CordonNode(node=it.name))
    elif now < it.since + SETTLE_MS or pool.braked:
        pass
    elif it.lodgers:
        it.due.append(DrainNode(node=it.name))
    else:
        it.switch(now)
        it.slept_at = now
        it.become("Sleeping", now)
        it.due.append(SleepMachine(pool=pool.ref.name, machine=it.name))
        it.tell("SleepingMachine", f"({of_gpus(it.gpus)}) is sent to sleep; it was idle since {told(it.idle_since)}.")
        it.idle_since = None


def _comes_back(pool: Pool, it: Member) -> str:
    """Why a machine does not go to sleep after all; pods that wait and fit on it have been asked before."""
    if it.idle_since is None:
        return "a pod has come"
    if len(pool.are("On")) < pool.floor:
        return f"{of_machines(pool.floor)} must be on now"
    return "it is protected" if idling.is_protected(pool, it) else ""


def _cordon_more(service: Service, pool: Pool, nominated: frozenset[str]) -> None:
    """Begin with the largest."""
    if pool.braked:
        return
    free = most_at_once(pool) - len(pool.are("Draining", "Sleeping"))
    on_trial = {each.trial.machine for each in service.tried.values() if each.is_awaited}
    spare = len(pool.are("On")) - least_on(pool).machines
    warm = Warm(pool)
    for it in sorted(pool.are("On"), key=lambda each: (-each.gpus, each.name)):
        if free <= 0 or spare <= 0:
            return
        if it.name in service.into or it.name in nominated or it.name in on_trial or awake(pool, it) is not None:
            continue
        it.held = warm.holds(it)
        if it.held:
            continue
        warm.let_go()
        free, spare = free - 1, spare - 1
        it.become("Draining", pool.now, CORDONING)
        it.due.append(CordonNode(node=it.name))
        it.tell("DrainingMachine", f"({of_gpus(it.gpus)}) is idle since {told(it.idle_since)} and gets no new pods.")
        trials.remember(pool, it, service.verdicts, service.tried)


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
        return Awake(it.held, it.idle_since + LONGEST_MS)
    until = _stays_until(pool, it, it.idle_since)
    return Awake("it was busy, woken or tried a short time ago", until) if until > pool.now else None


def _stays_until(pool: Pool, it: Member, idle_since: int) -> int:
    policy, lately = pool.policy, it.lately(pool.now)
    came = max(it.woken_at or 0, (it.node.ready_since or 0) if it.node is not None else 0)
    # The last switch of an hour is kept for waking it: a machine that sleeps must not be out of reach.
    most = max(1, policy.toggles_per_hour - 1)
    return max(
        idle_since + policy.idle_seconds * times.SECOND,
        came + policy.min_on_seconds * times.SECOND,
        it.retry_after or 0,
        lately[-most] + times.HOUR if len(lately) >= most else 0,
    )


# --- and open again -------------------------------------------------------------------------------------------------------------


def _open_up(it: Member) -> None:
    """Lift a cordon of ours where it has no purpose any more. What is off may keep it until it wakes."""
    is_open = it.state in ("On", "Booting", "Failed") or (it.state == "Unknown" and not it.is_up)
    if is_open and it.cordon in (Cordon.OURS, Cordon.LIFTED):
        it.due.append(UncordonNode(node=it.name))


def _let_go(service: Service, pool: Pool, name: str) -> None:
    node = service.world.nodes.get(name)
    if cordon_of(node, pool.ref) in (Cordon.OURS, Cordon.LIFTED):
        pool.due.append(UncordonNode(node=name))
