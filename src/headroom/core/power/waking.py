"""Which machines are woken: the cheapest set that holds what is left, pool by pool, and as many as must stay on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from headroom.core import demand
from headroom.core.demand import Candidate, Chosen, Room, Unit
from headroom.core.power import coming, energy, states, trials, warmth
from headroom.core.power.members import Cordon, Member, Pool, told
from headroom.core.power.serving import Service, is_judged, keep_on, seat, without
from headroom.core.power.wording import for_pods, of_gpus
from headroom.model import times
from headroom.model.actions import WakeMachine

MOST_TRIALS_AT_ONCE: Final = 8
NOTHING: Final = (0, 0, 0)
ASLEEP: Final = ("Off", "Unknown", "Failed")
UNWANTED: Final = ("BelowPriorityFloor", "BudgetExhausted", "SharedWithKarpenter")
"""Why nothing is woken for pods that would take whatever is on."""


class Bar(NamedTuple):
    """Why a machine may not be woken now, and when that ends by itself."""

    why: str
    until: int | None = None


def serve(service: Service) -> None:
    """Wake what is needed, and no more."""
    # First with machines that did what they were told, of whichever pool: one that fails passes on what it was to serve.
    for has_failed in (False, True):
        for pool in service.pools:
            _serve_from(service, pool, {it.name for it in pool.members if bool(it.failures) == has_failed})
    left, used = list(service.left), set(service.into)
    seat(service)
    _try_out(service)
    # Who only takes what is free on its way puts nothing to use: for them nothing is woken, nor anything instead of what they take.
    used = used.union(*service.seated.values())
    for pool in service.pools:
        if not pool.halted:
            warmth.measure(pool, sum(it.busy or it.name in used for it in pool.members))
            _keep_floor(service, pool, [unit for unit in left if declined(service, pool, unit) in UNWANTED])


def bar(pool: Pool, it: Member) -> Bar | None:
    """Why a machine that is not on may not be woken now; None if it may."""
    now, policy = pool.now, pool.policy
    if it.cordon is Cordon.FOREIGN:
        return Bar("its node is cordoned, and not by Headroom")
    if it.retry_after is not None and it.retry_after > now:
        return Bar(f"it failed {it.failures} times in a row, so not before {told(it.retry_after)}", it.retry_after)
    if it.state == "Unknown" and (it.is_up or states.may_still_join_until(it, pool.boot_ms) > now):
        return Bar("nobody knows yet whether it is on", states.may_still_join_until(it, pool.boot_ms))
    rested = (it.slept_at or 0) + policy.min_off_seconds * times.SECOND
    if it.slept_at is not None and rested > now:
        return Bar(f"it was sent to sleep at {told(it.slept_at)}, so not before {told(rested)} (minOffSeconds)", rested)
    lately = it.lately(now)
    if len(lately) >= policy.toggles_per_hour:
        until = lately[-policy.toggles_per_hour] + times.HOUR
        return Bar(f"it was switched {len(lately)} times in an hour, so not before {told(until)}", until)
    return None


def declined(service: Service, pool: Pool, unit: Unit) -> str:
    """Why a pool does not serve a unit whatever its machines are doing, as one word; empty if it may."""
    resource = pool.spec.gpu_resource_name
    if not all(any(name == resource for name, _ in part.shape.requests) for part in unit.parts):
        return "OtherGpus"
    if unit.parts[0].pods[0] in service.exhausted and not pool.policy.wake_for_exhausted_budgets:
        return "BudgetExhausted"
    if unit.priority < pool.policy.priority_floor:
        return "BelowPriorityFloor"
    if not pool.policy.share_with_karpenter and node_pool_for(service, unit):
        return "SharedWithKarpenter"
    return ""


def node_pool_for(service: Service, unit: Unit) -> str:
    """A NodePool of Karpenter's that could serve all pods of a unit; empty if there is none."""
    if not service.world.node_pools:
        return ""
    names = []
    for part in unit.parts:
        if part.digest not in service.karpenter:
            service.karpenter[part.digest] = demand.served_by_karpenter(service.world, part.shape)
        names.append(service.karpenter[part.digest])
    return names[0] if all(names) else ""


# --- for pods that wait ---------------------------------------------------------------------------------------------------------


def _serve_from(service: Service, pool: Pool, names: set[str]) -> None:
    """Serve what is left with some machines of a pool."""
    if names and service.left:
        _serve_with(service, pool, names)
    service.asked |= names


def _serve_with(service: Service, pool: Pool, names: set[str]) -> None:
    mine: list[Unit] = []
    others: list[Unit] = []
    for unit in service.left:
        takes = not is_judged(service, unit) and not declined(service, pool, unit)
        (mine if takes else others).append(unit)
    if not mine:
        return
    candidates = {name: each for name, each in _candidates(service, pool).items() if name in names}
    chosen = _chosen(service, pool, mine, candidates, names)
    opened = [name for name in chosen.rooms if name in candidates]
    woken, later = _paced(pool, opened, chosen, mine)
    if later:
        waiting = {uid for name in later for uid in chosen.into.get(name, ())}
        held_back = service.held_back.setdefault(pool.ref.name, [])
        held_back += [part for unit in mine if (part := _only(unit, waiting)) is not None]
    service.hold({name: uids for name, uids in chosen.into.items() if name not in later})
    keep_on(service, chosen.rooms)
    for name in woken:
        it = service.machines[name][1]
        _wake(pool, it, for_pods(service.asks(pool.spec.gpu_resource_name), service.into.get(name, ())))
        service.rooms[name] = candidates[name].room
    service.left = sorted((*chosen.rest, *others), key=lambda unit: unit.turn)


def _candidates(service: Service, pool: Pool) -> dict[str, Candidate]:
    """What may be opened."""
    found: dict[str, Candidate] = {}
    for it in () if pool.halted else pool.members:
        if it.state in ASLEEP and bar(pool, it) is None:
            room = service.closed.get(it.name) or coming.room_of(service.world, pool, it)
            service.closed[it.name] = room
            found[it.name] = Candidate(room=room, cost=_cost(pool, it))
    return found


def _cost(pool: Pool, it: Member) -> tuple[int, ...]:
    """Machines that failed less often come first, whatever they cost beside that."""
    idle, busy = energy.watts(it.spec, pool.spec.template)
    return it.failures, (busy or idle or 0) if pool.policy.prefer == "FewestWatts" else 0, it.gpus


def _chosen(
    service: Service, pool: Pool, units: list[Unit], candidates: dict[str, Candidate], names: set[str]
) -> Chosen:
    """Where the units go, and which of the candidates are opened for them beside those of the same machines that come anyway."""
    coming_ = {name: without(service, room) for name, room in service.coming.items() if name in names}
    free = [Candidate(room=room, cost=NOTHING) for room in _free(service, pool, units)]
    here = [Candidate(room=room, cost=_cost(pool, service.machines[name][1])) for name, room in coming_.items()]
    # Asked as when what is coming was chosen, the answer is the same: nothing is missing, and what was woken ahead is left for who comes.
    chosen = demand.choose(units, [*free, *here, *candidates.values()])
    if not here or _price(chosen, candidates) == (*NOTHING, 0):
        return chosen
    here = [structs.replace(each, cost=NOTHING) for each in here]
    again = demand.choose(units, [*free, *here, *candidates.values()])
    return min((chosen, again), key=lambda each: _price(each, candidates))


def _free(service: Service, pool: Pool, units: list[Unit]) -> list[Room]:
    """What is left of nodes: only parts of gangs can still go there."""
    if not any(unit.gang for unit in units):
        return []
    resource = pool.spec.gpu_resource_name
    # What comes of machines that are asked later, or on trial, was not there when these were asked before, and must not change the answer.
    hidden = (service.coming.keys() - service.asked) | (service.coming.keys() & trials.running(service.tried))
    others = (room for name, room in (service.rooms | service.leaving).items() if name not in hidden)
    return [room for each in others if dict((room := without(service, each)).free).get(resource)]


def _price(chosen: Chosen, candidates: dict[str, Candidate]) -> tuple[int, ...]:
    """What a choice costs beside what is coming anyway."""
    costs = [candidates[name].cost for name in chosen.rooms if name in candidates]
    return (*(sum(each) for each in zip(NOTHING, *costs, strict=True)), len(costs))


def _paced(pool: Pool, opened: list[str], chosen: Chosen, units: Iterable[Unit]) -> tuple[list[str], list[str]]:
    """Those that are woken now, and those that wait since enough boot already: the most urgent first."""
    slots = _slots(pool)
    if slots is None or len(opened) <= slots:
        return opened, []
    turn = {uid: place for place, unit in enumerate(units) for part in unit.parts for uid in part.pods}
    first = {name: min((turn[uid] for uid in chosen.into.get(name, ())), default=len(turn)) for name in opened}
    urgent = sorted(opened, key=lambda name: (first[name], name))
    return urgent[:slots], urgent[slots:]


def _slots(pool: Pool) -> int | None:
    most = pool.policy.max_concurrent_wakes
    return None if most is None else max(0, most - len(pool.are("Booting")))


def _only(unit: Unit, uids: set[str]) -> Unit | None:
    """The part of a unit that these pods are."""
    parts = []
    for part in unit.parts:
        kept = [place for place, uid in enumerate(part.pods) if uid in uids]
        if kept:
            pods, names = tuple(part.pods[each] for each in kept), tuple(part.names[each] for each in kept)
            parts.append(structs.replace(part, pods=pods, names=names))
    return structs.replace(unit, parts=tuple(parts), first=parts[0].names[0]) if parts else None


def _wake(pool: Pool, it: Member, why: str) -> None:
    it.switch(pool.now)
    it.woken_at, it.retry_after = pool.now, None
    it.become("Booting", pool.now)
    it.due.append(WakeMachine(pool=pool.ref.name, machine=it.name))
    it.tell("WakingMachine", f"({of_gpus(it.gpus)}) wakes {why}.")


# --- for pods that we do not understand -----------------------------------------------------------------------------------------


def _try_out(service: Service) -> None:
    """One machine for each shape that kube-scheduler judges differently, in whichever pool has one."""
    judged = [unit for unit in service.left if is_judged(service, unit)]
    if not judged:
        return
    coming_for, tried = _coming_for(service), 0
    for unit in judged:
        if tried >= MOST_TRIALS_AT_ONCE:
            break
        if not _is_seated(service, unit) and _may_be_tried(service, unit, coming_for):
            woken = _try_one(service, unit if unit.gang else unit.one())
            if woken:
                tried += 1
                seat(service)


def _is_seated(service: Service, unit: Unit) -> bool:
    """Whether a machine that is tried for others holds them too."""
    uid = unit.parts[0].pods[0]
    return any(uid in uids for uids in service.into.values())


def _coming_for(service: Service) -> set[str]:
    """Shapes, by digest, for which machines boot, or that share one on trial."""
    machines, on_trial = service.machines, trials.running(service.tried)
    booting = [
        name for name in service.into if name in on_trial or (name in machines and machines[name][1].state != "On")
    ]
    coming_ = {uid for name in booting for uid in service.into[name]}
    parts = (part for unit in (*service.wanted.units, *service.wanted.exhausted) for part in unit.parts)
    return {part.digest for part in parts if not coming_.isdisjoint(part.pods)} if coming_ else set()


def _may_be_tried(service: Service, unit: Unit, coming_for: set[str]) -> bool:
    return all(
        part.digest not in coming_for and trials.may_be_tried(service.world, part, service.tried) for part in unit.parts
    )


def _try_one(service: Service, unit: Unit) -> bool:
    """Wake one machine that holds a pod, or those that hold a gang: the cheapest of the first pool, later each in its turn."""
    has_turns = any(part.digest in service.tried for part in unit.parts)
    found: list[tuple[tuple[int, ...], Pool, tuple[str, ...]]] = []
    for pool in service.pools:
        slots = _slots(pool)
        if slots == 0 or declined(service, pool, unit):
            continue
        able = [each for each in _candidates(service, pool).values() if _may_hold(unit, each.room)]
        if has_turns:
            able = [structs.replace(each, cost=_turn(service, each)) for each in able]
        chosen = demand.choose([unit], able) if able else Chosen(rest=(unit,))
        if not chosen.rest and (slots is None or len(chosen.rooms) <= slots):
            price = _price(chosen, {each.room.name: each for each in able}) if has_turns else ()
            found.append((price, pool, chosen.rooms))
            if not has_turns:
                break
    if not found:
        return False
    _, pool, names = min(found, key=lambda option: option[0])
    for name in names:
        it = service.machines[name][1]
        service.rooms[name] = service.coming[name] = service.closed[name]
        _wake(pool, it, f"on trial for pod {unit.first}")
    for part in unit.parts:
        trials.begin(pool, part.digest, names[0], service.tried)
    return True


def _may_hold(unit: Unit, room: Room) -> bool:
    """Whether a room is of any use to a unit."""
    return any(not demand.why_not(part.shape, room) for part in unit.parts)


def _turn(service: Service, candidate: Candidate) -> tuple[int, ...]:
    """What was woken longest ago comes first, in seconds."""
    it = service.machines[candidate.room.name][1]
    return it.failures, (it.woken_at or 0) // times.SECOND, it.gpus


# --- for those who want machines on ---------------------------------------------------------------------------------------------


def _keep_floor(service: Service, pool: Pool, unwanted: list[Unit]) -> None:
    """Have as many machines on, or coming, as must be: first those that were about to sleep, then the smallest, or what is used most."""
    least = warmth.least_on(pool)
    closed = sum(it.cordon is Cordon.FOREIGN for it in pool.are("On", "Booting"))
    least = least._replace(machines=min(least.machines + closed, len(pool.members)))
    usual = warmth.usual_size(pool) if least.machines > pool.floor else 0
    asleep = sorted(pool.are("Draining"), key=lambda it: _like(it, usual))
    for it in asleep[: max(0, least.machines - len(pool.are("On", "Booting")))]:
        states.stay_on(it, pool.now, least.why)
    short = least.machines - len(pool.are("On", "Booting"))
    if short <= 0:
        return
    asleep = sorted((it for it in pool.are(*ASLEEP) if bar(pool, it) is None), key=lambda it: _like(it, usual))
    slots = _slots(pool)
    must = pool.floor + closed - len(pool.are("On", "Booting"))
    for number, it in enumerate(asleep[: short if slots is None else min(short, slots)]):
        room = coming.room_of(service.world, pool, it)
        if number < must or not any(_may_hold(unit, room) for unit in unwanted):
            _wake(pool, it, f"since {least.why}")
    pool.wants = len(pool.are("On", "Booting")) < least.machines


def _like(it: Member, usual: int) -> tuple[int, int, int, str]:
    return it.failures, abs(it.gpus - usual), it.gpus, it.name


def bars(pool: Pool) -> Mapping[str, Bar]:
    """The machines that may not be woken now though they are not on, each with the reason."""
    return {it.name: found for it in pool.are(*ASLEEP) if (found := bar(pool, it)) is not None}
