"""Hold and release: when new pods wait, what becomes of those made before, who may start, and when a hold ends."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import hold_name
from headroom.core.budgets import hold_of
from headroom.model import conditions
from headroom.model.actions import (
    Action,
    DeleteBudgetHold,
    EvictPod,
    ReleasePod,
    ResumeOwner,
    SuspendOwner,
)
from headroom.model.decisions import Ref
from headroom.model.facts import Hold, Pod, Price, Workload, WorkloadPart
from headroom.model.gangs import MIRROR
from headroom.model.times import HOUR, MINUTE, SECOND, moment, text
from headroom.model.world import LedgerState
from tests.builders import NOON, a_node, a_pod, a_used_world
from tests.core.stage import TEAM, Stage, a_budget, brief, gated, of_job, running

KEY = "team-a/one"
DONE = running("done", 20 * HOUR, phase="Succeeded", ended=NOON - 2 * HOUR, ended_by="ContainerFinish")
"""18 GPU-hours used, all of which leave a window of a day within four to twenty-two hours."""


def held_stage(budget: Any, *pods: Pod, **more: Any) -> Stage:
    """A stage on which the hold of the budget stands already."""
    spec = hold_of(a_used_world(budget), budget)
    return Stage(
        budget, pods=pods, holds={hold_name(KEY): Hold(name=hold_name(KEY), created=NOON - HOUR, spec=spec)}, **more
    )


def released(actions: list[Action]) -> list[str]:
    return [each.pod.partition("/")[2] for each in actions if isinstance(each, ReleasePod)]


def queue(stage: Stage) -> dict[str, tuple[str, str]]:
    return {each.unit.rpartition("/")[2]: (each.state, each.starts_at) for each in stage.status().held.queue}


def length(text_: str) -> dict[str, Any]:
    return {"annotations": ((marks.EXPECTED_DURATION, text_), (marks.HELD_BY, KEY))}


# --- when a hold stands -----------------------------------------------------------------------------------------------------------


def test_a_hold_begins_at_the_quota_and_ends_below_its_exit() -> None:
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[DONE])
    assert brief(stage.look()) == [f"ApplyBudgetHold {KEY}"]
    assert stage.pass_time(4 * HOUR + 53 * MINUTE, every=MINUTE) == []  # 95 % of 18 are 17.1
    assert stage.pass_time(2 * MINUTE, every=MINUTE) == [DeleteBudgetHold(budget=KEY)]


def test_a_hold_that_is_there_is_not_written_again() -> None:
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[DONE])
    stage.look()
    assert stage.pass_time(HOUR, every=MINUTE) == []


def test_a_hold_that_says_something_else_is_written_anew() -> None:
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[DONE])
    stage.look()
    old = stage.holds[hold_name(KEY)]
    assert old.spec is not None
    stage.holds[hold_name(KEY)] = structs.replace(old, spec=structs.replace(old.spec, namespaces=("elsewhere",)))
    assert brief(stage.pass_time(SECOND)) == [f"ApplyBudgetHold {KEY}"]


def test_a_hold_waits_for_its_grace() -> None:
    stage = Stage(a_budget(hours="18", enforce="Hold", grace=60), pods=[DONE])
    assert stage.look() == []
    assert brief(stage.pass_time(60 * SECOND)) == [f"ApplyBudgetHold {KEY}"]


def test_a_hold_below_the_quota_begins_at_its_step() -> None:
    stage = Stage(a_budget(hours="20", enforce=["80% AlertOnly", "90% Hold"]), pods=[DONE])
    assert brief(stage.look()) == [f"ApplyBudgetHold {KEY}"]
    assert [each.at for each in stage.status().steps] == ["80%", "90%"]


def test_a_hold_stays_while_somebody_waits_behind_it() -> None:
    budget = a_budget(hours="18", enforce="Hold")
    stage = held_stage(budget, DONE, gated("big", gpus=17))
    stage.look()
    done = stage.pass_time(5 * HOUR, every=10 * MINUTE)
    assert DeleteBudgetHold(budget=KEY) not in done  # below the exit since long, but big still waits
    done = stage.pass_time(30 * HOUR, every=10 * MINUTE)
    assert released(done) == ["big"]
    assert DeleteBudgetHold(budget=KEY) in done or stage.holds


def test_a_unit_that_never_fits_does_not_keep_a_hold() -> None:
    budget = a_budget(hours="18", enforce="Hold")
    stage = held_stage(budget, DONE, gated("huge", gpus=18), gated("small", deadline=HOUR))
    stage.look()
    assert queue(stage)["huge"] == ("NeverFits", "")
    stage.pass_time(6 * HOUR, every=10 * MINUTE)
    assert not stage.holds
    assert stage.pods["uid-huge"].gates
    assert not stage.pods["uid-small"].gates


def test_a_server_without_policies_says_so_and_the_rest_of_the_ladder_works() -> None:
    steps = ["100% Hold", "110% Evict"]
    stage = Stage(a_budget(hours="10", enforce=steps), pods=[running("p", 12 * HOUR)], hold_problem="No policies.")
    done = stage.look()
    assert [type(each) for each in done] == [EvictPod]
    found = conditions.find(stage.status().conditions, "Degraded")
    assert found is not None
    assert (found.status, found.reason) == ("True", "HoldUnavailable")
    assert "No policies." in found.message


@pytest.mark.parametrize("change", ["deleted", "paused", "alert"])
def test_a_hold_does_not_outlive_its_budget(change: str) -> None:
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[DONE])
    stage.look()
    assert stage.holds
    (ref,) = stage.budgets
    if change == "deleted":
        del stage.budgets[ref]
    elif change == "paused":
        stage.budgets[ref] = structs.replace(a_budget(hours="18", enforce="Hold", paused=True), status=stage.status())
    else:
        stage.budgets[ref] = structs.replace(a_budget(hours="18", enforce="AlertOnly"), status=stage.status())
    assert stage.look() == [DeleteBudgetHold(budget=KEY)]


# --- pods that were there before --------------------------------------------------------------------------------------------------


def unstarted(name: str, **fields: Any) -> Pod:
    base: dict[str, Any] = {"labels": TEAM, "created": NOON - HOUR, "resource_version": "7"}
    return a_pod(name, **base | fields)


def test_a_job_none_of_whose_pods_started_is_suspended() -> None:
    pods = [unstarted(f"j-{n}", owner=of_job("j")) for n in range(3)]
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, *pods)
    assert stage.look() == [SuspendOwner(kind="Job", object="team-a/j", uid=of_job("j").uid)]


def test_a_jobset_is_suspended_as_a_whole() -> None:
    labels = (("jobset.sigs.k8s.io/jobset-name", "js"), *TEAM)
    pods = [unstarted(f"js-{n}", owner=of_job(f"js-{n}"), labels=labels) for n in range(2)]
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, *pods)
    assert stage.look() == [SuspendOwner(kind="JobSet", object="team-a/js", job="js-0", job_uid="uid-js-0")]


def test_other_pods_with_an_owner_are_evicted_as_they_are() -> None:
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, unstarted("w", owner=of_job("w", "ReplicaSet")))
    assert stage.look() == [EvictPod(pod="team-a/w", uid="uid-w", resource_version="7", grace_seconds=30)]


def test_a_job_that_has_begun_is_left_alone_and_reported() -> None:
    """It would count an evicted pod as a failed one, and may give up for it."""
    pods = [running("j-0", HOUR, owner=of_job("j")), unstarted("j-1", owner=of_job("j"))]
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, *pods)
    assert stage.look() == []
    found = conditions.find(stage.status().conditions, "Holding")
    assert found is not None
    assert "team-a/j-1" in found.message


def test_nothing_is_swept_where_the_policies_are_gone() -> None:
    """What is evicted would come back without a gate, again and again."""
    pod = unstarted("w", owner=of_job("w", "ReplicaSet"))
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, pod, hold_problem="They are not installed.")
    assert stage.look() == []
    found = conditions.find(stage.status().conditions, "Holding")
    assert found is not None
    assert found.status == "False"


@pytest.mark.parametrize(
    "left",
    [
        unstarted("p"),
        unstarted("p", owner=of_job("w", "ReplicaSet"), gates=("example.com/other",)),
        unstarted("p", owner=of_job("w", "ReplicaSet"), annotations=((marks.RELEASED_AT, text(NOON)),)),
        unstarted("p", owner=of_job("w", "ReplicaSet"), annotations=((marks.PROTECTED, "yes"),)),
        unstarted("p", owner=of_job("w", "ReplicaSet"), labels=(("team", "b"),)),
        unstarted("p", owner=of_job("w", "ReplicaSet"), gpus=0),
        unstarted("p", owner=of_job("w", "ReplicaSet"), annotations=((MIRROR, "x"),)),
        running("p", HOUR, owner=of_job("w", "ReplicaSet")),
    ],
)
def test_some_pods_are_left_alone(left: Pod) -> None:
    assert held_stage(a_budget(hours="18", enforce="Hold"), DONE, left).look() == []


def test_bare_pods_are_reported() -> None:
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, unstarted("bare"))
    stage.look()
    found = conditions.find(stage.status().conditions, "Holding")
    assert found is not None
    assert "team-a/bare" in found.message


def test_a_job_is_suspended_as_the_hold_begins() -> None:
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[DONE, unstarted("j-0", owner=of_job("j"))])
    assert brief(stage.look()) == [f"ApplyBudgetHold {KEY}", "SuspendOwner team-a/j"]


def test_nothing_is_evicted_before_the_hold_is_seen_to_stand() -> None:
    """Otherwise what is evicted would come back without a gate."""
    stage = Stage(a_budget(hours="18", enforce="Hold"), pods=[DONE, unstarted("w", owner=of_job("w", "ReplicaSet"))])
    assert brief(stage.look()) == [f"ApplyBudgetHold {KEY}"]


def kueue(name: str = "wl", **fields: Any) -> Workload:
    part = WorkloadPart(labels=TEAM, requests=(("nvidia.com/gpu", 1_000_000),), count=2)
    base: dict[str, Any] = {
        "kind": "Workload",
        "uid": f"uid-{name}",
        "namespace": "team-a",
        "name": name,
        "parts": (part,),
        "created": NOON - HOUR,
    }
    return Workload(**base | fields)


def test_workloads_of_kueue_that_wait_are_set_inactive_and_come_back() -> None:
    other = kueue("other", parts=(WorkloadPart(labels=(("team", "b"),), requests=(("nvidia.com/gpu", 1_000_000),)),))
    every = {each.key: each for each in (kueue(), kueue("in", admitted=True), other)}
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, workloads=every, kueue=True)
    assert stage.look() == [SuspendOwner(kind="Workload", object="team-a/wl", uid="uid-wl")]
    ours = kueue(suspended=True, suspended_by="GPUWorkloadBudget/team-a/one")
    stage.workloads = {**every, ours.key: ours}
    done = stage.pass_time(8 * HOUR, every=10 * MINUTE)
    assert ResumeOwner(kind="Workload", object="team-a/wl", uid="uid-wl") in done


def test_a_workload_that_was_let_go_is_not_taken_back_while_kueue_keeps_it_waiting() -> None:
    free = kueue(released_at=NOON - 2 * HOUR)
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, workloads={free.key: free}, kueue=True)
    assert stage.look() == []
    began = structs.replace(free, admitted=True)
    stage.workloads = {began.key: began}
    assert stage.look() == [ResumeOwner(kind="Workload", object="team-a/wl", uid="uid-wl")]  # only the mark goes


def test_what_kueue_was_allowed_to_start_counts_as_if_it_ran() -> None:
    free = kueue(released_at=NOON)
    stage = held_stage(a_budget(hours="19.5", enforce="Hold"), DONE, gated("p"), workloads={free.key: free}, kueue=True)
    assert released(stage.look()) == []
    assert released(held_stage(a_budget(hours="19.5", enforce="Hold"), DONE, gated("p"), kueue=True).look()) == ["p"]


# --- release ----------------------------------------------------------------------------------------------------------------------


def test_a_pod_starts_when_the_forecast_has_room_for_it() -> None:
    """18 of 19 used; one GPU for an hour would reach 19, until some of the 18 has left."""
    stage = held_stage(a_budget(hours="19", enforce="Hold"), DONE, gated("p"))
    assert released(stage.look()) == []
    assert queue(stage)["p"][0] == "Reserved"
    starts = queue(stage)["p"][1]
    done = stage.pass_time(4 * HOUR + MINUTE, every=MINUTE)
    assert released(done) == ["p"]
    at = next(at for at, each in stage.done if isinstance(each, ReleasePod))
    assert at - MINUTE <= (moment(starts) or 0) <= at


def test_a_short_declared_length_starts_sooner() -> None:
    stage = held_stage(a_budget(hours="19", enforce="Hold"), DONE, gated("p", **length("59m")))
    assert released(stage.look()) == ["p"]


def test_the_deadline_of_the_pod_counts_where_it_is_shorter() -> None:
    pod = gated("p", deadline=59 * MINUTE, **length("2h"))
    assert released(held_stage(a_budget(hours="19", enforce="Hold"), DONE, pod).look()) == ["p"]


def test_a_long_grace_period_is_part_of_the_length() -> None:
    """The kubelet that ends a pod at its deadline gives it its whole grace period to end."""
    short: dict[str, Any] = {"deadline": MINUTE, **length("1m")}
    for grace, expected in ((30, ["p"]), (2 * 3600, [])):
        pod = gated("p", grace_seconds=grace, **short)
        assert released(held_stage(a_budget(hours="19", enforce="Hold"), DONE, pod).look()) == expected


def test_what_runs_counts_in_the_forecast() -> None:
    others = [running("r", MINUTE), gated("p", **length("30m"))]
    assert released(held_stage(a_budget(hours="18.9", enforce="Hold"), DONE, *others).look()) == []
    ends = running("r", MINUTE, deadline=2 * MINUTE)
    assert released(held_stage(a_budget(hours="18.9", enforce="Hold"), DONE, ends, others[1]).look()) == ["p"]


def test_what_was_let_go_before_counts_too() -> None:
    pods = [gated(f"p{n}", created=NOON - HOUR + n, **length("30m")) for n in range(5)]
    assert released(held_stage(a_budget(hours="19.1", enforce="Hold"), DONE, *pods).look()) == ["p0", "p1"]


def test_a_pod_that_is_about_to_start_counts() -> None:
    about = unstarted("about", annotations=((marks.RELEASED_AT, text(NOON)),))
    stage = held_stage(a_budget(hours="19.1", enforce="Hold"), DONE, about, gated("p"))
    assert released(stage.look()) == []


def test_the_oldest_goes_first() -> None:
    pods = [gated("young", created=NOON - MINUTE), gated("old", created=NOON - HOUR)]
    stage = held_stage(a_budget(hours="19.5", enforce="Hold"), DONE, *pods)
    assert released(stage.look()) == ["old"]


def test_a_small_one_does_not_pass_where_it_would_delay_the_oldest() -> None:
    """Whatever it uses is still in the window when the oldest is to start."""
    oldest, quick = gated("big", gpus=3, created=NOON - HOUR), gated("quick", created=NOON - MINUTE, **length("10m"))
    stage = held_stage(a_budget(hours="20", enforce="Hold"), DONE, oldest, quick)
    assert released(stage.look()) == []
    assert queue(stage)["big"] == ("Reserved", text(NOON + 4 * HOUR + 1))
    assert queue(stage)["quick"][0] == "Waiting"
    alone = held_stage(a_budget(hours="20", enforce="Hold"), DONE, quick)
    assert released(alone.look()) == ["quick"]


def test_a_small_one_passes_where_it_does_not_delay_the_oldest() -> None:
    """The oldest waits for a budget that does not count the small one; the other one has room for both."""
    both = (("team", "a"), ("tier", "gpu"))
    wide = a_budget("wide", hours="100", enforce="Hold", selector={"matchLabels": {"tier": "gpu"}})
    oldest = gated("big", gpus=3, created=NOON - HOUR, labels=both)
    quick = gated("quick", created=NOON - MINUTE, labels=(("tier", "gpu"),))
    stage = Stage(a_budget(hours="20", enforce="Hold"), wide, pods=[DONE, oldest, quick])
    assert released(stage.look()) == ["quick"]
    assert queue(stage)["big"][0] == "Reserved"


def test_nobody_starves_behind_smaller_ones() -> None:
    """Small pods come for ever; the big one starts when it was told, not later."""
    stage = held_stage(a_budget(hours="20", enforce="Hold"), DONE, gated("big", gpus=3, created=NOON - HOUR))
    stage.look()
    told = queue(stage)["big"][1]
    begun = None
    for number in range(200):
        pod = gated(f"s{number}", created=stage.now, **length("20m"))
        stage.pods[pod.uid] = pod
        if "big" in released(stage.pass_time(3 * MINUTE)):
            begun = stage.now
            break
    assert begun is not None
    assert begun - 3 * MINUTE <= (moment(told) or 0)


def test_a_long_queue_of_one_budget_holds_up_no_other_budget() -> None:
    other = a_budget("two", hours="18", enforce="Hold", selector={"matchLabels": {"team": "b"}})
    waiting = [gated(f"old-{number:02d}", gpus=2 + number % 7, created=NOON - HOUR + number) for number in range(40)]
    young = gated("young", labels=(("team", "b"),))
    stage = Stage(a_budget(hours="18", enforce="Hold"), other, pods=[DONE, *waiting, young])
    assert released(stage.look()) == ["young"]


def test_every_budget_that_counts_a_pod_must_have_room() -> None:
    tight = a_budget("tight", hours="18.5", enforce="Hold")
    wide = a_budget("one", hours="40", enforce="Hold")
    stage = Stage(wide, tight, pods=[DONE, gated("p")])
    assert released(stage.look()) == []
    assert [each.unit for each in stage.status("tight").held.queue] == ["Pod/team-a/p"]


def test_a_budget_that_only_alerts_holds_nobody() -> None:
    tight = a_budget("tight", hours="18.5", enforce="AlertOnly")
    stage = Stage(a_budget("one", hours="40", enforce="Hold"), tight, pods=[DONE, gated("p")])
    assert released(stage.look()) == ["p"]


def test_a_gang_is_released_as_one() -> None:
    labels = (("scheduling.x-k8s.io/pod-group", "g"), *TEAM)
    pods = [gated(f"g{n}", labels=labels, **length("1h")) for n in range(3)]
    assert released(held_stage(a_budget(hours="20.9", enforce="Hold"), DONE, *pods).look()) == []
    assert released(held_stage(a_budget(hours="21.1", enforce="Hold"), DONE, *pods).look()) == ["g0", "g1", "g2"]


def test_a_gang_that_is_still_growing_waits() -> None:
    labels = (("scheduling.x-k8s.io/pod-group", "g"), *TEAM)
    pods = [gated("g0", labels=labels, created=NOON - HOUR), gated("g1", labels=labels, created=NOON - SECOND)]
    stage = held_stage(a_budget(hours="99", enforce="Hold"), DONE, *pods)
    assert released(stage.look()) == []
    assert released(stage.pass_time(10 * SECOND)) == ["g0", "g1"]


def test_release_stays_below_a_step_that_would_evict() -> None:
    stage = held_stage(a_budget(hours="100", enforce=["18% Hold", "19% Evict"]), DONE, gated("p"))
    assert released(stage.look()) == []


def test_foreign_gates_stay() -> None:
    pod = gated("p", gates=("example.com/other", marks.GATE))
    stage = held_stage(a_budget(hours="99", enforce="Hold"), pod)
    assert released(stage.look()) == ["p"]
    assert stage.pods["uid-p"].gates == ("example.com/other",)


@pytest.mark.parametrize("change", ["deleted", "alert"])
def test_what_waits_is_let_go_when_its_budget_is_gone(change: str) -> None:
    stage = held_stage(a_budget(hours="18", enforce="Hold"), DONE, gated("huge", gpus=99))
    stage.look()
    (ref,) = stage.budgets
    if change == "deleted":
        del stage.budgets[ref]
    else:
        stage.budgets[ref] = structs.replace(a_budget(hours="18", enforce="AlertOnly"), status=stage.status())
    assert released(stage.look()) == ["huge"]


def test_what_waits_for_a_paused_budget_stays_as_it_is() -> None:
    stage = held_stage(a_budget(hours="18", enforce="Hold", paused=True), DONE, gated("p"))
    assert stage.look() == [DeleteBudgetHold(budget=KEY)]
    assert stage.look() == []


def test_dollars_count_by_the_dearest_price_paid() -> None:
    budget = a_budget(hours=None, quota={"usd": "40", "gpuHours": "1000"}, enforce="Hold")
    nodes, prices = [a_node("n", gpus=1)], (Price(node="n", price_per_hour=2_000_000),)
    # 36 dollars spent; another hour would cost 2, two hours 4.
    stage = held_stage(budget, DONE, gated("p", **length("2h")), nodes=nodes, prices=prices)
    assert released(stage.look()) == []
    stage = held_stage(budget, DONE, gated("p", **length("1h")), nodes=nodes, prices=prices)
    assert released(stage.look()) == ["p"]


def test_nothing_is_released_while_the_ledger_cannot_be_trusted() -> None:
    stage = held_stage(a_budget(hours="99", enforce="Hold"), gated("p"), ledger=LedgerState(problem="It is away."))
    assert stage.look() == []
    assert stage.budgets[Ref("GPUWorkloadBudget", "team-a", "one")].status.held is None
