"""What is opened: the cheapest candidates that hold those who are left, supply by supply, and one room on trial for each shape that is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from msgspec import structs

from headroom.core import demand
from headroom.core.capacity import assigning, trials
from headroom.core.capacity.rounds import CapacityRound, ask, free_rooms, without
from headroom.core.capacity.serving import declined, is_judged, reasons
from headroom.core.capacity.supplies import OpenedRoom, RoomStage, Supply, SupplyOutcome
from headroom.core.capacity.trials import TrialRecord
from headroom.core.demand import Candidate, Chosen, Room, Unit
from headroom.model import times

MOST_TRIALS_AT_ONCE: Final = 8


def serve(round_: CapacityRound) -> list[SupplyOutcome]:
    """Open what is needed, and no more; what that means for each supply."""
    assigning.take_up(round_)
    # First with what did as it was told, of whichever supply: what fails passes on whom it was to serve.
    for failed in (False, True):
        assigning.share(round_, failed=failed)
        for supply in () if failed else round_.supplies:
            # What must be on anyway serves pods too, whichever supply they would ask first.
            gap = supply.terms.floor_gap - len(round_.kept_of(supply))
            if gap > 0:
                _open(round_, supply, failed=False, at_most=gap)
        for supply in round_.supplies:
            _open(round_, supply, failed=failed)
    passed, used = {each.ref: reasons(round_, each) for each in round_.supplies}, set(round_.into)
    _seat(round_)
    _try_out(round_)
    # Who only takes what is free on its way puts nothing to use: for them nothing is opened, nor anything instead of what they take.
    needed = _Needed(round_, frozenset({*trials.running(round_.tried), *_nominated(round_)}), used)
    return [_outcome(round_, supply, passed[supply.ref], needed) for supply in round_.supplies]


class _Needed:
    """Rooms that somebody needs: for most supplies the same ones."""

    def __init__(self, round_: CapacityRound, reserved: frozenset[str], used: set[str]) -> None:
        self._round, self.reserved = round_, reserved
        self._used = frozenset(used).union(*round_.seated.values())
        self._held = reserved.union(round_.into)

    def used(self, unwanted: Collection[str]) -> frozenset[str]:
        """Those that are put to use, but for those that only these pods would take."""
        return frozenset(self._but_for(unwanted, self._used)) if unwanted else self._used

    def held(self, unwanted: Collection[str]) -> frozenset[str]:
        """Those that hold pods, likewise, and those that are reserved."""
        return self.reserved.union(self._but_for(unwanted, self._round.into)) if unwanted else self._held

    def _but_for(self, unwanted: Collection[str], rooms: Iterable[str]) -> Iterator[str]:
        for name in rooms:
            uids = self._round.into.get(name, ())
            if not (uids and all(uid in unwanted for uid in uids)):
                yield name


def _outcome(round_: CapacityRound, supply: Supply, passed: list[tuple[Unit, str]], needed: _Needed) -> SupplyOutcome:
    soon = {uid for unit in round_.soon if declined(round_, supply, unit) for part in unit.parts for uid in part.pods}
    # Pods for which it would open nothing keep nothing of its own open either, if they are not there yet or it opens nothing for them any more.
    unwanted = soon | round_.beyond.get(supply.ref, frozenset())
    return SupplyOutcome(
        opened=round_.opened_of(supply),
        kept=round_.kept_of(supply),
        into=round_.into,
        used=needed.used(soon),
        needed=needed.held(unwanted),
        reserved=needed.reserved,
        unserved=tuple(reasons(round_, supply)),
        waiting=tuple(unit for unit in round_.waiting.get(supply.ref, ()) if not unit.due_at),
        passed=tuple(passed),
        trials=tuple(each.trial for each in round_.tried.values() if each.ref == supply.ref),
        recheck_at=round_.recheck_at,
        round=round_,
    )


def _nominated(round_: CapacityRound) -> set[str]:
    """Nodes on which room is being made for somebody."""
    nominated = [uid for uid, why in round_.wanted.left_out.items() if why.reason == "Nominated"]
    return {pod.nominated_node for uid in nominated if (pod := round_.world.pods.get(uid)) is not None}


# --- for those who are left -----------------------------------------------------------------------------------------------------


def _open(round_: CapacityRound, supply: Supply, *, failed: bool, at_most: int | None = None) -> None:
    """Serve those who are left with what a supply could open; `at_most` limits how many are."""
    closed = _closed(round_, supply) if round_.pending.has(supply) else {}
    candidates = {name: each for name, each in closed.items() if each.failed == failed}
    limits = [each for each in (at_most, _left_of(round_, supply, supply.terms.at_most)) if each is not None]
    mine = round_.pending.of(supply) if candidates and 0 not in limits else []
    if not mine:
        return
    chosen = demand.choose(
        mine, list(candidates.values()), _free(round_, supply, mine, failed=failed), min(limits, default=None)
    )
    slots = _left_of(round_, supply, supply.terms.at_once)
    urgent = demand.by_urgency(chosen, mine) if slots is not None else list(chosen.rooms)
    now, later = urgent[:slots], urgent[len(urgent) if slots is None else slots :]
    if later:
        uids = {uid for name in later for uid in chosen.into.get(name, ())}
        waiting = round_.waiting.setdefault(supply.ref, [])
        waiting += [part for unit in mine if (part := unit.only(uids)) is not None]
    round_.hold({name: uids for name, uids in chosen.into.items() if name not in later})
    round_.keep(chosen.into)
    for name in now:
        _note_opened(round_, supply, name, round_.counts(name))
    round_.pending.serve(supply, chosen.rest)


def _closed(round_: CapacityRound, supply: Supply) -> dict[str, Candidate]:
    """What a supply could open and has not."""
    if supply.terms.halted:
        return {}
    if supply.ref not in round_.closed:
        round_.closed[supply.ref] = ask(round_, RoomStage.CLOSED, supply)
    return {name: each for name, each in round_.closed[supply.ref].items() if name not in round_.opened}


def _left_of(round_: CapacityRound, supply: Supply, limit: int | None) -> int | None:
    """How many more a supply may open."""
    return None if limit is None else max(0, limit - len(round_.opens.get(supply.ref, ())))


def _note_opened(
    round_: CapacityRound, supply: Supply, name: str, assigned: dict[str, int], on_trial: str = ""
) -> None:
    candidate = round_.closed[supply.ref][name]
    if name not in round_.opened:
        round_.opens.setdefault(supply.ref, []).append(name)
    round_.opened[name] = OpenedRoom(candidate, round_.into.get(name, ()), assigned, on_trial)
    round_.rooms[name] = candidate.room


def _free(round_: CapacityRound, supply: Supply, units: list[Unit], *, failed: bool) -> list[Room]:
    """What is left of rooms: only parts of gangs can still go there."""
    if not any(unit.gang for unit in units):
        return []
    resource = supply.terms.gpu_resource
    # What another supply tries out may turn out to be of no use.
    hidden = {name for name in trials.running(round_.tried) if round_.owners.get(name) is not supply}
    if not failed:
        hidden |= {name for name, each in round_.coming.items() if each.failed}
    return [room for room in free_rooms(round_, hidden) if dict(room.free).get(resource)]


# --- for those who share what is coming -----------------------------------------------------------------------------------------


def _seat(round_: CapacityRound) -> None:
    """Let those who are left take what is free in rooms that are coming anyway."""
    if not round_.left or not round_.coming:
        return
    for shape, known in round_.tried.items():
        if known.runs and known.trial.room in round_.coming and shape not in round_.seated:
            _seat_tried(round_, known)
    rooms = [without(round_, each.room) for each in round_.coming.values()]
    seated = demand.place(round_.world, round_.left, rooms)
    round_.hold(seated.into)
    round_.pending.put(seated.rest)


def _seat_tried(round_: CapacityRound, known: TrialRecord) -> None:
    """A room on trial is first of all for one of those for whom it is tried, whoever else is pending for longer."""
    left, shape = round_.left, known.trial.shape
    place = next((row for row, each in enumerate(left) if any(part.digest == shape for part in each.parts)), None)
    if place is None:
        return
    unit = left[place] if left[place].gang else left[place].one()
    rooms = [without(round_, each.room) for name, each in round_.coming.items() if name in known.trial.rooms]
    seated = demand.place(round_.world, [unit], rooms)
    if not seated.rest:
        round_.hold(seated.into)
        round_.seated |= {part.digest: frozenset(seated.into) for part in unit.parts}
        rest = [] if unit.count == left[place].count else [left[place].without(1)]
        round_.pending.put([*left[:place], *rest, *left[place + 1 :]])


# --- for pods that we do not understand -----------------------------------------------------------------------------------------


def _try_out(round_: CapacityRound) -> None:
    """One room for each shape that kube-scheduler judges differently, of whichever supply has one."""
    judged = [unit for unit in round_.left if is_judged(round_, unit) and not unit.due_at]
    if not judged:
        return
    coming_for, tried = _coming_for(round_), 0
    for unit in judged:
        if tried >= MOST_TRIALS_AT_ONCE:
            break
        is_seated = any(unit.parts[0].pods[0] in uids for uids in round_.into.values())
        may_be = all(
            part.digest not in coming_for and trials.may_be_tried(round_.world, part, round_.tried)
            for part in unit.parts
        )
        if not is_seated and may_be and _try_one(round_, unit if unit.gang else unit.one()):
            tried += 1
            _seat(round_)


def _coming_for(round_: CapacityRound) -> set[str]:
    """Shapes, by digest, for which rooms are coming, or that share one on trial."""
    coming = {*trials.running(round_.tried), *round_.opened, *(round_.coming.keys() - round_.ready.keys())}
    uids = {uid for name in coming for uid in round_.into.get(name, ())}
    return {part.digest for part in round_.wanted.parts if not uids.isdisjoint(part.pods)} if uids else set()


def _try_one(round_: CapacityRound, unit: Unit) -> bool:
    """Open one room that holds a pod, or those that hold a gang: the cheapest of the first supply, the others later."""
    in_turn = any(part.digest in round_.tried for part in unit.parts)
    found: list[tuple[tuple[int, ...], Supply, tuple[str, ...]]] = []
    for supply in round_.supplies:
        limits = [_left_of(round_, supply, each) for each in (supply.terms.at_once, supply.terms.at_most)]
        most = min((each for each in limits if each is not None), default=None)
        if most == 0 or declined(round_, supply, unit):
            continue
        able = {name: each for name, each in _closed(round_, supply).items() if may_hold(unit, each.room)}
        if in_turn:
            able = {name: structs.replace(each, cost=_turn(each)) for name, each in able.items()}
        chosen = demand.choose([unit], list(able.values())) if able else Chosen(rest=(unit,))
        if not chosen.rest and (most is None or len(chosen.rooms) <= most):
            costs = [able[name].cost[:2] for name in chosen.rooms] if in_turn else []
            found.append((tuple(map(sum, zip(*costs, strict=True))), supply, chosen.rooms))
            if not in_turn:
                break
    if not found:
        return False
    _, supply, names = min(found, key=lambda option: option[0])
    for name in names:
        _note_opened(round_, supply, name, {part.digest: part.count for part in unit.parts}, unit.first)
        round_.coming[name] = round_.closed[supply.ref][name]
    for part in unit.parts:
        trials.begin(supply.ref, part.digest, names, round_.world.now, round_.tried)
    return True


def may_hold(unit: Unit, room: Room) -> bool:
    """Whether a room is of any use to a unit."""
    return any(not demand.why_not(part.shape, room) for part in unit.parts)


def _turn(candidate: Candidate) -> tuple[int, ...]:
    """What was opened longest ago comes first, in seconds."""
    return int(candidate.failed), candidate.opened_at // times.SECOND, *candidate.cost
