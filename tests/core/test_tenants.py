"""What tenants write into their pods: it shields nobody, and draws no pod of another team into an eviction."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model.actions import Action, EvictPod, ReleasePod, SuspendOwner
from headroom.model.facts import Owner, Pod, Shape, Workload, WorkloadPart
from headroom.model.times import HOUR, MINUTE, SECOND, text
from tests.builders import NOON
from tests.core.stage import Stage, a_budget, gated, of_job, running

GROUP = ("scheduling.x-k8s.io/pod-group", "g")
PROTECTED: dict[str, Any] = {"annotations": ((marks.PROTECTED, "true"),)}


def of_team(team: str, *more: tuple[str, str]) -> dict[str, Any]:
    return {"labels": tuple(sorted((("team", team), *more)))}


def for_team(team: str, **fields: Any) -> AnyResource:
    return a_budget(f"team-{team}", selector={"matchLabels": {"team": team}}, **fields)


def whole(name: str = "whole", **fields: Any) -> AnyResource:
    """A budget for all teams of the namespace."""
    every: dict[str, Any] = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    return a_budget(name, selector=every, **fields)


def stopped(actions: list[Action]) -> set[str]:
    return {each.pod.partition("/")[2] for each in actions if isinstance(each, EvictPod)}


def in_the_end(stage: Stage, minutes: int = 3) -> set[str]:
    stage.look()
    stage.pass_time(minutes * MINUTE, every=15 * SECOND)
    return stopped([each for _, each in stage.done])


MARKS: dict[str, dict[str, Any]] = {
    "pod group": {"labels": (GROUP,)},
    "JobSet": {"labels": (("jobset.sigs.k8s.io/jobset-name", "g"),)},
    "LeaderWorkerSet": {"labels": (("leaderworkerset.sigs.k8s.io/group-key", "g"),)},
    "Volcano": {"annotations": (("scheduling.k8s.io/group-name", "g"),)},
    "Kueue": {"labels": (("kueue.x-k8s.io/pod-group-name", "g"),)},
    "owner": {"owner": of_job("g")},
    "owner of another project": {"owner": of_job("g", "PyTorchJob")},
}


def marked(name: str, since: int, mark: str, team: str, **fields: Any) -> Pod:
    given = dict(MARKS[mark])
    return running(name, since, **given | of_team(team, *given.get("labels", ())) | fields)


# --- other teams --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", MARKS)
def test_no_mark_draws_pods_of_another_team_into_an_eviction(mark: str) -> None:
    mine = marked("mine", 11 * HOUR, mark, "a")
    theirs = [marked(f"theirs-{n}", 9 * HOUR, mark, "b", gpus=8) for n in range(3)]
    assert in_the_end(Stage(for_team("a", hours="10"), pods=[mine, *theirs])) == {"mine"}


@pytest.mark.parametrize("mark", MARKS)
def test_no_mark_makes_another_team_the_worst_offender_of_a_budget_of_both(mark: str) -> None:
    """Eight GPUs for a day are the most; by the label of the others they would go with them, and first."""
    mine = marked("mine", 30 * HOUR, mark, "a", gpus=8)
    theirs = [marked(f"theirs-{n}", 2 * HOUR, mark, "b") for n in range(3)]
    budget = whole(hours="195", enforcement={"order": "WorstOffender"})
    assert in_the_end(Stage(budget, for_team("a"), for_team("b"), pods=[mine, *theirs])) == {"mine"}


def test_nor_does_the_priority_of_another_team_shield_a_pod() -> None:
    mine = marked("mine", 30 * HOUR, "pod group", "a")
    theirs = marked("theirs", 29 * HOUR, "pod group", "b", priority=1000)
    other = running("other", 28 * HOUR, priority=10, **of_team("b"))
    stage = Stage(whole(hours="71.5"), for_team("a"), for_team("b"), pods=[mine, theirs, other])
    assert in_the_end(stage) == {"mine"}


def test_a_gang_of_one_team_goes_as_one_whoever_has_its_label_too() -> None:
    ranks = [running(f"rank-{n}", 2 * HOUR, gpus=8, **of_team("a", GROUP)) for n in range(3)]
    stranger = running("stranger", 2 * HOUR, **of_team("b", GROUP))
    stage = Stage(whole(hours="47", window=3), for_team("a"), for_team("b"), pods=[*ranks, stranger])
    assert stopped(stage.look()) == {"rank-0", "rank-1", "rank-2"}


def test_two_owners_of_one_name_are_two() -> None:
    """As where another project has a kind of that name, or one was deleted and made anew."""
    pods = [running("one", 30 * HOUR, owner=of_job("j")), running("two", 31 * HOUR, owner=Owner("Job", "j", "another"))]
    assert stopped(Stage(a_budget(hours="47.5"), pods=pods).look()) == {"one"}


# --- protection ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("team", ["a", "b"])
def test_one_protected_pod_shields_itself_alone(mark: str, team: str) -> None:
    ranks = [marked(f"r{n}", 6 * HOUR, mark, "a") for n in range(3)]
    notes = (*MARKS[mark].get("annotations", ()), *PROTECTED["annotations"])
    safe = marked("safe", 6 * HOUR, mark, team, annotations=tuple(sorted(notes)))
    assert in_the_end(Stage(for_team("a", hours="1"), pods=[*ranks, safe])) == {"r0", "r1", "r2"}


def test_what_a_protected_pod_would_give_back_is_not_counted_on() -> None:
    """The step needs one of two equal pods to go; the protected one comes first, and cannot be that one."""
    first = running("a-safe", 30 * HOUR, **PROTECTED)
    stage = Stage(a_budget(hours="47.5"), pods=[first, running("b", 31 * HOUR)])
    assert in_the_end(stage) == {"b"}


def test_a_gang_is_protected_where_each_of_its_pods_is() -> None:
    ranks = [running(f"r{n}", 6 * HOUR, **of_team("a", GROUP), **PROTECTED) for n in range(3)]
    assert in_the_end(Stage(for_team("a", hours="1"), pods=ranks)) == set()


def test_one_that_is_protected_later_does_not_keep_the_others() -> None:
    stage = Stage(a_budget(hours="1"), pods=[running(f"r{n}", 6 * HOUR, owner=of_job("j")) for n in range(2)])
    before = dict(stage.pods)
    stage.look()
    stage.pods = before | {"uid-r0": structs.replace(before["uid-r0"], **PROTECTED)}
    stage.now += SECOND
    assert stopped(stage.look()) == {"r1"}


def test_an_owner_of_a_protected_pod_is_not_suspended() -> None:
    """That would end all its pods; the others go where a step evicts."""
    pods = [running("r0", 6 * HOUR, owner=of_job("j")), running("r1", 6 * HOUR, owner=of_job("j"), **PROTECTED)]
    assert Stage(a_budget(hours="1", enforce="Suspend"), pods=pods).look() == []
    hidden = [pods[0], structs.replace(pods[1], labels=(("app", "x"),))]
    assert Stage(a_budget(hours="1", enforce="Suspend"), pods=hidden).look() == []
    both = a_budget(hours="1", enforce=["100% Suspend", "110% Evict"])
    assert in_the_end(Stage(both, pods=pods)) == {"r0"}


def test_a_bare_pod_in_the_group_does_not_keep_owners_from_being_suspended() -> None:
    pods = [
        running("r0", 6 * HOUR, owner=of_job("j"), **of_team("a", GROUP)),
        running("bare", HOUR, **of_team("a", GROUP)),
    ]
    done = Stage(a_budget(hours="1", enforce="Suspend"), pods=pods).look()
    assert done == [SuspendOwner(kind="Job", object="team-a/j", uid="uid-j")]


# --- what was released --------------------------------------------------------------------------------------------------------------


def test_a_label_shared_with_what_was_just_released_shields_nobody() -> None:
    fresh = running(
        "fresh", MINUTE, gpus=8, annotations=((marks.RELEASED_AT, text(NOON - MINUTE)),), **of_team("a", GROUP)
    )
    old = running("old", 12 * HOUR, **of_team("a", GROUP))
    assert stopped(Stage(a_budget(hours="10"), pods=[fresh, old]).look()) == {"old"}


@pytest.mark.parametrize(
    "pod",
    [
        running("p", 12 * HOUR, owner=of_job("set-0"), **of_team("a", ("jobset.sigs.k8s.io/jobset-name", "set"))),
        running("p", 12 * HOUR, owner=Owner("Job", "j", "another-uid", "batch")),
        running("p", MINUTE, owner=Owner("Job", "j", "another-uid", "batch"), gpus=700),
    ],
)
def test_an_owner_that_was_resumed_shields_only_pods_that_it_made_since(pod: Pod) -> None:
    owners = (
        Workload(kind="JobSet", uid="uid-set", namespace="team-a", name="set", released_at=NOON - 2 * MINUTE),
        Workload(kind="Job", uid="uid-j", namespace="team-a", name="j", released_at=NOON - 2 * MINUTE),
    )
    stage = Stage(a_budget(hours="10"), pods=[pod], workloads={each.key: each for each in owners})
    assert stopped(stage.look()) == {"p"}


def test_a_mark_of_release_counts_only_where_the_api_server_guards_it() -> None:
    for at in (NOON - MINUTE, NOON + 9 * HOUR):
        forged = running("p", 12 * HOUR, annotations=((marks.RELEASED_AT, text(at)),))
        assert stopped(Stage(a_budget(hours="10"), pods=[forged], hold_problem="No policies here.").look()) == {"p"}


# --- owners that are forged ---------------------------------------------------------------------------------------------------------

DAEMONS = [
    Owner("DaemonSet", "d", "u", "nobody.example"),
    Owner("DaemonSet", "d", "u", "apps"),
    Owner("DaemonSet", "d", "u"),
    Owner("Node", "n", "u"),
]


@pytest.mark.parametrize("owner", DAEMONS)
@pytest.mark.parametrize("device", ["nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com", "claim"])
def test_no_owner_exempts_a_pod_with_devices(owner: Owner, device: str) -> None:
    given: dict[str, Any] = {"claims": ("c",)} if device == "claim" else {}
    asked = (("cpu", 1_000_000),) if device == "claim" else (("cpu", 1_000_000), (device, 1_000_000))
    pod = running("p", 9 * HOUR, owner=owner, shape=Shape(requests=asked), **given)
    assert stopped(Stage(a_budget(hours="1", gpuResourceName="cpu"), pods=[pod]).look()) == {"p"}


@pytest.mark.parametrize(
    ("owner", "goes"), [(DAEMONS[0], True), (DAEMONS[1], False), (DAEMONS[2], True), (DAEMONS[3], False)]
)
def test_without_devices_only_a_daemon_set_of_kubernetes_does(owner: Owner, goes: bool) -> None:
    pod = running("p", 9 * HOUR, owner=owner, shape=Shape(requests=(("cpu", 1_000_000),)))
    assert bool(in_the_end(Stage(a_budget(hours="1", gpuResourceName="cpu"), pods=[pod]))) == goes


def test_only_a_job_of_kubernetes_is_suspended() -> None:
    for group in ("batch.volcano.sh", "nobody.example", ""):
        pod = running("p", 9 * HOUR, owner=Owner("Job", "j", "u", group))
        assert Stage(a_budget(hours="1", enforce="Suspend"), pods=[pod]).look() == []


def kueues(**fields: Any) -> dict[str, Workload]:
    part = WorkloadPart(labels=(("team", "b"),), requests=(("nvidia.com/gpu", 1_000_000),))
    found = Workload(kind="Workload", uid="w", namespace="team-a", name="g", parts=(part,), admitted=True, **fields)
    return {found.key: found}


@pytest.mark.parametrize(
    ("pod", "workloads"),
    [
        (marked("p", 9 * HOUR, "Kueue", "a"), kueues(owner_uids=("uid-rank",))),
        (running("p", 9 * HOUR, owner=of_job("j")), kueues(owner="Job/team-a/j", owner_uids=("uid-j",))),
        (
            running("p", 9 * HOUR, owner=of_job("s-0"), **of_team("a", ("jobset.sigs.k8s.io/jobset-name", "s"))),
            kueues(owner="JobSet/team-a/s", owner_uids=("uid-s",)),
        ),
    ],
)
def test_what_kueue_queues_for_another_team_is_not_suspended(pod: Pod, workloads: dict[str, Workload]) -> None:
    stage = Stage(a_budget(hours="1", enforce="Suspend"), pods=[pod], workloads=workloads, kueue=True)
    assert [each for each in stage.look() if isinstance(each, SuspendOwner) and each.kind == "Workload"] == []


# --- pods that are leaving, but not soon --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "goes"), [(HOUR, False), (HOUR + SECOND, True), (365 * 24 * HOUR, True)])
def test_a_deletion_that_takes_years_is_no_way_out(left: int, goes: bool) -> None:
    """`kubectl delete pod --grace-period` takes any number of seconds."""
    stage = Stage(a_budget(hours="1"), pods=[running("p", 9 * HOUR, deleting=NOON + left)])
    assert stopped(stage.look()) == ({"p"} if goes else set())


# --- Headroom's own namespace -------------------------------------------------------------------------------------------------------


def at_home(name: str, since: int, **fields: Any) -> Pod:
    shape = Shape(requests=(("cpu", 1_000_000),))
    return running(
        name, since, namespace="headroom-system", shape=shape, owner=of_job("headroom", "ReplicaSet"), **fields
    )


@pytest.mark.parametrize("enforce", ["Pause", "Suspend", "Evict", "Hold"])
def test_headroom_does_nothing_to_its_own_pods(enforce: str) -> None:
    budget = structs.replace(a_budget(hours="1", enforce=enforce, gpuResourceName="cpu"), namespace="headroom-system")
    pods = [at_home("operator", 9 * HOUR), at_home("next", 0, phase="Pending", started=None, node="")]
    stage = Stage(budget, pods=[*pods, at_home("job", 9 * HOUR)])
    stage.look()
    stage.pass_time(HOUR, every=MINUTE)
    assert {type(each).__name__ for _, each in stage.done} <= {"EmitEvent", "ApplyBudgetHold"}
    assert [each.spec.namespaces for each in stage.holds.values() if each.spec] == ([()] if enforce == "Hold" else [])


def test_one_of_them_that_waits_is_released() -> None:
    """As one that was queued before its namespace was exempt: nobody else would be left to do it."""
    budget = structs.replace(a_budget(hours="1", enforce="Hold", gpuResourceName="cpu"), namespace="headroom-system")
    pod = gated("next", namespace="headroom-system", shape=Shape(requests=(("cpu", 1_000_000),)))
    stage = Stage(budget, pods=[pod, at_home("operator", 9 * HOUR)])
    stage.look()
    stage.pass_time(MINUTE, every=SECOND)
    assert ReleasePod(pod="headroom-system/next", uid="uid-next") in [each for _, each in stage.done]
