"""The tables against the plainest model there is: whatever is put in and taken out, they agree with a dict of facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from headroom.api import marks
from headroom.core.bandwidth import is_together
from headroom.model.bandwidth import group_of
from headroom.model.facts import ExtendedClaim, Node, Owner, Pod, Shape
from headroom.model.numbering import ABSENT, Numbering
from headroom.model.tables import MOST_EVICTED, PHASES, NodeTable, PodTable, may_need_machine
from headroom.model.world import World, ref_of
from tests.builders import NOON, a_pod, a_resource

moments = st.none() | st.integers(0, 10**13)
label_sets = st.sampled_from([(), (("team", "a"),), (("app", "x"), ("team", "b")), (("pod-template-hash", "1"),)])
pods = st.builds(
    Pod,
    uid=st.sampled_from(["u1", "u2", "u3", "u4"]),
    namespace=st.sampled_from(["lab", "prod"]),
    name=st.sampled_from(["a", "b"]),
    resource_version=st.sampled_from(["1", "2"]),
    labels=label_sets,
    shape=st.sampled_from(
        [Shape(), Shape(requests=(("cpu", 1),)), Shape(requests=(("nvidia.com/gpu", 1),)), Shape(host_network=True)]
    ),
    node=st.sampled_from(["", "n1", "n2"]),
    phase=st.sampled_from([*PHASES, "SomethingNew"]),
    priority=st.integers(-(2**31), 2**31),
    annotations=st.sampled_from(
        [(), (("headroom.dev/traffic", "siblings"),), (("a", "b"),), ((marks.CONTROLLER_UID, "o9"),)]
    ),
    owner=st.sampled_from(
        [None, Owner("Job", "j", "o1"), Owner("Job", "k", "o2"), Owner("ReplicaSet", "d-1", "o3", "apps")]
    ),
    created=st.integers(0, 10**13),
    started=moments,
    ended=moments,
    deleting=moments,
    gates=st.sampled_from([(), (marks.GATE,), ("example.com/later",), ("example.com/later", marks.GATE)]),
    claims=st.sampled_from([(), ("c",)]),
    finalizers=st.sampled_from([(), ("headroom.dev/usage",)]),
    nominated_node=st.sampled_from(["", "n1"]),
    deadline=st.sampled_from([None, 1000]),
    unschedulable_since=moments,
)

FIELDS = sorted({*Pod.__struct_fields__} - {"uid", "name", "resource_version"})


def fresh(pod: Pod) -> Pod:
    """An equal pod that shares nothing, as the next event would bring it."""
    labels = tuple((str(key), str(value)) for key, value in list(pod.labels))
    return structs.replace(pod, labels=labels, shape=structs.replace(pod.shape))


def counted(table: PodTable) -> dict[tuple[str, Any, Shape], set[str]]:
    """Who is of each kind in the census, which counts just as many."""
    census = table.census
    found: dict[tuple[str, Any, Shape], set[str]] = {}
    for row in (row for row in range(len(table.column("kind"))) if table.column("kind")[row] != ABSENT):
        kind = census.kinds[int(table.column("kind")[row])]
        found.setdefault((kind.namespace, kind.labels, table.shapes[kind.shape]), set()).add(table.at(row).uid)
    counts = {
        (kind.namespace, kind.labels, table.shapes[kind.shape]): count
        for kind, count in zip(census.kinds, census.counts, strict=True)
        if count
    }
    assert counts == {kind: len(uids) for kind, uids in found.items()}
    return found


def check_as_new(table: PodTable, known: Iterable[Pod]) -> None:
    """A table has the same sets and counts as one into which each pod was put once."""
    made = PodTable()
    made.count_by(table.census.keys)
    for pod in known:
        made.put(fresh(pod))
    for name in ("queued", "nominated", "annotated", "finalized", "limited", "asking"):
        assert getattr(table, name) == getattr(made, name), name
    for name in ("by_node", "by_owner", "by_group", "by_maker", "claiming"):
        index, wanted = getattr(table, name), getattr(made, name)
        assert {each: index[each] for each in index.values()} == {each: wanted[each] for each in wanted.values()}, name
    assert counted(table) == counted(made)


class Tables(RuleBasedStateMachine):
    """Puts and removes pods in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PodTable()
        self.model: dict[str, Pod] = {}
        self.bound_with: dict[str, tuple[tuple[str, str], ...]] = {}

    def _noticed(self, was: int, changed: bool) -> None:
        assert (self.table.generation > was) == changed

    @rule(pod=pods)
    def put(self, pod: Pod) -> None:
        before, was = self.model.get(pod.uid), self.table.generation
        changed = self.table.put(fresh(pod))
        self.model[pod.uid] = pod
        if before is not None and before.node and before.annotations != pod.annotations:
            self.bound_with.setdefault(pod.uid, before.annotations)
        expected = before is None or structs.replace(before, resource_version="") != structs.replace(
            pod, resource_version=""
        )
        assert changed == expected
        self._noticed(was, changed)

    @rule(uid=st.sampled_from(["u1", "u2", "u3", "u4"]))
    def only_a_new_version(self, uid: str) -> None:
        if uid in self.model:
            self.model[uid] = structs.replace(self.model[uid], resource_version="99")
            assert self.table.put(fresh(self.model[uid])) is False

    @rule(other=pods, names=st.sets(st.sampled_from(FIELDS), min_size=1, max_size=2))
    def change_little(self, other: Pod, names: set[str]) -> None:
        if (pod := self.model.get(other.uid)) is not None:
            self.put(structs.replace(pod, **{name: getattr(other, name) for name in names}))

    @rule(keys=st.sampled_from([frozenset({"team"}), frozenset({"app", "team"})]))
    def count(self, keys: frozenset[str]) -> None:
        self.table.count_by(keys)

    @rule(uid=st.sampled_from(["u1", "u2", "u3", "u4", "never"]))
    def remove(self, uid: str) -> None:
        was = self.table.generation
        self.bound_with.pop(uid, None)
        removed = self.table.remove(uid)
        assert removed == (self.model.pop(uid, None) is not None)
        self._noticed(was, removed)

    @invariant()
    def the_pods_are_the_same(self) -> None:
        assert {pod.uid: pod for pod in self.table} == self.model
        assert len(self.table) == len(self.model)
        assert set(self.table.uids()) == set(self.model)
        assert all(self.table.get(uid) == pod and uid in self.table for uid, pod in self.model.items())
        assert self.table.get("never") is None

    @invariant()
    def the_indexes_are_the_same(self) -> None:
        by_node: dict[str, set[str]] = {}
        by_owner: dict[str, set[str]] = {}
        by_group: dict[str, set[str]] = {}
        spread: dict[str, Counter[str]] = {}
        for pod in self.model.values():
            if pod.node or pod.phase not in ("Succeeded", "Failed"):
                by_node.setdefault(pod.node, set()).add(pod.uid)
            if pod.owner:
                by_owner.setdefault(pod.owner.uid, set()).add(pod.uid)
                if pod.node and pod.phase not in ("Succeeded", "Failed"):
                    by_group.setdefault(group_of(pod), set()).add(pod.uid)
                    spread.setdefault(group_of(pod), Counter())[pod.node] += 1
        assert {node: set(self.table.by_node[node]) for node in self.table.by_node.values()} == by_node
        assert {owner: set(self.table.by_owner[owner]) for owner in self.table.by_owner.values()} == by_owner
        assert {group: self.table.by_group[group] for group in self.table.by_group.values()} == spread
        assert self.table.bound_with == self.bound_with
        for pod in self.model.values():
            others = {self.model[uid].node for uid in by_group.get(group_of(pod), set()) - {pod.uid}}
            alone = next(iter(others)) if len(others) == 1 and pod.node and pod.owner else ""
            assert self.table.others_are_on(pod) == alone
        assert set(self.table.unbound) == by_node.get("", set())
        assert self.table.queued == {pod.uid for pod in self.model.values() if marks.GATE in pod.gates}
        assert self.table.asking == sum(map(may_need_machine, self.model.values()))

    @invariant()
    def the_columns_are_the_same(self) -> None:
        table, seen = self.table, set()
        columns = {name: table.column(name) for name in table.COLUMNS}
        for row in range(len(columns["node"])):
            if columns["node"][row] == ABSENT:
                assert all(column[row] == ABSENT for column in columns.values())
                continue
            pod = table.at(row)
            seen.add(pod.uid)
            assert table.label_sets[int(columns["labels"][row])] is pod.labels
            assert table.shapes[int(columns["shape"][row])] is pod.shape
            assert table.names[int(columns["namespace"][row])] is pod.namespace
            assert table.names[int(columns["node"][row])] is pod.node
            assert PHASES[columns["phase"][row]] == (pod.phase if pod.phase in PHASES else "Unknown")
            assert columns["created"][row] == pod.created
            for name in ("started", "ended", "deleting"):
                moment = getattr(pod, name)
                assert columns[name][row] == (ABSENT if moment is None else moment)
        assert seen == set(self.model)

    @invariant()
    def all_is_as_if_it_was_new(self) -> None:
        check_as_new(self.table, self.model.values())

    @invariant()
    def values_that_nobody_has_are_forgotten(self) -> None:
        model, table = self.model.values(), self.table
        assert {value for _, value in table.label_sets.items()} == {pod.labels for pod in model}
        assert {value for _, value in table.shapes.items()} == {pod.shape for pod in model}
        names = {pod.namespace for pod in model} | {pod.node for pod in model}
        assert {value for _, value in table.names.items()} == names
        assert len(table.names) == len(names)
        assert table.names.number("never") == ABSENT


TestTables = Tables.TestCase

NEW: dict[str, Any] = {
    "namespace": "prod",
    "labels": (("pod-template-hash", "1"), ("team", "a")),
    "annotations": ((marks.CONTROLLER_UID, "o9"),),
    "shape": Shape(requests=(("nvidia.com/gpu", 1),)),
    "node": "n2",
    "phase": "Succeeded",
    "owner": Owner("Job", "j", "o1"),
    "created": 1,
    "started": 2,
    "ended": 3,
    "deleting": 4,
    "gates": (marks.GATE,),
    "deadline": 5,
    "finalizers": ("headroom.dev/usage",),
    "claims": ("c",),
    "claim_templates": ("t",),
    "extended": ExtendedClaim("e"),
    "nominated_node": "n1",
    "unschedulable_since": 6,
}
REPLICA = Owner("ReplicaSet", "d-1", "o3", "apps")


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize("name", NEW)
def test_one_field_that_changes_moves_the_pod_to_where_it_belongs(name: str, node: str) -> None:
    before = a_pod(node=node, owner=REPLICA, gates=("example.com/later",), shape=Shape(requests=(("cpu", 1),)))
    for first in (before, structs.replace(before, gates=(), claims=("c",)), structs.replace(before, gates=())):
        after, table = structs.replace(first, **{name: NEW[name]}), PodTable()
        table.count_by(frozenset({"team"}))
        for pod in (first, after):
            table.put(fresh(pod))
            check_as_new(table, [pod])
        for moment in ("created", "started", "ended", "deleting"):
            found = getattr(after, moment)
            assert table.column(moment)[0] == (ABSENT if found is None else found)
        assert PHASES[table.column("phase")[0]] == after.phase


def test_columns_grow_with_the_table() -> None:
    table = PodTable()
    for number in range(200):
        table.put(Pod(uid=str(number), namespace="lab", name=str(number), created=number))
    assert sorted(table.column("created")) == list(range(200))
    assert table.column("created").dtype == np.int64


def test_rows_are_used_again() -> None:
    table = PodTable()
    for number in range(1000):
        table.put(Pod(uid=str(number), namespace="lab", name="same"))
        table.remove(str(number))
    assert len(table.column("node")) == 1


def test_a_free_row_and_number_are_not_there() -> None:
    table = PodTable()
    table.put(Pod(uid="a", namespace="lab", name="a"))
    table.remove("a")
    with pytest.raises(KeyError):
        table.at(0)
    with pytest.raises(KeyError):
        table.names[0]


def test_a_number_is_shared_until_its_last_use() -> None:
    numbering: Numbering[str] = Numbering()
    first, second = numbering.take("x"), numbering.take("x")
    assert first == second
    numbering.drop(first)
    assert numbering.number("x") == first
    numbering.drop(first)
    assert numbering.number("x") == ABSENT


nodes = st.builds(
    Node,
    name=st.sampled_from(["n1", "n2"]),
    resource_version=st.sampled_from(["1", "2"]),
    ready=st.booleans(),
    unschedulable=st.booleans(),
)


class Nodes(RuleBasedStateMachine):
    """Puts and removes nodes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = NodeTable()
        self.model: dict[str, Node] = {}

    @rule(node=nodes)
    def put(self, node: Node) -> None:
        before: Any = self.model.get(node.name)
        same = before is not None and structs.replace(before, resource_version=node.resource_version) == node
        assert self.table.put(node) is not same
        self.model[node.name] = node

    @rule(name=st.sampled_from(["n1", "n2", "n3"]))
    def remove(self, name: str) -> None:
        was = self.table.generation
        assert self.table.remove(name) == (self.model.pop(name, None) is not None) == (self.table.generation > was)

    @invariant()
    def they_agree(self) -> None:
        assert {node.name: node for node in self.table} == self.model
        assert set(self.table.names()) == set(self.model)
        assert len(self.table) == len(self.model)
        assert all(self.table.get(name) == node for name, node in self.model.items())


TestNodes = Nodes.TestCase


def test_it_is_remembered_of_a_pod_that_is_gone_that_it_was_evicted() -> None:
    table = PodTable()
    for number in range(MOST_EVICTED + 5):
        table.put(a_pod(f"p{number}", evicted=number))
        table.remove(f"uid-p{number}")
    table.put(a_pod("plain"))
    table.remove("uid-plain")
    table.note_departure(a_pod("last", evicted=7), NOON)  # its last event told so
    assert len(table.evicted) == MOST_EVICTED
    assert "uid-p0" not in table.evicted
    assert "uid-plain" not in table.evicted
    assert table.evicted["uid-last"] == 7


def test_resources_are_kept_by_kind_and_in_order_however_they_are_given() -> None:
    given = {ref_of(each): each for each in (a_resource(name="b"), a_resource("PowerPool"), a_resource(name="a"))}
    world = World(now=0, resources=given)  # type: ignore[arg-type]  # any mapping will do
    assert [ref.name for ref, _ in world.of_kind("GPUWorkloadBudget")] == ["a", "b"]
    assert dict(world.resources) == given
    assert world.of_kind("Spotpool") == []


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({"gates": ("example.com/later",)}, True),
        ({"unschedulable_since": NOON}, True),
        ({"unschedulable_since": NOON, "gpus": 0}, False),
        ({"unschedulable_since": NOON, "gpus": 0, "claims": ("c",)}, True),
        ({"unschedulable_since": NOON, "node": "n"}, False),
        ({}, False),
    ],
)
def test_who_may_need_a_machine(fields: dict[str, Any], *, may: bool) -> None:
    assert may_need_machine(a_pod("p", **fields)) is may


class Watched(PodTable):
    """Counts the pods that are looked at."""

    looks = 0

    def get(self, uid: str) -> Pod | None:
        self.looks += 1
        return super().get(uid)


def test_where_the_rest_of_a_large_group_is_does_not_take_a_look_at_each() -> None:
    table, owner = Watched(), Owner("Job", "j", "o1")
    every = [a_pod(f"p{each}", node="n1" if each else "n2", owner=owner) for each in range(1000)]
    for pod in every:
        table.put(pod)
    table.looks = 0
    assert [table.others_are_on(pod) for pod in every[:3]] == ["n1", "", ""]
    assert not is_together(table, every[1])
    assert table.looks <= 3
