"""Who counts as waiting for a place, who is left out and why, and what is served as one."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from msgspec import structs

from headroom.core import CAPACITY, PLANS
from headroom.core.demand import digest_of, wanted
from headroom.core.ticks import as_seen_by
from headroom.model import conditions
from headroom.model.facts import Owner, Pod, Shape, Usage
from headroom.model.times import HOUR
from headroom.model.world import LedgerState
from tests.builders import NOON, a_node, a_pod, a_resource
from tests.core.demand_stage import MINUTE, a_shape, a_view, alike, amounts, gang, units_of, waits
from tests.sentences import Says

OTHERS = Shape(requests=amounts(1), scheduler="volcano")


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(waits(gates=("a/b",)), "Gated", id="gate"),
        pytest.param(waits(gates=("a/b", "c")), "Gated", id="gates"),
        pytest.param(waits(gpus=0), "NoGpu", id="no GPU"),
        pytest.param(waits(shape=Shape(requests=(("cpu", 5),))), "NoGpu", id="CPU"),
        pytest.param(waits(owner=Owner("DaemonSet", "plugin", "u")), "DaemonSet", id="DaemonSet"),
        pytest.param(
            waits(refused_itself=True, unschedulable_message='0/3 nodes are available: no claim "data".'),
            "NoNodeHelps",
            id="no node helps",
        ),
        pytest.param(waits(unschedulable_since=None), "NotYetSeen", id="not yet tried"),
        pytest.param(waits(shape=OTHERS, unschedulable_since=None), "OtherScheduler", id="not yet tried by another"),
        pytest.param(waits(shape=OTHERS), "OtherScheduler", id="another does not run"),
        pytest.param(waits(nominated_node="n", nominated_since=NOON - 4 * MINUTE), "Nominated", id="preempts"),
    ],
)
def test_those_who_need_no_machine_are_left_out(pod: Pod, reason: str, says: Says) -> None:
    found = wanted(a_view(pod, nodes=[a_node("n")]))
    assert found.units == ()
    assert {uid: each.reason for uid, each in found.left_out.items()} == {pod.uid: reason}
    says(found.left_out[pod.uid].message)


@pytest.mark.parametrize(
    "pod",
    [
        waits(),
        waits(shape=Shape(requests=(("amd.com/gpu", 1_000_000),))),
        waits(gpus=0.5),
        waits(owner=Owner("Job", "j", "u")),
        waits(nominated_node="n", nominated_since=NOON - 5 * MINUTE),
        waits(nominated_node="gone", nominated_since=NOON),
        waits(nominated_node="unready", nominated_since=NOON),
        waits(nominated_node="going", nominated_since=NOON),
        waits(nominated_node="cordoned", nominated_since=NOON),
    ],
)
def test_those_who_find_no_place_count(pod: Pod) -> None:
    nodes = [
        a_node("n"),
        a_node("unready", ready=False),
        a_node("going", deleting=NOON),
        a_node("cordoned", unschedulable=True),
    ]
    found = wanted(a_view(pod, nodes=nodes))
    assert [unit.first for unit in found.units] == [pod.key]
    assert found.left_out == {}


@pytest.mark.parametrize("fields", [{"phase": "Running"}, {"deleting": NOON}, {"node": "n"}, {"phase": "Failed"}])
def test_those_who_do_not_wait_are_not_even_left_out(fields: dict[str, Any]) -> None:
    found = wanted(a_view(waits(**fields)))
    assert (found.units, found.left_out) == ((), {})


def test_a_resource_that_a_supply_names_is_a_gpu() -> None:
    pod = waits(shape=Shape(requests=(("example.com/accelerator", 1_000_000),)))
    assert wanted(a_view(pod)).left_out[pod.uid].reason == "NoGpu"
    assert [unit.first for unit in wanted(a_view(pod), gpus=["example.com/accelerator"]).units] == [pod.key]
    assert "amd.com/gpu, example.com/accelerator, nvidia.com/gpu" in (
        wanted(a_view(waits("q", 0)), gpus=["example.com/accelerator"]).left_out["uid-q"].message
    )


# --- schedulers -----------------------------------------------------------------------------------------------------------------

PLACED: dict[str, Any] = {"shape": Shape(scheduler="volcano"), "node": "n", "phase": "Running"}


@pytest.mark.parametrize(
    "beside",
    [
        a_pod("other", **PLACED),
        a_pod("over", **PLACED | {"phase": "Succeeded"}),
        a_pod("volcano-scheduler-7d4f", node="n", phase="Running", namespace="volcano-system"),
        a_pod("scheduler-7d4f", node="n", phase="Running", namespace="volcano"),
    ],
)
def test_pods_of_another_scheduler_count_where_it_is_at_work(beside: Pod) -> None:
    pod = waits(shape=OTHERS)
    found = wanted(a_view(pod, beside))
    assert [unit.first for unit in found.units] == [pod.key]
    assert found.left_out == {}


@pytest.mark.parametrize(
    "beside",
    [
        waits("other", shape=Shape(scheduler="volcano")),
        a_pod("other", **PLACED | {"shape": Shape(scheduler="yunikorn")}),
        a_pod("other", **PLACED | {"shape": Shape()}),
        a_pod("volcano-scheduler-7d4f", phase="Pending"),
        a_pod("volcano-scheduler-7d4f", node="n", phase="Failed"),
        a_pod("volcano-admission-7d4f", node="n", phase="Running"),
        a_pod("my-volcano-scheduler", node="n", phase="Running"),
        a_pod("volcanoes-scheduler", node="n", phase="Running"),
    ],
)
def test_pods_of_a_scheduler_that_shows_nowhere_wake_nothing(beside: Pod) -> None:
    found = wanted(a_view(waits(shape=OTHERS), beside))
    assert found.units == ()
    assert found.left_out["uid-p"].reason == "OtherScheduler"


def test_a_scheduler_that_a_supply_names_places_pods() -> None:
    """As a second profile of kube-scheduler does, of whose pods none may be left."""
    assert wanted(a_view(waits(shape=OTHERS)), schedulers=["volcano"]).left_out == {}


def test_no_pod_asks_for_kube_scheduler_by_that_name() -> None:
    pod = waits(shape=Shape(requests=amounts(1), scheduler="kube-scheduler"))
    beside = a_pod("kube-scheduler-control-plane", namespace="kube-system", node="n", phase="Running")
    assert wanted(a_view(pod, beside)).left_out[pod.uid].reason == "OtherScheduler"


def test_a_gang_of_a_scheduler_that_shows_nowhere_is_not_complete() -> None:
    found = wanted(a_view(*gang("x", 1), *gang("x", 1, prefix="o", shape=OTHERS)))
    assert {uid: each.reason for uid, each in found.left_out.items()} == {
        "uid-x-0": "GangIncomplete",
        "uid-o0": "OtherScheduler",
    }


# --- units ----------------------------------------------------------------------------------------------------------------------


def test_like_pods_of_one_priority_are_one_unit_the_oldest_first() -> None:
    pods = [waits("b", created=7), waits("a", created=7), waits("c", created=5), waits("d", priority=1)]
    one, two = units_of(*pods)
    assert (one.priority, one.first, one.count) == (1, "team-a/d", 1)
    assert (two.oldest, two.first, two.parts[0].pods) == (5, "team-a/c", ("uid-c", "uid-a", "uid-b"))
    assert two.parts[0].names == ("team-a/c", "team-a/a", "team-a/b")


def test_units_come_by_priority_then_age_then_name() -> None:
    pods = [
        waits("late", 1, created=9),
        waits("b", 2, created=5),
        waits("a", 4, created=5),
        waits("low", 8, priority=-1),
    ]
    assert [unit.first for unit in units_of(*pods)] == ["team-a/a", "team-a/b", "team-a/late", "team-a/low"]


def test_what_is_left_of_a_unit_keeps_its_turn_and_names_one_who_waits() -> None:
    [unit] = units_of(*[waits(name, created=age) for age, name in enumerate("abc")])
    left = unit.without(2)
    assert (left.first, left.oldest, left.parts[0].pods, left.count) == ("team-a/c", 0, ("uid-c",), 1)


def test_the_pods_of_a_plain_job_are_no_gang() -> None:
    [unit] = units_of(*alike(3, owner=Owner("Job", "j", "u")))
    assert (unit.gang, unit.count) == ("", 3)


def test_it_is_told_when_a_nomination_is_no_longer_believed() -> None:
    pod = waits(nominated_node="n", nominated_since=NOON - MINUTE)
    assert wanted(a_view(pod, nodes=[a_node("n")])).recheck_at == NOON + 4 * MINUTE
    assert wanted(a_view(waits())).recheck_at is None


def test_a_nomination_of_unknown_age_is_as_old_as_the_verdict() -> None:
    pod = waits(nominated_node="n")
    assert wanted(a_view(pod, nodes=[a_node("n")])).recheck_at == NOON - 30_000 + 5 * MINUTE


# --- budgets --------------------------------------------------------------------------------------------------------------------

TEAM = (("team", "a"),)


def judged(exceeded: bool, **spec: Any) -> Any:
    """A budget with a verdict on its quota in its status."""
    budget = a_resource(**spec)
    verdict = conditions.judged(budget, "QuotaExceeded", exceeded, "X", "x", NOON)
    return structs.replace(budget, status=structs.replace(budget.status, conditions=(verdict,)))


def test_pods_of_an_exhausted_budget_are_left_out_and_kept_apart(says: Says) -> None:
    found = wanted(a_view(waits(labels=TEAM), waits("q"), resources=[judged(True)]))
    assert [unit.first for unit in found.units] == ["team-a/q"]
    assert [unit.first for unit in found.exhausted] == ["team-a/p"]
    says(found.left_out["uid-p"].message)
    assert found.left_out["uid-p"].reason == "BudgetExhausted"


@pytest.mark.parametrize(
    ("budget", "fields"),
    [
        (judged(False), {}),
        (judged(True, paused=True), {}),
        (judged(True), {"labels": (("team", "b"),)}),
        (judged(True), {"namespace": "other"}),
        (judged(True, gpuResourceName="amd.com/gpu"), {}),
    ],
)
def test_a_budget_that_has_room_is_paused_or_does_not_count_the_pod_holds_nobody_back(
    budget: Any, fields: dict[str, Any]
) -> None:
    found = wanted(a_view(waits(**{"labels": TEAM} | fields), resources=[budget]))
    assert (len(found.units), found.exhausted, found.left_out) == (1, (), {})


@pytest.mark.parametrize(("hours", "exhausted"), [(99, False), (100, True)])
def test_a_budget_whose_verdict_is_not_written_yet_counts_by_it(hours: int, exhausted: bool) -> None:
    usage = Usage(
        name="u", namespace="team-a", pod="old", uid="o", start=NOON - hours * HOUR // 10, end=NOON,
        gpus=10_000_000, labels={"team": "a"},
    )  # fmt: skip
    world = a_view(waits(labels=TEAM), resources=[a_resource()], usage=[usage])
    found = wanted(as_seen_by(CAPACITY, world, PLANS))
    assert bool(found.exhausted) is exhausted
    assert bool(found.units) is not exhausted


@pytest.mark.parametrize(
    ("ledger", "reason"),
    [
        pytest.param(LedgerState(loaded=False), "BudgetExhausted", id="being read"),
        pytest.param(LedgerState(loaded=False, problem="It cannot be read."), "", id="unreadable"),
        pytest.param(LedgerState(), "", id="read"),
    ],
)
def test_while_the_ledger_is_read_nobody_knows_whether_a_budget_is_over_quota(
    ledger: LedgerState, reason: str, says: Says
) -> None:
    world = structs.replace(a_view(waits(labels=TEAM), waits("q"), resources=[judged(False)]), ledger=ledger)
    found = wanted(world).left_out
    assert (found["uid-p"].reason if found else "") == reason
    says(*(each.message for each in found.values()))


def test_a_gang_with_one_pod_of_an_exhausted_budget_is_exhausted_as_a_whole() -> None:
    label = ("scheduling.x-k8s.io/pod-group", "x")
    pods = [*gang("x", 2), waits("q", labels=(label, ("team", "a")))]
    found = wanted(a_view(*pods, resources=[judged(True)]))
    assert found.units == ()
    assert [unit.count for unit in found.exhausted] == [3]
    assert {each.reason for each in found.left_out.values()} == {"BudgetExhausted"}


# --- digests --------------------------------------------------------------------------------------------------------------------


def test_the_name_of_a_shape_is_the_same_in_every_process_and_version() -> None:
    """It is made of what is said and of nothing else, so a new field with its default changes no name."""
    said = b'{"node_selector":[["gpu","h100"]],"requests":[["cpu",4000000],["nvidia.com/gpu",1000000]]}'
    assert digest_of(a_shape(1, 4, node_selector=(("gpu", "h100"),))) == hashlib.sha256(said).hexdigest()[:12]


def test_every_field_of_a_shape_makes_another_name() -> None:
    others = [
        Shape(),
        a_shape(2),
        a_shape(1, node_selector=(("a", "b"),)),
        a_shape(1, affinity="{}"),
        a_shape(1, tolerations="[]"),
        a_shape(1, scheduler="x"),
        a_shape(1, host_network=True),
        a_shape(1, spread="[]"),
    ]
    assert len({digest_of(each) for each in (a_shape(1), *others)}) == 9
    assert {
        field for each in others for field, value in structs.asdict(each).items() if value != getattr(Shape(), field)
    } == {*Shape.__struct_fields__}


def test_a_retried_pod_is_the_same_demand() -> None:
    first, second = units_of(waits("a")), units_of(waits("b", uid="another"))
    assert first[0].parts[0].digest == second[0].parts[0].digest
