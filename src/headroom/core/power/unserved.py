"""Unserved pods: how many, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from headroom.api.power_status import Unserved
from headroom.core import demand
from headroom.core.capacity import CapacityRound, SupplyOutcome, TrialRecord, Why, next_trial_at
from headroom.core.demand import Room, RoomResources, Unit
from headroom.core.power import breaking, coming, fruitless
from headroom.core.power.members import Cordon, PoolMachine, PowerPoolState, told
from headroom.core.power.waking import Bar, bars
from headroom.core.power.wording import few, of_machines, of_pods, quoted, small
from headroom.model.facts import Pod, Shape
from headroom.model.world import World

MOST: Final = 10
LONGEST: Final = 2048
WAKE_LIMIT: Final = "WakeLimit"
SILENT: Final = ("OtherGpus", "BudgetExhausted")
"""Why a pool has nothing to say of a pod: it is not for its machines, or a budget says it all."""
HALTED: Final = {
    "Stopped": "All effects are stopped cluster-wide.",
    "Paused": "The pool is paused.",
    "Deleting": "The pool is being deleted.",
}


class PoolCapacity(NamedTuple):
    """The machines of a pool, as far as it matters who of them could hold a pod."""

    kinds: list[tuple[Room, list[str]]]
    """With nothing on them; those that differ only by name together, the largest first."""
    barred: Mapping[str, Bar]
    """Those that may not be woken now."""
    doing: Mapping[str, str]
    """What each of them is doing, as people say it."""
    resources: RoomResources | None = None
    """What rooms have beside what nodes say, where pods ask for it."""


def tell(pool: PowerPoolState, outcome: SupplyOutcome) -> None:
    """Write into a pool what it does not serve."""
    late, node_pool_for = outcome.waiting, outcome.round.node_pool_for
    concerned = [(unit, reason) for unit, reason in outcome.unserved if reason not in SILENT]
    pool.unserved_pods = sum(unit.count for unit in (*late, *(unit for unit, _ in concerned)))
    pool.wants = pool.wants or bool(pool.unserved_pods)
    told = [(unit, wake_limit(pool)) for unit in late[:MOST]]
    fleet = fleet_of(pool, outcome.round) if concerned else PoolCapacity([], {}, {})
    told += [(unit, why(pool, outcome, unit, reason, fleet)) for unit, reason in concerned[:MOST]]
    told.sort(key=lambda pair: pair[0].queue_position)
    pool.unserved = [
        Unserved(pod=unit.first, pods=unit.count, reason=found.reason, message=found.message[:LONGEST])
        for unit, found in told[:MOST]
    ]
    _tell_unnamed(pool, outcome.round)
    pool.shared = {node_pool_for(unit) for unit, reason in concerned if reason == "SharedWithKarpenter"}


def _tell_unnamed(pool: PowerPoolState, round_: CapacityRound) -> None:
    """Pods that claim GPUs like this pool's by a class that no pool names: no demand, but somebody should know."""
    uids, left_out = round_.wanted.unnamed.get(pool.spec.gpu_resource_name, ()), round_.wanted.left_out
    pods = sorted((pod for uid in uids if (pod := round_.world.pods.get(uid)) is not None), key=lambda pod: pod.key)
    pool.unserved_pods += len(pods)
    alike: dict[tuple[str, ...], list[Pod]] = {}
    for pod in pods:
        alike.setdefault(left_out[pod.uid].classes, []).append(pod)
    for first, *others in list(alike.values())[: MOST - len(pool.unserved)]:
        left = left_out[first.uid]
        pool.unserved.append(
            Unserved(pod=first.key, pods=1 + len(others), reason=left.reason, message=left.message[:LONGEST])
        )


def why(pool: PowerPoolState, outcome: SupplyOutcome, unit: Unit, reason: str, fleet: PoolCapacity) -> Why:
    """Why a pool wakes nothing for a unit, the round's reason as a sentence."""
    if reason == "BelowPriorityFloor":
        return Why(reason, f"Its priority {unit.priority} is below the pool's floor of {pool.policy.priority_floor}.")
    if reason == "SharedWithKarpenter":
        serves = demand.served_words(outcome.round.world, outcome.round.node_pool_for(unit))
        says = f"{serves}, and the pool leaves such pods to Karpenter (shareWithKarpenter)."
        return Why(reason, says)
    if reason == "BudgetExhausted":
        return Why(
            reason, "Its budget is over quota, and the pool wakes no machine for such pods (wakeForExhaustedBudgets)."
        )
    if reason == "FruitlessWakes":
        return Why(
            reason, f"{fruitless_words(pool, {name.partition('/')[0] for part in unit.parts for name in part.names})}"
        )
    if reason in HALTED:
        return Why(reason, HALTED[reason])
    if reason == "Unmodelled":
        return _unmodelled(outcome, unit)
    return _too_few(unit, fleet) if pool.members else _named_elsewhere(pool)


def fruitless_words(pool: PowerPoolState, namespaces: Collection[str]) -> str:
    """Why machines wake for few pods of some namespaces, or none, as a sentence."""
    named = sorted(pool.rations.keys() & set(namespaces))
    ends = f" before {told(pool.ration_ends_at)}" if pool.ration_ends_at is not None else ""
    spaces = f"namespace{'' if len(named) == 1 else 's'} {few(named)}"
    return (
        f"Machines that woke or stayed on for pods of {spaces} went to sleep again without running one, "
        f"so at most {fruitless.AN_HOUR} wake in an hour, fewer each time, and no more{ends}."
    )


def wake_limit(pool: PowerPoolState) -> Why:
    """Why a machine that could be woken is not yet."""
    booting = len(pool.are("Booting"))
    why = "maxConcurrentWakes"
    if breaking.at_once(pool) is not None:
        why = f"the last {pool.boots_failed} did not join"
    return Why(
        WAKE_LIMIT,
        f"{of_machines(booting)} {'is' if booting == 1 else 'are'} booting, the most at a time ({why}).",
    )


def _unmodelled(outcome: SupplyOutcome, unit: Unit) -> Why:
    verdicts, standing = outcome.round.verdicts, outcome.round.tried
    verdict = next((verdicts[part.digest] for part in unit.parts if part.digest in verdicts), None)
    tried = next((standing[part.digest] for part in unit.parts if part.digest in standing), None)
    says = []
    if verdict is not None:
        where = f"{verdict.scheduler} does not place it on {few(verdict.rooms)}, where it would fit"
        says.append(f"{where}: {quoted(verdict.message)}")
    if tried is not None:
        says.append(_tried(outcome.round.world, unit, tried))
    else:
        says.append("No machine can wake on trial now.")
    return Why("Unmodelled", " ".join(says))


def _tried(world: World, unit: Unit, tried: TrialRecord) -> str:
    machine = tried.trial.room
    if tried.runs:
        return f"{machine} is on trial, and no other machine wakes until such a pod is bound."
    until = next_trial_at(world, unit.parts[0], tried)
    if until > world.now:
        return f"{machine} did not help such pods, so no machine is tried for them before {told(until)}."
    return f"{machine} did not help such pods, and no other machine can wake on trial now."


# --- too few, too small, or the wrong ones --------------------------------------------------------------------------------------


def _named_elsewhere(pool: PowerPoolState) -> Why:
    others = sorted({f"PowerPool/{name}" for name in pool.elsewhere.values()})
    return Why("NoMachineFits", f"The pool owns none of its machines: {few(others)} come before it (order, then name).")


def _too_few(unit: Unit, fleet: PoolCapacity) -> Why:
    able: set[str] = set()
    for part in unit.parts:
        holds = _able(fleet.kinds, part.shape)
        if not holds:
            rooms = [room for room, _ in fleet.kinds]
            if fleet.resources is not None and (lacking := fleet.resources.lacking(part.shape, rooms)) is not None:
                return Why(*lacking)
            nearest = demand.impossible([unit], rooms).get(part.digest, "")
            return Why(
                "NoMachineFits", f"No machine of the pool can hold it{f': {small(nearest)}' if nearest else '.'}"
            )
        able |= holds
    doing = _doing(fleet, able)
    if unit.gang:
        says = f"Its gang of {of_pods(unit.count)} does not fit on {of_machines(len(able))}: {doing}."
        return Why("NotEnoughMachines", says)
    return Why("NotEnoughMachines", f"Of {of_machines(len(able))} that could hold it, {doing}.")


def fleet_of(pool: PowerPoolState, round_: CapacityRound) -> PoolCapacity:
    """The machines of a pool."""
    found: dict[object, tuple[Room, list[str]]] = {}
    barred = bars(pool)
    for machine in sorted(pool.members, key=lambda each: (-each.gpus, each.name)):
        room = round_.furnished(pool.closed.get(machine.name) or coming.emptied(pool, machine), emptied=True)
        labels = tuple(pair for pair in room.labels if pair[0] != coming.HOSTNAME)
        found.setdefault((labels, room.taints, room.free, room.partly_known), (room, []))[1].append(machine.name)
    doing = {machine.name: _spoken(machine, machine.name in barred) for machine in pool.members}
    return PoolCapacity(list(found.values()), barred, doing, round_.resources)


def _able(kinds: list[tuple[Room, list[str]]], shape: Shape) -> set[str]:
    """The machines that could hold such a pod."""
    able: set[str] = set()
    for room, names in kinds:
        if _is_picky(shape):
            able |= {name for name in names if not demand.why_not(shape, coming.renamed(room, name))}
        elif not demand.why_not(shape, room):
            able.update(names)
    return able


def _is_picky(shape: Shape) -> bool:
    """Whether a pod may ask for a node by its name."""
    return (
        "hostname" in shape.affinity
        or "metadata.name" in shape.affinity
        or coming.HOSTNAME in dict(shape.node_selector)
    )


def _doing(fleet: PoolCapacity, names: set[str]) -> str:
    words = Counter(fleet.doing[name] for name in names)
    told = [f"{count} {'is' if count == 1 else 'are'} {word}" for word, count in sorted(words.items())]
    barred = min(names & fleet.barred.keys(), default="")
    return f"{few(told)} ({barred}: {fleet.barred[barred].why})" if barred else few(told)


def _spoken(machine: PoolMachine, barred: bool) -> str:
    if machine.state == "On":
        return _on(machine)
    if machine.state == "Booting":
        return "booting for others"
    if machine.state in ("Draining", "Sleeping"):
        return "going to sleep"
    return "barred from waking" if barred else "off"


def _on(machine: PoolMachine) -> str:
    if machine.gpus_shown < machine.gpus:
        return f"on with {machine.gpus_shown} of {machine.gpus} GPUs"
    if machine.cordon is not Cordon.NOBODY:
        return "on and cordoned"
    return "on and full" if machine.busy else "on"
