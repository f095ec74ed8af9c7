"""Who is placed where, who is left, and when kube-scheduler's word counts for more than ours."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.demand import Placed, Room, Unit, place, rooms, wanted
from headroom.model.facts import Node, Pod
from tests.builders import NOON, a_pod
from tests.core.demand_stage import (
    MINUTE,
    a_ready_node,
    a_room,
    a_shape,
    a_view,
    alike,
    amounts,
    gang,
    waits,
)

SPREAD = "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints."


def placed(*pods: Pod, nodes: list[Node] | None = None, coming: list[Room] | None = None, **more: Any) -> Placed:
    view = a_view(*pods, nodes=nodes or [], **more)
    return place(view, wanted(view).units, [*rooms(view, lambda _: True), *(coming or [])])


def left(found: Placed) -> list[tuple[str, int]]:
    return [(unit.first, unit.count) for unit in found.rest]


def test_pods_go_where_they_fit_and_the_rest_is_left() -> None:
    found = placed(*alike(3, 4), waits("big", 16), coming=[a_room("a", 8)])
    assert found.into == {"a": ("uid-p0", "uid-p1")}
    assert left(found) == [("team-a/big", 1), ("team-a/p2", 1)]


def test_the_fullest_room_that_holds_a_pod_is_taken_then_the_first_by_name() -> None:
    found = placed(
        *alike(3, 2), coming=[a_room("d", 8), a_room("c", 4), a_room("b", 2), a_room("a", 4), a_room("e", 1)]
    )
    assert found.into == {"b": ("uid-p0",), "a": ("uid-p1", "uid-p2")}


def test_what_is_there_is_taken_before_what_is_coming() -> None:
    found = placed(waits(), nodes=[a_ready_node("n", 8)], coming=[a_room("a", 1)])
    assert found.into == {"n": ("uid-p",)}


def test_free_gpus_in_fragments_hold_no_larger_pod() -> None:
    found = placed(waits("big", 4), coming=[a_room("a", 2), a_room("b", 2)])
    assert (found.into, left(found)) == ({}, [("team-a/big", 1)])


def test_the_more_urgent_are_placed_first() -> None:
    pods = [waits("old", 4, created=1), waits("urgent", 3, priority=5, created=9)]
    assert placed(*pods, coming=[a_room("a", 4)]).into == {"a": ("uid-urgent",)}
    assert placed(*pods, coming=[a_room("a", 7)]).rest == ()


@pytest.mark.parametrize(("cpu", "gib", "served"), [(16, 64, 4), (8, 64, 2), (16, 16, 1)])
def test_any_resource_may_be_the_bottleneck(cpu: int, gib: int, served: int) -> None:
    pods = [waits(f"p{number}", shape=a_shape(1, 4, 16)) for number in range(5)]
    found = placed(*pods, coming=[a_room("a", free=amounts(4, cpu, gib))])
    assert sum(map(len, found.into.values())) == served


def test_labels_and_taints_are_heeded() -> None:
    shape = a_shape(1, node_selector=(("gpu", "h100"),))
    other, right = a_room("a", labels=(("gpu", "a100"),)), a_room("b", labels=(("gpu", "h100"),))
    assert placed(waits(shape=shape), coming=[other, right]).into == {"b": ("uid-p",)}
    assert left(placed(waits(shape=shape), coming=[other])) == [("team-a/p", 1)]


def test_without_rooms_all_are_left() -> None:
    assert left(placed(waits())) == [("team-a/p", 1)]
    assert placed(coming=[a_room()]) == Placed()


# --- gangs ----------------------------------------------------------------------------------------------------------------------


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    found = placed(*gang("x", 3, 4), waits("later", 4), coming=[a_room("a", 4), a_room("b", 4)])
    assert (found.into, left(found)) == ({"a": ("uid-later",)}, [("team-a/x-0", 3)])
    whole = placed(*gang("x", 3, 4), coming=[a_room("a", 4), a_room("b", 8)])
    assert whole.into == {"a": ("uid-x-0",), "b": ("uid-x-1", "uid-x-2")}


def test_a_gang_of_two_shapes_is_placed_together() -> None:
    pods = [*gang("x", 2, 4), *gang("x", 1, 1, prefix="leader")]
    assert placed(*pods, coming=[a_room("a", 8), a_room("b", 1)]).rest == ()
    found = placed(*pods, coming=[a_room("a", 8)])
    assert (found.into, left(found)) == ({}, [("team-a/leader0", 3)])


def test_who_has_the_fewest_rooms_to_choose_from_goes_first() -> None:
    pods = [
        *gang("x", 1, prefix="any", shape=a_shape(4)),
        *gang("x", 1, prefix="pinned", shape=a_shape(4, node_selector=(("gpu", "h100"),))),
    ]
    found = placed(*pods, coming=[a_room("a", 4, labels=(("gpu", "h100"),)), a_room("b", 4)])
    assert found.into == {"a": ("uid-pinned0",), "b": ("uid-any0",)}


def test_a_gang_is_placed_where_only_one_arrangement_holds_it() -> None:
    """The fullest room first, which is the rule, would put a large pod into the small room and find no place for a small one."""
    found = placed(
        *gang("x", 2, 3, prefix="large"), *gang("x", 2, 2, prefix="small"), coming=[a_room("a", 4), a_room("b", 6)]
    )
    assert found.into == {"a": ("uid-small0", "uid-small1"), "b": ("uid-large0", "uid-large1")}


# --- kube-scheduler's verdict -----------------------------------------------------------------------------------------------------


def refused(name: str = "p", gpus: float = 1, for_ms: int = MINUTE, **fields: Any) -> Pod:
    """A pod that kube-scheduler has refused for a minute."""
    return waits(name, gpus, unschedulable_since=NOON - for_ms, unschedulable_message=SPREAD, **fields)


def test_a_node_that_kube_scheduler_refuses_for_a_minute_is_no_place() -> None:
    found = placed(refused(), nodes=[a_ready_node("n")])
    assert (found.into, left(found)) == ({}, [("team-a/p", 1)])
    [verdict] = found.verdicts.values()
    assert (verdict.pod, verdict.rooms, verdict.message) == ("team-a/p", ("n",), SPREAD)
    assert verdict.scheduler == "kube-scheduler"
    assert found.verdicts.keys() == {found.rest[0].parts[0].digest}


def test_a_verdict_says_whose_it_is() -> None:
    theirs = a_shape(1, scheduler="volcano")
    beside = waits("other", shape=theirs, node="n", phase="Running")
    found = placed(refused(shape=theirs), beside, nodes=[a_ready_node("n")])
    assert [each.scheduler for each in found.verdicts.values()] == ["volcano"]


@pytest.mark.parametrize(
    ("pod_ms", "node_ms"), [(MINUTE - 1, 60 * MINUTE), (60 * MINUTE, MINUTE - 1), (0, 0)], ids=["pod", "node", "both"]
)
def test_who_is_new_to_kube_scheduler_is_placed_as_we_see_it(pod_ms: int, node_ms: int) -> None:
    found = placed(refused(for_ms=pod_ms), nodes=[a_ready_node("n", for_ms=node_ms)])
    assert (found.into, found.verdicts) == ({"n": ("uid-p",)}, {})
    assert found.recheck_at == NOON + MINUTE - min(pod_ms, node_ms)


def test_the_clock_alone_changes_nothing_where_all_are_old_or_nobody_is_placed() -> None:
    assert placed(refused(), nodes=[a_ready_node("n")]).recheck_at is None
    assert placed(refused(gpus=16), nodes=[a_ready_node("n", for_ms=0)]).recheck_at is None


def test_a_verdict_needs_room_as_it_stands_now() -> None:
    """Two pods wait for one room: that kube-scheduler placed neither for a minute is a verdict, a full node is none."""
    busy = a_pod("busy", gpus=8, node="n", phase="Running")
    assert placed(busy, refused(), nodes=[a_ready_node("n")]).verdicts == {}
    both = placed(refused("a", 4), refused("b", 4), nodes=[a_ready_node("n", 4)])
    assert (both.into, left(both)) == ({}, [("team-a/a", 2)])


def test_that_kube_scheduler_has_not_used_what_just_became_free_is_no_verdict() -> None:
    over = a_pod("over", gpus=6, node="n", phase="Succeeded", ended=NOON - 1_000)
    just = placed(over, refused("p", 4), nodes=[a_ready_node("n")])
    assert (just.into, just.verdicts, just.recheck_at) == ({"n": ("uid-p",)}, {}, NOON + MINUTE - 1_000)
    # What was free before it ended would have held the pod.
    assert placed(over, refused("p", 2), nodes=[a_ready_node("n")]).verdicts != {}
    # The room is free for pods all the same.
    assert placed(over, waits("new", 8), nodes=[a_ready_node("n")]).into == {"n": ("uid-new",)}


def test_nor_what_a_deleted_pod_has_just_left() -> None:
    pod, node = refused("p", 4), a_ready_node("n")
    world = a_view(pod, nodes=[node])
    world.pods.note_departure(a_pod("gone", gpus=6, node="n", phase="Running"), NOON - 1_000)
    just = place(world, wanted(world).units, rooms(world, lambda _: True))
    assert (just.into, just.verdicts) == ({"n": ("uid-p",)}, {})
    world.pods.departed.clear()
    world.pods.note_departure(a_pod("gone", gpus=6, node="n", phase="Running"), NOON - 2 * MINUTE)
    assert place(world, wanted(world).units, rooms(world, lambda _: True)).verdicts != {}


def test_the_longest_refused_of_a_shape_speaks_for_all_whatever_their_priority() -> None:
    pods = [waits("new", 2, priority=9), refused("old", 2), waits("other", 1)]
    found = placed(*pods, nodes=[a_ready_node("n")])
    assert found.into == {"n": ("uid-other",)}
    assert left(found) == [("team-a/new", 1), ("team-a/old", 1)]
    assert [each.pod for each in found.verdicts.values()] == ["team-a/old"]


def test_refused_pods_still_go_to_what_is_coming_or_new() -> None:
    nodes = [a_ready_node("old"), a_ready_node("new", for_ms=1)]
    found = placed(*[refused(f"p{number}", 8) for number in range(3)], nodes=nodes, coming=[a_room("machine", 8)])
    assert found.into == {"new": ("uid-p0",), "machine": ("uid-p1",)}
    assert len(found.verdicts) == 1
    assert left(found) == [("team-a/p2", 1)]


def test_every_room_is_told_in_which_they_are_refused() -> None:
    found = placed(refused(), nodes=[a_ready_node(f"n{number:02}") for number in range(30)])
    [verdict] = found.verdicts.values()
    assert verdict.rooms == tuple(f"n{number:02}" for number in range(30))


def test_a_node_of_unknown_age_is_no_evidence() -> None:
    node = a_ready_node("n")
    unknown = Node(**{field: getattr(node, field) for field in node.__struct_fields__} | {"ready_since": None})
    assert placed(refused(), nodes=[unknown]).into == {"n": ("uid-p",)}


def gang_refused(count: int, gpus: float, **fields: Any) -> list[Pod]:
    base: dict[str, Any] = {"unschedulable_since": NOON - MINUTE, "unschedulable_message": SPREAD}
    return gang("x", count, gpus, **base | fields)


def test_that_one_pod_of_a_gang_would_fit_is_no_verdict() -> None:
    found = placed(*gang_refused(3, 8), nodes=[a_ready_node("a"), a_ready_node("b")], coming=[a_room("c", 8)])
    assert found.verdicts == {}
    assert found.rest == ()


def test_a_gang_that_would_fit_as_a_whole_is_refused_as_a_whole() -> None:
    nodes = [a_ready_node("a"), a_ready_node("b")]
    found = placed(*gang_refused(2, 8), nodes=nodes)
    assert (found.into, left(found)) == ({}, [("team-a/x-0", 2)])
    assert [(each.rooms, each.pod) for each in found.verdicts.values()] == [(("a", "b"), "team-a/x-0")]
    young = [*gang_refused(1, 8), *gang("x", 1, 8, prefix="new")]
    assert placed(*young, nodes=nodes).rest == ()


def test_a_verdict_on_a_gang_is_none_on_others_of_the_same_shape() -> None:
    found = placed(*gang_refused(2, 4), waits("alone", 4), nodes=[a_ready_node("a", 8)])
    assert found.into == {"a": ("uid-alone",)}


def test_units_come_back_in_their_order() -> None:
    units: tuple[Unit, ...] = placed(*alike(3, 1), waits("q", 2, priority=1), waits("r", 4)).rest
    assert [unit.queue_position for unit in units] == sorted(unit.queue_position for unit in units)
