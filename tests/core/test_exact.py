"""Exact accounting: who lets go of a finalizer and when, and what the API server's policies are told."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core.budgets import PLAN, chores, index_of
from headroom.core.usage.coverage import namespaces_of
from headroom.core.usage.keeping import Keeper, PricingContext
from headroom.core.usage.observing import Look
from headroom.model.actions import ApplyBudgetIndex, RemoveFinalizer
from headroom.model.changes import EVERYTHING
from headroom.model.conditions import find
from headroom.model.facts import Namespace, Pod
from headroom.model.tables import NodeTable
from headroom.model.times import HOUR, MINUTE
from headroom.model.usage_table import UsageTable
from headroom.model.world import LedgerState, World, by_ref
from tests.builders import NOON, a_node, a_used_world, no_devices
from tests.core.test_budgets import a_budget, decide, run

FINALIZER = ("headroom.dev/usage",)


def kept(name: str = "p", **fields: Any) -> Pod:
    return run(name, 2 * HOUR, HOUR, finalizers=FINALIZER, **fields)


def removals(world: World) -> list[str]:
    found = decide(world).actions
    return [each.object for each in found if isinstance(each, RemoveFinalizer)]


def test_a_finalizer_goes_once_the_end_is_in_the_ledger() -> None:
    budget = a_budget(accounting="Exact")
    pod = kept()
    assert removals(a_used_world(budget, pods=[pod])) == ["Pod/team-a/p"]
    assert removals(a_used_world(budget, pods=[pod], ledger=LedgerState(unwritten={pod.uid}))) == []
    assert removals(a_used_world(budget, pods=[run("p", HOUR, finalizers=FINALIZER)])) == []
    assert removals(a_used_world(budget, pods=[run("p", HOUR, 0)])) == []


def test_a_pod_that_never_ran_is_let_go_at_once_and_a_lost_one_after_a_while() -> None:
    budget = a_budget(accounting="Exact")
    unborn = run("p", 0, started=None, phase="Pending", node="", deleting=NOON, finalizers=FINALIZER)
    assert removals(a_used_world(budget, pods=[unborn])) == ["Pod/team-a/p"]
    for overdue, found in ((MINUTE, []), (6 * MINUTE, ["Pod/team-a/p"])):
        lost = run("p", HOUR, deleting=NOON - overdue, finalizers=FINALIZER)
        assert removals(a_used_world(budget, pods=[lost])) == found


def lost_node(gone: int, **fields: Any) -> NodeTable:
    """Nodes, of which one was deleted `gone` before noon."""
    nodes = NodeTable()
    nodes.put(a_node("n", **fields))
    nodes.lose("n", NOON - gone, NOON - gone)
    return nodes


@pytest.mark.parametrize(
    ("gone", "deleting", "is_let_go"),
    [
        (3 * MINUTE, MINUTE, True),
        (3 * MINUTE, 0, True),
        (MINUTE, MINUTE, False),  # it may be a mistake that somebody mends
        (3 * MINUTE, -MINUTE, False),  # its time to end is not over yet
        (3 * MINUTE, None, False),  # nobody wants it gone
    ],
)
def test_a_deleted_pod_whose_node_was_deleted_is_let_go_soon(gone: int, deleting: int | None, is_let_go: bool) -> None:
    until = None if deleting is None else NOON - deleting
    pod = run("p", HOUR, deleting=until, node="n", finalizers=FINALIZER)
    world = structs.replace(a_used_world(a_budget(accounting="Exact"), pods=[pod]), nodes=lost_node(gone))
    assert removals(world) == (["Pod/team-a/p"] if is_let_go else [])
    unwritten = structs.replace(world, ledger=LedgerState(unwritten={pod.uid}))
    assert removals(unwritten) == []


def test_a_node_that_comes_back_or_never_went_is_waited_for() -> None:
    pod = run("p", HOUR, deleting=NOON - MINUTE, node="n", finalizers=FINALIZER)
    back = lost_node(3 * MINUTE)
    back.put(a_node("n"))
    unready = NodeTable()
    unready.put(a_node("n", ready=False, unready_since=NOON - HOUR))
    # Gone before this operator began to look: nobody knows since when.
    for nodes in (back, unready, NodeTable()):
        assert removals(structs.replace(a_used_world(a_budget(accounting="Exact"), pods=[pod]), nodes=nodes)) == []


@pytest.mark.parametrize(
    ("node", "alive_until"),
    [({}, 10 * MINUTE), ({"ready": False, "unready_since": NOON - 20 * MINUTE}, 21 * MINUTE)],
    ids=["deleted while it was ready", "unready before"],
)
def test_the_end_of_a_pod_whose_node_was_deleted_stands_within_bounds(node: dict[str, Any], alive_until: int) -> None:
    nodes, keeper = lost_node(10 * MINUTE, **node), Keeper(UsageTable())
    around = PricingContext(nodes, no_devices(), (), {}, {}, ())
    pod = run("p", HOUR, node="n", finalizers=FINALIZER)
    keeper.see(pod, around, Look("default", NOON - HOUR, NOON - HOUR))
    (row,) = keeper.lose(pod, around, Look("default", NOON, NOON))
    assert (row.ended, row.seen_until, row.gone_by) == (None, NOON - alive_until, NOON)
    (other,) = keeper.see(run("q", HOUR, node="m"), around, Look("default", NOON - HOUR, NOON - HOUR))
    (row,) = keeper.lose(run("q", HOUR, node="m"), around, Look("default", NOON, NOON))
    assert (row.uid, row.ended) == (other.uid, NOON)


def test_nodes_that_went_long_ago_are_forgotten() -> None:
    nodes = NodeTable()
    for day in range(9):
        nodes.put(a_node(f"n{day}"))
        nodes.lose(f"n{day}", day * 24 * HOUR, day * 24 * HOUR)
        assert not nodes.lose(f"n{day}", 0, 0)
    assert list(nodes.lost) == ["n8"]


def test_a_finalizer_that_no_budget_answers_for_is_a_chore() -> None:
    world = a_used_world(a_budget(), pods=[kept()])
    assert removals(world) == []
    assert [each.object for each in chores(world) if isinstance(each, RemoveFinalizer)] == ["Pod/team-a/p"]
    paused = a_used_world(a_budget(accounting="Exact", paused=True), pods=[kept()])
    assert removals(paused) == []
    assert len(list(chores(paused))) == 1, "of a paused budget alone no index is written"


def test_of_two_exact_budgets_the_first_lets_go() -> None:
    world = a_used_world(a_budget("a", accounting="Exact"), a_budget("b", accounting="Exact"), pods=[kept()])
    found = [[type(action).__name__ for action in each.actions] for each in PLAN.decide(world, EVERYTHING)]
    assert found == [["RemoveFinalizer"], []]


def test_the_index_is_written_for_exact_budgets_and_only_while_it_differs() -> None:
    budget = a_budget(accounting="Exact")
    world = a_used_world(budget)
    assert list(chores(world)) == [ApplyBudgetIndex(budget="team-a/one", budgets=index_of(world))]
    known = structs.replace(world, index=index_of(world))
    assert list(chores(known)) == []
    assert list(chores(a_used_world(a_budget()))) == []
    assert list(chores(a_used_world(index=known.index))) == [ApplyBudgetIndex(budget="team-a/one", budgets=())]


def test_however_many_budgets_differ_the_index_is_one_chore_with_all_of_them() -> None:
    world = a_used_world(*(a_budget(f"b{number}", accounting="Exact") for number in range(5)))
    assert [action for each in PLAN.decide(world, EVERYTHING) for action in each.actions] == []
    assert list(chores(world)) == [ApplyBudgetIndex(budget="team-a/b0", budgets=index_of(world))]
    partly = structs.replace(world, index=index_of(world)[1:3])
    assert list(chores(partly)) == [ApplyBudgetIndex(budget="team-a/b0", budgets=index_of(world))]


@pytest.mark.parametrize(
    ("accounting", "required", "is_written", "problem", "told"),
    [
        ("Exact", False, False, "writing it: refused", "False"),
        ("Exact", False, True, "writing it: refused", None),
        ("Exact", False, False, "", None),
        ("BestEffort", False, False, "writing it: refused", None),
        ("BestEffort", True, False, "writing it: refused", "False"),
    ],
    ids=["not there", "there as it should be", "not tried yet", "not needed", "required by a namespace"],
)
def test_a_budget_tells_that_policies_do_not_know_it(
    accounting: str, required: bool, is_written: bool, problem: str, told: str | None
) -> None:
    spaces = {"team-b": Namespace(name="team-b", labels=((marks.REQUIRE_BUDGET, ""),))} if required else {}
    world = a_used_world(a_budget(accounting=accounting), namespaces=spaces)
    world = structs.replace(world, index=index_of(world) if is_written else None, index_problem=problem)
    [decision] = PLAN.decide(world, EVERYTHING)
    found = find(decision.status.conditions, "Indexed")
    assert (found.status if found else None) == told
    if found is not None:
        assert problem in found.message
        mended = structs.replace(world, index=index_of(world), index_problem="")
        again = structs.replace(a_budget(accounting=accounting), status=decision.status)
        [later] = PLAN.decide(structs.replace(mended, resources=by_ref([again])), EVERYTHING)
        assert find(later.status.conditions, "Indexed") is None


def test_what_a_budget_keeps_that_cannot_be_read_stays() -> None:
    """A newer version made it, and an older one runs again."""
    budget = a_budget(accounting="Exact")
    index = index_of(a_used_world(budget))
    living = run("p", HOUR, finalizers=FINALIZER)
    unread = structs.replace(budget, spec=None, problems=())
    assert list(chores(a_used_world(unread, pods=[living], index=index))) == []
    assert index_of(a_used_world(unread, index=index)) == index
    gone = structs.replace(unread, deleting=True)
    assert len(list(chores(a_used_world(gone, pods=[living], index=index)))) == 2


def test_an_index_of_1000_budgets_over_500_namespaces_each_fits_into_one_object() -> None:
    """etcd takes 1.5 MiB; with the names in it, this would be 17 MB."""
    spaces = {
        name: Namespace(name=name, uid=name, labels=(("division", "y" * 63), ("org", "x")))
        for name in (f"team-{number:04}-with-a-long-name" for number in range(500))
    }
    selector: dict[str, Any] = {"matchLabels": {"org": "x", "division": "y" * 63}}
    selector["matchExpressions"] = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["z" * 63]}]
    budgets = [
        structs.replace(a_budget(f"b{number}", accounting="Exact", namespaceSelector=selector), namespace="headroom")
        for number in range(1000)
    ]
    worlds = [a_used_world(*budgets, own_namespace="headroom", namespaces=each) for each in ({}, spaces)]
    assert namespaces_of(worlds[1], budgets[0]) == spaces.keys(), "all of them are covered"
    few, many = map(index_of, worlds)
    assert few == many, "namespaces that come and go do not change it"
    assert len(few) == 1000
    assert len(msgspec.json.encode(msgspec.to_builtins(many))) < 700_000


def test_a_budget_of_one_namespace_is_in_the_index_with_its_name() -> None:
    selector = {"matchLabels": {"org": "x"}}
    for own, names, by_labels in (("elsewhere", ("team-a",), False), ("team-a", (), True)):
        budget = a_budget(accounting="Exact", namespaceSelector=selector)
        (entry,) = index_of(a_used_world(budget, own_namespace=own))
        assert (entry.namespaces, entry.namespace_selector is not None) == (names, by_labels)


def test_namespaces_are_judged_again_only_when_one_of_them_changes() -> None:
    """With 3,000 namespaces and 60 budgets every pass would judge 180,000 of them, several times over."""
    budget = a_budget(namespaceSelector={"matchLabels": {"org": "x"}})
    spaces = {name: Namespace(name=name, labels=(("org", "x"),)) for name in ("lab", "dev")}
    world = a_used_world(budget, namespaces=MappingProxyType(spaces), own_namespace="team-a")
    first = namespaces_of(world, budget)
    assert first == {"lab", "dev"}
    assert namespaces_of(world, budget) is first
    spaces["dev"] = Namespace(name="dev", labels=(("org", "y"),))
    assert namespaces_of(world, budget) == {"lab"}
    del spaces["lab"]
    assert namespaces_of(world, budget) == frozenset()
    other = a_budget("two", namespaceSelector={"matchLabels": {"org": "y"}})
    assert namespaces_of(world, other) == {"dev"}
