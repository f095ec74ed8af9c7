"""Why a pod waits, as far as machines can help it: which one is coming for it, or why none is; and why a machine is on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headroom.core import demand
from headroom.core.capacity import CapacityRound, PodAnswer, reason
from headroom.core.demand import Unit
from headroom.core.power import unserved
from headroom.core.power.idling import ENDED, may_be_evicted
from headroom.core.power.members import KIND, PoolMachine, PowerPoolState, told
from headroom.core.power.sleeping import awake, kept_until
from headroom.core.power.supply import PowerSupply
from headroom.core.power.telling import staying
from headroom.core.power.unserved import HALTED
from headroom.core.power.wording import few, of_gpus, quoted, small, whom
from headroom.model import times
from headroom.model.facts import Pod
from headroom.model.gangs import keeps_machine_on
from headroom.model.world import World


def explained(found: CapacityRound, pod: Pod) -> PodAnswer | None:
    """What there is to say of a pod without a node; None where no pool has anything to do with it."""
    if pod.node or not found.world.of_kind(KIND):
        return None
    left_out = found.wanted.left_out.get(pod.uid)
    place = next((name for name, uids in found.into.items() if pod.uid in uids), "")
    if place:
        return _placed(found, place, pod)
    is_held = pod.uid not in found.over_quota or not any(each.terms.over_quota for each in found.supplies)
    if left_out is not None and is_held:
        return PodAnswer(left_out.reason, f"No machine wakes for it: {small(left_out.message)}")
    return _left(found, pod)


def served(found: CapacityRound) -> dict[str, str]:
    """Pods that need nobody else's help, since a machine of a pool is on or coming for them: uid to machine."""
    machines = _machines(found)
    return {uid: name for name, uids in found.into.items() if name in machines for uid in uids}


def _needed(found: CapacityRound, pool: PowerPoolState) -> Collection[str]:
    """The machines that a pool keeps for somebody."""
    mine = next(each for each in found.supplies if isinstance(each, PowerSupply) and each.pool is pool)
    return found.into.keys() & (mine.outcome.needed if mine.outcome is not None else ())


def _machines(found: CapacityRound) -> dict[str, tuple[PowerPoolState, PoolMachine]]:
    """Every machine under its name."""
    pools = [each.pool for each in found.supplies if isinstance(each, PowerSupply)]
    return {machine.name: (pool, machine) for pool in pools for machine in pool.members}


def holding(found: CapacityRound, name: str) -> tuple[str, ...]:
    """What keeps a machine on that is on, or when it goes to sleep and what holds it up: a clause each, none for others."""
    known = _machines(found).get(name)
    if known is None or known[1].state not in ("On", "Draining"):
        return ()
    pool, machine = known
    world = found.world
    if machine.busy:
        return (f"kept on by {few(_keepers(world, pool, name))}",)
    says = []
    nominated = [uid for uid, why in found.wanted.left_out.items() if why.reason == "Nominated"]
    coming = [pod for uid in nominated if (pod := world.pods.get(uid)) is not None and pod.nominated_node == name]
    if coming:
        says.append(f"kept on for {few(sorted(pod.key for pod in coming))}, since kube-scheduler preempts pods there")
    elif machine.name in _needed(found, pool):
        says.append(f"kept on for {whom(found.into[name], found.announced)}{_at_most(found, machine)}")
    elif pool.halted:
        says.append(f"stays as it is: {small(HALTED[pool.halted]).removesuffix('.')}")
    elif machine.state == "Draining":
        says.append("goes to sleep once its pods end, unless a new pod needs it")
    else:
        says.append(staying(pool, machine) + _until_when(pool, machine))
    if machine.evictable_pods:
        says.append(f"evicted first: {few(_named(world, machine.evictable_pods))}")
    return tuple(says)


def _at_most(found: CapacityRound, machine: PoolMachine) -> str:
    """Until when it is kept for them; for those whom a budget releases, however long that takes."""
    until = kept_until(machine)
    if until is None or any(found.announced.get(uid) == "" for uid in found.into[machine.name]):
        return ""
    return f", until {told(until)} at most"


def _until_when(pool: PowerPoolState, machine: PoolMachine) -> str:
    """Why it does not sleep before a moment that was just told."""
    why, needed = awake(pool, machine), pool.policy.idle_seconds
    if machine.held or why is None or why.until is None:
        return ""
    is_plain = why.until == (machine.idle_since or 0) + needed * times.SECOND
    return f", after {needed}s idle (idleSeconds)" if is_plain else f", since {why.why}"


def _keepers(world: World, pool: PowerPoolState, node: str) -> list[str]:
    """The pods that keep a machine on."""
    pods = (world.pods.get(uid) for uid in world.pods.by_node[node])
    return sorted(pod.key for pod in pods if pod is not None and _keeps_on(world, pool, pod))


def _keeps_on(world: World, pool: PowerPoolState, pod: Pod) -> bool:
    stays = keeps_machine_on(pod, pool.spec.gpu_resource_name) and not may_be_evicted(world, pool, pod)
    return pod.phase not in ENDED and stays


def _named(world: World, uids: Iterable[str]) -> list[str]:
    return sorted(pod.key for uid in uids if (pod := world.pods.get(uid)) is not None)


def _placed(found: CapacityRound, place: str, pod: Pod) -> PodAnswer | None:
    known = _machines(found).get(place)
    if known is None and not isinstance(found.owners.get(place), PowerSupply | None):
        return None  # whose it is, says so
    if known is None:
        return PodAnswer("Placed", f"It fits on {place}, so no machine wakes for it.", place)
    pool, machine = known
    whose = f"{machine.name} ({of_gpus(machine.gpus)}) of {pool.ref}"
    if machine.state == "Unknown":
        return PodAnswer("Booting", f"It fits on {whose}, which is on and has not joined the cluster yet.", place)
    if machine.state != "Booting":
        return PodAnswer("Placed", f"It fits on {whose}, which is on.", place)
    details = _trial(found, pool, machine, demand.digest_of(pod.shape))
    if machine.woken_at == found.world.now:
        return PodAnswer("Waking", f"{whose} wakes for it.", place, details)
    late = told((machine.woken_at or machine.since) + pool.policy.boot_timeout_seconds * times.SECOND)
    says = f"{whose} has been booting for it since {told(machine.woken_at or machine.since)}; if its node is not Ready by {late}, another machine is tried."
    return PodAnswer("Booting", says, place, details)


def _trial(found: CapacityRound, pool: PowerPoolState, machine: PoolMachine, shape: str) -> tuple[str, ...]:
    verdict = found.verdicts.get(shape)
    if verdict is None or not any((trial.room, trial.shape) == (machine.name, shape) for trial in pool.trials):
        return ()
    says = f"on trial, since {verdict.scheduler} does not place it on {few(verdict.rooms)}"
    return (f"{says}: {quoted(verdict.message)}",)


def _left(found: CapacityRound, pod: Pod) -> PodAnswer | None:
    unit = next((each for each in found.left if _has(each, pod)), None)
    if unit is None:
        return _waiting(found, pod)
    mine = [each for each in found.supplies if isinstance(each, PowerSupply)]
    reasons = [(supply, reason(found, supply, unit)) for supply in mine]
    answers = [(supply.ref, supply.why(unit, word)) for supply, word in reasons if word != "OtherGpus"]
    if not answers:
        return PodAnswer("NoMachineFits", "No PowerPool has machines with the GPUs that it requests.")
    ref, first = answers[0]
    others = tuple(f"{other}: {why.reason}: {why.message}" for other, why in answers[1:])
    return PodAnswer(first.reason, f"{ref} wakes no machine for it: {small(first.message)}", "", others)


def _waiting(found: CapacityRound, pod: Pod) -> PodAnswer | None:
    for supply in found.supplies:
        if isinstance(supply, PowerSupply) and any(_has(unit, pod) for unit in found.waiting.get(supply.ref, ())):
            why = unserved.wake_limit(supply.pool)
            return PodAnswer(why.reason, f"A machine of {supply.ref} wakes for it later: {small(why.message)}")
    return None


def _has(unit: Unit, pod: Pod) -> bool:
    return any(pod.uid in part.pods for part in unit.parts)
