"""What people are told of a pool: its conditions, its events, and the sentences of the decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from headroom.api.power_status import Unserved
from headroom.api.resources import Condition
from headroom.core.capacity import Outcome
from headroom.core.power import breaking, energy, turns
from headroom.core.power.members import Cordon, Member, Pool, told
from headroom.core.power.sleeping import awake, most_at_once
from headroom.core.power.turns import reason_of
from headroom.core.power.unserved import HALTED, WAKE_LIMIT, fruitless_words
from headroom.core.power.warmth import least_on
from headroom.core.power.wording import few, for_pods, how_many, machines, of_machines, of_pods, quoted, small, whom
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent

TURNS: Final = ("Waking", "Draining", "Sleeping")
"""What is said with how many machines are on."""


class Said(NamedTuple):
    """The reason and the sentences of a decision."""

    reason: str
    message: str
    on_trial: bool = False
    """A machine is woken on trial, and the message quotes why."""


class Verdict(NamedTuple):
    """One standing judgement."""

    type: str
    holds: bool
    reason: str
    message: str


# --- sentences ------------------------------------------------------------------------------------------------------------------


def sentence(outcome: Outcome, pool: Pool) -> Said:
    """What happens in a pool and why: the most important first with how many machines are on, and one thing more if there is one."""
    if pool.halted:
        return Said(pool.halted, f"{_state(pool)}. {HALTED[pool.halted]}")
    found = list(_sentences(outcome, pool))
    if not found:
        return _steady(outcome, pool)
    first = found[0]
    # Where a machine is woken on trial, kube-scheduler was quoted already: those who wait for the outcome have nothing to add.
    said = (first.reason, "Unmodelled") if first.on_trial else (first.reason,)
    more = next((f" {each.message}" for each in found[1:] if each.reason not in said), "")
    if first.reason in TURNS:
        return Said(first.reason, f"{first.message.rstrip('.')}; {how_many(pool)}.{more}")
    return Said(first.reason, f"{first.message}{more}")


def _sentences(outcome: Outcome, pool: Pool) -> Iterator[Said]:
    woken = [it for it in pool.are("Booting") if it.woken_at == pool.now]
    booting = [it for it in pool.are("Booting") if it.woken_at != pool.now]
    if woken:
        yield Said("Waking", f"Waking {_purposes(outcome, pool, woken)}.", any(it.tried_for for it in woken))
    if booting:
        yield Said("Waking", f"{_booting(outcome, pool, booting)}.")
    if pool.unserved:
        yield _unserved(pool, pool.unserved[0])
    if pool.braked:
        yield Said("Braked", _capital(pool.braked))
    draining, sleeping = pool.are("Draining"), pool.are("Sleeping")
    if draining:
        first = min(draining, key=lambda it: (it.idle_since or 0, it.name))
        since = f"idle since {told(first.idle_since)}" if len(draining) == 1 else "idle"
        yield Said("Draining", f"Draining {machines(draining)}, {since}.")
    if sleeping:
        yield Said("Sleeping", f"{machines(sleeping)} {_is(sleeping)} going to sleep.")


def _purposes(outcome: Outcome, pool: Pool, woken: list[Member]) -> str:
    """Whom machines are woken for: those on trial apart from the others, and only the first of them with the reason."""
    plain = [it for it in woken if not it.tried_for]
    tried = [it for it in woken if it.tried_for]
    says = [f"{machines(plain)} {_purpose(outcome, pool, plain)}"] if plain else []
    if tried:
        # A gang may take several.
        first = [it for it in tried if it.tried_for == tried[0].tried_for]
        verdicts = outcome.round.verdicts
        verdict = next((verdicts[shape] for shape in tried[0].tried_for if shape in verdicts), None)
        why = ""
        if verdict is not None:
            refused = f"{verdict.scheduler} does not place {verdict.pod} on {few(verdict.rooms)}, where it would fit"
            why = f": {refused} ({quoted(verdict.message).removesuffix('.')})"
        says.append(f"{machines(first)} on trial {_purpose(outcome, pool, first)}{why}")
        if len(tried) > len(first):
            says.append(f"{machines([it for it in tried if it not in first])} on trial for others")
    return ", and ".join(says)


def _purpose(outcome: Outcome, pool: Pool, woken: list[Member]) -> str:
    uids = [uid for it in woken for uid in outcome.into.get(it.name, ())]
    whom = for_pods(outcome.round.asks(pool.spec.gpu_resource_name), uids, outcome.round.announced)
    return whom if uids else f"since {least_on(pool).why}"


def _booting(outcome: Outcome, pool: Pool, booting: list[Member]) -> str:
    uids = [uid for it in booting for uid in outcome.into.get(it.name, ())]
    since = told(min(it.woken_at or it.since for it in booting))
    purpose = (
        for_pods(outcome.round.asks(pool.spec.gpu_resource_name), uids, outcome.round.announced)
        if uids
        else "and no pod waits for it now"
    )
    return f"{machines(booting)} {'boots' if len(booting) == 1 else 'boot'} since {since} {purpose}"


def _unserved(pool: Pool, first: Unserved) -> Said:
    others = pool.unserved_pods - first.pods
    who = f"Pod {first.pod}" + (f" and {first.pods - 1} like it" if first.pods > 1 else "")
    more = f" {of_pods(others)} more {'waits' if others == 1 else 'wait'} too." if others else ""
    is_one = first.pods == 1
    how = "is unserved" if is_one else "are unserved"
    if first.reason == WAKE_LIMIT:
        how = "waits for its turn" if is_one else "wait for their turn"
    return Said(first.reason, f"{who} {how}: {small(first.message)}{more}")


def _steady(outcome: Outcome, pool: Pool) -> Said:
    waiting = [uid for it in pool.members for uid in outcome.into.get(it.name, ())]
    if waiting:
        names = [it.name for it in pool.members if it.name in outcome.into]
        coming = outcome.round.announced
        if any(uid in coming for uid in waiting):
            fits = f"{whom(waiting, coming)} {'fits' if len(waiting) == 1 else 'fit'} on {few(names)}"
        else:
            fits = f"{of_pods(len(waiting))} that {'waits fits' if len(waiting) == 1 else 'wait fit'} on {few(names)}"
        return Said("Steady", f"{_state(pool)}; {fits}.")
    idle = sorted((it for it in pool.are("On") if it.idle_since is not None), key=lambda it: it.name)
    if not idle:
        return Said("Steady", f"{_state(pool)}.")
    return Said("Steady", f"{_state(pool)}; {_idle(pool, idle)}.")


def _idle(pool: Pool, idle: list[Member]) -> str:
    if len(idle) > 1:
        return f"{few([it.name for it in idle])} are idle"
    [it] = idle
    return f"{it.name} is idle since {told(it.idle_since)} and {staying(pool, it)}"


def staying(pool: Pool, it: Member) -> str:
    """When a machine that is on and that nobody waits for goes to sleep, or why it does not: `may sleep soon`."""
    if it.cordon in (Cordon.OURS, Cordon.LIFTED):
        return "gets new pods again: its cordon is being lifted"
    if it.held:
        return f"stays on: {it.held}"
    why = awake(pool, it)
    if why is not None:
        return f"may sleep from {told(why.until)} on" if why.until is not None else f"stays on, since {why.why}"
    least = least_on(pool)
    if len(pool.are("On")) <= least.machines:
        return f"stays on, since {least.why}" + (" (minOn, keepOn)" if least.machines == pool.floor else "")
    if pool.braked:
        return f"does not sleep yet: {small(pool.braked).removesuffix('.')}"
    going = len(pool.are("Draining", "Sleeping"))
    if going >= most_at_once(pool):
        says = f"{of_machines(going)} {'is' if going == 1 else 'are'} going to sleep, and no more may at a time"
        return f"sleeps in its turn: {says} (maxConcurrentSleeps)"
    return "may sleep soon"


def _state(pool: Pool) -> str:
    failed = pool.are("Failed")
    return how_many(pool) + (
        f", {few([it.name for it in failed])} {'has' if len(failed) == 1 else 'have'} failed" if failed else ""
    )


def _is(members: list[Member]) -> str:
    return "is" if len(members) == 1 else "are"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- conditions and events ------------------------------------------------------------------------------------------------------


def verdicts(pool: Pool) -> Iterator[Verdict]:
    """All that may hold beside `Ready`."""
    failed = pool.are("Failed")
    says = " ".join(f"{it.name}: {reason_of(pool, it)}" for it in failed[:3]) + (
        f" And {len(failed) - 3} more." if len(failed) > 3 else ""
    )
    yield Verdict(
        "MachinesFailed",
        bool(failed),
        "MachinesFailed" if failed else "NoneFailed",
        says or "Every machine did what it was told.",
    )
    first = next((each for each in pool.unserved if each.reason != WAKE_LIMIT), None)
    yield Verdict(
        "Unserved",
        first is not None,
        first.reason if first else "AllServed",
        _unserved(pool, first).message if first else "No pod is unserved.",
    )
    named = sorted(pool.shared)
    yield Verdict(
        "SharedWithKarpenter",
        bool(named),
        "NodePoolCouldServe" if named else "NothingShared",
        f"Pods wait that Karpenter could serve (NodePool {few(named)}), so no machine is woken for them."
        if named
        else "No pod waits that Karpenter could serve.",
    )
    yield Verdict(
        "Braked",
        bool(pool.braked),
        "ManyTurnedIdle" if pool.braked else "NotBraked",
        _capital(pool.braked) or "Machines may sleep.",
    )
    yield _boots(pool)
    yield _fruitless(pool)
    clash = [f"{name} belongs to PowerPool/{other}" for name, other in sorted(pool.elsewhere.items())]
    yield Verdict(
        "Conflict",
        bool(clash),
        "NamedTwice" if clash else "NamedOnce",
        f"Machines are left alone that another pool names first: {few(clash)}."
        if clash
        else "No other pool names its machines.",
    )


def _boots(pool: Pool) -> Verdict:
    if pool.boots_failed < breaking.IN_A_ROW:
        return Verdict("BootsFailing", False, "MachinesJoin", "Machines that are woken join.")
    tries = f"none is woken before {told(pool.breaker_until)}" if breaking.is_open(pool) else "one is woken at a time"
    says = f"The last {pool.boots_failed} machines that were woken did not join, so {tries}."
    return Verdict("BootsFailing", True, "NoneJoined", says)


def _fruitless(pool: Pool) -> Verdict:
    # Of namespaces for which machines of other pools were woken, those tell.
    barred = sorted(name for name in pool.fruitless if name in pool.rations and not pool.rations[name].pods)
    if not barred:
        return Verdict("FruitlessWakes", False, "WakesAreOfUse", "Machines that are woken are used.")
    return Verdict("FruitlessWakes", True, "NamespacesBarred", fruitless_words(pool, barred))


def judged(pool: Pool, ready: Condition) -> tuple[Condition, ...]:
    """The conditions: those beside `Ready` only once they hold, and from then on."""
    resource, known = pool.resource, pool.before.conditions
    found = [
        conditions.judged(resource, each.type, each.holds, each.reason, each.message, pool.now)
        for each in verdicts(pool)
        if each.holds or conditions.find(known, each.type) is not None
    ]
    ours = {"Ready", *(each.type for each in found)}
    return (ready, *(each for each in known if each.type not in ours), *found)


def events(pool: Pool, outcome: Outcome) -> Iterator[Action]:
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
