"""Why a pod waits, as far as machines can help it: which one is coming for it, or why none is."""

from __future__ import annotations

from typing import NamedTuple

from headroom.core.demand import Unit
from headroom.core.power import unserved
from headroom.core.power.members import KIND, Member, Pool, told
from headroom.core.power.plan import round_of
from headroom.core.power.serving import Service
from headroom.core.power.waking import declined
from headroom.core.power.wording import of_gpus, small
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
        return _placed(service, place)
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


def _placed(service: Service, place: str) -> Explained:
    known = service.machines.get(place)
    if known is None:
        return Explained("Placed", f"It fits on {place}, so no machine is woken for it.", place)
    pool, it = known
    whose = f"{it.name} ({of_gpus(it.gpus)}) of {pool.ref}"
    if it.state == "Unknown":
        return Explained("Booting", f"It fits on {whose}, which is on and has not joined the cluster yet.", place)
    if it.state != "Booting":
        return Explained("Placed", f"It fits on {whose}, which is on.", place)
    details = _trial(service, pool, it)
    if it.woken_at == service.world.now:
        return Explained("Waking", f"{whose} is being woken for it.", place, details)
    late = told((it.woken_at or it.since) + pool.policy.boot_timeout_seconds * times.SECOND)
    says = f"{whose} boots for it since {told(it.woken_at or it.since)}; if it is not Ready by {late}, another one is tried."
    return Explained("Booting", says, place, details)


def _trial(service: Service, pool: Pool, it: Member) -> tuple[str, ...]:
    shapes = [trial.shape for trial in pool.trials if trial.machine == it.name]
    found = [service.verdicts[shape] for shape in shapes if shape in service.verdicts]
    return tuple(
        f"on trial, since kube-scheduler does not place it on {', '.join(each.rooms)}: {each.message}" for each in found
    )


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
