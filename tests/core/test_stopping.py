"""Suspend and Evict: who goes, in which order, and never more than needed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.enforcement import Stopped
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent, EvictPod, SuspendOwner
from headroom.model.decisions import Ref
from headroom.model.facts import Pod, Workload
from headroom.model.gangs import MIRROR
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.world import Caps, LedgerState
from tests.builders import NOON
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running

LEADER = ("jobset.sigs.k8s.io/jobset-name", "big")


def evicted(actions: list[Action]) -> list[str]:
    return [each.pod.partition("/")[2] for each in actions if isinstance(each, EvictPod)]


def condition(stage: Stage, type_: str, name: str = "one") -> tuple[str, str]:
    found = conditions.find(stage.status(name).conditions, type_)
    assert found is not None
    return found.status, found.reason


def test_one_of_ten_old_pods_is_enough() -> None:
    stage = Stage(a_budget(hours="239.5"), pods=[running(f"p{n}", 30 * HOUR) for n in range(10)])
    done = stage.look()
    assert evicted(done) == ["p0"]
    assert evicted(stage.pass_time(24 * HOUR, every=10 * MINUTE)) == []
    assert float(stage.status().consumed_gpu_hours) < 239.5
    assert condition(stage, "QuotaExceeded") == ("False", "WithinBudget")


def test_it_falls_under_the_quota_when_it_said_it_would() -> None:
    stage = Stage(a_budget(hours="239.5"), pods=[running(f"p{n}", 30 * HOUR) for n in range(10)])
    stage.look()
    stage.pass_time(29 * MINUTE, every=MINUTE)
    assert condition(stage, "QuotaExceeded")[0] == "True"
    stage.pass_time(2 * MINUTE, every=MINUTE)
    assert condition(stage, "QuotaExceeded")[0] == "False"


def test_all_go_where_nothing_ages_out_and_none_twice() -> None:
    stage = Stage(a_budget(hours="9.995"), pods=[running(f"p{n}", HOUR) for n in range(10)])
    stage.look()
    stage.pass_time(2 * MINUTE, every=3 * SECOND)
    assert Counter(evicted([each for _, each in stage.done])) == Counter(f"p{n}" for n in range(10))
    assert not stage.pods
    assert condition(stage, "QuotaExceeded")[0] == "True"


def test_they_go_one_at_a_time_and_within_the_cap() -> None:
    budget = a_budget(hours="1", enforcement={"evictionsPerMinute": 4})
    stage = Stage(budget, pods=[running(f"p{n}", HOUR) for n in range(20)])
    stage.look()
    stage.pass_time(6 * MINUTE, every=3 * SECOND)
    moments = [at for at, each in stage.done if isinstance(each, EvictPod)]
    assert len(moments) == 20
    assert len(set(moments)) == 20
    assert max(sum(1 for at in moments if 0 <= at - begin < MINUTE) for begin in moments) == 4


@pytest.mark.parametrize(("caps", "most"), [(Caps(cluster=3, namespace=20), 3), (Caps(cluster=30, namespace=2), 2)])
def test_budgets_share_the_caps(caps: Caps, most: int) -> None:
    budgets = [
        a_budget(
            f"b{n}", hours="1", selector={"matchLabels": {"team": f"t{n}"}}, enforcement={"evictionsPerMinute": 600}
        )
        for n in range(4)
    ]
    pods = [running(f"p{n}-{i}", HOUR, labels=(("team", f"t{n}"),)) for n in range(4) for i in range(3)]
    stage = Stage(*budgets, pods=pods, caps=caps)
    stage.look()
    stage.pass_time(8 * MINUTE, every=5 * SECOND)
    moments = [at for at, each in stage.done if isinstance(each, EvictPod)]
    assert len(moments) == 12
    assert max(sum(1 for at in moments if 0 <= at - begin < MINUTE) for begin in moments) == most


def test_a_stale_view_takes_no_second_one() -> None:
    stage = Stage(a_budget(hours="9"), pods=[running(f"p{n}", HOUR) for n in range(10)])
    before = dict(stage.pods)
    stage.look()
    taken = stage.status().victim.unit
    stage.pods = dict(before)  # nothing of it is seen yet
    for _ in range(5):
        stage.now += SECOND
        again = stage.look()
        stage.pods = dict(before)
        assert {each.uid for each in again if isinstance(each, EvictPod)} == {f"uid-{taken.rpartition('/')[2]}"}


def test_a_rank_of_a_gang_is_never_evicted_alone() -> None:
    """Eight pods of eight GPUs: stopping one of them would be enough, and worth nothing."""
    ranks = [running(f"rank-{n}", 2 * HOUR, gpus=8, labels=(("team", "a"), LEADER)) for n in range(8)]
    stage = Stage(a_budget(hours="127.9", window=3), pods=ranks)
    assert sorted(evicted(stage.look())) == [f"rank-{n}" for n in range(8)]


@pytest.mark.parametrize(
    "mark",
    [
        {"labels": (("scheduling.x-k8s.io/pod-group", "g"), ("team", "a"))},
        {"annotations": (("scheduling.k8s.io/group-name", "g"),)},
        {"owner": of_job("g")},
        {"owner": of_job("g", "PyTorchJob")},
    ],
)
def test_every_kind_of_gang_goes_as_one(mark: dict[str, Any]) -> None:
    stage = Stage(a_budget(hours="2"), pods=[running("r0", HOUR, **mark), running("r1", HOUR, **mark)])
    assert sorted(evicted(stage.look())) == ["r0", "r1"]


def test_pods_of_a_deployment_go_alone() -> None:
    pods = [running(f"r{n}", 30 * HOUR, owner=of_job("web", "ReplicaSet")) for n in range(10)]
    assert len(evicted(Stage(a_budget(hours="239.5"), pods=pods).look())) == 1


# --- order ------------------------------------------------------------------------------------------------------------------------


def saved(ago: int) -> dict[str, Any]:
    return {"annotations": ((marks.CHECKPOINTED_AT, text(NOON - ago)),)}


@pytest.mark.parametrize(
    ("pods", "first"),
    [
        ([running("a", 30 * HOUR, priority=5), running("b", 40 * HOUR)], "b"),
        ([running("a", 40 * HOUR), running("b", 30 * HOUR)], "b"),
        ([running("a", 40 * HOUR, **saved(MINUTE)), running("b", 30 * HOUR)], "a"),
        ([running("a", 40 * HOUR, **saved(-HOUR)), running("b", 30 * HOUR)], "a"),
        ([running("a", 30 * HOUR), running("b", 30 * HOUR, gpus=4)], "b"),
        ([running("a", 30 * HOUR), running("b", 30 * HOUR)], "a"),
    ],
)
def test_lowest_priority_then_least_lost_then_largest_then_name(pods: list[Pod], first: str) -> None:
    hours = sum(pod.shape.requests[0][1] for pod in pods) // 1_000_000 * 24 - 0.01
    assert evicted(Stage(a_budget(hours=str(hours)), pods=pods).look()) == [first]


def test_the_seeds_order_takes_the_worst_offender() -> None:
    pods = [running("a", 5 * HOUR), running("b", 4 * HOUR, gpus=2), running("c", HOUR)]
    budget = a_budget(hours="1", enforcement={"order": "WorstOffender"})
    assert evicted(Stage(budget, pods=pods).look()) == ["b"]


def test_what_is_not_needed_is_given_back() -> None:
    """The small one comes first in the order, but once the large one goes too, it is not needed."""
    pods = [running("small", 29 * HOUR), running("large", 30 * HOUR, gpus=8)]
    # 216 used; nine leave an hour; with 8 of them stopped the window loses 8 an hour.
    stage = Stage(a_budget(hours="204", enforcement={"recoverWithin": "2h"}), pods=pods)
    stage.look()
    stage.pass_time(MINUTE, every=SECOND)
    assert evicted([each for _, each in stage.done]) == ["large"]


# --- who never goes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        running("p", 9 * HOUR, annotations=((marks.PROTECTED, "true"),)),
        running("p", 9 * HOUR, deleting=NOON - SECOND),
        running("p", 9 * HOUR, phase="Succeeded", ended=NOON - SECOND, ended_by="ContainerFinish"),
        running("p", 9 * HOUR, annotations=((MIRROR, "x"),)),
        running("p", 9 * HOUR, labels=(("team", "b"),)),
    ],
)
def test_some_pods_are_never_victims(pod: Pod) -> None:
    other = running("used", 20 * HOUR, phase="Succeeded", ended=NOON - HOUR, ended_by="ContainerFinish")
    assert evicted(Stage(a_budget(hours="1"), pods=[pod, other]).look()) == []


def test_kube_system_is_never_touched() -> None:
    budget = structs.replace(a_budget(hours="1"), namespace="kube-system")
    pods = [running("p", 9 * HOUR, namespace="kube-system")]
    assert Stage(budget, pods=pods).look() == []


def test_what_was_released_is_left_alone_for_the_horizon() -> None:
    fresh = running("fresh", MINUTE, annotations=((marks.RELEASED_AT, text(NOON - MINUTE)),))
    stage = Stage(a_budget(hours="10"), pods=[fresh, running("old", 12 * HOUR)])
    stage.look()
    stage.pass_time(58 * MINUTE, every=MINUTE)
    assert evicted([each for _, each in stage.done]) == ["old"]
    stage.pass_time(3 * MINUTE, every=MINUTE)
    assert evicted([each for _, each in stage.done]) == ["old", "fresh"]


@pytest.mark.parametrize(
    "more", [{"ledger": LedgerState(problem="The disk is full.")}, {"stopped": True}, {"complete": False}]
)
def test_nothing_is_stopped_without_a_sure_view(more: dict[str, Any]) -> None:
    stage = Stage(a_budget(hours="1"), pods=[running("p", 9 * HOUR)], **more)
    assert [each for each in stage.look() if not isinstance(each, EmitEvent)] == []


def test_a_paused_budget_stops_nothing() -> None:
    assert Stage(a_budget(hours="1", paused=True), pods=[running("p", 9 * HOUR)]).look() == []


@pytest.mark.parametrize("action", ["AlertOnly", "Pause", "Hold"])
def test_lower_actions_never_evict_what_runs(action: str) -> None:
    stage = Stage(a_budget(hours="1", enforce=action), pods=[running("p", 9 * HOUR)])
    stage.look()
    stage.pass_time(HOUR, every=MINUTE)
    assert evicted([each for _, each in stage.done]) == []


# --- grace ------------------------------------------------------------------------------------------------------------------------


def test_grace_is_counted_from_the_condition_and_survives_restarts() -> None:
    stage = Stage(a_budget(hours="1", grace=90), pods=[running("p", 9 * HOUR)])
    assert stage.look() == []
    assert stage.pass_time(89 * SECOND, every=SECOND) == []
    stage = _restarted(stage)
    assert evicted(stage.pass_time(SECOND)) == ["p"]


def _restarted(stage: Stage) -> Stage:
    again = Stage(*stage.budgets.values(), pods=stage.pods.values(), now=stage.now)
    again.rows = dict(stage.rows)
    return again


# --- those who would not go, and those who come back ----------------------------------------------------------------------------------


def test_one_that_would_not_go_is_left_for_the_next() -> None:
    stage = Stage(a_budget(hours="2"), pods=[running("stuck", HOUR), running("willing", 2 * HOUR)])
    stuck = stage.pods["uid-stuck"]
    gone: list[str] = []
    for _ in range(40):
        gone += evicted(stage.look())
        stage.pods["uid-stuck"] = stuck  # its disruption budget lets it stay
        stage.now += 5 * SECOND
    assert "willing" in gone
    assert condition(stage, "EnforcementBlocked") == ("True", "EvictionBlocked")
    first = [each for each in stage.status().stopped if each.outcome == "Blocked"]
    assert [each.unit for each in first] == ["Pod/team-a/stuck"]


def test_one_that_was_chosen_before_nothing_could_be_done_for_minutes_is_asked_again() -> None:
    """The view was not complete, the ledger was away, or no operator ran: that it is still there is not its own doing."""
    stage = Stage(a_budget(hours="2"), pods=[running("p", HOUR), running("q", 2 * HOUR)])
    pods = dict(stage.pods)
    (first,) = evicted(stage.look())
    stage.pods = dict(pods)  # the eviction never reached the API server
    stage.now += 5 * MINUTE
    stage.more["acting_since"] = stage.now
    assert evicted(stage.look()) == [first]
    assert [each for each in stage.status().stopped if each.outcome == "Blocked"] == []
    stage.pods = dict(pods)
    stage.now += 2 * MINUTE  # in which it was asked
    stage.look()
    assert [each.outcome for each in stage.status().stopped] == ["Blocked"]


def test_a_job_that_comes_back_for_ever_is_left_after_three_times() -> None:
    stage = Stage(a_budget(hours="5"), pods=[running("try-0", 6 * HOUR, owner=of_job("j"))])
    for number in range(1, 9):
        stage.look()
        stage.pass_time(3 * MINUTE, every=10 * SECOND)
        if not stage.pods:
            back = structs.replace(running(f"try-{number}", 0, owner=of_job("j")), started=stage.now, created=stage.now)
            stage.pods[back.uid] = back
    assert len(evicted([each for _, each in stage.done])) == 3
    assert condition(stage, "EnforcementBlocked") == ("True", "EvictionLoop")


# --- two budgets ------------------------------------------------------------------------------------------------------------------


def test_two_budgets_evict_one_pod_once_and_both_are_told() -> None:
    stage = Stage(a_budget("a", hours="5"), a_budget("b", hours="5"), pods=[running("p", 6 * HOUR)])
    assert evicted(stage.look()) == ["p"]
    told = {
        name: [each.reason for each in decision.actions if isinstance(each, EmitEvent)]
        for name, decision in stage.decisions.items()
    }
    assert "Evicting" in told["a"]
    assert "Evicting" in told["b"]
    assert stage.status("b").victim.by == "team-a/a"
    stage.pass_time(10 * SECOND, every=SECOND)
    assert [each.unit for each in stage.status("a").stopped] == ["Pod/team-a/p"]
    assert [each.by for each in stage.status("b").stopped] == ["team-a/a"]


# --- suspend ----------------------------------------------------------------------------------------------------------------------


def test_suspending_a_job_set_names_the_job_of_one_of_its_pods() -> None:
    """What it really belongs to is asked of the Job."""
    labels = (*TEAM, ("jobset.sigs.k8s.io/jobset-name", "js"))
    pods = [running(f"r{n}", 30 * HOUR, owner=of_job(f"js-{n}"), labels=labels) for n in range(2)]
    done = Stage(a_budget(hours="1", enforce="Suspend"), pods=pods).look()
    assert done == [SuspendOwner(kind="JobSet", object="team-a/js", job="js-0", job_uid="uid-js-0")]


def test_suspend_takes_owners_and_gives_them_back_below_the_exit() -> None:
    pods = [running(f"j{n}-0", 30 * HOUR, owner=of_job(f"j{n}")) for n in range(10)]
    stage = Stage(a_budget(hours="239.5", enforce="Suspend"), pods=pods)
    done = stage.look()
    assert done == [SuspendOwner(kind="Job", object="team-a/j0", uid=of_job("j0").uid)]
    later = stage.pass_time(10 * HOUR, every=10 * MINUTE)
    assert not [each for each in later if isinstance(each, SuspendOwner)]
    resumed = stage.pass_time(6 * HOUR, every=10 * MINUTE)
    assert [type(each).__name__ for each in resumed] == ["ResumeOwner"]
    assert not stage.workloads


def test_suspend_takes_the_very_workload_of_kueue_that_was_looked_at() -> None:
    """By its uid: another one of the same name may be there by the time that it is written."""
    queued = Workload(kind="Workload", uid="w", namespace="team-a", name="job-j-1", owner="Job/team-a/j", admitted=True)
    queued = structs.replace(queued, owner_uids=("uid-j",))
    pod = running("j-0", 30 * HOUR, owner=of_job("j"))
    stage = Stage(a_budget(hours="1", enforce="Suspend"), pods=[pod], workloads={queued.key: queued}, kueue=True)
    assert stage.look() == [SuspendOwner(kind="Workload", object="team-a/job-j-1", uid="w")]


def test_suspend_leaves_what_has_no_owner_to_suspend() -> None:
    stage = Stage(a_budget(hours="1", enforce="Suspend"), pods=[running("bare", 9 * HOUR)])
    assert stage.look() == []
    assert condition(stage, "EnforcementBlocked") == ("True", "NothingToStop")


def test_suspend_is_undone_when_the_budget_is_deleted() -> None:
    stage = Stage(a_budget(hours="5", enforce="Suspend"), pods=[running("j-0", 6 * HOUR, owner=of_job("j"))])
    stage.look()
    assert stage.workloads
    stage.budgets.pop(Ref("GPUWorkloadBudget", "team-a", "one"))
    assert [type(each).__name__ for each in stage.look()] == ["ResumeOwner"]


def test_what_is_kept_of_the_past_is_bounded() -> None:
    budget = a_budget(hours="1")
    old = tuple(Stopped(unit=f"Pod/team-a/{n}", action="Evict", at=text(NOON - n * SECOND)) for n in range(500))
    budget = structs.replace(budget, status=structs.replace(budget.status, stopped=old))
    stage = Stage(budget, pods=[running("p", HOUR), gated("q")])
    stage.look()
    assert len(stage.status().stopped) == 60, "all of the last minute, since the caps need them"
    stage.pass_time(5 * MINUTE)
    assert len(stage.status().stopped) == 50


def test_owners_are_counted_beyond_what_is_shown() -> None:
    """Twenty owners that make their pods anew at once, and no hold: three times each, and no more."""
    stage = Stage(a_budget(hours="5", enforcement={"evictionsPerMinute": 600}), caps=Caps(cluster=1000, namespace=1000))
    used = running("used", 20 * HOUR, phase="Succeeded", ended=NOON - HOUR, ended_by="ContainerFinish")
    stage.pods[used.uid] = used
    counts: Counter[str] = Counter()
    for number in range(100):
        for owner in range(20):
            if not any(pod.owner == of_job(f"w{owner}", "ReplicaSet") for pod in stage.pods.values()):
                pod = running(f"w{owner}-{number}", 0, owner=of_job(f"w{owner}", "ReplicaSet"))
                stage.pods[pod.uid] = structs.replace(pod, started=stage.now - SECOND, created=stage.now - SECOND)
        counts.update(name.partition("-")[0] for name in evicted(stage.pass_time(SECOND)))
    assert set(counts.values()) == {3}
    assert len(counts) == 20


def test_large_caps_hold_too() -> None:
    budget = a_budget(hours="1", enforcement={"evictionsPerMinute": 60})
    stage = Stage(budget, pods=[running(f"p{n}", HOUR) for n in range(90)], caps=Caps(cluster=70, namespace=70))
    stage.look()
    stage.pass_time(2 * MINUTE, every=SECOND)
    moments = [at for at, each in stage.done if isinstance(each, EvictPod)]
    assert max(sum(1 for at in moments if 0 <= at - begin < MINUTE) for begin in moments) <= 60
    assert len(moments) > 50


def test_a_victim_is_judged_again_before_each_try() -> None:
    ranks = [running(f"r{n}", 6 * HOUR, owner=of_job("j")) for n in range(2)]
    stage = Stage(a_budget(hours="5"), pods=ranks)
    kept = dict(stage.pods)
    stage.look()
    stage.pods = {uid: structs.replace(pod, annotations=((marks.PROTECTED, "true"),)) for uid, pod in kept.items()}
    stage.now += SECOND
    assert evicted(stage.look()) == []
    assert stage.status().victim is None


@pytest.mark.parametrize(("asked", "given"), [(30, 30), (3600, 3600), (2_592_000, 3600)])
def test_nobody_takes_longer_to_end_than_an_hour(asked: int, given: int) -> None:
    (done,) = Stage(a_budget(hours="1"), pods=[running("p", 9 * HOUR, grace_seconds=asked)]).look()
    assert isinstance(done, EvictPod)
    assert done.grace_seconds == given


def test_a_daemon_in_the_group_protects_nobody() -> None:
    group = (("scheduling.x-k8s.io/pod-group", "g"), ("team", "a"))
    pods = [running(f"r{n}", 2 * HOUR, labels=group) for n in range(2)]
    daemon = running("d", 2 * HOUR, labels=group, owner=of_job("d", "DaemonSet"), gpus=0)
    assert sorted(evicted(Stage(a_budget(hours="1"), pods=[*pods, daemon]).look())) == ["r0", "r1"]


def test_a_declared_length_counts_only_where_it_becomes_a_deadline() -> None:
    lying: dict[str, Any] = {"annotations": ((marks.EXPECTED_DURATION, "1s"),)}
    pods = [running(f"p{n}", 30 * HOUR, **lying) for n in range(10)]
    assert evicted(Stage(a_budget(hours="239.5"), pods=pods, hold_problem="No policies here.").look()) == ["p0"]


def test_an_owner_that_was_resumed_is_left_alone_for_the_horizon() -> None:
    free = Workload(
        kind="Job", uid="uid-j", namespace="team-a", name="j", released_at=NOON - MINUTE, is_as_released=True
    )
    pods = [running("j-0", MINUTE, owner=of_job("j")), running("old", 12 * HOUR)]
    stage = Stage(a_budget(hours="10"), pods=pods, workloads={free.key: free})
    stage.look()
    stage.pass_time(50 * MINUTE, every=MINUTE)
    assert evicted([each for _, each in stage.done]) == ["old"]
