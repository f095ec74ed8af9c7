"""Why a pod waits, as far as machines can help it: which one is coming for it, or why none is; and why a machine is on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headroom.core import demand
from headroom.core.demand import Unit
from headroom.core.power import unserved
from headroom.core.power.idling import ENDED, ITS_OWN, may_be_evicted
from headroom.core.power.members import KIND, Member, Pool, told
from headroom.core.power.plan import round_of
from headroom.core.power.serving import Service
from headroom.core.power.sleeping import awake
from headroom.core.power.telling import staying
from headroom.core.power.unserved import HALTED
from headroom.core.power.waking import declined
from headroom.core.power.wording import few, of_gpus, of_pods, quoted, small
from headroom.model import times
from headroom.model.facts import Pod
from headroom.model.world import World


class Explained(NamedTuple):
    """What power has to say of a pod that waits."""

    state: str
    """In one word: Waking, Booting, Placed, a reason why nothing is woken, or why it needs nothing."""
    sentence: str
    machine: str = ""
    """The machine or node that it will go to."""
    details: tuple[str, ...] = ()


def explained(world: World, pod: Pod) -> Explained | None:
    """What there is to say of a pod without a node; None where no pool has anything to do with it."""
    if pod.node or not world.of_kind(KIND):
        return None
    service = round_of(world)
    left_out = service.wanted.left_out.get(pod.uid)
    place = next((name for name, uids in service.into.items() if pod.uid in uids), "")
    if place:
        return _placed(service, place, pod)
    is_held = pod.uid not in service.exhausted or not any(
        pool.policy.wake_for_exhausted_budgets for pool in service.pools
    )
    if left_out is not None and is_held:
        return Explained(left_out.reason, f"No machine is woken for it: {small(left_out.message)}")
    return _left(service, pod)


def served(world: World) -> dict[str, str]:
    """Pods that need nobody else's help, since a machine of a pool is on or coming for them: uid to machine."""
    service = round_of(world)
    return {uid: name for name, uids in service.into.items() if name in service.machines for uid in uids}


def holding(world: World, name: str) -> tuple[str, ...]:
    """What keeps a machine on that is on, or when it goes to sleep and what holds it up: a clause each, none for others."""
    service = round_of(world)
    known = service.machines.get(name)
    if known is None or known[1].state not in ("On", "Draining"):
        return ()
    pool, it = known
    if it.busy:
        return (f"kept on by {few(_keepers(world, pool, name))}",)
    found = []
    nominated = [uid for uid, why in service.wanted.left_out.items() if why.reason == "Nominated"]
    coming = [pod for uid in nominated if (pod := world.pods.get(uid)) is not None and pod.nominated_node == name]
    if coming:
        found.append(f"kept on for {few(sorted(pod.key for pod in coming))}, as room is being made there by preemption")
    elif it.name in service.into:
        found.append(f"kept on for {of_pods(len(service.into[name]))} that will fit on it")
    elif pool.halted:
        found.append(f"stays as it is: {small(HALTED[pool.halted]).removesuffix('.')}")
    elif it.state == "Draining":
        found.append("goes to sleep once it is empty, unless a pod comes")
    else:
        found.append(staying(pool, it) + _until_when(pool, it))
    if it.lodgers:
        found.append(f"to be evicted first: {few(_named(world, it.lodgers))}")
    return tuple(found)


def _until_when(pool: Pool, it: Member) -> str:
    """Why it does not sleep before a moment that was just told."""
    why, needed = awake(pool, it), pool.policy.idle_seconds
    if it.held or why is None or why.until is None:
        return ""
    is_plain = why.until == (it.idle_since or 0) + needed * times.SECOND
    return f", when it was idle for {needed} s (idleSeconds)" if is_plain else f", since {why.why}"


def _keepers(world: World, pool: Pool, node: str) -> list[str]:
    """The pods that keep a machine on."""
    pods = (world.pods.get(uid) for uid in world.pods.by_node[node])
    return sorted(pod.key for pod in pods if pod is not None and _keeps_on(world, pool, pod))


def _keeps_on(world: World, pool: Pool, pod: Pod) -> bool:
    is_its_own = pod.owner is not None and pod.owner.kind in ITS_OWN
    return pod.phase not in ENDED and not is_its_own and not may_be_evicted(world, pool, pod)


def _named(world: World, uids: Iterable[str]) -> list[str]:
    return sorted(pod.key for uid in uids if (pod := world.pods.get(uid)) is not None)


def _placed(service: Service, place: str, pod: Pod) -> Explained:
    known = service.machines.get(place)
    if known is None:
        return Explained("Placed", f"It fits on {place}, so no machine is woken for it.", place)
    pool, it = known
    whose = f"{it.name} ({of_gpus(it.gpus)}) of {pool.ref}"
    if it.state == "Unknown":
        return Explained("Booting", f"It fits on {whose}, which is on and has not joined the cluster yet.", place)
    if it.state != "Booting":
        return Explained("Placed", f"It fits on {whose}, which is on.", place)
    details = _trial(service, pool, it, demand.digest_of(pod.shape))
    if it.woken_at == service.world.now:
        return Explained("Waking", f"{whose} is to be woken for it.", place, details)
    late = told((it.woken_at or it.since) + pool.policy.boot_timeout_seconds * times.SECOND)
    says = f"{whose} boots for it since {told(it.woken_at or it.since)}; if it is not Ready by {late}, another one is tried."
    return Explained("Booting", says, place, details)


def _trial(service: Service, pool: Pool, it: Member, shape: str) -> tuple[str, ...]:
    verdict = service.verdicts.get(shape)
    if verdict is None or not any((trial.machine, trial.shape) == (it.name, shape) for trial in pool.trials):
        return ()
    says = f"on trial, since {verdict.scheduler} does not place it on {few(verdict.rooms)}"
    return (f"{says}: {quoted(verdict.message)}",)


def _left(service: Service, pod: Pod) -> Explained | None:
    unit = next((each for each in service.left if _has(each, pod)), None)
    if unit is None:
        return _held_back(service, pod)
    answers = []
    for pool in service.pools:
        if declined(service, pool, unit) != "OtherGpus":
            why = unserved.why(service, pool, unit, unserved.fleet_of(service, pool))
            answers.append((pool, why))
    if not answers:
        return Explained("NoMachineFits", "No PowerPool has machines with the GPUs that it asks for.")
    pool, first = answers[0]
    others = tuple(f"{other.ref}: {why.reason}: {why.message}" for other, why in answers[1:])
    return Explained(first.reason, f"{pool.ref} wakes no machine for it: {small(first.message)}", "", others)


def _held_back(service: Service, pod: Pod) -> Explained | None:
    for pool in service.pools:
        if any(_has(unit, pod) for unit in service.held_back.get(pool.ref.name, ())):
            why = unserved.wake_limit(pool)
            return Explained(why.reason, f"A machine of {pool.ref} wakes for it in its turn: {small(why.message)}")
    return None


def _has(unit: Unit, pod: Pod) -> bool:
    return any(pod.uid in part.pods for part in unit.parts)
