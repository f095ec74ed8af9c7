"""What-if on small cases: a recorded cluster becomes work, decisions are carried out, and what came of it is measured."""

from __future__ import annotations

import html
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.documents import Documents
from headroom.api import marks
from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.kinds import AnyResource
from headroom.model.actions import LaunchInstance, WakeMachine
from headroom.model.errors import Misconfigured
from headroom.model.facts import Hold, Owner, Pod, Price, Shape, Taint, Usage
from headroom.model.snapshots import load, save
from headroom.model.times import HOUR, MINUTE
from headroom.model.usage import Ending, PodDetails, UsageRow
from headroom.model.world import World, by_ref
from headroom.sim.whatif import beside, policy, recorded
from headroom.sim.whatif.admission import Gatekeeper
from headroom.sim.whatif.carrying import Hands
from headroom.sim.whatif.cluster import ReplayCluster
from headroom.sim.whatif.comparing import Comparison
from headroom.sim.whatif.measures import PolicyOutcome
from headroom.sim.whatif.outcome import outcome
from headroom.sim.whatif.page import NO_PLOTS, Assets, page
from headroom.sim.whatif.replay import LONGEST_MS, OUTSIDE, SHORTEST_MS, pace_of, replay
from headroom.sim.whatif.report import report
from headroom.sim.whatif.work import Case, RequestedPod, owner_of
from tests.builders import NOON, a_node, a_pod, a_used_world
from tests.core.stage import a_budget

GPU = "nvidia.com/gpu"
TEAM = (("team", "a"),)
TAINT = Taint("gpu", "yes", "NoSchedule")


def a_work(name: str = "train", at: int = 0, hours: float | None = 1, gpus: int = 1, **more: Any) -> RequestedPod:
    """A Job of one pod that arrives some minutes after noon."""
    given: dict[str, Any] = {
        "owner": owner_of("Job", "team-a", name),
        "arrives": NOON + at * MINUTE,
        "length": None if hours is None else round(hours * HOUR),
        "labels": TEAM,
        "shape": Shape(requests=((GPU, gpus * 10**6),)),
    }
    return RequestedPod(name=name, namespace="team-a", **given | more)


def a_case(*works: RequestedPod, hours: int = 24, nodes: int = 1, **more: Any) -> Case:
    """Some hours from noon on, with nodes of eight GPUs."""
    machines = [a_node(f"worker-{number}") for number in range(nodes)]
    return Case(title="test", begin=NOON, end=NOON + hours * HOUR, works=list(works), nodes=machines, **more)


def played(case: Case, *budgets: AnyResource, every: int = 1000) -> PolicyOutcome:
    resources = by_ref(budgets)
    return outcome(case, resources, replay(case, resources, every=every))


# --- a recorded cluster -----------------------------------------------------------------------------------------------------------


def a_row(name: str, begin: int, end: int, gpus: int = 1, **more: Any) -> Usage:
    """What the ledger has of a pod; moments are hours before noon."""
    given: dict[str, Any] = {"namespace": "team-a", "pod": name, "gpus": gpus * 10**6, "labels": dict(TEAM)}
    return Usage(name=f"{name}-{begin}", start=NOON - begin * HOUR, end=NOON - end * HOUR, **given | more)


def a_record() -> World:
    """Two days of a cluster: something long over, something that ran lately, something that runs, something that waits."""
    rows = [
        a_row("old", 40, 30, gpus=2),
        a_row("new", 20, 10, price_per_hour=3 * 10**6),
        a_row("split", 26, 22, uid="s"),
        a_row("split", 22, 18, uid="s", labels=dict(TEAM) | {"job-name": "big"}),
    ]
    begun: dict[str, Any] = {
        "phase": "Running",
        "node": "worker-1",
        "started": NOON - 5 * HOUR,
        "created": NOON - 6 * HOUR,
    }
    notes = ((marks.HELD_BY, "x/y"), (marks.PROTECTED, "yes"))
    runs = a_pod("runs", labels=TEAM, owner=Owner("ReplicaSet", "web", "u-web"), annotations=notes, **begun)
    waits = a_pod("waits", labels=TEAM, created=NOON - 2 * HOUR, gates=(marks.GATE,), deadline=3 * HOUR)
    return load(save(a_used_world(a_budget(), usage=rows, pods=[runs, waits], nodes=[a_node()], now=NOON)))


def test_rows_of_usage_are_the_work_and_older_ones_the_history() -> None:
    case = recorded.read(a_record(), "test", days=1)
    assert (case.begin, case.end) == (NOON - 24 * HOUR, NOON)
    assert [row.pod for row in case.history] == ["old"]
    works = {work.name: work for work in case.works}
    assert set(works) == {"new", "split", "runs", "waits"}
    assert (works["new"].arrives, works["new"].length, works["new"].price) == (NOON - 20 * HOUR, 10 * HOUR, 3 * 10**6)
    assert (works["split"].began, works["split"].length) == (NOON - 26 * HOUR, 8 * HOUR)
    assert works["split"].owner_key == "Job/team-a/big"
    assert works["new"].owner_key == "Job/team-a/new"
    assert (works["runs"].arrives, works["runs"].length, works["runs"].is_service) == (NOON - 6 * HOUR, None, True)
    assert works["runs"].annotations == ((marks.PROTECTED, "yes"),)
    assert (works["waits"].arrives, works["waits"].length) == (NOON - 2 * HOUR, 3 * HOUR)
    assert dict(works["new"].shape.requests) == {GPU: 10**6}
    assert case.recorded_gpu_ms == 10**6 * (10 + 6 + 5) * HOUR
    assert [ref.name for ref in case.resources] == ["one"]


def test_a_record_under_its_own_policies_goes_as_it_went() -> None:
    case = recorded.read(a_record(), "test", days=1)
    found = played(structs.replace(case, works=[work for work in case.works if work.name != "waits"]))
    assert case.recorded_gpu_ms is not None
    # What waited two hours from its making to its start in the record is not slow here: there is room.
    assert found.total.gpu_hours == pytest.approx(case.recorded_gpu_ms / 3.6e12 + 1, abs=0.01)
    assert (found.total.usd, found.total.never_started) == (None, 0)


def test_what_a_reader_should_know_of_a_record_is_said() -> None:
    world = a_record()
    assert recorded.read(world, "test", days=30).notes == [
        "The record is shorter than 30 days; all of its 1.7 days are played."
    ]
    small = structs.replace(world, kueue=True, nodes=a_used_world(nodes=[a_node(gpus=1)]).nodes)
    notes = " ".join(recorded.read(small, "test", days=None).notes)
    assert "Pods had up to 2 GPUs at once in the record, and its nodes now have 1" in notes
    assert "Kueue runs in this cluster" in notes
    bare = structs.replace(world, nodes=a_used_world().nodes)
    assert recorded.read(bare, "test", days=None).notes == ["The snapshot has no nodes, so capacity is unlimited."]


def a_detailed_row(name: str, begin: float, end: float, **more: Any) -> UsageRow:
    """What the ledger has of a pod of the Job `train`; moments are hours before noon."""
    details = PodDetails("Job", "train", "u-train", more.pop("declared", None), "a100", more.pop("selector", ()))
    start, over = NOON - round(begin * HOUR), NOON - round(end * HOUR)
    given: dict[str, Any] = {"namespace": "team-a", "pod": name, "amounts": ((GPU, 10**6),), "labels": TEAM}
    given |= {"earliest": start, "seen_until": over, "ended": over, "evidence": 3, "ending": Ending.FINISHED}
    given |= {"created": start, "price": 10**6, "details": details.pairs()}
    return UsageRow(cluster="default", uid=name, start=start, **given | more)


def a_detailed_record(*rows: UsageRow, prices: tuple[Price, ...] = ()) -> Case:
    types = {"h100": "worker-0", "a100": "worker-1"}
    nodes = [
        structs.replace(a_node(name), labels=(("node.kubernetes.io/instance-type", each),), taints=(TAINT,))
        for each, name in types.items()
    ]
    world = a_used_world(a_budget(), nodes=nodes, prices=prices, now=NOON)
    world.usage.extend(rows)
    return recorded.read(load(save(world)), "test", days=None)


def test_work_runs_where_it_ran_or_where_it_said_that_it_could() -> None:
    [work] = a_detailed_record(a_detailed_row("one", 5, 4)).works
    assert work.shape.node_selector == (("node.kubernetes.io/instance-type", "a100"),)
    case = a_detailed_record(a_detailed_row("one", 5, 4, declared=2 * HOUR, selector=(("zone", "b"),)))
    [work] = case.works
    assert work.shape.node_selector == (("zone", "b"),)
    assert (work.owner_key, work.annotations) == ("Job/team-a/train", ((marks.EXPECTED_DURATION, "7200s"),))
    case = a_detailed_record(a_detailed_row("one", 5, 4))
    log = replay(case, by_ref([a_budget()]), every=1000)
    assert [life.node for life in log.lives] == ["worker-1"], "not on the first node with room"


@pytest.mark.parametrize("ending", [Ending.EVICTED, Ending.DELETED])
def test_a_run_that_was_stopped_and_its_successor_are_one_work(ending: Ending) -> None:
    first, second = a_detailed_row("one", 8, 7, ending=ending), a_detailed_row("two", 6, 3)
    [work] = a_detailed_record(first, second).works
    assert (work.name, work.arrives, work.length) == ("one", NOON - 8 * HOUR, 3 * HOUR)
    others = [structs.replace(first, ending=Ending.FINISHED), structs.replace(first, ending=Ending.UNKNOWN)]
    assert [len(a_detailed_record(each, second).works) for each in others] == [2, 2]


def test_pods_that_ran_beside_one_that_was_stopped_are_not_its_successors() -> None:
    rows = [a_detailed_row("one", 8, 6, ending=Ending.EVICTED), a_detailed_row("beside", 7, 3)]
    assert len(a_detailed_record(*rows).works) == 2


def test_what_the_record_used_counts_both_runs() -> None:
    case = a_detailed_record(a_detailed_row("one", 8, 7, ending=Ending.EVICTED), a_detailed_row("two", 6, 3))
    assert case.recorded_gpu_ms == 10**6 * 4 * HOUR
    [budget] = played(case, a_budget()).budgets
    assert budget.recorded_gpu_hours == 4
    assert budget.gpu_hours == pytest.approx(3, abs=0.01)


def test_an_identical_price_book_changes_nothing() -> None:
    """By hand: 4 hours on an A100 at an eighth of 8 dollars, wherever the first node with room is."""
    book = (
        Price(price_per_hour=8 * 10**6, instance_type="a100"),
        Price(price_per_hour=80 * 10**6, instance_type="h100"),
    )
    case = a_detailed_record(a_detailed_row("one", 8, 7), a_detailed_row("two", 6, 3), prices=book)
    same = beside.put_over(case, Documents(prices=list(book)))
    assert [played(each).total.usd for each in (case, same)] == [pytest.approx(4), pytest.approx(4)]
    dearer = beside.put_over(
        case, Documents(prices=[structs.replace(each, price_per_hour=16 * 10**6) for each in book])
    )
    assert played(dearer).total.usd == pytest.approx(8)


def test_where_a_row_does_not_say_on_what_it_ran_its_price_does() -> None:
    book = (
        Price(price_per_hour=8 * 10**6, instance_type="a100"),
        Price(price_per_hour=80 * 10**6, instance_type="h100"),
    )
    case = a_detailed_record(structs.replace(a_detailed_row("one", 5, 4), details=()), prices=book)
    same = beside.put_over(case, Documents(prices=list(book)))
    assert [work.price for work in same.works] == [work.price for work in case.works] == [10**6]


def test_no_more_is_lost_than_was_used() -> None:
    """What a pod did before the time that is played is not lost in it."""
    work = a_work(hours=100, gpus=4, began=NOON - 20 * HOUR)
    found = played(a_case(work, hours=10), a_budget(hours="20", window=24, enforce=["100% Hold", "110% Evict"]))
    assert found.evictions == 1
    assert 0 < found.total.lost_gpu_hours <= found.total.gpu_hours
    assert found.total.counted_gpu_hours == pytest.approx(found.total.gpu_hours - found.total.lost_gpu_hours)


# --- what is done to pods ---------------------------------------------------------------------------------------------------------


def test_pods_wait_for_a_budget_and_are_let_go_as_its_window_frees_hours() -> None:
    works = [a_work(f"job-{number}", at=number * 20, hours=2, deadline=2 * HOUR) for number in range(16)]
    free = played(a_case(*works, hours=120))
    held = played(a_case(*works, hours=120), a_budget(hours="8", enforce="Hold"))
    assert (free.held, free.total.waits.longest) == (0, 0)
    assert held.held >= 3
    assert held.released == held.held
    assert held.total.gpu_hours == pytest.approx(free.total.gpu_hours)
    assert held.total.waits.longest is not None
    assert held.total.waits.longest > 12 * 3600
    [budget] = held.budgets
    assert budget.peak_share is not None
    assert budget.peak_share > 1, "what ran when the hold began went on"
    assert 0 < budget.hours_over < 120
    assert budget.held == held.held


def test_work_that_was_evicted_is_lost_and_done_again() -> None:
    works = [a_work(f"job-{number}", hours=30, gpus=4) for number in range(2)]
    found = played(a_case(*works, hours=30), a_budget(hours="40", window=24, enforce=["100% Hold", "110% Evict"]))
    assert found.evictions == 2
    assert found.total.lost_gpu_hours > 40
    assert found.total.finished == 0
    assert found.total.asked == 2


def test_a_pod_on_its_way_out_does_not_finish() -> None:
    case = a_case(a_work(hours=0.01, grace_seconds=300))
    events: list[Any] = []
    cluster = ReplayCluster(case, {}, lambda at, do: events.append((at, do)))
    cluster.arrive(case.works[0])
    cluster.place()
    [uid] = cluster.living
    cluster.start(uid, NOON)
    cluster.stop(uid, "Evicted")
    cluster.make(case.works[0])
    for at, do in sorted(events, key=lambda each: int(each[0])):
        cluster.now = at
        do()
    assert [life.end for life in cluster.log.lives] == ["Evicted", ""]


def test_a_service_is_wanted_until_a_moment_and_loses_nothing() -> None:
    web = Owner("ReplicaSet", "web", "u")
    works = [a_work(f"web-{number}", hours=20, gpus=4, owner=web) for number in range(2)]
    found = played(a_case(*works, hours=30), a_budget(hours="40", window=24, enforce=["100% Hold", "110% Evict"]))
    assert found.evictions > 0
    assert found.total.lost_gpu_hours == 0
    assert found.total.gpu_hours < 2 * 4 * 20


def test_a_suspended_owner_comes_back_whole() -> None:
    gang = owner_of("Job", "team-a", "gang")
    works = [a_work(f"gang-{number}", hours=6, gpus=4, owner=gang) for number in range(2)]
    budget = a_budget(hours="20", window=24, enforce=["100% Hold", "120% Suspend"])
    found = played(a_case(*works, hours=72), budget)
    assert found.suspensions >= 1
    assert found.total.suspended_pods == 2 * found.suspensions
    assert found.total.lost_gpu_hours > 20


def test_pauses_are_counted() -> None:
    found = played(a_case(a_work(hours=5, gpus=4)), a_budget(hours="10", enforce="Pause"))
    assert (found.pauses, found.evictions) == (1, 0)


def test_what_nothing_here_stands_for_yet_is_counted() -> None:
    case = a_case(a_work())
    cluster = ReplayCluster(case, {}, lambda _at, _do: None, OUTSIDE)
    bought = LaunchInstance(pool="p", slot=1, token="t", instance_type="g5.xlarge", zone="a")
    Hands(cluster).carry_out([bought, WakeMachine(pool="p", machine="nobody's")], None)
    found = outcome(case, {}, cluster.log)
    assert (found.actions, found.wakes) == ({"LaunchInstance": 1}, 0)


def test_dollars_come_from_the_book_or_from_the_record() -> None:
    book = (Price(price_per_hour=16 * 10**6),)
    works = [a_work("booked", hours=3, gpus=4), a_work("told", hours=3, gpus=4, price=10**6)]
    found = played(a_case(*works, prices=book))
    assert found.total.usd == pytest.approx(3 * 8 + 3 * 1)
    unknown = played(a_case(*works))
    assert unknown.total.usd is None
    assert unknown.total.unpriced_gpu_hours == pytest.approx(12)


def test_too_few_machines_make_pods_wait() -> None:
    works = [a_work(f"job-{number}", hours=10, gpus=8) for number in range(4)]
    found = played(a_case(*works, hours=24, nodes=1))
    assert (found.total.never_started, found.total.finished, found.peak_gpus) == (1, 2, 8)
    assert found.total.waits.longest == pytest.approx(20 * 3600, abs=10)
    assert found.lines.waiting[0] == pytest.approx(3, abs=0.1)


def test_the_same_case_goes_the_same_way() -> None:
    works = [a_work(f"job-{number}", at=number, hours=2, gpus=1 + number % 3) for number in range(30)]
    budget = a_budget(hours="30", enforce=["100% Hold", "120% Evict"])
    assert played(a_case(*works), budget) == played(a_case(*works), budget)


def test_a_hold_gates_the_pods_that_it_covers_and_no_others() -> None:
    spec = BudgetHoldSpec(
        budget="team-a/one",
        namespaces=("team-a",),
        match_labels={"team": "a"},
        resources=("nvidia.com/*",),
        because="full",
    )
    holds = {"h": Hold(name="h", spec=spec)}
    gate = Gatekeeper()

    def is_gated(**fields: Any) -> bool:
        pod: Pod = a_pod(**{"labels": TEAM} | fields)
        return gate.admitted(pod, holds).gates == (marks.GATE,)

    assert is_gated()
    assert not is_gated(labels=())
    assert not is_gated(namespace="team-b")
    assert not is_gated(gpus=0)
    assert not is_gated(annotations=((marks.PROTECTED, "yes"),))
    assert gate.admitted(a_pod(labels=TEAM), holds).annotations == (
        (marks.HELD_BECAUSE, "full"),
        (marks.HELD_BY, "team-a/one"),
    )
    assert not gate.admitted(a_pod(labels=TEAM), {}).gates


# --- policies ---------------------------------------------------------------------------------------------------------------------


def test_a_change_replaces_adds_and_leaves_out() -> None:
    before = by_ref([a_budget("one"), a_budget("two")])
    after = policy.changed(before, [a_budget("one", hours="7"), a_budget("three")], ["gwb/team-a/two"])
    assert sorted(ref.name for ref in after) == ["one", "three"]
    assert policy.differences(before, after) == [
        "GPUWorkloadBudget/team-a/one: quota.gpuHours 100 -> 7",
        "GPUWorkloadBudget/team-a/three added",
        "GPUWorkloadBudget/team-a/two removed",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gwb/team-a/no", "no such resource; the record has GPUWorkloadBudget/team-a/one"),
        ("Deployment/a/b", "'Deployment' is not a kind of Headroom's"),
        ("gwb/one", "write a GPUWorkloadBudget as KIND/NAMESPACE/NAME"),
        ("powerpool/a/b", "write a PowerPool as KIND/NAME"),
    ],
)
def test_what_cannot_be_left_out_is_said(text: str, says: str) -> None:
    with pytest.raises(Misconfigured, match=says):
        policy.changed(by_ref([a_budget("one")]), [], [text])


def test_the_pace_follows_from_the_time() -> None:
    assert pace_of(a_case(hours=24)) == SHORTEST_MS
    assert pace_of(a_case(hours=24 * 365)) == LONGEST_MS
    assert SHORTEST_MS < pace_of(a_case(hours=24 * 14)) < LONGEST_MS


# --- side by side -----------------------------------------------------------------------------------------------------------------


def compared() -> Comparison:
    works = [a_work(f"job-{number}", at=number * 20, hours=2, deadline=2 * HOUR) for number in range(8)]
    case = a_case(*works, hours=12, notes=["a <b>note</b>"])
    budget = a_budget(hours="8", enforce="Hold")
    return Comparison(
        case=case, changes=["it is </script> changed"], every=1000, before=played(case), after=played(case, budget)
    )


def test_both_are_told_side_by_side() -> None:
    found = compared()
    told = report(found)
    overall, budgets = told.sections
    assert (overall.title, budgets.title) == ("Overall", "By budget")
    assert [row[0] for row in overall.rows if row[0]] == ["Worse", "Other"]
    rows = {row[1]: row[2:] for row in overall.rows}
    assert rows["pods queued by a budget"][0] == "0"
    assert "cost unknown" in overall.folded
    assert "pods evicted" in overall.folded.partition("Zero on both sides: ")[2]
    assert rows["GPU-hours of work that counted"][0] == rows["GPU-hours used"][0] == "16.0"
    assert rows["GPU-hours used"][2].startswith("-")
    assert budgets.rows[0][:4] == ("team-a/one", "quota", "no budget", "8 GPU-hours in 24h")
    assert "evictions and suspensions" not in [row[1] for row in budgets.rows], "none there, and no budget before"
    wire = found.wire(lines=False)
    assert wire["before"]["total"]["gpuHours"] == 16
    assert "lines" not in wire["after"]


def test_the_page_needs_nothing_else_and_runs_no_other_script() -> None:
    assets = Assets("window.uPlot = function () {};", ".uplot {}")
    text = page(compared(), assets)
    assert "a &lt;b&gt;note&lt;/b&gt;" in text
    assert "</script> changed" not in text
    assert text.count("<script>") == 2
    assert "script-src &#x27;sha256-" in text
    assert "http://" not in text.replace("http-equiv", "")
    assert "https://" not in text
    assert NO_PLOTS in page(compared(), Assets())


def test_the_page_can_be_read_on_a_phone() -> None:
    text = page(compared(), Assets("window.uPlot = function () {};", ".uplot {}"))
    rows, cells = text.count('role="rowheader"'), text.count('<td role="cell" data-head="')
    assert rows >= 10
    assert text.count("<td") == cells, "every cell knows the head of its column"
    assert 'data-head="Before"' in text
    assert text.count('<div class="scroll" tabindex="0" role="region"') == text.count('<table role="table">')
    assert "@media print" in text
    assert " -> " not in text.partition("</main>")[0]


def test_the_answer_comes_first_in_words() -> None:
    found = compared()
    told = report(structs.replace(found, clauses=["budget one had 8 GPU-hours instead of 16"]))
    assert told.title == "What if budget one had 8 GPU-hours instead of 16?"
    assert told.verdict[0].startswith("With this change team-a would queue ")
    assert len(told.verdict) <= 3
    same = report(structs.replace(found, after=found.before))
    assert same.verdict == ["This change would make no difference to anyone's work."]
    assert [each.rows for each in same.sections] == [[]]
    assert "GPU-hours of work that counted 16.0" in same.sections[0].folded


def test_page_and_terminal_tell_the_same() -> None:
    found = compared()
    told, text = report(found), page(found, Assets("x", ""))
    for each in (told.title, *told.verdict, told.played, *(each.folded for each in told.sections)):
        assert html.escape(each) in text
    for section in told.sections:
        for row in section.rows:
            assert all(html.escape(each) in text for each in row)


def test_a_chart_that_the_change_leaves_alone_is_only_named() -> None:
    found = compared()
    assert "<figcaption>Pods queued or pending</figcaption>" in page(found, Assets("x", ""))
    same = page(structs.replace(found, after=found.before), Assets("x", ""))
    assert (same.count("<figcaption>"), "Unchanged: Pods queued or pending." in same) == (1, True)
