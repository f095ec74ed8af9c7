"""Pods that keep apart from their own group by host: anti-affinity and spread as resources of a room."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from headroom.core.demand import Unit, choose, place, rooms, wanted
from headroom.model.facts import Namespace, Node, Pairs, Pod, Taint
from headroom.model.world import World
from tests.builders import NOON, a_pod
from tests.core.demand_stage import MINUTE, a_machine, a_ready_node, a_shape, a_view, amounts, waits

HOST = "kubernetes.io/hostname"
GROUP: Pairs = (("app", "g"),)
SELECTOR = {"matchLabels": {"app": "g"}}


def anti(**more: Any) -> dict[str, Any]:
    """A shape's fields: none beside another pod of the group."""
    term = {"topologyKey": HOST, "labelSelector": SELECTOR} | more
    return {"affinity": json.dumps({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})}


def spread(skew: int = 1, **more: Any) -> dict[str, Any]:
    """A shape's fields: at most so many more on one host than on any other."""
    term = {"maxSkew": skew, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
    return {"spread": json.dumps([term | more])}


def group(count: int, how: dict[str, Any], gpus: float = 1, **fields: Any) -> list[Pod]:
    """Pods of a group that wait."""
    shape = a_shape(gpus, **how)
    given = {"labels": GROUP} | fields
    return [waits(f"{given.get('namespace', 'team')}-r{number}", shape=shape, **given) for number in range(count)]


def runs(name: str, node: str, gpus: float = 1, **fields: Any) -> Pod:
    """A pod of the group on a node, for long."""
    base: dict[str, Any] = {"phase": "Running", "started": NOON - 60 * MINUTE, "labels": GROUP}
    return a_pod(name, node=node, shape=a_shape(gpus), **base | fields)


def host(name: str, gpus: float = 8, **fields: Any) -> Node:
    return a_ready_node(name, gpus, labels=((HOST, name),), **fields)


def asleep(name: str, gpus: float = 8, **fields: Any) -> Node:
    """The node of a machine that is off, as it is left behind."""
    return host(name, gpus, ready=False, **fields)


def opened(world: World, machines: int, gpus: int = 8) -> tuple[int, int]:
    """How many machines are opened for what waits, and how many pods are still left."""
    left = place(world, wanted(world).units, rooms(world, lambda _: True)).rest
    chosen = choose(left, [a_machine(f"m{number}", gpus) for number in range(machines)])
    return len(chosen.rooms), sum(unit.count for unit in chosen.rest)


# --- anti-affinity ----------------------------------------------------------------------------------------------------------------


def test_each_pod_of_the_group_gets_a_machine() -> None:
    assert opened(a_view(*group(4, anti())), 6) == (4, 0)
    assert opened(a_view(*group(8, anti())), 6) == (6, 2)
    assert opened(a_view(*group(4, {})), 6) == (1, 0), "others share"


def test_a_gang_goes_whole_or_not_at_all() -> None:
    ranks = group(4, anti(), labels=(*GROUP, ("scheduling.x-k8s.io/pod-group", "train")))
    assert opened(a_view(*ranks), 6) == (4, 0)
    assert opened(a_view(*ranks), 3) == (0, 4)
    assert opened(a_view(*ranks, nodes=[host("n1"), host("n2")]), 2) == (0, 4), "what is free is offered by the round"


def test_a_gang_of_two_templates_keeps_apart_as_one() -> None:
    labels = (*GROUP, ("scheduling.x-k8s.io/pod-group", "train"))
    leader = structs.replace(group(1, anti(), 2, labels=labels)[0], uid="leader", name="leader")
    assert opened(a_view(leader, *group(2, anti(), labels=labels)), 6) == (3, 0)


@pytest.mark.parametrize(
    ("there", "more", "expected"),
    [
        ({}, {}, (2, 0)),
        ({"labels": (("app", "other"),)}, {}, (1, 0)),
        ({"namespace": "elsewhere"}, {}, (1, 0)),
        ({"namespace": "elsewhere"}, {"namespaces": ["team-a", "elsewhere"]}, (2, 0)),
        ({"namespace": "elsewhere"}, {"namespaceSelector": {}}, (2, 0)),
        ({"namespace": "elsewhere"}, {"namespaceSelector": {"matchLabels": {"kind": "lab"}}}, (2, 0)),
        ({"namespace": "elsewhere"}, {"namespaceSelector": {"matchLabels": {"kind": "shop"}}}, (2, 0)),
        ({"phase": "Succeeded", "ended": NOON - 5 * MINUTE}, {}, (1, 0)),
        ({"deleting": NOON - 1000}, {}, (2, 0)),
    ],
)
def test_pods_that_are_there_count(there: dict[str, Any], more: dict[str, Any], expected: tuple[int, int]) -> None:
    """Two pods wait beside one node; where the selector of namespaces leaves their own out, both are taken for strangers."""
    spaces = [Namespace(name=name, labels=(("kind", "lab"),)) for name in ("team-a", "elsewhere")]
    world = a_view(
        *group(2, anti(**more)),
        runs("old", "n1", **there),
        nodes=[host("n1")],
        namespaces={each.name: each for each in spaces},
    )
    if more.get("namespaceSelector") == {"matchLabels": {"kind": "shop"}}:
        expected = (0, 0)
    assert opened(world, 6) == expected


def test_groups_of_two_namespaces_share_machines() -> None:
    pods = [*group(2, anti()), *group(2, anti(), namespace="elsewhere")]
    assert opened(a_view(*pods), 6) == (2, 0)


def test_labels_that_are_copied_from_the_pod_tell_groups_apart() -> None:
    pods = [
        structs.replace(pod, uid=f"{pod.uid}-{job}", name=f"{pod.name}-{job}", labels=(*GROUP, ("job", job)))
        for job in ("a", "b")
        for pod in group(2, anti(matchLabelKeys=["job"]))
    ]
    assert opened(a_view(*pods), 6) == (2, 0)


@pytest.mark.parametrize(
    "how",
    [
        anti(labelSelector={"matchLabels": {"app": "web"}}),
        anti(topologyKey="topology.kubernetes.io/zone"),
        anti(labelSelector=None),
        {"affinity": "{nonsense"},
        {"affinity": json.dumps({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": "odd"}})},
        spread(labelSelector={"matchLabels": {"app": "web"}}),
        spread(topologyKey="topology.kubernetes.io/zone"),
    ],
)
def test_what_is_no_rule_about_its_own_group_on_hosts_is_not_modelled(how: dict[str, Any]) -> None:
    [unit] = wanted(a_view(*group(4, how), nodes=[asleep("m0"), asleep("m1")])).units
    assert unit.parts[0].apart == ()


def test_what_is_refused_beside_its_own_group_is_no_word_against_us() -> None:
    pods = group(1, anti(), unschedulable_since=NOON - 10 * MINUTE)
    world = a_view(*pods, runs("old", "n1"), nodes=[host("n1")])
    placed = place(world, wanted(world).units, rooms(world, lambda _: True))
    assert (placed.into, placed.verdicts, len(placed.rest)) == ({}, {}, 1)


@pytest.mark.parametrize(
    ("change", "is_judged"),
    [({"ended": NOON - 5 * MINUTE}, True), ({"ended": NOON - 10_000}, False)],
)
def test_kube_scheduler_has_a_minute_once_one_of_the_group_is_gone(change: dict[str, Any], is_judged: bool) -> None:
    pods = group(1, anti(), unschedulable_since=NOON - 10 * MINUTE)
    world = a_view(*pods, runs("old", "n1", phase="Succeeded", **change), nodes=[host("n1")])
    placed = place(world, wanted(world).units, rooms(world, lambda _: True))
    assert bool(placed.verdicts) == is_judged
    assert bool(placed.into) != is_judged


# --- spread -----------------------------------------------------------------------------------------------------------------------


def sleeping(count: int, **fields: Any) -> list[Node]:
    return [asleep(f"m{number}", **fields) for number in range(count)]


NOT_READY = (Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),)


@pytest.mark.parametrize(
    ("pods", "how", "nodes", "expected"),
    [
        (4, spread(), sleeping(6), (4, 0)),
        (4, spread(2), sleeping(6), (2, 0)),
        (12, spread(), sleeping(6), (6, 6)),  # who is left is placed once all of them are on
        (12, spread(), sleeping(5), (6, 6)),  # the sixth has no node yet
        (4, spread(), [], (1, 0)),
        (4, spread(minDomains=3), [], (4, 0)),
        (4, spread(), sleeping(6, taints=NOT_READY), (4, 0)),
        (4, spread(nodeTaintsPolicy="Honor"), sleeping(6, taints=NOT_READY), (1, 0)),
        (4, spread(), [host("n1")], (0, 0)),
        (4, spread(), [host("n1"), *sleeping(6)], (3, 0)),
        (4, spread(), [host("full", 0)], (4, 0)),
        (4, spread(nodeTaintsPolicy="Honor"), [host("full", 0), *sleeping(6, taints=NOT_READY)], (4, 0)),
    ],
)
def test_spread_takes_as_many_machines_as_it_needs(
    pods: int, how: dict[str, Any], nodes: list[Node], expected: tuple[int, int]
) -> None:
    assert opened(a_view(*group(pods, how), nodes=nodes), 6) == expected


def test_hosts_where_the_pods_may_not_go_do_not_count_unless_they_say_so() -> None:
    pods = group(4, spread() | {"node_selector": (("pool", "a"),)})
    other = [structs.replace(host("x", 0), labels=((HOST, "x"), ("pool", "b")))]
    machines = [a_machine(f"m{number}", labels=(("pool", "a"),)) for number in range(6)]
    assert len(choose(wanted(a_view(*pods, nodes=other)).units, machines).rooms) == 1
    ignoring = group(4, spread(nodeAffinityPolicy="Ignore") | {"node_selector": (("pool", "a"),)})
    assert len(choose(wanted(a_view(*ignoring, nodes=other)).units, machines).rooms) == 4


# --- against a scheduler that knows the rules ---------------------------------------------------------------------------------------


def schedule(free: dict[str, int], there: dict[str, int], pods: int, gpus: int, skew: int | None) -> int:
    """How many equal pods a scheduler places, one after the other, where most is free, as the rules say."""
    free, there, done = dict(free), dict(there), 0
    for _ in range(pods):
        fewest = min(there.values())
        able = [
            name
            for name in free
            if free[name] >= gpus and (there[name] == 0 if skew is None else there[name] + 1 - fewest <= skew)
        ]
        if not able:
            break
        best = max(able, key=lambda name: (-there[name], free[name], name))
        free[best], there[best], done = free[best] - gpus, there[best] + 1, done + 1
    return done


SIZES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans()), min_size=1, max_size=5)


@given(SIZES, st.integers(1, 9), st.integers(1, 2), st.sampled_from([None, 1, 2]))
def test_what_is_placed_is_what_a_scheduler_places(
    sizes: list[tuple[int, int, bool]], pods: int, gpus: int, skew: int | None
) -> None:
    """Nodes with so many free GPUs and so many pods of the group; some are not ready, and count as hosts all the same."""
    nodes, old, free, there = [], [], {}, {}
    for number, (left, many, ready) in enumerate(sizes):
        name = f"n{number}"
        nodes.append(host(name, left + many) if ready else asleep(name, left + many))
        old += [runs(f"{name}-{each}", name) for each in range(many)]
        there[name] = many
        free[name] = left if ready else 0
    world = a_view(*group(pods, anti() if skew is None else spread(skew), gpus), *old, nodes=nodes)
    placed = place(world, wanted(world).units, rooms(world, lambda _: True))
    found = sum(len(uids) for uids in placed.into.values())
    assert found == schedule(free, there, pods, gpus, skew)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.integers(1, 8),
    st.integers(1, 2),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.booleans(),
)
@example([1, 3, 4], 7, 1, 1, False, False)
@example([1, 2, 4], 6, 1, 1, False, False)
def test_the_fewest_machines_are_opened_on_which_a_scheduler_places_as_many(
    machines: list[int], pods: int, gpus: int, skew: int | None, are_known: bool, is_gang: bool
) -> None:
    """Machines that are off, whose nodes are known or not; a brute force tries every set of them."""
    names = [f"m{number}" for number in range(len(machines))]
    nodes = [asleep(name, size) for name, size in zip(names, machines, strict=True)] if are_known else []
    labels = (*GROUP, ("scheduling.x-k8s.io/pod-group", "train")) if is_gang else GROUP
    waiting = group(pods, anti() if skew is None else spread(skew), gpus, labels=labels)
    units = wanted(a_view(*waiting, nodes=nodes)).units
    chosen = choose(units, [a_machine(name, size, cost=(1,)) for name, size in zip(names, machines, strict=True)])

    def served(on: tuple[str, ...]) -> int:
        free = {name: size if name in on else 0 for name, size in zip(names, machines, strict=True)}
        hosts = names if are_known else on
        return schedule({name: free[name] for name in hosts}, dict.fromkeys(hosts, 0), pods, gpus, skew) if hosts else 0

    every = [on for many in range(len(names) + 1) for on in combinations(names, many)]
    most = max(map(served, every))
    most = most if not is_gang or most == pods else 0
    placed = sum(len(uids) for uids in chosen.into.values())
    assert placed == pods - _left(chosen.rest)
    if is_gang and skew is not None:
        assert placed == most  # on hosts that must all be open it may be promised too much
        return
    assert not chosen.rooms or served(chosen.rooms) >= placed, "nobody is promised too much"
    useful = [name for name, size in zip(names, machines, strict=True) if size >= gpus]
    assert placed == most or list(chosen.rooms) == useful, "whoever is left is not left beside closed machines"
    if placed == most and (are_known or skew is None):
        assert len(chosen.rooms) == min(len(on) for on in every if served(on) >= most)


def _left(units: tuple[Unit, ...]) -> int:
    return sum(unit.count for unit in units)


def test_amounts_of_rooms_are_told_without_groups() -> None:
    world = a_view(*group(1, anti()), nodes=[host("n1")])
    assert [room.free for room in rooms(world, lambda _: True)] == [amounts(8)]
