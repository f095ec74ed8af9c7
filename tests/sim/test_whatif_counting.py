"""Counting in what-if: every pod is one of its own, quotas are measured to the moment, and history counts as production counts it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.adapters import documents
from headroom.api import marks
from headroom.core.budgets import prospect
from headroom.core.usage import GPU_HOUR, budgets_of
from headroom.model.facts import Namespace, Node, Pod, Price
from headroom.model.snapshots import load, save
from headroom.model.times import HOUR, text
from headroom.model.usage import UsageRow
from headroom.sim.whatif import beside, recorded
from headroom.sim.whatif.comparing import Comparison
from headroom.sim.whatif.page import Assets, page
from headroom.sim.whatif.placing import Placer
from headroom.sim.whatif.work import Recorded, cut
from tests.builders import NOON, a_node, a_pod, a_resource, a_used_world
from tests.core.stage import a_budget
from tests.sim.test_whatif import TEAM, a_case, a_row, a_work, played

EVICTS = ["100% Hold", "110% Evict"]


# --- pods are told apart ----------------------------------------------------------------------------------------------------------


def test_works_whose_tries_would_have_the_same_name_are_told_apart() -> None:
    works = [a_work("train", hours=30, gpus=4), a_work("train-2", hours=30, gpus=4)]
    named = played(a_case(*works, hours=30), a_budget(hours="40", enforce=EVICTS))
    others = [a_work("train", hours=30, gpus=4), a_work("trainer", hours=30, gpus=4)]
    assert (named.evictions, named.total.asked) == (2, 2)
    assert named == structs.replace(
        played(a_case(*others, hours=30), a_budget(hours="40", enforce=EVICTS)), passes=named.passes
    )


def test_two_of_the_same_name_and_moment_are_two() -> None:
    found = played(a_case(a_work(hours=1), a_work(hours=10)))
    assert found.total.gpu_hours == pytest.approx(11, abs=0.01)
    assert found.total.finished == 2


def test_two_that_are_alike_are_stopped_and_finished_each_by_itself() -> None:
    works = [a_work(hours=6, gpus=4), a_work(hours=6, gpus=4), a_work(hours=7, gpus=4)]
    found = played(a_case(*works, hours=72, nodes=2), a_budget(hours="40", window=24, enforce=["100% Suspend"]))
    assert found.suspensions > 0
    assert found.total.suspended_pods == 3 * found.suspensions


def test_history_of_the_same_name_and_moment_counts_twice() -> None:
    works = [a_work(hours=1), a_work(hours=1)]
    records = [Recorded(work=each, start=NOON, end=NOON + HOUR) for each in works]
    case = a_case(hours=24)
    cut(case, [*records, Recorded(work=a_work("late", at=1200), start=None, end=None)], days=0.5)
    assert len({row.key for row in case.history}) == 2
    assert played(case, a_budget(hours="4")).budgets[0].peak_share == pytest.approx(0.75, abs=0.01)


# --- room -------------------------------------------------------------------------------------------------------------------------


def other_gpus(name: str, begin: int, end: int, resource: str) -> UsageRow:
    return UsageRow(
        cluster="default",
        uid=name,
        start=NOON - begin * HOUR,
        earliest=NOON - begin * HOUR,
        seen_until=NOON - end * HOUR,
        ended=NOON - end * HOUR,
        namespace="team-a",
        pod=name,
        created=NOON - begin * HOUR,
        amounts=((resource, 10**6),),
        labels=TEAM,
    )


def test_a_resource_that_only_history_knows_needs_no_room() -> None:
    world = a_used_world(usage=[a_row("new", 10, 5)], nodes=[a_node()])
    world.usage.put(other_gpus("old", 60, 50, "amd.com/gpu"))
    case = recorded.read(world, "test", days=1)
    assert "amd.com/gpu" in case.boundless
    assert played(case).total.gpu_hours == pytest.approx(5, abs=0.01)


def test_a_node_of_any_size_can_be_counted() -> None:
    node = Node(name="vast", ready=True, allocatable=(("memory", 10**24),))
    shape = structs.replace(a_work().shape, requests=(("memory", 10**18),))
    placer = Placer([node], [shape])
    placer.add("p", shape)
    assert list(placer.place()) == [("p", "vast")]


# --- quotas -----------------------------------------------------------------------------------------------------------------------


def test_hours_used_up_begin_where_the_quota_is_crossed() -> None:
    case = a_case(a_work(hours=10), hours=10)
    [found] = played(case, a_budget(hours="4", window=168, enforce="AlertOnly")).budgets
    assert found.hours_over == pytest.approx(6.0, abs=0.01)
    assert found.peak_share == pytest.approx(2.5, abs=0.01)
    [found] = played(case, a_budget(hours="6", window=168, enforce="AlertOnly")).budgets
    assert found.hours_over == pytest.approx(4.0, abs=0.01)


def test_hours_used_up_end_where_the_window_frees_them() -> None:
    [found] = played(a_case(a_work(hours=5), hours=48), a_budget(hours="4", window=24, enforce="AlertOnly")).budgets
    # Reached after 4 h; the window lets go of the first hour 25 h after the begin.
    assert found.hours_over == pytest.approx(21, abs=0.01)


BOTH = {"gpuHours": "6", "usd": "4"}
"""A quota of each kind; one GPU costs 2 dollars an hour in these cases, so dollars are used up first."""


def test_of_two_quotas_the_one_that_is_used_more_counts() -> None:
    case = a_case(a_work(hours=10), hours=10, prices=(Price(price_per_hour=16 * 10**6),))
    found = played(case, a_budget(window=168, enforce="AlertOnly", quota=BOTH))
    [budget] = found.budgets
    assert budget.peak_share == pytest.approx(5, abs=0.01)
    assert budget.hours_over == pytest.approx(8, abs=0.01)
    assert found.lines.budgets["team-a/one"][-1] == pytest.approx(10, abs=0.01)
    assert found.lines.budgets_usd["team-a/one"][-1] == pytest.approx(20, abs=0.01)


def test_the_times_of_both_quotas_are_united() -> None:
    works = [a_work("cheap", hours=4, price=0), a_work("dear", at=10 * 60, hours=4, price=3 * 10**6)]
    quota = {"gpuHours": "2", "usd": "3"}
    [found] = played(a_case(*works, hours=20), a_budget(window=2, enforce="AlertOnly", quota=quota)).budgets
    # GPU-hours are used up for 2 h by either; dollars after 1 h of the dear one, until 1 h after its end.
    assert found.hours_over == pytest.approx(2 + 4, abs=0.01)


def test_a_page_draws_each_quota_in_its_unit() -> None:
    case = a_case(a_work(hours=10), hours=10, prices=(Price(price_per_hour=16 * 10**6),))
    both = played(case, a_budget(window=168, enforce="AlertOnly", quota=BOTH))
    shown = page(Comparison(case=case, changes=[], every=1000, before=both, after=played(case)), Assets("x", ""))
    assert "<figcaption>Budget team-a/one: GPU-hours in the window</figcaption>" in shown
    assert "<figcaption>Budget team-a/one: dollars in the window</figcaption>" in shown


# --- which rows count -------------------------------------------------------------------------------------------------------------


def selecting(**spec: Any) -> Any:
    """A budget over all namespaces of the lab."""
    budget = a_budget(enforce="AlertOnly", namespaceSelector={"matchLabels": {"org": "lab"}}, **spec)
    return structs.replace(budget, namespace="headroom-system")


@pytest.mark.parametrize(("then", "now", "hours"), [("lab", "other", 40), ("other", "lab", 3), ("lab", "lab", 43)])
def test_history_counts_by_the_labels_that_its_namespace_had(then: str, now: str, hours: float) -> None:
    labels = dict(TEAM) | {"@namespace/org": then, "@namespace/kubernetes.io/metadata.name": "team-a"}
    rows = [a_row("old", 20, 15, gpus=8, labels=labels), a_row("new", 4, 1, labels=labels)]
    names = {"team-a": Namespace(name="team-a", labels=(("org", now),))}
    world = a_used_world(selecting(), usage=rows, nodes=[a_node()], namespaces=names)
    case = recorded.read(load(save(world)), "test", days=0.5)
    [found] = played(case, *case.resources.values()).budgets
    assert found.peak_share == pytest.approx(hours / 100, abs=0.001)
    if then == now:
        [budget] = budgets_of(world)
        assert prospect(world, budget).now.gpu_ms == hours * GPU_HOUR


def test_rows_of_other_clusters_count_by_the_labels_of_their_namespaces() -> None:
    labels = dict(TEAM) | {"@namespace/org": "lab"}
    rows = [
        a_row("east", 20, 15, gpus=8, labels=labels, namespace="elsewhere", cluster="east"),
        a_row("new", 4, 1, labels=labels),
    ]
    names = {"team-a": Namespace(name="team-a", labels=(("org", "lab"),))}
    world = a_used_world(selecting(homeCluster="default"), usage=rows, nodes=[a_node()], namespaces=names)
    case = recorded.read(world, "test", days=0.5)
    [found] = played(case, *case.resources.values()).budgets
    assert found.peak_share == pytest.approx(0.43, abs=0.001)


# --- what stands beside policies --------------------------------------------------------------------------------------------------

NAMESPACE = """apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {org: lab}}
"""


def test_namespaces_of_files_are_played() -> None:
    case = a_case(a_work(hours=10), hours=10)
    changed = beside.put_over(case, documents.read([("x", NAMESPACE.encode())]))
    assert dict(changed.namespaces["team-a"].labels) == {"org": "lab", "kubernetes.io/metadata.name": "team-a"}
    assert case.namespaces == {}
    held = played(changed, selecting(hours="4"))
    assert held.budgets[0].gpu_hours == pytest.approx(10, abs=0.01)


def test_what_files_say_in_vain_is_named() -> None:
    others = """
apiVersion: v1
kind: Pod
metadata: {name: p}
---
apiVersion: sim.headroom.dev/v1
kind: Offer
metadata: {name: o}
spec: {instanceType: x, pricePerHour: "1"}
"""
    found = documents.read([("x", (NAMESPACE + "---" + others).encode())])
    assert beside.passed_over(found) == {"Pod": 1, "Offer": 1}


def test_a_new_price_book_counts_for_history_too() -> None:
    rows = [a_row("old", 20, 15, price_per_hour=10**6), a_row("new", 4, 1, price_per_hour=10**6)]
    rows += [a_row("east", 20, 18, price_per_hour=10**6, cluster="east")]
    book = documents.Documents(prices=[Price(price_per_hour=16 * 10**6)])
    case = recorded.read(a_used_world(usage=rows, nodes=[a_node()]), "test", days=0.5)
    changed = beside.put_over(case, book)
    assert [(row.pod, row.price) for row in case.history] == [("old", 10**6), ("east", 10**6)]
    # A node of eight GPUs costs 16 dollars an hour; what another cluster paid is not in this book.
    assert [(row.pod, row.price) for row in changed.history] == [("old", 2 * 10**6), ("east", 10**6)]
    money = a_resource(quota={"usd": "100", "windowHours": 24}, enforcement={"action": "AlertOnly"})
    assert played(changed, money).budgets[0].peak_share == pytest.approx(0.16, abs=0.001)


def test_history_that_no_machine_could_hold_has_no_price_in_a_new_book() -> None:
    case = recorded.read(
        a_used_world(usage=[a_row("old", 20, 15, gpus=16, price_per_hour=10**6)], nodes=[a_node()]), "test", days=0.5
    )
    changed = beside.put_over(case, documents.Documents(prices=[Price(price_per_hour=16 * 10**6)]))
    assert [row.price for row in changed.history] == [None]


# --- as long as in the record -----------------------------------------------------------------------------------------------------


def running_for(hours: int, **more: Any) -> Pod:
    begun: dict[str, Any] = {
        "phase": "Running",
        "node": "worker-1",
        "started": NOON - hours * HOUR,
        "created": NOON - hours * HOUR,
    }
    told = ((marks.EXPECTED_DURATION, "4h"),)
    return a_pod("runs", labels=TEAM, annotations=told, **begun | more)


@pytest.mark.parametrize(
    ("pod", "hours"),
    [
        (running_for(10), 10),
        (running_for(3), 3),
        (running_for(10, phase="Succeeded", ended=NOON - 2 * HOUR, ended_by="ContainerFinish"), 8),
        (running_for(10, deadline=6 * HOUR), 6),
    ],
)
def test_what_ran_longer_than_it_declared_does_so_again_unless_a_deadline_stops_it(pod: Pod, hours: int) -> None:
    case = recorded.read(a_used_world(pods=[pod], nodes=[a_node()]), "test", days=None)
    assert played(case).total.gpu_hours == pytest.approx(hours, abs=0.01)


# --- nothing to play --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [None, 7])
def test_an_empty_record_is_played_and_said(days: float | None) -> None:
    case = recorded.read(a_used_world(a_budget(), nodes=[a_node()]), "test", days=days)
    found = played(case, *case.resources.values())
    assert found.total.gpu_hours == 0
    assert {*found.lines.gpus_held, *found.lines.waiting} == {0.0}
    [said] = case.notes
    assert said.startswith(f"The record has no work up to {text(NOON)}, so there is nothing to play; a snapshot taken")
    assert "NaN" not in page(Comparison(case=case, changes=[], every=1000, before=found, after=found), Assets("x", ""))
