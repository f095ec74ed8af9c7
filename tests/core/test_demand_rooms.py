"""What is free on which node: per node and never by sums, exact however large the numbers are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.core.demand import Room, reopened, returning, rooms
from headroom.model.facts import UNREADABLE, Node, NodeClaim, Owner, Pod, Shape, Taint
from headroom.model.world import World
from tests.builders import NOON, a_node, a_pod
from tests.core.demand_stage import GPU, MICRO, MINUTE, a_shape, a_view, amounts, waits

ALL = amounts(8, 64, 512)


def runs(name: str, node: str = "n", gpus: float = 1, cpu: float = 0, gib: float = 0, **fields: Any) -> Pod:
    """A pod that is bound to a node."""
    return a_pod(name, shape=a_shape(gpus, cpu, gib), node=node, **{"phase": "Running"} | fields)


def found(world: World) -> dict[str, Room]:
    return {room.name: room for room in rooms(world, lambda _: True)}


def test_a_node_has_what_its_pods_leave() -> None:
    nodes = [a_node("n", allocatable=ALL), a_node("m", allocatable=ALL)]
    pods = [runs("a", gpus=2, cpu=4, gib=32), runs("b", gpus=1, cpu=0.5), runs("c", "m", 4), runs("d", "elsewhere", 8)]
    free = {name: room.free for name, room in found(a_view(*pods, nodes=nodes)).items()}
    assert free == {"m": amounts(4, 64, 512), "n": amounts(5, 59.5, 480)}


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"phase": "Pending"}, 7),
        ({"phase": "Unknown"}, 7),
        ({"deleting": NOON}, 7),
        ({"phase": "Succeeded"}, 8),
        ({"phase": "Failed"}, 8),
        ({"node": ""}, 8),
    ],
)
def test_who_takes_room_on_a_node(fields: dict[str, Any], left: int) -> None:
    view = a_view(runs("a", **fields) if "node" not in fields else waits(), nodes=[a_node("n", allocatable=amounts(8))])
    assert found(view)["n"].free == amounts(left)


def test_room_that_is_being_made_for_a_pod_is_not_free() -> None:
    nominated = waits("a", 2, nominated_node="n", nominated_since=NOON)
    forgotten = waits("b", 4, nominated_node="n", nominated_since=NOON - 5 * MINUTE)
    going = waits("c", 1, nominated_node="n", nominated_since=NOON, deleting=NOON)
    assert found(a_view(nominated, forgotten, going, nodes=[a_node("n", allocatable=amounts(8))]))["n"].free == amounts(
        6
    )


def test_pods_are_counted_where_a_node_says_how_many_it_takes() -> None:
    limited, open_ = a_node("n", allocatable=(*amounts(8), ("pods", 3 * MICRO))), a_node("m", allocatable=amounts(8))
    free = found(a_view(runs("a"), runs("b", gpus=0), runs("c", "m", 0), nodes=[limited, open_]))
    assert free["n"].free == (*amounts(7), ("pods", MICRO))
    assert free["m"].free == amounts(8)


@pytest.mark.parametrize(
    "node",
    [
        a_node("n", ready=False),
        a_node("n", unschedulable=True),
        a_node("n", deleting=NOON),
        a_node("n", labels=(("ours", "no"),)),
    ],
)
def test_a_node_that_takes_no_pods_is_no_room(node: Node) -> None:
    assert rooms(a_view(nodes=[node]), lambda it: it.labels == ()) == []


def test_a_room_says_what_its_node_says() -> None:
    taint = Taint("a", "b", "NoSchedule")
    node = a_node("n", labels=(("x", "y"),), taints=(taint,), ready_since=5)
    assert rooms(a_view(nodes=[node]), lambda _: True) == [
        Room(name="n", source="Node", labels=(("x", "y"),), taints=(taint,), free=amounts(8), ready_since=5)
    ]


@pytest.mark.parametrize("was", ["not-ready", "unreachable", "unschedulable"])
def test_a_taint_that_says_what_a_node_was_does_not_count(was: str) -> None:
    """Kubernetes takes it away a moment after the node is ready; a second machine that is woken in that moment is one too many."""
    taints = tuple(Taint(f"node.kubernetes.io/{name}", "", "NoSchedule") for name in (was, "disk-pressure"))
    view = a_view(nodes=[a_node("n", taints=taints)])
    assert [room.taints for room in rooms(view, lambda _: True)] == [taints[1:]]


@pytest.mark.parametrize("state", ["not-ready", "unreachable", "unschedulable"])
def test_a_taint_that_only_says_what_a_node_was_is_not_believed(state: str) -> None:
    taint, other = (
        Taint(f"node.kubernetes.io/{state}", "", "NoSchedule"),
        Taint("node.kubernetes.io/x", "", "NoSchedule"),
    )
    assert found(a_view(nodes=[a_node("n", taints=(taint, other))]))["n"].taints == (other,)


def test_what_pods_that_just_ended_have_left_behind_is_told_with_the_moment() -> None:
    pods = [
        runs("new", gpus=2, phase="Succeeded", ended=NOON - 1_000),
        runs("newer", gpus=1, phase="Failed", ended=NOON),
        runs("old", gpus=4, phase="Succeeded", ended=NOON - MINUTE),
        runs("unknown", gpus=4, phase="Failed"),
        runs("alive", gpus=1),
    ]
    room = found(a_view(*pods, nodes=[a_node("n")]))["n"]
    assert room.freed == ((NOON - 1_000, amounts(2)), (NOON, amounts(1)))
    assert room.free == amounts(7)


def test_what_karpenter_is_bringing_is_a_room_until_it_is_registered() -> None:
    base: dict[str, Any] = {"labels": (("x", "y"),), "allocatable": amounts(8)}
    claims = [
        NodeClaim(name="coming", **base),
        NodeClaim(name="there", registered=True, **base),
        NodeClaim(name="going", deleting=NOON, **base),
    ]
    view = a_view(node_claims={each.name: each for each in claims})
    assert rooms(view, lambda _: False) == [
        Room(name="coming", source="NodeClaim", labels=(("x", "y"),), free=amounts(8))
    ]


def test_a_cordoned_node_as_it_would_be_without_the_cordon() -> None:
    cordon, other = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"), Taint("a", "b", "NoSchedule")
    node = a_node("n", unschedulable=True, taints=(cordon, other), ready_since=5)
    view = a_view(runs("a", gpus=3), nodes=[node])
    assert reopened(view, [node]) == [Room(name="n", source="Machine", taints=(other,), free=amounts(5))]


def test_a_node_that_is_off_as_it_will_be_when_it_is_back() -> None:
    away, other = Taint("node.kubernetes.io/unreachable", "", "NoExecute"), Taint("a", "b", "NoSchedule")
    node = a_node("n", ready=False, taints=(away, other), allocatable=(*amounts(8, 64), ("pods", 9 * MICRO)))
    pods = [
        runs("plugin", gpus=0, cpu=2, owner=Owner("DaemonSet", "d", "u")),
        runs("mirror", gpus=0, cpu=1, owner=Owner("Node", "n", "u")),
        runs("ended", gpus=0, cpu=4, owner=Owner("DaemonSet", "d", "u"), phase="Failed"),
        runs("lost", gpus=8, deleting=NOON),
    ]
    room = returning(a_view(*pods, nodes=[node]), node)
    assert (room.source, room.taints) == ("Machine", (other,))
    assert room.free == (*amounts(8, 61), ("pods", 7 * MICRO))


# --- exact --------------------------------------------------------------------------------------------------------------------

sizes = st.sampled_from([0, 1, 7, MICRO, 10**12, 2**40 * MICRO, 2**44 * MICRO, 2**62, 10**22, UNREADABLE, 10**30])


@given(st.lists(st.tuples(sizes, sizes), max_size=6), sizes)
def test_never_more_is_free_than_there_is_however_large_the_numbers(asked: list[tuple[int, int]], there: int) -> None:
    pods = [
        a_pod(f"p{number}", shape=Shape(requests=tuple(pair for pair in (("memory", memory), (GPU, gpus)) if pair[1])), node="n")
        for number, (memory, gpus) in enumerate(asked)
    ]  # fmt: skip
    node = a_node("n", allocatable=(("memory", there), (GPU, there)))
    free = dict(found(a_view(*pods, nodes=[node]))["n"].free)
    for name, taken in (("memory", sum(memory for memory, _ in asked)), (GPU, sum(gpus for _, gpus in asked))):
        exact = max(0, there - taken)
        assert 0 <= free[name] <= exact
        # Rounding costs less than a millionth of what the node has.
        assert exact - free[name] <= there // MICRO


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 3)), max_size=40))
def test_whole_bytes_are_exact_on_any_machine_that_exists(asked: list[tuple[int, int]]) -> None:
    pods = [
        a_pod(f"p{number}", shape=Shape(requests=(("memory", size * MICRO),)), node=f"n{place}")
        for number, (size, place) in enumerate(asked)
    ]
    there = 2**44 * MICRO
    nodes = [a_node(f"n{place}", allocatable=(("memory", there),)) for place in range(4)]
    for place, room in enumerate(rooms(a_view(*pods, nodes=nodes), lambda _: True)):
        assert room.free == (("memory", there - MICRO * sum(size for size, where in asked if where == place)),)
