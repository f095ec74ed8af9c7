"""A release frees what was judged at release: its pods go free up to that demand, and all else waits."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core.budgets.units import of_namespaces
from headroom.model.actions import EvictPod, ResumeOwner
from headroom.model.facts import Owner, Pod, Price, Workload, WorkloadPart
from headroom.model.gangs import JOBSET
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON, a_claim, a_node, a_request, a_used_world
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running
from tests.core.test_holding import DONE, KEY, held_stage, released

BY = f"GPUWorkloadBudget/{KEY}"
GPU = "nvidia.com/gpu"


def owner(kind: str = "Job", *, pods: int = 2, gpus: int = 5, **fields: Any) -> Workload:
    """An owner that Headroom suspended, of two pods with five GPUs each."""
    part = WorkloadPart(
        labels=TEAM, requests=((GPU, gpus * 1_000_000),), count=pods, deadline=fields.pop("deadline", None)
    )
    base: dict[str, Any] = {"namespace": "team-a", "name": "fit", "created": NOON - HOUR, "parts": (part,)}
    base |= {"suspended": True, "suspended_by": BY}
    return Workload(kind=kind, uid="uid-fit", **base | fields)


def let_go(kind: str = "Job", **fields: Any) -> Stage:
    """A budget with 12 GPU-hours left of 30 that has just let an owner of 10 GPUs go."""
    each = owner(kind, **fields)
    budget = a_budget(hours="30", enforce=["50% Hold"], enforcement={"releaseHorizon": "1h"})
    stage = held_stage(budget, DONE, workloads={each.key: each})
    assert stage.look() == [ResumeOwner(kind=kind, object="team-a/fit", uid="uid-fit")]
    (record,) = stage.status().released
    assert (record.owner, record.uid, record.gpus, record.used_gpus) == (each.key, "uid-fit", "10", "0")
    return stage


def made(name: str, stage: Stage, *, gpus: int = 5, **fields: Any) -> Pod:
    """A pod that the API server made wait, as made by the owner."""
    base: dict[str, Any] = {"created": stage.now, "owner": of_job("fit")}
    return gated(name, gpus=gpus, **base | fields)


def come(stage: Stage, *pods: Pod) -> list[str]:
    """Whom of these pods the operator lets start."""
    stage.pods |= {pod.uid: pod for pod in pods}
    return released(stage.pass_time(10 * SECOND))


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet"])
def test_a_pod_that_only_names_the_owner_takes_nothing_of_what_was_judged(kind: str) -> None:
    stage = let_go()
    claims_it = Owner(kind, "fit", "uid-fit", "batch")
    thief = made("a-thief", stage, created=NOON - HOUR, owner=claims_it, annotations=((marks.HELD_BY, KEY),))
    assert come(stage, thief, *(made(f"fit-{n}", stage) for n in range(2))) == ["fit-0", "fit-1"]


def test_more_parallelism_than_was_judged_waits() -> None:
    stage = let_go()
    assert come(stage, *(made(f"fit-{n}", stage) for n in range(6))) == ["fit-0", "fit-1"]
    assert stage.status().released[0].used_gpus == "10"
    assert stage.look() == []
    (entry,) = stage.status().held.queue
    assert (entry.unit, entry.pods, entry.gpus, entry.state) == ("Job/team-a/fit", 4, "20", "Reserved")


def test_it_outlives_the_operator_and_its_pods_may_come_one_by_one() -> None:
    stage = let_go()
    again = Stage(*stage.budgets.values(), pods=stage.pods.values(), now=stage.now + MINUTE, holds=stage.holds)
    again.rows = stage.rows
    assert come(again, made("fit-0", again)) == ["fit-0"]
    assert come(again, made("fit-1", again)) == ["fit-1"]
    assert come(again, made("fit-2", again)) == []


def test_what_was_released_and_has_not_come_yet_is_given_to_nobody_else() -> None:
    stage = let_go()
    other = gated("other", gpus=5)
    assert come(stage, other) == []
    stage.pass_time(2 * MINUTE, every=30 * SECOND)
    assert not stage.pods["uid-other"].gates, "the owner made no pods, and the room is free again"


@pytest.mark.parametrize("age", [0, 2 * HOUR], ids=["younger than the owner", "older"])
def test_what_has_just_come_is_given_to_nobody_else(age: int) -> None:
    """Its pods are younger than all that is queued, yet their room was given to them before."""
    stage = let_go()
    other = gated("other", gpus=5, created=stage.now - age)
    assert come(stage, other, *(made(f"fit-{n}", stage) for n in range(2))) == ["fit-0", "fit-1"]
    assert come(stage) == []


def test_what_has_come_and_is_kept_by_a_paused_budget_is_given_to_nobody_else() -> None:
    """Once that budget goes, its pods start without being judged again."""
    stage = let_go()
    paused = structs.replace(a_budget("two", hours="9", enforce="Hold", paused=True), uid="two")
    stage.budgets |= Stage(paused).budgets
    kept: dict[str, Any] = {"annotations": ((marks.HELD_BY, "team-a/two"), (marks.CONTROLLER_UID, "uid-fit"))}
    other = gated("other", gpus=5)
    assert come(stage, other, *(made(f"fit-{n}", stage, **kept) for n in range(2))) == []
    stage.budgets = {ref: each for ref, each in stage.budgets.items() if each.name == "one"}
    assert come(stage) == ["fit-0", "fit-1"]
    assert come(stage) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": None},
        {"owner": Owner("Job", "fit", "uid-another")},
        {"owner": None, "labels": (*TEAM, (JOBSET, "fit"))},
        {"owner": of_job("w", "ReplicaSet"), "labels": (*TEAM, (JOBSET, "fit"))},
        {"gpus": 11},
    ],
    ids=["bare", "another uid", "label", "label and owner", "larger"],
)
@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_nothing_but_its_own_pods_within_its_demand_goes_free(kind: str, fields: dict[str, Any]) -> None:
    stage = let_go(kind)
    if kind == "JobSet":
        stage.workloads["JobSet/team-a/fit"] = owner("JobSet", suspended=False, suspended_by="", released_at=stage.now)
    assert come(stage, made("evil", stage, **{"gpus": 8} | fields)) == []


def test_pods_of_a_jobset_go_free_up_to_what_was_judged() -> None:
    stage = let_go("JobSet")
    stage.workloads["JobSet/team-a/fit"] = owner("JobSet", suspended=False, suspended_by="", released_at=stage.now)
    labels = (*TEAM, (JOBSET, "fit"))
    pods = [made(f"fit-w-{n}", stage, owner=of_job(f"fit-w-{n}"), labels=labels) for n in range(4)]
    assert come(stage, *pods) == ["fit-w-0", "fit-w-1"]
    again = made("x", stage, owner=of_job("fit-w-0"), labels=labels)
    assert come(stage, again) == []


# --- pods that are made anew ------------------------------------------------------------------------------------------------------


def end(stage: Stage, name: str, **fields: Any) -> None:
    stage.pods[f"uid-{name}"] = structs.replace(stage.pods[f"uid-{name}"], **fields)


FAILED: dict[str, Any] = {"phase": "Failed", "ended_by": "ContainerFinish"}


def test_a_failed_pod_is_replaced_at_once_but_not_twice() -> None:
    stage = let_go()
    assert come(stage, made("fit-0", stage), made("fit-1", stage)) == ["fit-0", "fit-1"]
    stage.pass_time(20 * MINUTE, every=MINUTE)
    end(stage, "fit-0", ended=stage.now, **FAILED)
    assert come(stage, made("fit-0b", stage), made("fit-0c", stage)) == ["fit-0b"]


def test_a_pod_on_its_way_out_gives_nothing_back() -> None:
    stage = let_go()
    assert come(stage, made("fit-0", stage), made("fit-1", stage)) == ["fit-0", "fit-1"]
    end(stage, "fit-0", deleting=stage.now + 24 * HOUR)
    assert come(stage, made("fit-0b", stage)) == []


def test_a_pod_that_is_parted_from_its_owner_gives_nothing_back() -> None:
    """Whoever may edit a pod may take its owner away, and so does a Job that is deleted without its pods."""
    stage = let_go()
    assert come(stage, made("fit-0", stage), made("fit-1", stage)) == ["fit-0", "fit-1"]
    for name in ("fit-0", "fit-1"):
        end(stage, name, owner=None)
    assert come(stage, made("fit-2", stage)) == []
    assert stage.status().released[0].used_gpus == "10"


OF_JOBSET = (*TEAM, (JOBSET, "fit"))


@pytest.mark.parametrize(
    "change",
    [
        {"owner": None},
        {"owner": None, "labels": TEAM},
        {"owner": Owner("Job", "mine", "uid-mine", "batch")},
        {"labels": TEAM},
        {"owner": Owner("Job", "renamed", "uid-fit-w", "batch"), "labels": TEAM},
    ],
    ids=["owner gone", "owner and label gone", "another owner", "label gone", "owner renamed"],
)
def test_a_pod_of_a_jobset_that_no_longer_says_so_gives_nothing_back(change: dict[str, Any]) -> None:
    stage = let_go("JobSet")
    stage.workloads["JobSet/team-a/fit"] = owner("JobSet", suspended=False, suspended_by="", released_at=stage.now)

    def of_set(name: str) -> Pod:
        return made(name, stage, owner=of_job("fit-w"), labels=OF_JOBSET)

    assert come(stage, of_set("fit-w-0"), of_set("fit-w-1")) == ["fit-w-0", "fit-w-1"]
    for name in ("fit-w-0", "fit-w-1"):
        end(stage, name, **change)
    assert come(stage, of_set("fit-w-2")) == []
    assert stage.status().released[0].used_gpus == "10"


def test_a_namespace_without_pods_has_none_of_those_that_are_gone() -> None:
    """An owner that was released may have no pod in view, and rows of pods that are gone are free."""
    world = a_used_world(pods=[gated("gone"), gated("here")])
    world.pods.remove("uid-gone")
    assert [pod.name for pod in of_namespaces(world, {"team-a", "empty"})] == ["here"]
    assert list(of_namespaces(world, {"empty"})) == []


def test_a_pod_that_is_gone_for_good_gives_its_part_back() -> None:
    stage = let_go()
    assert come(stage, made("fit-0", stage), made("fit-1", stage)) == ["fit-0", "fit-1"]
    del stage.pods["uid-fit-1"]
    assert come(stage, made("fit-1b", stage)) == ["fit-1b"]
    assert come(stage, made("fit-1c", stage)) == []


def test_after_the_horizon_what_comes_is_new_demand() -> None:
    stage = let_go()
    assert come(stage, made("fit-0", stage), made("fit-1", stage)) == ["fit-0", "fit-1"]
    stage.pass_time(63 * MINUTE, every=MINUTE)
    assert stage.status().released == ()
    end(stage, "fit-0", ended=stage.now, **FAILED)
    assert come(stage, made("fit-0b", stage)) == []


def test_a_declared_length_is_not_used_twice() -> None:
    stage = let_go(deadline=HOUR)
    assert stage.status().released[0].declared
    pods = [made(name, stage, deadline=HOUR) for name in ("fit-0", "fit-1")]
    assert come(stage, *pods) == ["fit-0", "fit-1"]
    end(stage, "fit-0", ended=stage.now + SECOND, **FAILED)
    assert come(stage, made("early", stage, deadline=HOUR)) == ["early"]
    stage.pass_time(20 * MINUTE, every=MINUTE)
    end(stage, "fit-1", ended=stage.now, **FAILED)
    assert come(stage, made("late", stage, deadline=HOUR), made("endless", stage)) == []
    assert come(stage, made("short", stage, deadline=30 * MINUTE)) == ["short"]


def test_a_gang_that_was_released_from_its_gates_is_replaced_too() -> None:
    budget = a_budget(hours="30", enforce=["50% Hold"])
    pods = [gated(f"j-{n}", gpus=5, owner=of_job("j")) for n in range(2)]
    stage = held_stage(budget, DONE, *pods)
    assert released(stage.look()) == ["j-0", "j-1"]
    (record,) = stage.status().released
    assert (record.owner, record.uid, record.gpus) == ("Job/team-a/j", "uid-j", "10")
    stage.pass_time(20 * MINUTE, every=MINUTE)
    end(stage, "j-0", ended=stage.now, **FAILED)
    assert come(stage, made("j-0b", stage, owner=of_job("j")), made("j-2", stage, owner=of_job("j"))) == ["j-0b"]


def test_pods_that_stand_alone_leave_no_record() -> None:
    stage = held_stage(a_budget(hours="30", enforce=["50% Hold"]), DONE, gated("one"))
    assert released(stage.look()) == ["one"]
    assert stage.status().released == ()


# --- several budgets, dollars, people ---------------------------------------------------------------------------------------------


def test_a_budget_that_judged_nothing_gives_nothing_free() -> None:
    stage = let_go()
    late = structs.replace(a_budget("two", hours="9", enforce="Hold"), uid="two")
    stage.budgets |= Stage(late).budgets
    assert come(stage, made("fit-0", stage)) == []


def manual(**fields: Any) -> Stage:
    """A budget that is used up, and an owner that an administrator has let go."""
    free = owner(suspended=False, suspended_by="", released_at=NOON - SECOND, **fields)
    return held_stage(a_budget(hours="18", enforce="Hold"), DONE, workloads={free.key: free})


def test_an_owner_that_people_released_is_taken_as_it_was_then() -> None:
    stage = manual(is_as_released=True)
    assert come(stage, *(made(f"fit-{n}", stage) for n in range(3))) == ["fit-0", "fit-1"]
    assert [each.uid for each in stage.status().released] == ["uid-fit"]
    assert come(stage, made("fit-3", stage)) == []


def test_another_owner_of_the_same_name_takes_nothing_from_the_first() -> None:
    """It was made anew and suspended; what was judged belongs to the one that had the uid."""
    stage = let_go()
    stage.now += 3 * MINUTE
    other = structs.replace(owner(), uid="uid-other")
    stage.workloads = {other.key: other}
    assert come(stage, made("fit-0", stage)) == ["fit-0"]


def test_an_owner_that_was_changed_after_its_release_gives_nothing_free() -> None:
    stage = manual()
    assert come(stage, *(made(f"fit-{n}", stage) for n in range(3))) == []


def test_its_mark_of_long_ago_gives_nothing_free() -> None:
    stage = manual(is_as_released=True)
    stage.now += 3 * MINUTE
    assert come(stage, made("fit-0", stage)) == []


# --- what changes between the release and the start -------------------------------------------------------------------------------


def unplaced(stage: Stage, name: str) -> None:
    """As a pod is that was released and that nothing has placed yet."""
    end(stage, name, started=None, node="", phase="Pending")


def claimed(count: int) -> dict[str, Any]:
    claim = a_claim(requests=(a_request(count=count),))
    return {claim.key: claim}


@pytest.mark.parametrize("by", [None, of_job("j"), of_job("w", "ReplicaSet")], ids=["bare", "Job", "ReplicaSet"])
def test_a_pod_whose_claim_grew_after_its_release_goes_back(by: Owner | None) -> None:
    pod = gated("dra", gpus=0, claims=("claim",), owner=by, resource_version="7")
    stage = held_stage(a_budget(hours="30", enforce=["50% Hold"]), DONE, pod, claims=claimed(2))
    assert released(stage.look()) == ["dra"]
    assert [each.gpus for each in stage.status().released] == ["2"]
    unplaced(stage, "dra")
    assert stage.pass_time(MINUTE) == []
    stage.more["claims"] = claimed(8)
    back = EvictPod(pod="team-a/dra", uid="uid-dra", resource_version="7", grace_seconds=30)
    assert stage.pass_time(MINUTE) == [back]


def test_what_was_judged_in_dollars_is_free_at_that_price_only() -> None:
    budget = a_budget(hours="1000", quota={"usd": "58"}, enforce=["30% Hold"])
    nodes = [a_node("n", gpus=1), a_node("dear", gpus=1)]
    prices = (Price(node="n", price_per_hour=2_000_000), Price(node="dear", price_per_hour=3_000_000))
    each = owner()
    stage = held_stage(budget, DONE, workloads={each.key: each}, nodes=nodes, prices=prices)
    assert stage.look() == [ResumeOwner(kind="Job", object="team-a/fit", uid="uid-fit")]
    assert stage.status().released[0].usd_per_hour == "20"
    assert come(stage, made("fit-0", stage)) == ["fit-0"]
    # From now on a GPU may cost three dollars, so five of them no longer fit beside the first five.
    stage.pods["uid-x"] = running("x", MINUTE, node="dear")
    assert come(stage, made("fit-1", stage, gpus=5), made("fit-2", stage, gpus=1)) == ["fit-2"]
