"""What people read about a pool: its conditions, its events, and the sentences of the decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from headroom.api.power_status import Unserved
from headroom.api.resources import Condition
from headroom.core.capacity import SupplyOutcome
from headroom.core.power import breaking, energy, turns
from headroom.core.power.members import Cordon, PoolMachine, PowerPoolState, told
from headroom.core.power.sleeping import awake, most_at_once
from headroom.core.power.turns import reason_of
from headroom.core.power.unserved import HALTED, WAKE_LIMIT, fruitless_words
from headroom.core.power.warmth import least_on
from headroom.core.power.wording import few, for_pods, how_many, machines, of_machines, quoted, small, whom
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent

TURNS: Final = ("Waking", "Draining", "Sleeping")
"""What is said with how many machines are on."""


class PoolMessages(NamedTuple):
    """The reason and the sentences of a decision."""

    reason: str
    message: str
    on_trial: bool = False
    """A machine is woken on trial, and the message quotes why."""


class PoolCondition(NamedTuple):
    """One standing judgement."""

    type: str
    holds: bool
    reason: str
    message: str


# --- sentences ------------------------------------------------------------------------------------------------------------------


def sentence(outcome: SupplyOutcome, pool: PowerPoolState) -> PoolMessages:
    """What happens in a pool and why: the most important first with how many machines are on, and one thing more if there is one."""
    if pool.halted:
        return PoolMessages(pool.halted, f"{_state(pool)}. {HALTED[pool.halted]}")
    found = list(_sentences(outcome, pool))
    if not found:
        return _steady(outcome, pool)
    first = found[0]
    # Where a machine is woken on trial, kube-scheduler was quoted already: the pods that depend on the outcome have nothing to add.
    said = (first.reason, "Unmodelled") if first.on_trial else (first.reason,)
    more = next((f" {each.message}" for each in found[1:] if each.reason not in said), "")
    if first.reason in TURNS:
        return PoolMessages(first.reason, f"{first.message.rstrip('.')}; {how_many(pool)}.{more}")
    return PoolMessages(first.reason, f"{first.message}{more}")


def _sentences(outcome: SupplyOutcome, pool: PowerPoolState) -> Iterator[PoolMessages]:
    woken = [machine for machine in pool.are("Booting") if machine.woken_at == pool.now]
    booting = [machine for machine in pool.are("Booting") if machine.woken_at != pool.now]
    if woken:
        yield PoolMessages(
            "Waking", f"Waking {_purposes(outcome, pool, woken)}.", any(machine.tried_for for machine in woken)
        )
    if booting:
        yield PoolMessages("Waking", f"{_booting(outcome, pool, booting)}.")
    if pool.unserved:
        yield _unserved(pool, pool.unserved[0])
    if pool.braked:
        yield PoolMessages("Braked", _capital(pool.braked))
    draining, sleeping = pool.are("Draining"), pool.are("Sleeping")
    if draining:
        first = min(draining, key=lambda machine: (machine.idle_since or 0, machine.name))
        since = f"idle since {told(first.idle_since)}" if len(draining) == 1 else "idle"
        yield PoolMessages("Draining", f"Draining {machines(draining)}, {since}.")
    if sleeping:
        yield PoolMessages("Sleeping", f"{machines(sleeping)} {_is(sleeping)} going to sleep.")


def _purposes(outcome: SupplyOutcome, pool: PowerPoolState, woken: list[PoolMachine]) -> str:
    """Whom machines are woken for: those on trial apart from the others, and only the first of them with the reason."""
    plain = [machine for machine in woken if not machine.tried_for]
    tried = [machine for machine in woken if machine.tried_for]
    says = [f"{machines(plain)} {_purpose(outcome, pool, plain)}"] if plain else []
    if tried:
        # A gang may take several.
        first = [machine for machine in tried if machine.tried_for == tried[0].tried_for]
        verdicts = outcome.round.verdicts
        verdict = next((verdicts[shape] for shape in tried[0].tried_for if shape in verdicts), None)
        why = ""
        if verdict is not None:
            refused = f"{verdict.scheduler} does not place {verdict.pod} on {few(verdict.rooms)}, where it would fit"
            why = f": {refused} ({quoted(verdict.message).removesuffix('.')})"
        says.append(f"{machines(first)} on trial {_purpose(outcome, pool, first)}{why}")
        if len(tried) > len(first):
            says.append(f"{machines([machine for machine in tried if machine not in first])} on trial for others")
    return ", and ".join(says)


def _purpose(outcome: SupplyOutcome, pool: PowerPoolState, woken: list[PoolMachine]) -> str:
    uids = [uid for machine in woken for uid in outcome.into.get(machine.name, ())]
    whom = for_pods(outcome.round.asks(pool.spec.gpu_resource_name), uids, outcome.round.announced)
    return whom if uids else f"since {least_on(pool).why}"


def _booting(outcome: SupplyOutcome, pool: PowerPoolState, booting: list[PoolMachine]) -> str:
    uids = [uid for machine in booting for uid in outcome.into.get(machine.name, ())]
    since = told(min(machine.woken_at or machine.since for machine in booting))
    purpose = (
        for_pods(outcome.round.asks(pool.spec.gpu_resource_name), uids, outcome.round.announced)
        if uids
        else "with no pending pod left for it"
    )
    return f"{machines(booting)} {'has' if len(booting) == 1 else 'have'} been booting since {since} {purpose}"


def _unserved(pool: PowerPoolState, first: Unserved) -> PoolMessages:
    others = pool.unserved_pods - first.pods
    who = f"Pod {first.pod}" + (f" and {first.pods - 1} like it" if first.pods > 1 else "")
    more = f" {others} more {'pod is' if others == 1 else 'pods are'} unserved." if others else ""
    is_one = first.pods == 1
    how = "is unserved" if is_one else "are unserved"
    if first.reason == "SharedWithKarpenter":
        how = "is left to Karpenter" if is_one else "are left to Karpenter"
    if first.reason == WAKE_LIMIT:
        how = "is next" if is_one else "are next"
    return PoolMessages(first.reason, f"{who} {how}: {small(first.message)}{more}")


def _steady(outcome: SupplyOutcome, pool: PowerPoolState) -> PoolMessages:
    waiting = [uid for machine in pool.members for uid in outcome.into.get(machine.name, ())]
    if waiting:
        names = [machine.name for machine in pool.members if machine.name in outcome.into]
        coming = outcome.round.announced
        if any(uid in coming for uid in waiting):
            fits = f"{whom(waiting, coming)} {'fits' if len(waiting) == 1 else 'fit'} on {few(names)}"
        else:
            plural = "pod fits" if len(waiting) == 1 else "pods fit"
            fits = f"{len(waiting)} pending {plural} on {few(names)}"
        return PoolMessages("Steady", f"{_state(pool)}; {fits}.")
    idle = sorted(
        (machine for machine in pool.are("On") if machine.idle_since is not None), key=lambda machine: machine.name
    )
    if not idle:
        return PoolMessages("Steady", f"{_state(pool)}.")
    return PoolMessages("Steady", f"{_state(pool)}; {_idle(pool, idle)}.")


def _idle(pool: PowerPoolState, idle: list[PoolMachine]) -> str:
    if len(idle) > 1:
        return f"{few([machine.name for machine in idle])} are idle"
    [machine] = idle
    return f"{machine.name} has been idle since {told(machine.idle_since)} and {staying(pool, machine)}"


def staying(pool: PowerPoolState, machine: PoolMachine) -> str:
    """When an idle machine goes to sleep, or why it does not: `may sleep soon`."""
    if machine.cordon in (Cordon.OURS, Cordon.LIFTED):
        return "gets new pods again: its cordon is being removed"
    if machine.held:
        return f"stays on: {machine.held}"
    why = awake(pool, machine)
    if why is not None:
        return f"may sleep from {told(why.until)} on" if why.until is not None else f"stays on, since {why.why}"
    least = least_on(pool)
    if len(pool.are("On")) <= least.machines:
        return f"stays on, since {least.why}" + (" (minOn, keepOn)" if least.machines == pool.floor else "")
    if pool.braked:
        return f"does not sleep yet: {small(pool.braked).removesuffix('.')}"
    going = len(pool.are("Draining", "Sleeping"))
    if going >= most_at_once(pool):
        says = f"{of_machines(going)} {'is' if going == 1 else 'are'} going to sleep, the most at a time"
        return f"sleeps later: {says} (maxConcurrentSleeps)"
    return "may sleep soon"


def _state(pool: PowerPoolState) -> str:
    failed = pool.are("Failed")
    return how_many(pool) + (
        f", {few([machine.name for machine in failed])} {'has' if len(failed) == 1 else 'have'} failed"
        if failed
        else ""
    )


def _is(members: list[PoolMachine]) -> str:
    return "is" if len(members) == 1 else "are"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- conditions and events ------------------------------------------------------------------------------------------------------


def verdicts(pool: PowerPoolState) -> Iterator[PoolCondition]:
    """All that may hold beside `Ready`."""
    failed = pool.are("Failed")
    says = " ".join(f"{machine.name}: {reason_of(pool, machine)}" for machine in failed[:3]) + (
        f" And {len(failed) - 3} more." if len(failed) > 3 else ""
    )
    yield PoolCondition(
        "MachinesFailed",
        bool(failed),
        "MachinesFailed" if failed else "NoneFailed",
        says or "No machine failed.",
    )
    first = next((each for each in pool.unserved if each.reason != WAKE_LIMIT), None)
    yield PoolCondition(
        "Unserved",
        first is not None,
        first.reason if first else "AllServed",
        _unserved(pool, first).message if first else "No pod is unserved.",
    )
    named = sorted(pool.shared)
    yield PoolCondition(
        "SharedWithKarpenter",
        bool(named),
        "NodePoolCouldServe" if named else "NothingShared",
        f"Karpenter can serve pending pods (NodePool {few(named)}), so no machine wakes for them."
        if named
        else "Karpenter can serve no pending pod.",
    )
    yield PoolCondition(
        "Braked",
        bool(pool.braked),
        "ManyTurnedIdle" if pool.braked else "NotBraked",
        _capital(pool.braked) or "Machines may sleep.",
    )
    yield _boots(pool)
    yield _fruitless(pool)
    clash = [f"{name} belongs to PowerPool/{other}" for name, other in sorted(pool.elsewhere.items())]
    yield PoolCondition(
        "Conflict",
        bool(clash),
        "NamedTwice" if clash else "NamedOnce",
        f"Machines that another pool owns are left alone: {few(clash)}."
        if clash
        else "No other pool names its machines.",
    )


def _boots(pool: PowerPoolState) -> PoolCondition:
    if pool.boots_failed < breaking.IN_A_ROW:
        return PoolCondition("BootsFailing", False, "MachinesJoin", "Machines join after they wake.")
    tries = f"none wakes before {told(pool.breaker_until)}" if breaking.is_open(pool) else "one wakes at a time"
    says = f"The last {pool.boots_failed} machines did not join after they woke, so {tries}."
    return PoolCondition("BootsFailing", True, "NoneJoined", says)


def _fruitless(pool: PowerPoolState) -> PoolCondition:
    # Of namespaces for which machines of other pools were woken, those tell.
    barred = sorted(name for name in pool.fruitless if name in pool.rations and not pool.rations[name].pods)
    if not barred:
        return PoolCondition("FruitlessWakes", False, "WakesAreOfUse", "Machines that wake are used.")
    return PoolCondition("FruitlessWakes", True, "NamespacesBarred", fruitless_words(pool, barred))


def judged(pool: PowerPoolState, ready: Condition) -> tuple[Condition, ...]:
    """The conditions: those beside `Ready` only once they hold, and from then on."""
    resource, known = pool.resource, pool.before.conditions
    found = [
        conditions.judged(resource, each.type, each.holds, each.reason, each.message, pool.now)
        for each in verdicts(pool)
        if each.holds or conditions.find(known, each.type) is not None
    ]
    ours = {"Ready", *(each.type for each in found)}
    return (ready, *(each for each in known if each.type not in ours), *found)


def events(pool: PowerPoolState, outcome: SupplyOutcome) -> Iterator[Action]:
    """One for each machine that turned, and one if what was counted is lost."""
    opened = {each.name: each for each in outcome.opened}
    for it in pool.members:
        for news in it.news:
            yield EmitEvent(
                object=str(pool.ref),
                event_type="Warning" if turns.warns(news) else "Normal",
                reason=turns.EVENTS[news.state],
                message=f"{news.machine} {turns.event(pool, outcome.round, it, news, opened.get(it.name))}",
                machine=news.machine,
            )
    lost = energy.lost(pool.before.energy)
    if lost:
        yield EmitEvent(object=str(pool.ref), event_type="Warning", reason="EnergyLost", message=lost)
