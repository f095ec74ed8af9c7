"""Budgets: what is counted, what is said about it, and when people are told."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.core.budgets import PLAN
from headroom.model import conditions
from headroom.model.actions import EmitEvent
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.cloud_facts import Offer
from headroom.model.decisions import Decision
from headroom.model.facts import UNREADABLE, Namespace, Node, Pod, Price, Shape, Usage
from headroom.model.times import HOUR, MINUTE, SECOND, moment, text
from headroom.model.world import LedgerState, World, ref_of
from tests.builders import NOON, a_node, a_pod, a_resource, a_used_world, a_world

DAY = 24 * HOUR
TEAM = (("team", "a"),)


def a_budget(name: str = "one", *, hours: Any = "100", window: Any = 24, **spec: Any) -> AnyResource:
    quota = {"gpuHours": hours, "windowHours": window} | spec.pop("quota", {})
    quota = {key: value for key, value in quota.items() if value is not None}
    return a_resource(name=name, quota=quota, **spec)


def run(name: str, start: int, end: int | None = None, *, gpus: int = 1, **fields: Any) -> Pod:
    """A pod of team a that started so long before noon, and ended so long before it if it did."""
    phase = {"phase": "Running"} if end is None else {"phase": "Succeeded", "ended": NOON - end}
    base: dict[str, Any] = {"labels": TEAM, "started": NOON - start, "node": "n", "ended_by": "ContainerFinish"}
    return a_pod(name, gpus=gpus, **base | phase | fields)


def decide(world: World, changes: Changes = EVERYTHING) -> Decision:
    (decision,) = PLAN.decide(world, changes)
    return decision


def numbers(decision: Decision) -> Any:
    """The status, of which tests read the budget's own fields."""
    return decision.status


def status_of(*pods: Pod, budget: AnyResource | None = None, **more: Any) -> Any:
    return decide(a_used_world(budget or a_budget(), pods=pods, **more)).status


def reason(decision: Decision, type_: str) -> tuple[str, str]:
    found = conditions.find(decision.status.conditions, type_)
    assert found is not None
    return found.status, found.reason


# --- counting ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "hours"),
    [
        ([], "0"),
        ([run("p", 2 * HOUR)], "2"),
        ([run("p", 2 * HOUR, gpus=8)], "16"),
        ([run("p", 3 * HOUR, HOUR)], "2"),
        ([run("p", 30 * HOUR)], "24"),
        ([run("p", 30 * HOUR, 24 * HOUR)], "0"),
        ([run("p", 30 * HOUR, 23 * HOUR)], "1"),
        ([run("p", 0)], "0"),
        ([run("p", -HOUR)], "0"),
        ([run("p", HOUR, -HOUR)], "1"),
        ([run("p", HOUR, 2 * HOUR)], "0"),
        ([run("p", HOUR, gpus=0)], "0"),
        ([run("p", HOUR, labels=(("team", "b"),))], "0"),
        ([run("p", HOUR, namespace="elsewhere")], "0"),
        ([run("p", HOUR, started=None, phase="Pending")], "0"),
        ([run("p", 30 * SECOND), run("q", 30 * SECOND)], "0.016666666667"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_window_is_half_open_and_counts_gpus_times_overlap(pods: list[Pod], hours: str) -> None:
    assert status_of(*pods).consumed_gpu_hours == hours


pods_of_a_day = st.lists(
    st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 40)), st.integers(0, 3), st.sampled_from("ab")),
    max_size=12,
)


@given(pods_of_a_day, st.integers(1, 30), st.randoms(use_true_random=False))
def test_it_agrees_with_counting_second_by_second_in_any_order(found: Any, window: int, rng: Any) -> None:
    pods = [
        run(f"p{number}", start * MINUTE, None if end is None else end * MINUTE, gpus=gpus, labels=(("team", team),))
        for number, (start, end, gpus, team) in enumerate(found)
    ]
    counted = sum(
        pod.shape.requests[0][1] // 10**6
        for pod in pods
        if pod.labels == TEAM and pod.shape.requests
        for minute in range(window * 60)
        if (at := NOON - (minute + 1) * MINUTE) >= (pod.started or 0) and (pod.ended is None or at < pod.ended)
    )
    rng.shuffle(pods)
    status = status_of(*pods, budget=a_budget(window=window))
    assert abs(Fraction(status.consumed_gpu_hours) - Fraction(counted, 60)) <= Fraction(1, 10**12)
    assert status.upper_gpu_hours == status.consumed_gpu_hours


def test_equality_is_over() -> None:
    under, over = run("p", 2 * HOUR - 1, 0), run("p", 2 * HOUR, 0)
    assert reason(decide(a_used_world(a_budget(hours="2"), pods=[under])), "QuotaExceeded")[0] == "False"
    assert reason(decide(a_used_world(a_budget(hours="2"), pods=[over])), "QuotaExceeded") == ("True", "QuotaReached")


def test_remaining_is_never_below_zero_and_tracked_counts_pods_in_view() -> None:
    gone = Usage(
        name="row", namespace="team-a", uid="gone", start=NOON - HOUR, end=NOON, gpus=10**6, labels={"team": "a"}
    )
    status = status_of(run("p", 2 * HOUR), run("q", HOUR, 0), budget=a_budget(hours="1"), usage=[gone])
    assert (status.remaining_gpu_hours, status.tracked_pods, status.burn_rate_gpus) == ("0", 2, "1")
    assert status.consumed_gpu_hours == "4"


def test_the_burn_rate_is_of_now_and_sums_are_of_what_is_settled() -> None:
    status = status_of(run("p", HOUR, gpus=2), run("new", 1000), run("ended", HOUR, 1000), settled=NOON - 3000)
    assert (status.as_of, status.burn_rate_gpus) == (text(NOON - 3000), "3")
    assert abs(float(status.consumed_gpu_hours) - 3 * (3600 - 3) / 3600) < 1e-9


# --- the ledger and the view --------------------------------------------------------------------------------------------------------


def a_usage(name: str = "row", start: int = 3 * HOUR, end: int | None = HOUR, **fields: Any) -> Usage:
    base: dict[str, Any] = {
        "namespace": "team-a",
        "pod": "old",
        "uid": "uid-old",
        "gpus": 10**6,
        "labels": {"team": "a"},
    }
    ended = None if end is None else NOON - end
    return Usage(name=name, start=NOON - start, end=ended, **base | fields)


def test_a_deleted_pod_keeps_what_it_used() -> None:
    assert status_of(usage=[a_usage()]).consumed_gpu_hours == "2"


def test_the_same_row_from_view_and_ledger_counts_once() -> None:
    pod = run("old", 3 * HOUR, HOUR)
    assert status_of(pod, usage=[a_usage()]).consumed_gpu_hours == "2"
    alive = run("old", 3 * HOUR)
    assert status_of(alive, usage=[a_usage(end=None)]).consumed_gpu_hours == "3"
    assert status_of(alive, usage=[a_usage(), a_usage("again")]).consumed_gpu_hours == "3"


def test_what_was_used_before_a_relabel_never_moves() -> None:
    before = a_usage(labels={"team": "b"})
    assert status_of(run("old", 3 * HOUR), usage=[before]).consumed_gpu_hours == "1"


def test_rows_of_one_pod_with_a_gap_between_them_count_without_the_gap() -> None:
    rows = [a_usage("one", 4 * HOUR, 3 * HOUR), a_usage("two", 2 * HOUR, HOUR)]
    status = status_of(usage=rows)
    assert (status.consumed_gpu_hours, status.upper_gpu_hours) == ("2", "2")


@pytest.mark.parametrize("phase", [{}, {"phase": "Succeeded", "ended": NOON - HOUR}], ids=["running", "finished"])
def test_what_a_pod_used_after_a_relabel_is_the_new_teams_whether_it_runs_or_has_ended(phase: dict[str, Any]) -> None:
    before = a_usage(start=4 * HOUR, end=3 * HOUR)
    pod = run("old", 4 * HOUR, labels=(("team", "b"),), **phase)
    other = a_budget("other", selector={"matchLabels": {"team": "b"}})
    world = a_used_world(a_budget(), other, pods=[pod], usage=[before])
    used = [numbers(each).consumed_gpu_hours for each in PLAN.decide(world, EVERYTHING)]
    assert used == ["1", "2" if phase else "3"]


def test_a_pod_that_failed_and_shows_no_container_may_have_run() -> None:
    failed = run("p", 0, phase="Failed", started=None, started_after=NOON - 3 * HOUR, ended=NOON - HOUR)
    status = status_of(failed)
    assert (status.consumed_gpu_hours, status.upper_gpu_hours) == ("0", "2")


def test_a_row_whose_end_nobody_knows_is_two_bounds() -> None:
    status = status_of(usage=[a_usage(end=None)])
    assert (status.consumed_gpu_hours, status.upper_gpu_hours) == ("0", "3")


def test_rows_of_another_cluster_count_only_for_a_budget_of_several() -> None:
    there = a_usage(cluster="there")
    assert status_of(usage=[there]).consumed_gpu_hours == "0"
    assert status_of(usage=[there], budget=a_budget(homeCluster="default")).consumed_gpu_hours == "2"


def test_a_cluster_that_is_behind_widens_the_bounds() -> None:
    there = a_usage(cluster="there", end=None)
    behind = LedgerState(complete_until={"there": NOON - 2 * HOUR})
    decision = decide(a_used_world(a_budget(homeCluster="default"), usage=[there], ledger=behind))
    assert (numbers(decision).consumed_gpu_hours, numbers(decision).upper_gpu_hours) == ("1", "3")
    assert reason(decision, "Degraded") == ("True", "ClusterStale")
    elsewhere = decide(a_used_world(a_budget(homeCluster="there", hours="1"), usage=[a_usage()]))
    assert reason(elsewhere, "Ready") == ("True", "DecidedElsewhere")
    assert elsewhere.actions == ()


# --- what counts -------------------------------------------------------------------------------------------------------------------


def with_amounts(name: str, **amounts: int) -> Pod:
    shape = Shape(requests=tuple(sorted((key.replace("__", "/"), value) for key, value in amounts.items())))
    return structs.replace(run(name, HOUR), shape=shape)


@pytest.mark.parametrize(
    ("spec", "requests", "hours"),
    [
        ({"gpuResourceName": "cpu"}, {"cpu": 100_000}, "0.1"),
        ({"gpuResourceName": "amd.com/gpu"}, {"amd.com/gpu": 2_000_000}, "2"),
        ({}, {"nvidia.com/mig-1g.5gb": 1_000_000}, "0"),
        ({"gpuResources": [{"name": "nvidia.com/mig-*"}]}, {"nvidia.com/mig-3g.20gb": 7_000_000}, "2.999999"),
        ({"gpuResources": [{"name": "nvidia.com/mig-*"}]}, {"nvidia.com/mig-7g.40gb": 1_000_000}, "1"),
        (
            {
                "gpuResources": [
                    {"name": "nvidia.com/*"},
                    {"name": "nvidia.com/gpu", "weight": "2"},
                    {"name": "cpu", "weight": "0.5"},
                ]
            },
            {"nvidia.com/gpu": 1_000_000, "nvidia.com/x": 1_000_000, "cpu": 4_000_000},
            "5",
        ),
    ],
    ids=["cpu", "amd", "mig-uncounted", "mig-sevenths", "mig-whole", "weights"],
)
def test_resources_count_with_their_weights(spec: dict[str, Any], requests: dict[str, int], hours: str) -> None:
    pod = structs.replace(run("p", HOUR), shape=Shape(requests=tuple(sorted(requests.items()))))
    assert status_of(pod, budget=a_budget(**spec)).consumed_gpu_hours == hours


def test_an_amount_that_nobody_can_read_counts_nothing_and_is_said() -> None:
    pod = structs.replace(run("p", HOUR), shape=Shape(requests=(("nvidia.com/gpu", UNREADABLE),)))
    decision = decide(a_used_world(a_budget(), pods=[pod, run("q", HOUR)]))
    assert numbers(decision).consumed_gpu_hours == "1"
    assert reason(decision, "Degraded") == ("True", "UnreadableRequest")


def test_gpus_beyond_any_fleet_are_still_exact() -> None:
    shape = Shape(requests=(("nvidia.com/gpu", 10**18 + 1),))
    status = status_of(structs.replace(run("p", HOUR), shape=shape), run("q", HOUR))
    assert status.consumed_gpu_hours == "1000000000001.000001"


def test_overlapping_budgets_each_count_in_full() -> None:
    wide = a_budget("wide", selector={"matchExpressions": [{"key": "team", "operator": "Exists"}]})
    world = a_used_world(a_budget(), wide, pods=[run("p", HOUR), run("q", HOUR, labels=(("team", "b"),))])
    assert [numbers(each).consumed_gpu_hours for each in PLAN.decide(world, EVERYTHING)] == ["1", "2"]


@pytest.mark.parametrize(
    ("expression", "labels", "matches"),
    [
        ({"key": "tier", "operator": "In", "values": ["x"]}, {"tier": "x"}, True),
        ({"key": "tier", "operator": "In", "values": ["x"]}, {}, False),
        ({"key": "tier", "operator": "NotIn", "values": ["x"]}, {}, True),
        ({"key": "tier", "operator": "NotIn", "values": ["x"]}, {"tier": "x"}, False),
        ({"key": "tier", "operator": "Exists"}, {"tier": ""}, True),
        ({"key": "tier", "operator": "DoesNotExist"}, {"tier": ""}, False),
    ],
)
def test_selectors_mean_what_kubernetes_means(expression: Any, labels: dict[str, str], matches: bool) -> None:
    budget = a_budget(selector={"matchExpressions": [expression]})
    status = status_of(run("p", HOUR, labels=tuple(labels.items())), budget=budget)
    assert status.consumed_gpu_hours == ("1" if matches else "0")


def test_a_namespace_selector_counts_only_in_the_operators_namespace() -> None:
    spec: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"org": "x"}}}
    spaces = {"lab": Namespace(name="lab", labels=(("org", "x"),)), "team-a": Namespace(name="team-a")}
    pods = [run("p", HOUR, namespace="lab"), run("q", HOUR)]
    budget = a_budget(**spec)
    elsewhere = decide(a_used_world(budget, pods=pods, namespaces=spaces))
    assert numbers(elsewhere).consumed_gpu_hours == "1"
    assert reason(elsewhere, "Degraded") == ("True", "NamespaceSelectorIgnored")
    at_home = decide(a_used_world(budget, pods=pods, namespaces=spaces, own_namespace="team-a"))
    assert numbers(at_home).top_pods[0].pod == "lab/p"
    assert (numbers(at_home).consumed_gpu_hours, numbers(at_home).tracked_pods) == ("1", 1)


def test_what_was_used_in_a_namespace_stays_when_that_is_relabelled_or_deleted() -> None:
    budget = a_budget(namespaceSelector={"matchLabels": {"org": "x"}})
    there = {"lab": Namespace(name="lab", labels=(("org", "x"),))}
    before = a_used_world(budget, pods=[run("p", HOUR, namespace="lab")], namespaces=there, own_namespace="team-a")
    for later in ({}, {"lab": Namespace(name="lab", labels=(("org", "y"),))}):
        world = a_world(budget, now=NOON, usage=before.usage, namespaces=later, own_namespace="team-a")
        assert numbers(decide(world)).consumed_gpu_hours == "1"
    moved = a_used_world(
        budget,
        pods=[run("p", HOUR, namespace="lab")],
        namespaces={"lab": Namespace(name="lab", labels=(("org", "y"),))},
        own_namespace="team-a",
    )
    assert numbers(decide(moved)).consumed_gpu_hours == "0"


# --- money ------------------------------------------------------------------------------------------------------------------------


def a_priced_node(name: str = "n", gpus: Any = 8, zone: Any = "z1", **labels: str) -> Node:
    known = {"node.kubernetes.io/instance-type": "p4d", "topology.kubernetes.io/zone": zone} | labels
    return a_node(name, gpus=gpus, labels=tuple(sorted(known.items())))


def test_a_pod_bears_its_part_of_the_nodes_price() -> None:
    book = (Price(price_per_hour=32_000_000, instance_type="p4d"),)
    status = status_of(
        run("p", 2 * HOUR, gpus=2), budget=a_budget(quota={"usd": "100"}), nodes=[a_priced_node()], prices=book
    )
    assert (status.consumed_usd, status.remaining_usd, status.unpriced_gpu_hours) == ("16", "84", "0")


def test_hours_without_a_price_stand_apart_and_are_never_zero_dollars() -> None:
    book = (Price(price_per_hour=8_000_000, instance_type="p4d"),)
    pods = [run("p", HOUR), run("q", 3 * HOUR, node="other")]
    status = status_of(*pods, budget=a_budget(hours=None, quota={"usd": "5"}), nodes=[a_priced_node()], prices=book)
    assert (status.consumed_usd, status.unpriced_gpu_hours, status.remaining_gpu_hours) == ("1", "3", "")
    assert [(each.pod, each.usd) for each in status.top_pods] == [("team-a/q", ""), ("team-a/p", "1")]
    assert status.upper_usd == "", "what has no price has no bound"
    said = {each.type: (each.reason, each.message) for each in status.conditions}
    assert said["Degraded"][0] == "PriceUnknown"
    assert "3.00 GPU-hours have no price" in said["QuotaExceeded"][1]


def test_dollars_alone_can_be_a_quota() -> None:
    book = (Price(price_per_hour=8_000_000, node="n"),)
    budget = a_budget(hours=None, quota={"usd": "1.5"})
    decision = decide(a_used_world(budget, pods=[run("p", HOUR)], nodes=[a_priced_node()], prices=book))
    assert numbers(decision).forecast.exhausted_at == text(NOON + 30 * MINUTE)
    over = decide(a_used_world(budget, pods=[run("p", 2 * HOUR)], nodes=[a_priced_node()], prices=book))
    assert reason(over, "QuotaExceeded") == ("True", "QuotaReached")


def test_without_a_price_book_the_price_feed_counts() -> None:
    offer = Offer(name="o", instance_type="p4d", zone="z1", capacity_type="on-demand", price_per_hour=16_000_000)
    spot = structs.replace(offer, name="s", capacity_type="spot", price_per_hour=4_000_000)
    spec: dict[str, Any] = {"quota": {"usd": "100"}}
    for labels, dollars in ((dict[str, str](), "2"), ({"karpenter.sh/capacity-type": "spot"}, "0.5")):
        node = a_priced_node(**labels)
        status = status_of(run("p", HOUR), budget=a_budget(**spec), nodes=[node], offers={"o": offer, "s": spot})
        assert status.consumed_usd == dollars


# --- forecast ----------------------------------------------------------------------------------------------------------------------


def test_the_forecast_says_when_the_quota_is_reached() -> None:
    status = status_of(run("p", HOUR, gpus=2), budget=a_budget(hours="10"))
    assert status.forecast.exhausted_at == text(NOON + 4 * HOUR)


def test_what_ages_out_of_the_window_is_in_the_forecast() -> None:
    pods = [run("old", 24 * HOUR, 14 * HOUR), run("new", 0)]
    status = status_of(*pods, budget=a_budget(hours="24"))
    assert status.forecast.exhausted_at == text(NOON + 24 * HOUR)
    assert status_of(*pods, budget=a_budget(hours="24.000000001")).forecast is None


def test_a_begin_at_the_end_of_time_is_no_forecast_and_no_failure() -> None:
    far = (moment("9999-12-31T23:59:59Z") or 0) - NOON
    assert status_of(run("p", -far), budget=a_budget(hours="1")).forecast is None


def test_the_forecast_says_when_an_exceeded_quota_holds_again() -> None:
    status = status_of(run("p", 20 * HOUR, 10 * HOUR), budget=a_budget(hours="10"))
    assert status.forecast.recovers_at == text(NOON + 4 * HOUR + 1)
    assert status_of(run("p", 20 * HOUR), budget=a_budget(hours="10")).forecast is None


# --- conditions and events -----------------------------------------------------------------------------------------------------------


def test_the_seeds_conditions_are_there_with_their_reasons() -> None:
    decision = decide(a_used_world(a_budget(), pods=[run("p", HOUR)]))
    found = {each.type: (each.status, each.reason) for each in decision.status.conditions}
    assert found == {
        "Ready": ("True", "Reconciled"),
        "QuotaExceeded": ("False", "WithinBudget"),
        "Degraded": ("False", "ReconcileSucceeded"),
        "NoPodsRequestResource": ("False", "ResourceRequested"),
    }
    assert decision.status.observed_generation == 1
    assert numbers(decision).as_of == text(NOON)
    assert numbers(decision).last_enforcement_at == ""


def test_a_bad_selector_has_the_seeds_reason() -> None:
    decision = decide(a_used_world(a_resource(selector={})))
    assert reason(decision, "Ready") == ("False", "InvalidSelector")
    assert reason(decision, "Degraded") == ("True", "InvalidSelector")


def test_pods_that_do_not_ask_for_the_resource_are_pointed_out() -> None:
    pods = [run("p", HOUR, gpus=0), run("q", HOUR, gpus=0)]
    assert reason(decide(a_used_world(a_budget(), pods=pods)), "NoPodsRequestResource") == (
        "True",
        "ResourceNotRequested",
    )
    assert reason(decide(a_used_world(a_budget())), "NoPodsRequestResource") == ("False", "NoPods")
    waiting = run("r", 0, started=None, phase="Pending")
    decision = decide(a_used_world(a_budget(), pods=[*pods, waiting]))
    assert reason(decision, "NoPodsRequestResource") == ("False", "ResourceRequested")


def test_an_incomplete_view_or_an_unread_ledger_leaves_the_numbers_alone() -> None:
    first = decide(a_used_world(a_budget(), pods=[run("p", HOUR)]))
    budget = structs.replace(a_budget(), status=first.status)
    blind = decide(a_used_world(budget, complete=False, unseen={"pods": "not now"}))
    unread = decide(a_used_world(budget, ledger=LedgerState(loaded=False, problem="It is away.")))
    assert reason(blind, "Ready") == ("False", "ListPodsFailed")
    assert reason(unread, "Ready") == ("False", "LedgerUnavailable")
    assert {numbers(each).consumed_gpu_hours for each in (blind, unread)} == {"1"}
    assert {numbers(each).as_of for each in (blind, unread)} == {text(NOON)}


def test_a_ledger_that_cannot_be_written_is_said_and_counting_goes_on() -> None:
    decision = decide(a_used_world(a_budget(), pods=[run("p", HOUR)], ledger=LedgerState(problem="It is away.")))
    assert reason(decision, "Degraded") == ("True", "LedgerUnavailable")
    assert numbers(decision).consumed_gpu_hours == "1"


def test_people_are_told_once_per_turn_with_numbers() -> None:
    budget = a_budget(hours="1")
    over = decide(a_used_world(budget, pods=[run("p", 2 * HOUR)]))
    (event,) = over.actions
    assert isinstance(event, EmitEvent)
    assert (event.object, event.event_type, event.reason) == (str(ref_of(budget)), "Warning", "QuotaExceeded")
    assert "2.00 of 1 GPU-hours" in event.message
    assert "team-a/p" in event.message
    written = structs.replace(budget, status=over.status)
    assert decide(a_used_world(written, now=NOON + HOUR, pods=[run("p", 2 * HOUR)])).actions == ()
    (back,) = decide(a_used_world(written, now=NOON + 30 * HOUR, pods=[run("p", 2 * HOUR, 0)])).actions
    assert isinstance(back, EmitEvent)
    assert (back.event_type, back.reason) == ("Normal", "WithinBudget")


@pytest.mark.parametrize("still", [{"paused": True}, {}], ids=["paused", "stopped"])
def test_paused_or_stopped_it_counts_and_plans_no_effect(still: dict[str, Any]) -> None:
    budget = a_budget(hours="1", accounting="Exact", **still)
    decision = decide(a_used_world(budget, pods=[run("p", 2 * HOUR)], stopped=not still))
    assert decision.actions == ()
    assert numbers(decision).consumed_gpu_hours == "2"


def test_who_used_most_is_worked_out_anew_when_the_budget_changed_or_an_alert_is_due() -> None:
    first = numbers(decide(a_used_world(a_budget(), pods=[run("p", HOUR)])))
    known = structs.replace(a_budget(hours="1"), status=first)
    again = structs.replace(known, generation=2, spec=a_budget(selector={"matchLabels": {"team": "b"}}).spec)
    world = a_used_world(again, pods=[run("q", HOUR, labels=(("team", "b"),))])
    assert [each.pod for each in numbers(decide(world)).top_pods] == ["team-a/q"]
    (event,) = decide(a_used_world(known, pods=[run("new", 3 * HOUR)])).actions
    assert isinstance(event, EmitEvent)
    assert "team-a/new" in event.message


def test_nothing_that_moved_is_nothing_to_write() -> None:
    first = decide(a_used_world(a_budget(), pods=[run("p", 30 * HOUR, 26 * HOUR)]))
    written = structs.replace(a_budget(), status=first.status)
    later = decide(a_used_world(written, now=NOON + HOUR, pods=[run("p", 30 * HOUR, 26 * HOUR)]))
    assert later.status == first.status


def test_it_looks_again_when_the_quota_will_be_reached() -> None:
    decision = decide(a_used_world(a_budget(hours="1"), pods=[run("p", HOUR - 4 * SECOND)]))
    assert decision.look_again_ms == 4 * SECOND


@pytest.mark.parametrize("step", [-2 * DAY, -HOUR, HOUR, 400 * DAY])
def test_a_clock_that_steps_gives_no_negative_and_no_future_hours(step: int) -> None:
    status = status_of(run("p", 2 * HOUR), run("q", 3 * HOUR, HOUR), now=NOON + step)
    used = Fraction(status.consumed_gpu_hours)
    assert 0 <= used <= 48
    assert moment(status.as_of) == NOON + step
