"""What is decided while some kinds are not seen: everything that does not depend on them, and nothing that does."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core import CAPACITY as POWER
from headroom.model import conditions, sight
from headroom.model.actions import EvictPod, ReleasePod, RemoveFinalizer, ResumeOwner, SuspendOwner
from headroom.model.changes import EVERYTHING
from headroom.model.facts import ExtendedClaim, Pod, Workload
from headroom.model.times import HOUR, MINUTE
from headroom.model.world import World
from tests.builders import NOON, a_resource, a_world
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running
from tests.core.test_holding import DONE, KEY, held_stage, kueue, released, unstarted

WHY = "conversion webhook failed"
KUEUE = {sight.WORKLOADS: WHY}
LABELLED = tuple(sorted((("kueue.x-k8s.io/queue-name", "q"), *TEAM)))
OVER = a_budget(hours="18", enforce="Hold")
ROOMY = a_budget(hours="40", enforce="Hold")


def owned(kind: str, name: str = "wl", **fields: Any) -> Workload:
    return structs.replace(kueue(name), kind=kind, suspended=True, suspended_by=f"GPUWorkloadBudget/{KEY}", **fields)


# --- plain pods go on -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [sight.WORKLOADS, sight.JOB_SETS, sight.DRA[0], *sight.POLICIES, "nodepools.karpenter.sh"]
)
def test_plain_pods_are_released_whatever_others_kind_is_not_seen(kind: str) -> None:
    assert released(held_stage(ROOMY, DONE, gated("p"), unseen={kind: WHY}).look()) == ["p"]


@pytest.mark.parametrize("kind", [sight.WORKLOADS, sight.JOB_SETS, sight.DRA[0]])
def test_plain_pods_are_evicted_whatever_others_kind_is_not_seen(kind: str) -> None:
    stage = Stage(a_budget(hours="1"), pods=[running("p", 2 * HOUR)], unseen={kind: WHY})
    assert [each.pod for each in stage.look() if isinstance(each, EvictPod)] == ["team-a/p"]


def test_finalizers_go_on() -> None:
    over = structs.replace(running("p", HOUR), phase="Succeeded", ended=NOON - MINUTE, ended_by="ContainerFinish")
    kept = structs.replace(over, finalizers=("headroom.dev/usage",), deleting=NOON - MINUTE)
    stage = Stage(a_budget(accounting="Exact", enforce="AlertOnly"), pods=[kept], unseen=KUEUE)
    assert [each for each in stage.look() if isinstance(each, RemoveFinalizer)]


# --- what depends on it waits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        gated("p", labels=LABELLED),
        gated("p", gates=(marks.GATE, "kueue.x-k8s.io/admission")),
    ],
    ids=["label", "gate"],
)
def test_pods_under_kueue_wait_while_kueue_is_not_seen(pod: Pod) -> None:
    assert released(held_stage(ROOMY, DONE, pod, unseen=KUEUE, kueue=True).look()) == []
    assert released(held_stage(ROOMY, DONE, pod, kueue=True).look()) == ["p"]


@pytest.mark.parametrize("kind", ["Workload", "JobSet"])
def test_suspended_owners_wait_while_their_kind_is_not_seen(kind: str) -> None:
    mine = owned(kind)
    unseen = {sight.OWNERS[kind]: WHY}
    stage = held_stage(ROOMY, DONE, workloads={mine.key: mine}, kueue=True, unseen=unseen)
    assert [each for each in stage.look() if isinstance(each, ResumeOwner)] == []
    seen = held_stage(ROOMY, DONE, workloads={mine.key: mine}, kueue=True)
    assert [each for each in seen.look() if isinstance(each, ResumeOwner)]


def test_marks_stay_while_their_kind_is_not_seen() -> None:
    began = kueue(released_at=NOON - 2 * HOUR, admitted=True)
    assert held_stage(OVER, DONE, workloads={began.key: began}, kueue=True).look() != []
    assert held_stage(OVER, DONE, workloads={began.key: began}, kueue=True, unseen=KUEUE).look() == []


def test_workloads_are_not_set_inactive_on_an_old_view() -> None:
    mine = kueue()
    stage = held_stage(OVER, DONE, workloads={mine.key: mine}, kueue=True, unseen=KUEUE)
    assert [each for each in stage.look() if isinstance(each, SuspendOwner)] == []


@pytest.mark.parametrize(
    ("pod", "kind"),
    [
        (running("p", 2 * HOUR, labels=LABELLED), sight.WORKLOADS),
        (running("p", 2 * HOUR, claims=("c",)), sight.DRA[0]),
        (running("p", 2 * HOUR, extended=ExtendedClaim("c", ("nvidia.com/gpu",))), sight.DRA[0]),
    ],
    ids=["Kueue", "claims", "extended resource"],
)
def test_what_depends_on_an_unseen_kind_is_no_victim(pod: Pod, kind: str) -> None:
    assert Stage(a_budget(hours="1"), pods=[pod], unseen={kind: WHY}).look() == []
    assert Stage(a_budget(hours="1"), pods=[pod]).look() != []


def test_nothing_is_swept_while_the_policies_are_not_seen() -> None:
    """It would come back without a gate if they are gone."""
    pod = unstarted("p", owner=of_job("rs", "ReplicaSet"))
    assert [each for each in held_stage(OVER, DONE, pod).look() if isinstance(each, EvictPod)]
    for kind in sight.POLICIES:
        assert held_stage(OVER, DONE, pod, unseen={kind: WHY}).look() == []


# --- what is said -----------------------------------------------------------------------------------------------------------------


def test_a_budget_says_which_kind_is_not_seen_and_what_waits() -> None:
    stage = Stage(a_budget(), unseen=KUEUE)
    stage.look()
    found = conditions.find(stage.status().conditions, "Degraded")
    assert found is not None
    assert (found.status, found.reason) == ("True", "KindNotSeen")
    assert found.message == (
        "Cannot be read: workloads.kueue.x-k8s.io. Meanwhile pods under Kueue are neither released nor stopped; all other effects continue."
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("pods", "ListPodsFailed"),
        ("nodes", "ListNodesFailed"),
        ("gpuworkloadbudgets.headroom.dev", "ListGPUWorkloadBudgetsFailed"),
        ("budgetindexes.headroom.dev", "ListBudgetIndexesFailed"),
        ("jobs.batch", "ListJobsFailed"),
        ("configmaps headroom-system/headroom", "ListConfigMapsFailed"),
    ],
)
def test_the_reason_names_the_kind_that_blinds_and_no_other(kind: str, reason: str) -> None:
    stage = Stage(a_budget(), complete=False, unseen={kind: WHY} | KUEUE)
    stage.look()
    for type_ in ("Ready", "Degraded"):
        found = conditions.find(stage.status().conditions, type_)
        assert found is not None
        assert found.reason == reason
        assert kind in found.message
        assert "kueue" not in found.message


def test_a_pool_names_the_kind_too() -> None:
    pool = a_resource("PowerPool", "rack")
    world: World = structs.replace(a_world(pool), complete=False, unseen={"nodes": WHY})
    [decision] = POWER.decide(world, EVERYTHING)
    assert decision.reason == "ListNodesFailed"
    assert decision.actions == () or all(not isinstance(each, ReleasePod) for each in decision.actions)
    braked = conditions.find(decision.status.conditions, "Braked")
    assert braked is not None
    assert "without nodes" in braked.message
