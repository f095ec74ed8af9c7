"""What waits, and what holds it: nodes that have been there for a while, then machines that can be kept from going to sleep.

What is left goes to the pools. There machines that boot, or have just come, are seen beside those that could be woken: the same machines
in the same order as when they were chosen, so the same pods find the same places and nothing more is woken for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field, structs

from headroom.core import demand
from headroom.core.demand import Placed, Room, Unit, Verdict, Wanted
from headroom.core.power import coming, states, trials
from headroom.core.power.gathering import machines_of
from headroom.core.power.members import UNIT, Cordon, Member, Pool
from headroom.core.power.states import ABORT_MS
from headroom.core.power.trials import Standing, Tried
from headroom.model.facts import Node
from headroom.model.world import World


class Service(Struct, kw_only=True, eq=False):
    """One round: who waits, and where each of them goes."""

    world: World
    pools: list[Pool]
    machines: dict[str, tuple[Pool, Member]]
    wanted: Wanted
    rooms: dict[str, Room] = field(default_factory=dict)
    """Nodes and what is coming, by name, with what was free in them before anybody was placed."""
    coming: dict[str, Room] = field(default_factory=dict)
    """Those of them that are machines which boot, or have just come."""
    leaving: dict[str, Room] = field(default_factory=dict)
    """Machines on their way to sleep that could be kept."""
    closed: dict[str, Room] = field(default_factory=dict)
    """Machines that are not on, as far as anybody asked."""
    into: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Room to the uids of waiting pods that it will hold."""
    left: list[Unit] = field(default_factory=list)
    """Those for whom nothing is woken so far, in the order of their turns."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """Shapes, by digest, that kube-scheduler judges differently."""
    tried: Tried = field(default_factory=dict)
    """Shapes for which a machine was woken on trial,"""
    seated: dict[str, frozenset[str]] = field(default_factory=dict)
    """and those of them, by digest, of which one has its place there: on which machines."""
    exhausted: frozenset[str] = frozenset()
    """Uids of pods whose budget is used up."""
    asked: set[str] = field(default_factory=set)
    """Machines that had their turn in this round."""
    held_back: dict[str, list[Unit]] = field(default_factory=dict)
    """Those whose machine waits for its turn to wake, by pool."""
    karpenter: dict[str, str] = field(default_factory=dict)
    """Shapes, by digest, that Karpenter could serve, each with its NodePool; empty text where it could not."""
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    """What pods ask for, by resource and uid, as far as anybody asked."""
    turns_at: int | None = None
    """When the clock alone makes a difference to who waits, or to where they go."""

    def asks(self, resource: str) -> Mapping[str, int]:
        """How much of a resource each pod that waits asks for, by uid."""
        if resource not in self.amounts:
            self.amounts[resource] = found = {}
            for unit in (*self.wanted.units, *self.wanted.exhausted):
                for part in unit.parts:
                    amount = next((each for name, each in part.shape.requests if name == resource), 0)
                    found.update(dict.fromkeys(part.pods, amount))
        return self.amounts[resource]

    def hold(self, into: dict[str, tuple[str, ...]]) -> None:
        """Note who goes where."""
        for room, uids in into.items():
            self.into[room] = (*self.into.get(room, ()), *uids)


def begin(world: World, pools: list[Pool]) -> Service:
    """Place what waits onto what exists, is coming, or can be kept from going."""
    wanted = demand.wanted(world)
    exhausted = frozenset(uid for unit in wanted.exhausted for part in unit.parts for uid in part.pods)
    service = Service(
        world=world,
        pools=pools,
        machines=machines_of(pools),
        wanted=wanted,
        exhausted=exhausted,
        turns_at=wanted.turns_at,
    )
    service.tried = trials.standing(world, pools, wanted)
    waiting = sorted((*wanted.units, *wanted.exhausted), key=lambda unit: unit.turn)
    units = [half for unit in waiting for half in trials.apart(world, unit, service.tried)]
    if not units:
        return service
    there = {room.name: room for room in _existing(service)}
    kept = {name for name, (_, it) in service.machines.items() if states.was_kept(it, world.now)}
    service.coming = {room.name: room for room in _coming(service, there) if room.name not in kept}
    service.rooms = there | service.coming
    old = [room for name, room in there.items() if name not in service.coming and name not in kept]
    placed = demand.place(world, units, old)
    service.hold(placed.into)
    service.verdicts = placed.verdicts
    trials.conclude(world.now, service.tried, service.verdicts)
    pauses = [until for each in service.tried.values() for until in _pauses(each) if until > world.now]
    turns = (wanted.turns_at, placed.turns_at, *pauses)
    service.turns_at = min((each for each in turns if each is not None), default=None)
    service.left = _regain(service, placed, [room for name, room in there.items() if name in kept])
    return service


def _pauses(each: Standing) -> tuple[int, int]:
    return each.until, each.until_for(refused=False)


def is_judged(service: Service, unit: Unit) -> bool:
    """Whether kube-scheduler does not place such pods where we would, or did not when it was last tried."""
    if not service.verdicts and not service.tried:
        return False
    return any(trials.judges(service.world, part, service.tried, service.verdicts) for part in unit.parts)


def _existing(service: Service) -> Iterable[Room]:
    machines = service.machines

    def usable(node: Node) -> bool:
        known = machines.get(node.name)
        return known is None or known[1].state == "On"

    for room in demand.rooms(service.world, usable):
        known = machines.get(room.name)
        since = max(known[1].since, known[1].idle_since or 0) if known is not None else 0
        if room.ready_since is not None and room.ready_since < since:
            # It has been ready for longer, but its GPUs, the end of our cordon or of its last pod came only then.
            yield structs.replace(room, ready_since=since)
        else:
            yield room
    yield from demand.reopened(
        service.world, [it.node for _, it in machines.values() if it.node and _opens(service, it)]
    )


def _opens(service: Service, it: Member) -> bool:
    """Whether a machine that stays on is about to lose our cordon; one that keeps it for long is no room."""
    return it.state == "On" and it.is_up and it.cordon is Cordon.OURS and service.world.now - it.since < ABORT_MS


def _coming(service: Service, there: Mapping[str, Room]) -> Iterable[Room]:
    for pool, it in service.machines.values():
        if it.state == "Booting" or states.is_joining(it, service.world.now, pool.boot_ms):
            yield coming.room_of(service.world, pool, it)
        elif it.state == "On" and it.before is not None and it.name in there:
            is_new = service.world.now - it.since < states.NEW_MS
            if not is_new and service.world.now - (it.woken_at or 0) >= pool.boot_ms:
                continue
            room = coming.arriving(pool, it, there[it.name])
            # It is ready; but what runs on every node may not have started there yet.
            if is_new or room != there[it.name]:
                yield room


def _regain(service: Service, placed: Placed, kept: list[Room]) -> list[Unit]:
    """Keep machines on that were about to sleep and can hold what waits; those that were kept a moment ago hold it as they did then."""
    # A machine that kube-scheduler passes over is no help, however often it is kept from sleeping.
    judged = [unit for unit in placed.rest if is_judged(service, unit)]
    plain = [unit for unit in placed.rest if not is_judged(service, unit)]
    nodes = [
        it.node
        for pool, it in service.machines.values()
        if it.state == "Draining" and it.node is not None and not pool.halted
    ]
    if not plain or not (nodes or kept):
        return list(placed.rest)
    leaving = demand.reopened(service.world, sorted(nodes, key=lambda node: node.name))
    service.leaving = {room.name: room for room in leaving}
    regained = demand.place(service.world, plain, [*kept, *leaving])
    service.hold(regained.into)
    keep_on(service, regained.into)
    return sorted((*regained.rest, *judged), key=lambda unit: unit.turn)


def keep_on(service: Service, names: Iterable[str]) -> None:
    """Keep machines from sleeping that pods which wait are placed on."""
    for name in sorted(set(names) & service.leaving.keys()):
        _, it = service.machines[name]
        if it.state == "Draining":
            count = len(service.into[name])
            waits = "1 pod that waits fits" if count == 1 else f"{count} pods that wait fit"
            states.stay_on(it, service.world.now, f"{waits} on it")
            service.rooms[name] = service.leaving.pop(name)


def without(service: Service, room: Room) -> Room:
    """What is left of a room once those are there that are placed in it."""
    uids = service.into.get(room.name, ())
    if not uids:
        return room
    free = dict(room.free)
    for uid in uids:
        pod = service.world.pods.get(uid)
        for name, amount in (*(pod.shape.requests if pod else ()), ("pods", UNIT)):
            if name in free:
                free[name] = max(0, free[name] - amount)
    return structs.replace(room, free=tuple(sorted(free.items())))


def seat(service: Service) -> None:
    """Let those who are left take what is free on machines that are coming anyway."""
    if not service.left or not service.coming:
        return
    for shape, known in service.tried.items():
        if known.runs and known.trial.machine in service.coming and shape not in service.seated:
            _seat_tried(service, known)
    seated = demand.place(service.world, service.left, [without(service, room) for room in service.coming.values()])
    service.hold(seated.into)
    service.left = list(seated.rest)


def _seat_tried(service: Service, known: Standing) -> None:
    """A machine on trial is first of all for one of those for whom it is tried, whoever else waits for longer."""
    trial, left = known.trial, service.left
    place = next((row for row, each in enumerate(left) if any(part.digest == trial.shape for part in each.parts)), None)
    if place is None:
        return
    unit, names = left[place], trials.woken_for(known, service.tried)
    unit = unit if unit.gang else unit.one()
    rooms = [without(service, room) for name, room in service.coming.items() if name in names]
    seated = demand.place(service.world, [unit], rooms)
    if not seated.rest:
        service.hold(seated.into)
        service.seated |= {part.digest: frozenset(seated.into) for part in unit.parts}
        left[place : place + 1] = [] if unit.count == left[place].count else [left[place].without(1)]
