"""Pods under Kueue: the API server gates them as all others, and what Kueue has not started waits as its Workload."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api import marks
from headroom.core.budgets.explaining import explained
from headroom.model.actions import ReleasePod, SuspendOwner
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.times import MINUTE
from headroom.model.world import ref_of
from tests.builders import NOON
from tests.core.stage import Stage, a_budget, gated, of_job, running
from tests.core.test_holding import DONE, KEY, held_stage, kueue, released, unstarted

ROOMY = a_budget(hours="30", enforce=["50% Hold"])
OURS = (marks.GATE, "kueue.x-k8s.io/admission")


def of_kueue(pod: Pod, *more: Pod, **fields: Any) -> Stage:
    """A pod of a Job, or a pod alone, for which Kueue has a Workload; the budget has no room."""
    uid = pod.uid if pod.owner is None else pod.owner.uid
    kind = "Job" if pod.owner is not None and pod.owner.kind == "Job" else "Pod"
    workload = kueue(owner=f"{kind}/team-a/j", owner_uids=(uid,), **fields)
    budget = a_budget(hours="18", enforce="Hold")
    return held_stage(budget, DONE, pod, *more, workloads={workload.key: workload}, kueue=True)


INACTIVE = SuspendOwner(kind="Workload", object="team-a/wl", uid="uid-wl")


def test_a_pod_that_kueue_let_start_before_the_hold_goes_back_by_its_workload() -> None:
    """Kueue resumes a Job that we suspend."""
    early = unstarted("p", owner=of_job("j"))
    assert of_kueue(early, admitted=True).look() == [INACTIVE]
    alone = of_kueue(unstarted("p"), admitted=True)
    assert alone.look() == [], "nobody would make it anew"


def test_what_kueue_admits_under_a_hold_gives_its_quota_back() -> None:
    """Kueue is quicker than we are: its Job has made pods, all behind our gate."""
    pod = gated("p", owner=of_job("j"), created=NOON - MINUTE)
    assert of_kueue(pod, admitted=True).look() == [INACTIVE]
    assert of_kueue(pod, admitted=True, released_at=NOON).look() == []
    assert of_kueue(gated("p", created=NOON - MINUTE), admitted=True).look() == [], "Kueue would delete it for good"
    made_anew = gated("p", owner=of_job("r", "ReplicaSet"), created=NOON - MINUTE)
    assert of_kueue(made_anew, admitted=True).look() == [], "its owner would make the next one at once"
    begun = running("q", 1, owner=of_job("j"))
    assert of_kueue(pod, begun, admitted=True).look() == [], "what has begun is not taken apart"


def test_what_kueue_admits_under_a_hold_and_fits_is_released_without_a_detour() -> None:
    pod = gated("p", owner=of_job("j"), created=NOON - MINUTE)
    workload = kueue(owner="Job/team-a/j", owner_uids=("uid-j",), admitted=True)
    stage = held_stage(ROOMY, DONE, pod, workloads={workload.key: workload}, kueue=True)
    assert stage.look() == [ReleasePod(pod="team-a/p", uid="uid-p")]


@pytest.mark.parametrize("fields", [{}, {"suspended": True, "suspended_by": f"GPUWorkloadBudget/{KEY}"}])
def test_a_pod_behind_both_gates_waits_once(fields: dict[str, Any]) -> None:
    """As its Workload, while Kueue has not admitted that."""
    stage = of_kueue(gated("p", gates=OURS), **fields)
    assert released(stage.look()) == []
    held = stage.status().held
    assert ([each.unit for each in held.queue] if held else []) == (["Workload/team-a/wl"] if fields else [])


def test_a_workload_of_another_namespace_says_nothing_of_a_pod() -> None:
    pod = gated("p", gates=OURS)
    stage = held_stage(ROOMY, DONE, pod, kueue=True)
    stranger = kueue(namespace="team-z", owner_uids=(pod.uid,))
    stage.workloads = {stranger.key: stranger}
    assert released(stage.look()) == ["p"]


def said(stage: Stage, name: str, kind: str = "Pod") -> str:
    world = stage.world()
    statuses = {ref_of(each): each.status for each in world.resources.values()}
    found = explained(world, statuses, Ref(kind, "team-a", name))
    assert found is not None
    return found.sentence


def test_explain_speaks_of_the_workload() -> None:
    pending = of_kueue(gated("p", gates=OURS))
    assert said(pending, "p") == "Pod team-a/p is queued by Kueue: Workload team-a/wl is not admitted yet."
    ours = {"suspended": True, "suspended_by": f"GPUWorkloadBudget/{KEY}"}
    inactive = of_kueue(gated("p", gates=OURS), **ours)
    assert said(inactive, "p").startswith(
        "Pod team-a/p belongs to Workload team-a/wl, which is set inactive by budget "
    )
    inactive = of_kueue(gated("p", owner=of_job("j"), gates=OURS), **ours)
    job = "Job team-a/j belongs to Workload team-a/wl, which is set inactive by budget "
    assert said(inactive, "j", "Job").startswith(job)
    assert said(inactive, "wl", "Workload").startswith("Workload team-a/wl is set inactive by budget ")
