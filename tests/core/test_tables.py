"""The tables against the plainest model there is: whatever is put in and taken out, they agree with a dict of facts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from headroom.api import marks
from headroom.model.facts import Node, Owner, Pod, Shape
from headroom.model.numbering import ABSENT, Numbering
from headroom.model.tables import MOST_EVICTED, PHASES, NodeTable, PodTable, may_need_machine
from headroom.model.world import World, ref_of
from tests.builders import NOON, a_pod, a_resource

moments = st.none() | st.integers(0, 10**13)
pods = st.builds(
    Pod,
    uid=st.sampled_from(["u1", "u2", "u3", "u4"]),
    namespace=st.sampled_from(["lab", "prod"]),
    name=st.sampled_from(["a", "b"]),
    resource_version=st.sampled_from(["1", "2"]),
    labels=st.sampled_from([(), (("team", "a"),), (("app", "x"), ("team", "b"))]),
    shape=st.sampled_from(
        [Shape(), Shape(requests=(("cpu", 1),)), Shape(requests=(("nvidia.com/gpu", 1),)), Shape(host_network=True)]
    ),
    node=st.sampled_from(["", "n1", "n2"]),
    phase=st.sampled_from([*PHASES, "SomethingNew"]),
    priority=st.integers(-(2**31), 2**31),
    owner=st.sampled_from([None, Owner("Job", "j", "o1"), Owner("Job", "k", "o2")]),
    created=st.integers(0, 10**13),
    started=moments,
    ended=moments,
    deleting=moments,
    gates=st.sampled_from([(), (marks.GATE,), ("example.com/later",), ("example.com/later", marks.GATE)]),
    claims=st.sampled_from([(), ("c",)]),
    unschedulable_since=moments,
)


def fresh(pod: Pod) -> Pod:
    """An equal pod that shares nothing, as the next event would bring it."""
    labels = tuple((str(key), str(value)) for key, value in list(pod.labels))
    return structs.replace(pod, labels=labels, shape=structs.replace(pod.shape))


class Tables(RuleBasedStateMachine):
    """Puts and removes pods in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PodTable()
        self.model: dict[str, Pod] = {}

    def _noticed(self, was: int, changed: bool) -> None:
        assert (self.table.generation > was) == changed

    @rule(pod=pods)
    def put(self, pod: Pod) -> None:
        before, was = self.model.get(pod.uid), self.table.generation
        changed = self.table.put(fresh(pod))
        self.model[pod.uid] = pod
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

    @rule(uid=st.sampled_from(["u1", "u2", "u3", "u4", "never"]))
    def remove(self, uid: str) -> None:
        was = self.table.generation
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
        for pod in self.model.values():
            if pod.node or pod.phase not in ("Succeeded", "Failed"):
                by_node.setdefault(pod.node, set()).add(pod.uid)
            if pod.owner:
                by_owner.setdefault(pod.owner.uid, set()).add(pod.uid)
        assert {node: set(self.table.by_node[node]) for node in self.table.by_node.values()} == by_node
        assert {owner: set(self.table.by_owner[owner]) for owner in self.table.by_owner.values()} == by_owner
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
            assert (columns["priority"][row], columns["created"][row]) == (pod.priority, pod.created)
            for name in ("started", "ended", "deleting"):
                moment = getattr(pod, name)
                assert columns[name][row] == (ABSENT if moment is None else moment)
        assert seen == set(self.model)

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
