"""Which rooms are opened for what found no place: the cheapest set, in the order of the units, and nothing for the impossible."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.demand import Candidate, Chosen, choose, digest_of, impossible
from headroom.model.facts import Pod, Shape, Taint
from tests.core.demand_stage import (
    GPU,
    MICRO,
    a_machine,
    a_room,
    a_shape,
    affinity,
    alike,
    amounts,
    gang,
    says,
    units_of,
    waits,
)


def chosen(pods: list[Pod], *candidates: Candidate) -> Chosen:
    return choose(units_of(*pods), candidates)


def left(found: Chosen) -> list[tuple[str, int]]:
    return [(unit.first, unit.count) for unit in found.rest]


FOUR, EIGHT = a_machine("w1", 4), a_machine("w2", 8)


@pytest.mark.parametrize(
    ("pods", "machines", "opened"),
    [
        ([waits("p", 8)], (FOUR, EIGHT), ("w2",)),
        (alike(6), (FOUR, EIGHT), ("w2",)),
        (alike(4), (FOUR, EIGHT), ("w1",)),
        (alike(9), (FOUR, EIGHT), ("w1", "w2")),
        ([waits("a", 4), waits("b", 8)], (FOUR, EIGHT), ("w1", "w2")),
        (alike(8), (FOUR, EIGHT, a_machine("w3", 4)), ("w2",)),
        (alike(2, 4), (a_machine("b", 8), a_machine("a", 8)), ("a",)),
        (alike(3, 3), (a_machine("a", 8), a_machine("b", 4), a_machine("c", 4)), ("a", "b")),
        ([], (FOUR,), ()),
    ],
)
def test_the_fewest_gpus_then_the_fewest_machines_then_the_first_by_name(
    pods: list[Pod], machines: tuple[Candidate, ...], opened: tuple[str, ...]
) -> None:
    found = chosen(pods, *machines)
    assert found.rooms == opened
    assert sorted(uid for held in found.into.values() for uid in held) == sorted(pod.uid for pod in pods)
    assert found.into.keys() == set(opened)
    assert found.rest == ()


def test_costs_are_compared_from_left_to_right() -> None:
    watts = [a_machine("a", 8, cost=(1000, 8)), a_machine("b", 4, cost=(2000, 4)), a_machine("c", 4, cost=(1000, 4))]
    assert chosen([waits("p", 4)], *watts).rooms == ("c",)
    assert chosen([waits("p", 4)], *watts[:2]).rooms == ("a",)
    # One that costs much on the left outweighs any number of others on the right.
    assert chosen(alike(2, 4), a_machine("x", 8, cost=(1, 0)), *watts[:0], *_many(2, cost=(0, 10**9))).rooms == (
        "m0",
        "m1",
    )


def test_of_equal_cost_the_first_by_name_is_taken_whatever_its_size() -> None:
    machines = [a_machine("m0", 8, cost=(1,)), a_machine("m1", 7, cost=(1,)), a_machine("m2", 8, cost=(1,))]
    assert chosen([waits("a", 1), waits("b", 5)], *machines).rooms == ("m0",)


def _many(count: int, gpus: int = 4, **fields: Any) -> list[Candidate]:
    return [a_machine(f"m{number}", gpus, **fields) for number in range(count)]


def test_what_costs_nothing_is_used_first() -> None:
    there = a_machine("there", 1, cost=(0,))
    assert chosen(gang("x", 3, 1), there, a_machine("a", 2), a_machine("b", 4)).rooms == ("a", "there")


# --- what cannot be ---------------------------------------------------------------------------------------------------------------


def test_an_impossible_pod_opens_nothing_and_is_told_what_comes_nearest() -> None:
    pods = [waits("big", 16), waits("p", 1)]
    found = chosen(pods, FOUR, EIGHT)
    assert found.rooms == ("w1",)
    assert left(found) == [("team-a/big", 1)]
    assert impossible(units_of(*pods), [FOUR.room, EIGHT.room]) == {
        digest_of(a_shape(16)): f"The nearest is w2, but it needs 16 {GPU} and 8 are there."
    }


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (a_shape(1, 65), "The nearest is b, but it needs 65 cpu and 64 are there."),
        (a_shape(1, 0, 513), "The nearest is b, but it needs 513Gi memory and 512Gi are there."),
        (a_shape(1, node_selector=(("gpu", "b200"),)), "The nearest is a, but it requires label gpu=b200."),
        (a_shape(8), f"The nearest is b, but it needs 8 {GPU} and 4 are there."),
    ],
)
def test_the_nearest_is_one_that_is_allowed_with_the_most_gpus(shape: Any, why: str) -> None:
    tainted = a_room("a", 8, taints=(Taint("x", "", "NoSchedule"),))
    candidates = [tainted, a_room("b", free=amounts(4, 64, 512)), a_room("c", free=amounts(2, 64, 512))]
    units = units_of(waits(shape=shape))
    assert impossible(units, candidates) == {digest_of(shape): why}
    assert choose(units, [Candidate(room=room, cost=(1,)) for room in candidates]) == Chosen(rest=units)


def test_the_nearest_has_most_of_the_gpus_that_are_asked_for() -> None:
    amd = Shape(requests=(("amd.com/gpu", 16 * MICRO),))
    rooms = [a_room("nvidia", 8), a_room("amd", free=(("amd.com/gpu", 4 * MICRO),))]
    assert impossible(units_of(waits(shape=amd), waits("q")), rooms) == {
        digest_of(amd): "The nearest is amd, but it needs 16 amd.com/gpu and 4 are there."
    }


def test_nothing_is_impossible_where_there_is_nothing() -> None:
    units = units_of(waits())
    assert choose(units, []) == Chosen(rest=units)
    assert impossible(units, []) == {}


def test_only_gpus_and_what_is_said_of_a_machine_limit_it() -> None:
    pods = [waits(f"p{number}", shape=a_shape(1, 100, 1000)) for number in range(8)]
    assert chosen(pods, EIGHT).rooms == ("w2",)
    limited = a_machine("w3", 8, free=amounts(8, 200))
    assert left(chosen(pods, limited)) == [("team-a/p2", 6)]


@pytest.mark.parametrize(("cpu", "gib"), [(8, 1024), (64, 16)])
def test_cpu_or_memory_may_decide_how_many_are_opened(cpu: int, gib: int) -> None:
    machines = [a_machine(f"m{number}", 8, free=amounts(8, cpu, gib)) for number in range(9)]
    pods = [waits(f"p{number}", shape=a_shape(1, 4, 8)) for number in range(8)]
    assert chosen(pods, *machines).rooms == ("m0", "m1", "m2", "m3")


# --- not enough for all -----------------------------------------------------------------------------------------------------------


def test_a_later_unit_never_takes_the_room_of_an_earlier_one() -> None:
    pods = [waits("low", 8), waits("high", 4, priority=1)]
    found = chosen(pods, EIGHT)
    assert found.into == {"w2": ("uid-high",)}
    assert left(found) == [("team-a/low", 1)]


def test_of_like_pods_as_many_as_possible_are_served_the_oldest_first() -> None:
    pods = [waits(f"p{age}", 4, created=age) for age in (3, 1, 2)]
    found = chosen(pods, EIGHT)
    assert found.into == {"w2": ("uid-p1", "uid-p2")}
    assert left(found) == [("team-a/p3", 1)]


def test_a_gang_is_served_whole_or_not_at_all() -> None:
    assert chosen(gang("x", 3, 8), EIGHT, a_machine("w3", 8)).rooms == ()
    assert chosen(gang("x", 3, 8), EIGHT, a_machine("w3", 8), a_machine("w4", 8)).rooms == ("w2", "w3", "w4")
    found = chosen([*gang("x", 3, 8), waits("after", 8)], EIGHT, a_machine("w3", 8))
    assert (found.into, left(found)) == ({"w2": ("uid-after",)}, [("team-a/x-0", 3)])


def test_a_gang_of_two_shapes_is_served_together() -> None:
    pods = [*gang("x", 2, 4), *gang("x", 1, 1, prefix="leader")]
    assert chosen(pods, EIGHT, a_machine("w3", 1), FOUR).rooms == ("w2", "w3")
    found = chosen(pods, EIGHT)
    assert (found.rooms, left(found)) == ((), [("team-a/leader0", 3)])
    assert impossible(units_of(*pods), [EIGHT.room]) == {}


def test_a_gang_with_one_impossible_pod_is_not_served() -> None:
    pods = [*gang("x", 2, 4), *gang("x", 1, 16, prefix="big")]
    found = chosen(pods, EIGHT)
    assert (found.rooms, left(found)) == ((), [("team-a/big0", 3)])
    assert impossible(units_of(*pods), [EIGHT.room]).keys() == {f"gang-{digest_of(a_shape(16))}"}


def test_those_who_are_served_change_places_if_one_more_goes_in_then() -> None:
    """Put into the fullest room each, the first two would leave no room that holds the third."""
    pods = [waits("a", 3, priority=3), waits("b", 2, priority=2), waits("c", 3, priority=1), waits("d", 2)]
    found = chosen(pods, a_machine("w1", 4), a_machine("w2", 6))
    assert found.rest == ()
    assert {name: set(pods) for name, pods in found.into.items()} == {
        "w1": {"uid-b", "uid-d"},
        "w2": {"uid-a", "uid-c"},
    }


def test_a_gang_goes_in_if_those_before_it_change_places() -> None:
    pods = [waits("a", 3, priority=3), waits("b", 2, priority=2), *gang("x", 1, 3), *gang("x", 1, 2, prefix="y")]
    found = chosen(pods, a_machine("w1", 4), a_machine("w2", 6))
    assert (found.rest, found.rooms) == ((), ("w1", "w2"))


# --- rooms that differ ------------------------------------------------------------------------------------------------------------


def test_labels_and_taints_decide_which_rooms_will_do() -> None:
    h100, a100 = (("gpu", "h100"),), (("gpu", "a100"),)
    cheap = a_machine("cheap", 4, labels=a100)
    dear = a_machine("dear", 8, labels=h100, taints=(Taint("x", "", "NoSchedule"),))
    open_ = a_shape(1, node_selector=h100, tolerations='[{"operator": "Exists"}]')
    assert chosen([waits(shape=open_)], cheap, dear).rooms == ("dear",)
    shut = a_shape(1, node_selector=h100)
    assert impossible(units_of(waits(shape=shut)), [cheap.room, dear.room]) == {
        digest_of(shut): "The nearest is dear, but it does not tolerate taint x:NoSchedule."
    }


def test_rooms_that_only_their_names_tell_apart_are_told_apart_by_pods_that_ask_for_names() -> None:
    machines = [a_machine(f"m{number}", 8, labels=(("kubernetes.io/hostname", f"m{number}"),)) for number in range(4)]
    by_label = waits(shape=a_shape(1, node_selector=(("kubernetes.io/hostname", "m2"),)))
    by_field = waits(shape=a_shape(1, affinity=affinity({"matchFields": [says("metadata.name", "In", "m3")]})))
    assert chosen([by_label], *machines).rooms == ("m2",)
    assert chosen([by_field], *machines).rooms == ("m3",)
    assert chosen([waits()], *machines).rooms == ("m0",)


# --- many -------------------------------------------------------------------------------------------------------------------------


def test_a_large_pool_is_opened_without_waste() -> None:
    machines = [a_machine(f"m{number:03}", 4 if number % 2 else 8) for number in range(200)]
    found = chosen([*alike(300), *alike(50, 8, "big"), *alike(37, 4, "mid")], *machines)
    gpus = {each.room.name: each.cost[0] for each in machines}
    assert found.rest == ()
    # 848 GPUs are asked for: 100 machines of 8 and 12 of 4.
    assert sum(gpus[name] for name in found.rooms) == 848
    assert len(found.rooms) == 112


def test_rooms_that_were_opened_for_nothing_are_closed_again() -> None:
    """Too many pods to try every set: the rule of thumb opens the small one first, and then needs the large one anyway."""
    pods = alike(60, 1)
    found = chosen(pods, a_machine("small", 40), a_machine("large", 64, cost=(65,)))
    assert found.rooms == ("large",)


def test_rooms_are_changed_for_others_that_hold_the_same_and_cost_less() -> None:
    """Where CPUs and GPUs are scarce in different machines, no rule of thumb alone opens 22 machines for these pods."""
    pods = [waits(f"a{number}", shape=a_shape(4, 16)) for number in range(31)] + alike(26, 8, "b")
    large = [a_machine(f"large{number:02}", 16, free=amounts(16, 32)) for number in range(60)]
    small = [a_machine(f"small{number:02}", 8, free=amounts(8, 64)) for number in range(60)]
    found = chosen(pods, *large, *small)
    assert found.rest == ()
    assert sum(16 if name.startswith("large") else 8 for name in found.rooms) == 336
    assert len(found.rooms) == 22


def test_a_machine_of_which_no_network_card_is_named_is_not_opened_for_a_pod_that_needs_one() -> None:
    pod = waits(shape=Shape(requests=(*amounts(4), ("rdma/hca", MICRO))))
    with_card = a_machine("w3", 8, free=(*amounts(8), ("rdma/hca", MICRO)))
    assert chosen([pod], FOUR, with_card).rooms == ("w3",)
    assert chosen([pod], FOUR).rooms == ()
    assert impossible(units_of(pod), [FOUR.room])[digest_of(pod.shape)] == (
        "The nearest is w1, but it needs 1 rdma/hca and none is configured there (resources of the machine, or of the template)."
    )
