"""One round: which pods are pending, and what holds them: ready rooms first, then those that can be kept from closing.

Those who are left are served by what is coming, and by what supplies could open (`assigning`, `opening`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, ParamSpec, TypeVar

from msgspec import Struct, field, structs

from headroom.core import demand
from headroom.core.capacity import trials
from headroom.core.capacity.serving import Pending, declined, is_judged, namespace_of
from headroom.core.capacity.supplies import OpenedRoom, RoomStage, Supply, SupplyFailed
from headroom.core.capacity.trials import Tried
from headroom.core.demand import Candidate, PendingPods, Placed, Room, RoomResources, SchedulerVerdict, Unit, Wanted
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World

P = ParamSpec("P")
T = TypeVar("T")
WHOLE: Final = 1_000_000
"""Amounts are told in millionths."""


class CapacityRound(Struct, kw_only=True, eq=False):
    """Who is pending, and where each of them goes."""

    world: World
    supplies: list[Supply]
    """In the order in which they are asked."""
    wanted: Wanted
    resources: RoomResources | None = None
    """What rooms have beside what nodes say; None where no pod that is pending asks for it."""
    owners: dict[str, Supply] = field(default_factory=dict)
    """Of rooms that supplies have, as far as anybody asked."""
    ready: dict[str, Room] = field(default_factory=dict)
    """Rooms that pods can use."""
    rooms: dict[str, Room] = field(default_factory=dict)
    """Those and what is coming, with what was free in them before anybody was placed."""
    coming: dict[str, Candidate] = field(default_factory=dict)
    """What is coming, or has just come."""
    leaving: dict[str, Candidate] = field(default_factory=dict)
    """What is about to close and could be kept."""
    closed: dict[Ref, dict[str, Candidate]] = field(default_factory=dict)
    """What could be opened, by supply, as far as anybody asked."""
    into: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Room to the uids of pending pods that it will hold."""
    opened: dict[str, OpenedRoom] = field(default_factory=dict)
    opens: dict[Ref, list[str]] = field(default_factory=dict)
    """These by supply."""
    kept: dict[str, OpenedRoom] = field(default_factory=dict)
    waiting: dict[Ref, list[Unit]] = field(default_factory=dict)
    """Those whose room waits for its turn to be opened, by supply."""
    verdicts: dict[str, SchedulerVerdict] = field(default_factory=dict)
    """Shapes, by digest, that kube-scheduler judges differently."""
    tried: Tried = field(default_factory=dict)
    """Shapes for which a room was opened on trial,"""
    seated: dict[str, frozenset[str]] = field(default_factory=dict)
    """and those of them, by digest, of which one has its place there: in which rooms."""
    over_quota: frozenset[str] = frozenset()
    """Uids of pods whose budget is over quota, and that are not announced."""
    beyond: dict[Ref, frozenset[str]] = field(default_factory=dict)
    """Uids of pods that are beyond what a supply serves of their namespace, by supply."""
    recheck_at: int | None = None
    """When the clock alone makes a difference to who is pending, or to where they go."""
    decisions: dict[Ref, Decision] = field(default_factory=dict)
    """Once all supplies have settled."""
    soon: list[Unit] = field(default_factory=list)
    """Those that are only announced, and for whom some supply would open a room."""
    _parts: dict[str, PendingPods] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _announced: dict[str, str] = field(default_factory=dict)
    """These by uid."""
    _karpenter: dict[str, str] = field(default_factory=dict)
    """Shapes, by digest, that Karpenter could serve, each with its NodePool; empty text where it could not."""
    _amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    _pending: list[Pending] = field(default_factory=list)
    _limits: frozenset[frozenset[str]] | None = None
    _labels: frozenset[str] | None = None
    _gpus: frozenset[str] | None = None

    @property
    def pending(self) -> Pending:
        """Those without a room so far."""
        if not self._pending:
            self._pending.append(Pending(self))
        return self._pending[0]

    @property
    def left(self) -> list[Unit]:
        """They in the order of their turns."""
        return self.pending.all()

    def asks(self, resource: str) -> Mapping[str, int]:
        """How much of a resource each pending pod asks for, by uid."""
        if resource not in self._amounts:
            self._amounts[resource] = found = {}
            for part in self.wanted.parts:
                amount = next((each for name, each in part.shape.requests if name == resource), 0)
                found.update(dict.fromkeys(part.pods, amount))
        return self._amounts[resource]

    def part_of(self, uid: str) -> PendingPods:
        """The kind of pods that one of those is that want a place."""
        if not self._parts:
            self._parts = {each: part for part in self.wanted.parts for each in part.pods}
        return self._parts[uid]

    def counts(self, room: str) -> dict[str, int]:
        """How many pods of each shape are placed in a room, by digest."""
        return dict(Counter(self.part_of(uid).digest for uid in self.into.get(room, ())))

    @property
    def limits(self) -> frozenset[frozenset[str]]:
        """The namespaces that supplies serve, of those that do not serve all."""
        if self._limits is None:
            every = (each.terms.namespaces for each in self.supplies)
            self._limits = frozenset(each for each in every if each is not None)
        return self._limits

    @property
    def gpus(self) -> frozenset[str]:
        """Resources by which supplies have GPUs."""
        if self._gpus is None:
            self._gpus = frozenset(each.terms.gpu_resource for each in self.supplies)
        return self._gpus

    @property
    def labels(self) -> frozenset[str]:
        """Labels of nodes that pending pods look at."""
        if self._labels is None:
            self._labels = frozenset().union(*(demand.constraints_of(part.shape).keys for part in self.wanted.parts))
        return self._labels

    @property
    def announced(self) -> Mapping[str, str]:
        """Uids of pods that start soon, each with who will make it; empty for those that are queued."""
        if not self._announced and (self.wanted.announced or self.wanted.announcers):
            soon = (uid for unit in self.wanted.announced for part in unit.parts for uid in part.pods)
            self._announced = dict.fromkeys(soon, "") | {uid: by.of for uid, by in self.wanted.announcers.items()}
        return self._announced

    def namespaces_of(self, uids: Iterable[str]) -> set[str]:
        """Those of pods that want a place."""
        if not self._names:
            self._names = {
                uid: name for part in self.wanted.parts for uid, name in zip(part.pods, part.names, strict=True)
            }
        return {namespace_of(self._names[uid]) for uid in uids}

    def hold(self, into: Mapping[str, tuple[str, ...]]) -> None:
        """Note who goes where."""
        for room, uids in into.items():
            self.into[room] = (*self.into.get(room, ()), *uids)

    def keep(self, names: Iterable[str]) -> None:
        """Keep rooms from closing that pods are placed in."""
        for name in sorted(set(names) & self.leaving.keys()):
            each = self.leaving.pop(name)
            self.rooms[name] = each.room
            if name not in self.ready:
                self.kept[name] = OpenedRoom(each, self.into[name], self.counts(name))

    def kept_of(self, supply: Supply) -> tuple[OpenedRoom, ...]:
        """What a supply keeps from closing."""
        return tuple(each for name, each in self.kept.items() if self.owners[name] is supply)

    def opened_of(self, supply: Supply) -> tuple[OpenedRoom, ...]:
        """What a supply opens."""
        return tuple(self.opened[name] for name in self.opens.get(supply.ref, ()))

    def furnished(self, room: Room, *, emptied: bool = False) -> Room:
        """A room with all that it has, as far as somebody asks for it."""
        return room if self.resources is None else self.resources.furnish(room, emptied=emptied)

    def node_pool_for(self, unit: Unit) -> str:
        """A NodePool of Karpenter's that could serve all pods of a unit; empty if there is none."""
        if not self.world.node_pools:
            return ""
        for part in unit.parts:
            if part.digest not in self._karpenter:
                needed = () if self.resources is None else self.resources.told_by_overlay(part.shape)
                self._karpenter[part.digest] = demand.served_by_karpenter(self.world, part.shape, self.gpus, needed)
        names = [self._karpenter[part.digest] for part in unit.parts]
        return names[0] if all(names) else ""


def begin(world: World, supplies: Sequence[Supply], resources: RoomResources | None = None) -> CapacityRound:
    """Place what is pending in rooms that are ready, or can be kept from closing."""
    every = [each.terms for each in supplies]
    wanted = demand.wanted(
        world,
        {each.gpu_resource for each in every},
        {name for each in every for name in each.schedulers},
        max((each.lead_ms for each in every), default=None),
        {name: each.gpu_resource for each in reversed(every) for name in each.device_classes},
        resources,
    )
    found = CapacityRound(
        world=world,
        supplies=list(supplies),
        wanted=wanted,
        resources=_asked_for(resources, wanted),
        over_quota=frozenset(uid for unit in wanted.exhausted for part in unit.parts for uid in part.pods),
        recheck_at=wanted.recheck_at,
    )
    remembered = ((each.ref, trial) for each in supplies for trial in each.terms.trials)
    found.tried = trials.standing(world, remembered, wanted)
    pending = sorted((*wanted.units, *wanted.exhausted, *wanted.announced), key=lambda unit: unit.queue_position)
    found.beyond = {each.ref: _beyond(each, pending) for each in supplies if each.terms.rations}
    units = [
        part for unit in pending for half in trials.apart(world, unit, found.tried) for part in _apart(found, half)
    ]
    units = [unit for unit in units if not unit.due_at or any(not declined(found, each, unit) for each in supplies)]
    units.sort(key=lambda unit: unit.queue_position)  # what was one unit may be several now
    found.soon = [unit for unit in units if unit.due_at]
    leads = [unit.due_at - each.lead_ms for unit in found.soon for each in every]
    found.recheck_at = min((each for each in (wanted.recheck_at, *leads) if each and each > world.now), default=None)
    if not units:
        return found
    found.ready = {room.name: room for room in _ready(found)}
    leaving = ask(found, RoomStage.LEAVING)
    # Those that were kept a moment ago are ready again already; they hold whom they held then.
    found.leaving = dict(leaving)
    found.coming = {name: each for name, each in ask(found, RoomStage.COMING).items() if name not in leaving}
    found.rooms = found.ready | {name: each.room for name, each in found.coming.items()}
    old = [room for name, room in found.ready.items() if name not in found.coming and name not in leaving]
    placed = demand.place(world, units, old)
    found.hold(placed.into)
    found.verdicts = placed.verdicts
    trials.conclude(world.now, found.tried, found.verdicts)
    pauses = [each.until_for(refused=which) for each in found.tried.values() for which in (True, False)]
    turns = (found.recheck_at, placed.recheck_at, *(each for each in pauses if each > world.now))
    found.recheck_at = min((each for each in turns if each is not None), default=None)
    found.pending.put(_regain(found, placed))
    return found


def _asked_for(resources: RoomResources | None, wanted: Wanted) -> RoomResources | None:
    if resources is None or not any(
        name in resources.names for part in wanted.parts for name, _ in part.shape.requests
    ):
        return None
    return resources


def ask(round_: CapacityRound, stage: RoomStage, supply: Supply | None = None) -> dict[str, Candidate]:
    """What supplies have at a stage, by name: one of them, or all."""
    found: dict[str, Candidate] = {}
    for each in round_.supplies if supply is None else (supply,):
        mine = guarded(each.ref, _listed, each, stage, round_.ready)
        if round_.resources is not None:
            mine = [structs.replace(one, room=round_.furnished(one.room)) for one in mine]
        if stage is RoomStage.CLOSED:
            most, limit = round_.pending.pods, each.terms.at_most
            alike = demand.cheapest_alike(mine, round_.labels, most if limit is None else min(most, limit))
            mine = demand.expand(alike, most)
        for candidate in mine:
            name = candidate.room.name
            if round_.owners.setdefault(name, each) is each:
                found[name] = candidate
    return found


def _listed(supply: Supply, stage: RoomStage, ready: Mapping[str, Room]) -> list[Candidate]:
    return list(supply.rooms(stage, ready))


def guarded(ref: Ref, asked: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a supply answers; if it raises, whose fault that is."""
    try:
        return asked(*args, **kwargs)
    except Exception as error:
        raise SupplyFailed(ref, error) from error


def _apart(round_: CapacityRound, unit: Unit) -> Iterator[Unit]:
    """The pods of a unit that a supply serves only in some namespaces apart from the others."""
    limits = round_.limits
    beyond = list(round_.beyond.values())
    if not (limits or any(beyond)) or unit.gang:
        yield unit
        return
    [part] = unit.parts
    if not any(beyond) and len({*map(namespace_of, part.names)}) == 1:
        yield unit
        return
    sorts: dict[tuple[bool, ...], set[str]] = {}
    for uid, name in zip(part.pods, part.names, strict=True):
        sort = (*(namespace_of(name) in each for each in limits), *(uid in each for each in beyond))
        sorts.setdefault(sort, set()).add(uid)
    yield from (each for pods in sorts.values() if (each := unit.only(pods)) is not None)


def _beyond(supply: Supply, pending: Iterable[Unit]) -> frozenset[str]:
    """The pods that a supply does not serve, since it serves only so many of their namespace."""
    rations, found = supply.terms.rations, set[str]()
    left = {name: each.pods for name, each in rations.items()}
    for unit in pending:
        pods = [(uid, name) for part in unit.parts for uid, name in zip(part.pods, part.names, strict=True)]
        spaces = {namespace_of(name) for _, name in pods} & rations.keys()
        if unit.gang and not all(
            left[each] >= len(pods) or (rations[each].gangs and left[each] == rations[each].pods) for each in spaces
        ):
            found |= {uid for uid, _ in pods}
            continue
        for uid, name in pods:
            space = namespace_of(name)
            if space in left and left[space] <= 0 and not unit.gang:
                found.add(uid)
            elif space in left:
                left[space] -= 1
    return frozenset(found)


def _ready(round_: CapacityRound) -> Iterable[Room]:
    owned: dict[str, int | None] = {}
    for each in round_.supplies:
        mine = guarded(each.ref, each.nodes)
        owned |= mine
        round_.owners |= dict.fromkeys(mine, each)
    claimed = {each.terms.gpu_resource for each in round_.supplies if each.terms.device_classes}
    for bare in demand.rooms(round_.world, lambda node: owned.get(node.name, 0) is not None):
        room = demand.with_devices(round_.world, bare, claimed) if claimed else bare
        if round_.resources is not None and any(amount and name in round_.gpus for name, amount in room.free):
            room = round_.furnished(room)  # of full ones nobody needs to know
        since = owned.get(room.name) or 0
        if room.ready_since is not None and room.ready_since < since:
            # It has been ready for longer, but its GPUs, the end of our cordon or of its last pod came only then.
            yield structs.replace(room, ready_since=since)
        else:
            yield room
    yield from (each.room for each in ask(round_, RoomStage.READY).values())


def _regain(round_: CapacityRound, placed: Placed) -> list[Unit]:
    """Keep rooms that were about to close and can hold what is pending; those that were kept a moment ago hold it as they did then."""
    # A room that kube-scheduler passes over is no help, however often it is kept.
    plain: list[Unit] = []
    judged: list[Unit] = []
    beyond = frozenset[str]().union(*round_.beyond.values())
    for unit in placed.rest:
        (judged if is_judged(round_, unit) or unit.parts[0].pods[0] in beyond else plain).append(unit)
    if not plain or not round_.leaving:
        return list(placed.rest)
    soon = [unit for unit in plain if unit.due_at]
    regained = demand.place(
        round_.world, [unit for unit in plain if not unit.due_at], [each.room for each in round_.leaving.values()]
    )
    round_.hold(regained.into)
    round_.keep(regained.into)
    # Nothing is kept for those who are only announced and for whom it would not be opened.
    for supply in round_.supplies if soon else ():
        mine = [unit for unit in soon if not declined(round_, supply, unit)]
        others = [unit for unit in soon if declined(round_, supply, unit)]
        rooms = [each.room for name, each in round_.leaving.items() if round_.owners[name] is supply]
        kept = demand.place(round_.world, mine, rooms)
        round_.hold(kept.into)
        round_.keep(kept.into)
        soon = [*others, *kept.rest]
    return sorted((*regained.rest, *soon, *judged), key=lambda unit: unit.queue_position)


# --- what is left of rooms ------------------------------------------------------------------------------------------------------


def without(round_: CapacityRound, room: Room) -> Room:
    """What is left of a room once those are there that are placed in it."""
    uids = round_.into.get(room.name, ())
    if not uids:
        return room
    free, apart = dict(room.free), Counter(dict(room.apart))
    for uid in uids:
        apart.update(round_.wanted.apart.get(uid, ()))
        for name, amount in (*round_.part_of(uid).shape.requests, ("pods", WHOLE)):
            if name in free:
                free[name] = max(0, free[name] - amount)
    return structs.replace(room, free=tuple(sorted(free.items())), apart=tuple(sorted(apart.items())))


def free_rooms(round_: CapacityRound, hidden: Iterable[str]) -> list[Room]:
    """What is left of rooms that are ready, coming, or could be kept, but for some."""
    rooms = round_.rooms | {name: each.room for name, each in round_.leaving.items()}
    return [without(round_, rooms[name]) for name in rooms if name not in hidden]
