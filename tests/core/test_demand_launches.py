"""Launches that differ in type and zone only: those that cheaper ones make needless are left out, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.core import capacity_round, demand
from headroom.core.demand import Candidate, cheapest_alike, choose, expand
from headroom.core.demand.choosing import MOST_LAUNCHES
from headroom.model.facts import Pod
from tests.builders import NOON
from tests.core.demand_stage import a_machine, a_shape, affinity, says, units_of, waits
from tests.core.spot_stage import a_view
from tests.core.test_spot_demand import on_demand, pending

TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
TYPES, ZONES = tuple(f"t{number}" for number in range(16)), tuple(f"z{number}" for number in range(16))


def a_launch(kind: str, zone: str, count: int = 1, **fields: Any) -> Candidate:
    name = f"pool:{kind}@{zone}"
    labels = tuple(sorted({TYPE: kind, ZONE: zone, "kubernetes.io/hostname": name}.items()))
    found = a_machine(name, source="Launch", labels=labels, **fields)
    return Candidate(room=found.room, cost=found.cost, count=count)


def labels_of(pods: list[Pod]) -> frozenset[str]:
    return frozenset().union(*(demand.constraints_of(pod.shape).keys for pod in pods))


SELECTORS = ((), ((ZONE, "z1"),), ((TYPE, "t1"),), ((TYPE, "t0"), (ZONE, "z1")), (("kubernetes.io/hostname", "x"),))
AFFINITIES = ("", affinity([says(ZONE, "NotIn", "z0")]), affinity([says(TYPE, "Exists")]))


@given(
    pods=st.lists(
        st.tuples(st.sampled_from((1, 2, 8)), st.sampled_from(SELECTORS), st.sampled_from(AFFINITIES)), max_size=4
    ),
    costs=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    gpus=st.lists(st.sampled_from((2, 8)), min_size=4, max_size=4),
    at_most=st.integers(1, 4),
)
@settings(max_examples=200, deadline=None)
def test_what_is_opened_is_the_same_without_them(pods: Any, costs: Any, gpus: Any, at_most: int) -> None:
    waiting = [
        waits(f"p{number}", shape=a_shape(size, node_selector=selector, affinity=terms))
        for number, (size, selector, terms) in enumerate(pods)
    ]
    places = [(kind, zone) for kind in TYPES[:2] for zone in ZONES[:2]]
    every = [
        a_launch(*place, count=at_most, gpus=size, cost=(cost,))
        for place, cost, size in zip(places, costs, gpus, strict=True)
    ]
    units, many = units_of(*waiting), max(1, len(waiting))
    fewer = cheapest_alike(every, labels_of(waiting), min(many, at_most))
    few, all_ = (choose(units, expand(each, many), (), at_most) for each in (fewer, every))
    # Pods may change places among machines of one kind.
    assert (few.rooms, few.rest) == (all_.rooms, all_.rest)
    assert sorted(uid for uids in few.into.values() for uid in uids) == sorted(
        uid for uids in all_.into.values() for uid in uids
    )


def test_one_is_left_where_pods_tell_none_apart_and_all_where_they_do() -> None:
    every = [a_launch(kind, zone, 20, cost=(1,)) for kind in TYPES for zone in ZONES]
    assert [each.room.name for each in cheapest_alike(every, (), 20)] == ["pool:t0@z0"]
    assert len(cheapest_alike(every, {ZONE}, 20)) == len(ZONES)
    assert cheapest_alike(every, {TYPE, ZONE}, 20) == every


def test_machines_that_exist_and_launches_that_are_too_few_are_left_in() -> None:
    machines = [a_machine(name) for name in "ab"]
    assert cheapest_alike(machines, (), 1) == machines
    few = [a_launch("t0", zone, 2) for zone in ZONES]
    assert cheapest_alike(few, (), 3) == few


@pytest.mark.parametrize("selector", [(), ((TYPE, "t3"), (ZONE, "z3"))])
def test_no_pool_costs_a_round_more_than_some_thousand_launches(selector: Any) -> None:
    """256 alternatives of 1,000 machines each were looked at one by one: a minute, for each round, for a few such pools."""
    spec: dict[str, Any] = {"instanceType": None, "availabilityZone": None, "instanceTypes": TYPES, "zones": ZONES}
    pool = on_demand(maximum=1000, maxPurchasesPerHour=10_000, template={"gpuCount": 1}, **spec)
    shape = a_shape(1, node_selector=selector, tolerations=pending().shape.tolerations)
    pods = [pending(f"p{number}") for number in range(300)] + [waits("q", shape=shape, namespace="team-a")]
    found = capacity_round(a_view(pool, pods=pods, listed=NOON))
    [closed] = found.closed.values()
    assert len(closed) <= MOST_LAUNCHES
    assert sum(map(len, found.opens.values())) == 301


def test_pods_that_no_supply_tells_apart_are_one_sort() -> None:
    """With priorities, starts or other resources of their own each pod was one: 10 s a round for 5,000 pods and 200 pools."""
    shapes = (a_shape(1, node_selector=((ZONE, "z"),)), a_shape(1))
    pods = [
        pending(
            f"p{number}",
            priority=number,
            shape=structs.replace(
                shapes[number % 2],
                requests=(*shapes[0].requests, (f"example.com/r{number}", 1)),
                tolerations=pending().shape.tolerations,
            ),
        )
        for number in range(20)
    ]
    low = pending("low", priority=-20)
    found = capacity_round(a_view(on_demand(), on_demand("two"), pods=[*pods, low], listed=NOON))
    sorts = found.pending.reasons(found.supplies[0])
    assert sorted((word, len(units)) for units, word in sorts) == [("", 20), ("BelowPriorityFloor", 1)]


def test_a_pool_looks_at_no_pods_of_namespaces_that_it_does_not_serve() -> None:
    """With 1,000 pools in 1,000 namespaces each looked at the pods of all: three seconds a round."""
    pods = [pending(f"p{number}", namespace=f"team-{number}") for number in range(5)]
    world = a_view(on_demand(), pods=[*pods, pending("mine")], listed=NOON)
    found = capacity_round(structs.replace(world, pool_namespaces={"team-a/one": ("team-3", "team-9")}))
    [units] = [units for units, _ in found.pending.reasons(found.supplies[0])] or [[]]
    assert found.opens, "its own are served"
    assert units == []
    halted = structs.replace(on_demand(), spec=structs.replace(on_demand().spec, paused=True))
    found = capacity_round(a_view(halted, pods=[*pods, pending("mine")], listed=NOON))
    assert [unit.first for units, _ in found.pending.reasons(found.supplies[0]) for unit in units] == ["team-a/mine"]
