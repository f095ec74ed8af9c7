"""Machines on trial, for pods that kube-scheduler judges differently: in the status they are known by the token of their launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headroom.api import power_status
from headroom.core import demand
from headroom.core.capacity import SupplyOutcome, Trial, newest_trials
from headroom.core.spot_pools import rooms
from headroom.core.spot_pools.places import PoolSlot, SpotPoolState, told, when
from headroom.model import times


def known(pool: SpotPoolState) -> Iterator[Trial]:
    """What is remembered of trials, with what their machines are doing now."""
    by_token = {each.slot.token: each for each in pool.places if each.slot.token}
    for each in pool.before.trials:
        place = by_token.get(each.machine)
        joined = when(place.slot.joined_at, pool.now) if place is not None else None
        yield Trial(
            shape=each.shape,
            room=rooms.name_of(pool, place) if place is not None else each.machine,
            at=when(each.at, pool.now) or 0,
            in_vain=each.in_vain,
            refused_at=when(each.refused_at, pool.now) or 0,
            until=when(each.until, pool.now + 30 * times.HOUR) or 0,
            placed=bool(each.placed),
            rooms=frozenset() if place is None or each.until else frozenset(_rooms(pool, each.shape, place)),
            here_since=joined,
            is_full=place is not None and place.busy,
        )


def _rooms(pool: SpotPoolState, shape: str, place: PoolSlot) -> Iterator[str]:
    """The rooms of a trial: of a gang all that were launched with it."""
    of_gang = shape.startswith(demand.OF_GANGS)
    for each in pool.places:
        is_its = each is place or (
            of_gang
            and each.slot.launched_at == place.slot.launched_at
            and any(assigned.shape == shape for assigned in each.slot.assigned)
        )
        if is_its and each.state in ("Launching", "Running"):
            yield rooms.name_of(pool, each)


def status(
    pool: SpotPoolState, outcome: SupplyOutcome, opened: Mapping[str, PoolSlot]
) -> tuple[power_status.TrialStatus, ...]:
    """What is remembered of trials from now on; `opened` are the slots of what was opened, by its name in the round."""
    by_name = {rooms.name_of(pool, each): each for each in pool.places} | dict(opened)
    return tuple(
        power_status.TrialStatus(
            shape=each.shape,
            machine=by_name[each.room].slot.token if each.room in by_name else each.room,
            at=told(each.at),
            in_vain=each.in_vain,
            refused_at=told(each.refused_at or None),
            until=told(each.until or None),
            placed=True if each.placed else None,
        )
        for each in newest_trials(outcome.trials)
    )
