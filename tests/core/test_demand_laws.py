"""What holds for any demand and any rooms: nothing is overfilled, gangs stay whole, the order of the input does not matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.core.demand import Candidate, PendingPods, Room, Unit, choose, impossible, place, why_not
from headroom.core.demand.free_capacity import FreeCapacity
from headroom.model.facts import Pod, Shape, Taint
from tests.core.demand_stage import GPU, MICRO, a_room, a_shape, a_view, affinity, amounts, gang, says, units_of, waits

TOLERANT = '[{"key": "x", "operator": "Exists"}]'
ZONE_B = affinity([says("zone", "In", "b")], [says("gpu", "Gt", "5")])
NIC = "rdma/hca"


def with_nics(shape: Shape, nics: int) -> Shape:
    """The shape of pods that want some network cards as well."""
    return structs.replace(shape, requests=(*shape.requests, (NIC, nics * MICRO))) if nics else shape


plain_shapes = st.builds(
    a_shape,
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([0, 2, 5]),
    st.sampled_from([0, 3]),
    node_selector=st.sampled_from([(), (), (), (("zone", "a"),)]),
    affinity=st.sampled_from(["", "", "", ZONE_B]),
    tolerations=st.sampled_from(["", TOLERANT]),
)
shapes = st.builds(with_nics, plain_shapes, st.sampled_from([0, 0, 0, 1]))
free = st.builds(
    lambda gpus, cpu, gib, **more: (
        *amounts(gpus, cpu, gib),
        *((name, many * MICRO) for name, many in sorted(more.items()) if many is not None),
    ),
    st.integers(0, 6),
    st.sampled_from([2, 8, 100]),
    st.sampled_from([3, 100]),
    **{"pods": st.none() | st.integers(0, 4), NIC: st.none() | st.integers(0, 2)},
)
room_fields = st.fixed_dictionaries(
    {
        "free": free,
        "labels": st.sampled_from([(), (("zone", "a"),), (("gpu", "7"), ("zone", "b"))]),
        "taints": st.sampled_from([(), (), (Taint("x", "", "NoSchedule"),)]),
        "partly_known": st.booleans(),
        "source": st.sampled_from(["Node", "Machine", "NodeClaim"]),
    }
)


@st.composite
def some_rooms(draw: st.DrawFn, most: int = 6) -> list[Room]:
    found: list[dict[str, Any]] = draw(st.lists(room_fields, min_size=1, max_size=most))
    return [a_room(f"n{number}", **fields) for number, fields in enumerate(found)]


@st.composite
def some_pods(draw: st.DrawFn, most: int = 10) -> list[Pod]:
    """Pods of a few shapes, some in gangs, in any order."""
    kinds = draw(st.lists(shapes, min_size=1, max_size=3))
    found: list[Pod] = []
    for number in range(draw(st.integers(1, most))):
        fields: dict[str, Any] = {"shape": draw(st.sampled_from(kinds)), "priority": draw(st.integers(0, 2))}
        name = draw(st.sampled_from(["", "", "", "x", "y"]))
        found += gang(name, 1, prefix=f"{name}{number}-", **fields) if name else [waits(f"p{number}", **fields)]
    return found


def shape_of(pods: Sequence[Pod]) -> dict[str, Shape]:
    return {pod.uid: pod.shape for pod in pods}


def same(unit: Unit) -> tuple[str, int, str]:
    """What a unit keeps when some of its pods have a place."""
    return unit.gang, unit.priority, unit.parts[0].digest


def holds(room: Room, inside: Sequence[Shape]) -> bool:
    """Whether a room holds pods together, by adding up and nothing else."""
    taken: dict[str, int] = {}
    for shape in inside:
        for name, amount in (*shape.requests, ("pods", MICRO)):
            taken[name] = taken.get(name, 0) + amount
    endless = {"pods", "cpu", "memory"} if room.partly_known else {"pods"}
    limits = {name: 0 for name in taken if name not in endless} | dict(room.free)
    return all(taken.get(name, 0) <= limit for name, limit in limits.items())


def check(
    pods: Sequence[Pod], rooms: Sequence[Room], into: Mapping[str, tuple[str, ...]], rest: Sequence[Unit]
) -> None:
    """Everybody is in one place or is left, nobody where they do not fit, and gangs are whole."""
    by_name, of = {room.name: room for room in rooms}, shape_of(pods)
    for name, uids in into.items():
        assert [why for uid in uids if (why := why_not(of[uid], by_name[name]))] == []
        assert holds(by_name[name], [of[uid] for uid in uids])
    inside = [uid for uids in into.values() for uid in uids]
    left = [uid for unit in rest for part in unit.parts for uid in part.pods]
    assert sorted([*inside, *left]) == sorted(of)
    for unit in units_of(*pods):
        if unit.gang:
            members = {uid for part in unit.parts for uid in part.pods}
            assert members <= set(inside) or members <= set(left)
    order = [same(unit) for unit in units_of(*pods)]
    assert [order.index(same(unit)) for unit in rest] == sorted(order.index(same(unit)) for unit in rest)


@given(some_pods(), some_rooms())
def test_nobody_is_placed_where_they_do_not_fit(pods: list[Pod], rooms: list[Room]) -> None:
    placed = place(a_view(*pods), units_of(*pods), rooms)
    check(pods, rooms, placed.into, placed.rest)


@given(some_pods(), some_rooms())
def test_nothing_is_opened_in_vain(pods: list[Pod], rooms: list[Room]) -> None:
    units = units_of(*pods)
    found, unfit = choose(units, [Candidate(room=room, cost=(1,)) for room in rooms]), impossible(units, rooms)
    check(pods, rooms, found.into, found.rest)
    assert found.into.keys() == set(found.rooms)
    assert all(found.into.values())
    of = shape_of(pods)
    for unit in found.rest:
        for part in unit.parts:
            nowhere = all(why_not(of[part.pods[0]], room) for room in rooms)
            assert (part.digest in unfit) == nowhere


@given(some_pods(), some_rooms(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(pods: list[Pod], rooms: list[Room], chance: Any) -> None:
    candidates = [Candidate(room=room, cost=(len(room.free),)) for room in rooms]
    placed, chosen = place(a_view(*pods), units_of(*pods), rooms), choose(units_of(*pods), candidates)
    chance.shuffle(pods)
    chance.shuffle(rooms)
    chance.shuffle(candidates)
    assert place(a_view(*pods), units_of(*pods), rooms) == placed
    assert choose(units_of(*pods), candidates) == chosen


@given(some_pods(), some_rooms(), some_rooms())
def test_more_rooms_never_leave_more_of_the_first_unit(pods: list[Pod], rooms: list[Room], more: list[Room]) -> None:
    units = units_of(*pods)
    more = [*rooms, *(structs.replace(room, name=f"m{number}") for number, room in enumerate(more))]

    def left(among: list[Room]) -> list[int]:
        placed = place(a_view(*pods), units, among)
        chosen = choose(units, [Candidate(room=room, cost=(1,)) for room in among])
        return [sum(unit.count for unit in rest if same(unit) == same(units[0])) for rest in (placed.rest, chosen.rest)]

    assert all(few >= many for few, many in zip(left(rooms), left(more), strict=True))


@given(st.lists(shapes, min_size=1, max_size=4), some_rooms())
def test_all_rooms_at_once_are_judged_as_each_alone(kinds: list[Shape], rooms: list[Room]) -> None:
    units = units_of(*[waits(f"p{number}", shape=shape) for number, shape in enumerate(kinds)])
    stock = FreeCapacity(rooms, [part for unit in units for part in unit.parts])
    for unit in units:
        fitting = {stock.rooms[room].name for room in stock.fits(unit.parts[0]).tolist()}
        assert fitting == {room.name for room in rooms if not why_not(unit.parts[0].shape, room)}


huge = st.sampled_from([1, 10**6, 2**40 * 10**6, 2**61, 2**63, 10**22, 10**24, 10**30])


@given(st.lists(huge, min_size=1, max_size=5), st.lists(huge, min_size=1, max_size=3), st.booleans())
def test_no_number_is_too_large(asked: list[int], there: list[int], partly_known: bool) -> None:
    pods = [
        waits(f"p{number}", shape=Shape(requests=(("memory", amount), (GPU, MICRO))))
        for number, amount in enumerate(asked)
    ]
    rooms = [
        a_room(f"n{number}", free=(("memory", amount), (GPU, 2 * MICRO)), partly_known=partly_known)
        for number, amount in enumerate(there)
    ]
    found = choose(
        units_of(*pods), [Candidate(room=room, cost=(amount,)) for room, amount in zip(rooms, there, strict=True)]
    )
    check(pods, rooms, found.into, found.rest)


# --- the cheapest set, by trying everything -----------------------------------------------------------------------------------------


def arrangements(units: Sequence[Unit], rooms: Sequence[Room]) -> Iterator[tuple[int, ...]]:
    """How many of each unit are served, in every way to put pods into rooms that keeps gangs whole."""
    slots: list[tuple[int, PendingPods]] = [
        (place_, part) for place_, unit in enumerate(units) for part in unit.parts for _ in part.pods
    ]

    def put(number: int, inside: list[list[Shape]], served: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if number == len(slots):
            if all(not unit.gang or many in (0, unit.count) for unit, many in zip(units, served, strict=True)):
                yield served
            return
        place_, part = slots[number]
        yield from put(number + 1, inside, served)
        for room, shapes_ in zip(rooms, inside, strict=True):
            if not why_not(part.shape, room) and holds(room, [*shapes_, part.shape]):
                shapes_.append(part.shape)
                more = (*served[:place_], served[place_] + 1, *served[place_ + 1 :])
                yield from put(number + 1, inside, more)
                shapes_.pop()

    yield from put(0, [[] for _ in rooms], (0,) * len(units))


def best_by_trying(
    units: Sequence[Unit], candidates: Sequence[Candidate], at_most: int = 99
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Who is served at best with so many rooms, and the cheapest names for that."""
    sets = [some for size in range(min(at_most, len(candidates)) + 1) for some in combinations(candidates, size)]
    possible = max(max(arrangements(units, [each.room for each in some])) for some in sets)
    ranked = sorted(
        sets,
        key=lambda some: (
            [sum(part) for part in zip(*(each.cost for each in some), strict=True)] or [0, 0],
            len(some),
            sorted(each.room.name for each in some),
        ),
    )
    for some in ranked:
        if possible in set(arrangements(units, [each.room for each in some])):
            return possible, tuple(sorted(each.room.name for each in some))
    raise AssertionError("everything open serves whom it serves")


small_rooms = some_rooms(most=4)
costs = st.tuples(st.integers(0, 1), st.integers(0, 2))


def served_by(units: Sequence[Unit], rest: Sequence[Unit]) -> tuple[int, ...]:
    """How many of each unit have a place."""
    left = {same(unit): unit.count for unit in rest}
    return tuple(unit.count - left.get(same(unit), 0) for unit in units)


@settings(max_examples=200)
@given(some_pods(most=4), small_rooms, st.lists(costs, min_size=4, max_size=4))
def test_a_small_choice_is_the_best_there_is(pods: list[Pod], rooms: list[Room], prices: list[tuple[int, int]]) -> None:
    units = units_of(*pods)
    candidates = [Candidate(room=room, cost=cost) for room, cost in zip(rooms, prices, strict=False)]
    served, names = best_by_trying(units, candidates)
    found = choose(units, candidates)
    assert (served_by(units, found.rest), found.rooms) == (served, names)


@settings(max_examples=200)
@given(some_pods(most=4), small_rooms, st.lists(costs, min_size=4, max_size=4), st.integers(0, 3))
def test_a_small_choice_of_so_many_at_most_is_the_best_there_is(
    pods: list[Pod], rooms: list[Room], prices: list[tuple[int, int]], at_most: int
) -> None:
    units = units_of(*pods)
    candidates = [Candidate(room=room, cost=cost) for room, cost in zip(rooms, prices, strict=False)]
    served, names = best_by_trying(units, candidates, at_most)
    found = choose(units, candidates, at_most=at_most)
    assert (served_by(units, found.rest), found.rooms) == (served, names)
    check(pods, rooms, found.into, found.rest)


@given(
    some_pods(), some_rooms(most=3), st.lists(st.integers(1, 4), min_size=3, max_size=3), st.none() | st.integers(0, 4)
)
def test_a_candidate_with_a_count_is_as_good_as_so_many(
    pods: list[Pod], rooms: list[Room], counts: list[int], at_most: int | None
) -> None:
    units = units_of(*pods)
    counted = [Candidate(room=room, cost=(1,), count=many) for room, many in zip(rooms, counts, strict=False)]
    one_by_one = [
        Candidate(room=room if number == 1 else structs.replace(room, name=f"{room.name}#{number}"), cost=(1,))
        for room, many in zip(rooms, counts, strict=False)
        for number in range(1, min(many, len(pods)) + 1)
    ]
    assert choose(units, counted, at_most=at_most) == choose(units, one_by_one, at_most=at_most)


@given(some_pods(), some_rooms(), some_rooms(most=3), st.integers(0, 3))
def test_no_more_are_opened_than_may_be_and_what_is_open_costs_nothing(
    pods: list[Pod], rooms: list[Room], there: list[Room], at_most: int
) -> None:
    there = [structs.replace(room, name=f"there-{number}") for number, room in enumerate(there)]
    units = units_of(*pods)
    found = choose(units, [Candidate(room=room, cost=(1,)) for room in rooms], there, at_most)
    check(pods, [*rooms, *there], found.into, found.rest)
    assert len(found.rooms) <= at_most
    assert {*found.rooms} == found.into.keys() - {room.name for room in there}


@pytest.mark.parametrize("seed", range(3))
def test_a_large_choice_is_near_what_any_choice_must_cost(seed: int) -> None:
    """The GPUs that are opened are at most a few more than those that are asked for."""
    sizes = [1, 1, 2, 4, 8, 1, 4, 2]
    pods = [waits(f"p{number}", sizes[(number * (seed + 3)) % 8]) for number in range(400)]
    machines = [
        Candidate(room=a_room(f"m{number:03}", (4, 8)[number % 2]), cost=((4, 8)[number % 2],)) for number in range(400)
    ]
    found = choose(units_of(*pods), machines)
    asked = sum(amount // MICRO for pod in pods for _, amount in pod.shape.requests)
    gpus = {each.room.name: each.cost[0] for each in machines}
    assert found.rest == ()
    assert asked <= sum(gpus[name] for name in found.rooms) < asked + 8
