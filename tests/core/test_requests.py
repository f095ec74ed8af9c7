"""Release requests: what is released, once, and what says why nothing is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import hold_name
from headroom.api.enforcement import EnteredStep
from headroom.api.kinds import AnyResource
from headroom.core.budgets import REQUESTS, hold_of
from headroom.core.budgets.requests import EXPIRES_MS, KEPT_MS, MOST_FINISHED, MOST_OPEN
from headroom.model import conditions
from headroom.model.actions import DeleteReleaseRequest, ReleasePod, ResumeOwner
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision
from headroom.model.facts import Hold, Pod, Workload, WorkloadPart
from headroom.model.resource_table import ResourceTable
from headroom.model.times import HOUR, SECOND, text
from headroom.model.world import LedgerState, World, ref_of
from tests.builders import NOON, a_resource, a_used_world
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running

KEY = "team-a/one"
BUDGET = a_budget(hours="18", enforce="Hold")
PARTS = (WorkloadPart(labels=TEAM, requests=(("nvidia.com/gpu", 1_000_000),), count=2),)


def a_request(kind: str = "Pod", name: str = "train-0", *, age: int = 45 * SECOND, **spec: Any) -> AnyResource:
    request = a_resource("ReleaseRequest", target={"kind": kind, "name": name} | spec.pop("target", {}), **spec)
    assert not request.problems
    return structs.replace(request, created=NOON - age)


def suspended(kind: str = "Job", name: str = "fit", by: str = f"GPUWorkloadBudget/{KEY}", **more: Any) -> Workload:
    base: dict[str, Any] = {"uid": f"uid-{name}", "namespace": "team-a", "parts": PARTS, "suspended": True}
    return Workload(kind=kind, name=name, suspended_by=by, **base | more)


def held(*budgets: AnyResource) -> dict[str, Hold]:
    found = {}
    for each in budgets:
        name = hold_name(f"{each.namespace}/{each.name}")
        found[name] = Hold(name=name, created=NOON - HOUR, spec=hold_of(a_used_world(each), each))
    return found


class Asked:
    """A world with requests, in which what is decided of them is written and done."""

    def __init__(self, *requests: AnyResource, pods: tuple[Pod, ...] = (), budgets: Any = (BUDGET,), **more: Any):
        owners = {each.key: each for each in more.pop("owners", ())}
        more["holds"] = more.get("holds", held(*budgets))
        self.stage = Stage(*budgets, pods=pods, workloads=owners, **more)
        self.requests = {ref_of(each): each for each in requests}

    def world(self) -> World:
        world = self.stage.world()
        return structs.replace(world, resources=ResourceTable({**world.resources, **self.requests}))

    def decisions(self) -> list[Decision]:
        return list(REQUESTS.decide(self.world(), EVERYTHING))

    def look(self, *, does: bool = True) -> Decision:
        """Decide, write the statuses, and do what is due; the first decision."""
        found = self.decisions()
        for each in found:
            self.requests[each.resource] = structs.replace(self.requests[each.resource], status=each.status)
            for action in each.actions if does else ():
                self.stage._do(action, self.requests[each.resource])
        return found[0]

    @property
    def status(self) -> Any:
        return next(iter(self.requests.values())).status

    @property
    def said(self) -> tuple[str, str]:
        return self.status.phase, self.status.reason


def freed(decision: Decision) -> list[str]:
    """The pods and owners that a decision releases."""
    return [
        each.pod.partition("/")[2] if isinstance(each, ReleasePod) else f"{each.kind} {each.object}"
        for each in decision.actions
        if isinstance(each, ReleasePod | ResumeOwner)
    ]


# --- what is released ---------------------------------------------------------------------------------------------------------------


def test_a_queued_pod_is_released_and_the_request_is_done() -> None:
    asked = Asked(a_request(reason="a deadline"), pods=(gated("train-0"), gated("train-1")))
    assert freed(asked.look()) == ["train-0"]
    assert asked.said == ("Releasing", "Releasing")
    assert asked.status.budgets == (KEY,)
    assert asked.look().actions == ()
    assert asked.said == ("Done", "Released")
    assert asked.status.message == "Released 1 of 1 queued pods of Pod team-a/train-0; requested by alice (a deadline)."
    assert (asked.status.pods_released, asked.status.finished_at, asked.status.targets) == (1, text(NOON), ())
    assert conditions.holds(asked.status.conditions, "Released")


def test_a_suspended_owner_is_resumed() -> None:
    asked = Asked(a_request("Job", "fit"), owners=(suspended(), suspended(name="other")))
    assert freed(asked.look()) == ["Job team-a/fit"]
    asked.look()
    assert asked.said == ("Done", "Released")
    assert asked.status.message == "Resumed Job team-a/fit; requested by alice."
    assert list(asked.stage.workloads) == ["Job/team-a/other"]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("Job", "set-a-0", ["r0"]),
        ("JobSet", "set-a", ["r0", "r1"]),
        ("PodGroup", "grp", ["g0", "g1"]),
        ("Job", "fit", ["f0"]),
        ("Pod", "r1", ["r1"]),
        ("RayCluster", "ray", ["ray-0"]),
        ("Job", "other", []),
        ("PodGroup", "fit", []),
    ],
)
def test_what_may_be_named(kind: str, name: str, expected: list[str]) -> None:
    job_set, group = (
        (*TEAM, ("jobset.sigs.k8s.io/jobset-name", "set-a")),
        (
            *TEAM,
            ("pod-group.scheduling.sigs.k8s.io", "grp"),
        ),
    )
    pods = (
        gated("r0", labels=job_set, owner=of_job("set-a-0")),
        gated("r1", labels=job_set, owner=of_job("set-a-1")),
        gated("g0", labels=group),
        gated("g1", labels=group),
        gated("f0", owner=of_job("fit")),
        gated("ray-0", owner=of_job("ray", "RayCluster")),
        gated("elsewhere", namespace="team-b", owner=of_job("fit"), uid="uid-elsewhere"),
    )
    assert sorted(freed(Asked(a_request(kind, name), pods=pods).look())) == expected


def test_what_comes_after_the_judgement_queues_again() -> None:
    """More parallelism, made while the first pods are being released."""
    owner = of_job("fit")
    asked = Asked(a_request("Job", "fit"), pods=(gated("f0", owner=owner), gated("f1", owner=owner)))
    assert freed(asked.look(does=False)) == ["f0", "f1"]
    asked.stage.pods |= {pod.uid: pod for pod in (gated("f2", owner=owner), gated("f3", owner=owner))}
    assert freed(asked.look()) == ["f0", "f1"]
    assert asked.look().actions == ()
    assert (asked.said, asked.status.pods_released) == (("Done", "Released"), 2)
    assert marks.GATE in asked.stage.pods["uid-f2"].gates


def test_a_finished_request_releases_nothing_more() -> None:
    asked = Asked(a_request(), pods=(gated("train-0"),))
    asked.look(), asked.look()
    asked.stage.pods["uid-train-0"] = gated("train-0")
    assert asked.look().actions == ()
    assert asked.said == ("Done", "Released")


def test_a_pod_of_another_uid_is_another_pod() -> None:
    asked = Asked(a_request(target={"uid": "uid-of-before"}), pods=(gated("train-0"),))
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "NothingQueued")
    assert "with uid uid-of-before" in asked.status.message


def test_the_uid_of_a_job_is_that_of_its_pods_controller() -> None:
    pods = (gated("f0", owner=of_job("fit")), gated("f1", owner=structs.replace(of_job("fit"), uid="forged")))
    assert freed(Asked(a_request("Job", "fit", target={"uid": "uid-fit"}), pods=pods).look()) == ["f0"]


def test_a_pod_that_was_made_anew_under_the_same_name_is_not_released() -> None:
    asked = Asked(a_request(), pods=(gated("train-0"),))
    asked.look(does=False)
    del asked.stage.pods["uid-train-0"]
    asked.stage.pods["uid-new"] = gated("train-0", uid="uid-new")
    assert asked.look().actions == ()
    assert (asked.said, asked.status.pods_released) == (("Done", "Released"), 0)


def test_a_gang_that_grows_is_waited_for_but_not_for_ever() -> None:
    young = gated("f0", owner=of_job("fit"), created=NOON - SECOND)
    asked = Asked(a_request("Job", "fit", age=SECOND), pods=(young,))
    assert freed(asked.look()) == []
    assert asked.said == ("Pending", "GangForming")
    pods = tuple(gated(f"f{age}", owner=of_job("fit"), created=NOON - age * SECOND) for age in (32, 3))
    assert freed(Asked(a_request("Job", "fit", age=31 * SECOND), pods=pods).look()) == ["f3", "f32"]


def test_a_pod_that_is_not_in_view_yet_is_looked_for() -> None:
    asked = Asked(a_request(age=SECOND))
    asked.look()
    assert asked.said == ("Pending", "Looking")
    asked.stage.now += 2 * SECOND
    asked.look()
    assert asked.said == ("Refused", "NothingQueued")


@pytest.mark.parametrize("pod", [running("train-0", HOUR), gated("train-0", gates=("example.com/theirs",))])
def test_what_no_budget_queues_is_said(pod: Pod) -> None:
    asked = Asked(a_request(), pods=(pod,), holds={})
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "NothingQueued")
    assert asked.status.message == "No budget queues Pod team-a/train-0: there is nothing to release."


def test_a_pod_that_a_hold_keeps_behind_the_gate_of_somebody_else_is_released_too() -> None:
    asked = Asked(a_request(), pods=(gated("train-0", gates=("example.com/theirs",)),))
    assert freed(asked.look()) == ["train-0"]
    asked.look()
    assert (asked.said, asked.status.pods_released) == (("Done", "Released"), 1)
    assert asked.stage.pods["uid-train-0"].gates == ("example.com/theirs",)


def test_an_owner_that_somebody_else_suspended_is_theirs() -> None:
    asked = Asked(a_request("Job", "fit"), owners=(suspended(by=""),))
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "NothingQueued")


# --- only from one budget --------------------------------------------------------------------------------------------------------


OTHER = a_budget("other", hours="10", enforce="Hold")


def test_one_budget_is_enough_where_no_other_queues_it() -> None:
    asked = Asked(a_request(budget=KEY), pods=(gated("train-0"),), budgets=(BUDGET, OTHER), holds=held(BUDGET))
    assert freed(asked.look()) == ["train-0"]


@pytest.mark.parametrize("other", [OTHER, structs.replace(OTHER, spec=structs.replace(OTHER.spec, paused=True))])
def test_what_another_budget_queues_too_stays(other: AnyResource) -> None:
    """Also while the other one is paused: what it did stays as it is."""
    asked = Asked(a_request(budget=KEY), pods=(gated("train-0"),), budgets=(BUDGET, other))
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "QueuedByOthers")
    assert "team-a/other" in asked.status.message
    assert freed(Asked(a_request(), pods=(gated("train-0"),), budgets=(BUDGET, other)).look()) == ["train-0"]


def test_a_step_that_stands_without_a_hold_yet_counts_as_one() -> None:
    steps = (EnteredStep(at="100%", action="Hold", since=text(NOON)),)
    other = structs.replace(OTHER, status=structs.replace(OTHER.status, steps=steps))
    asked = Asked(a_request(budget=KEY), pods=(gated("train-0"),), budgets=(BUDGET, other), holds=held(BUDGET))
    asked.look()
    assert asked.said == ("Refused", "QueuedByOthers")


def test_a_budget_that_does_not_queue_it() -> None:
    asked = Asked(a_request(budget="team-a/none"), pods=(gated("train-0"),))
    asked.look()
    assert asked.said == ("Refused", "NotQueuedByBudget")
    assert asked.status.message == "Budget team-a/none does not queue Pod team-a/train-0; team-a/one does."


def test_an_owner_is_queued_by_who_suspended_it() -> None:
    owners = (suspended(by="GPUWorkloadBudget/team-a/other"),)
    asked = Asked(a_request("Job", "fit", budget=KEY), owners=owners, budgets=(BUDGET, OTHER), holds=held(BUDGET))
    asked.look()
    assert asked.said == ("Refused", "QueuedByOthers")


# --- when nothing is carried out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"stopped": True}, "Stopped"),
        ({"complete": False, "unseen": {"pods": "no answer"}}, "ViewIncomplete"),
        ({"unseen": {"releaserequests.headroom.dev": "no answer"}}, "ViewIncomplete"),
        ({"ledger": LedgerState(loaded=False)}, "LedgerUntrusted"),
        ({"ledger": LedgerState(problem="The ledger cannot be written.")}, "LedgerUntrusted"),
        ({"ledger": LedgerState(lost=True)}, "LedgerUntrusted"),
        ({"ledger": LedgerState(rival="another")}, "LedgerUntrusted"),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
def test_nothing_is_carried_out_and_the_status_says_why(more: dict[str, Any], reason: str, *, begun: bool) -> None:
    asked = Asked(a_request(), pods=(gated("train-0"),))
    if begun:
        asked.look(does=False)
    asked.stage.more |= more
    assert freed(asked.look()) == []
    assert asked.said == ("Releasing" if begun else "Pending", reason)
    asked.stage.more = {}
    asked.look(), asked.look()
    assert asked.said == ("Done", "Released")


def test_a_request_that_was_made_without_the_policies_is_refused_for_good() -> None:
    asked = Asked(a_request(), pods=(gated("train-0"),), hold_problem="The policy is not installed.")
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "PoliciesMissing")
    asked.stage.more = {}
    assert asked.look().actions == ()
    unseen = {"validatingadmissionpolicies.admissionregistration.k8s.io": "no answer"}
    blind = Asked(a_request(), pods=(gated("train-0"),), hold_problem="no answer", unseen=unseen)
    assert freed(blind.look()) == []
    assert blind.said == ("Pending", "ViewIncomplete")


def test_a_paused_request_waits() -> None:
    asked = Asked(a_request(paused=True), pods=(gated("train-0"),))
    assert asked.look().actions == ()
    assert asked.said == ("Pending", "Paused")


def test_a_request_that_is_being_deleted_is_cancelled() -> None:
    asked = Asked(structs.replace(a_request(), deleting=True), pods=(gated("train-0"),))
    assert asked.look().actions == ()


def test_a_request_that_nobody_vouches_for_is_refused() -> None:
    asked = Asked(a_request(requestedBy=""), pods=(gated("train-0"),))
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "RequesterUnknown")


def test_a_request_that_could_not_be_carried_out_in_time_is_refused() -> None:
    asked = Asked(a_request(age=EXPIRES_MS), pods=(gated("train-0"),), stopped=True)
    asked.look()
    assert asked.said == ("Pending", "Stopped")
    asked.stage.now += 1
    asked.look()
    assert asked.said == ("Refused", "Expired")
    asked.stage.more = {}
    assert asked.look().actions == ()


def test_a_budget_that_is_paused_does_not_stand_in_the_way() -> None:
    paused = structs.replace(BUDGET, spec=structs.replace(BUDGET.spec, paused=True))
    assert freed(Asked(a_request(), pods=(gated("train-0"),), budgets=(paused,)).look()) == ["train-0"]


def test_a_pod_whose_claims_are_not_seen_waits() -> None:
    pod = gated("train-0", gpus=0, claims=("none",))
    asked = Asked(a_request(), pods=(pod,))
    asked.look()
    assert asked.said == ("Pending", "DemandUnknown")


def test_what_a_kind_decides_on_that_is_not_seen_waits() -> None:
    asked = Asked(
        a_request("JobSet", "fit"),
        owners=(suspended("JobSet"),),
        unseen={"jobsets.jobset.x-k8s.io": "no answer"},
    )
    assert freed(asked.look()) == []
    assert asked.said == ("Pending", "ViewIncomplete")


# --- how many there are ---------------------------------------------------------------------------------------------------------


def finished(name: str, at: int) -> AnyResource:
    request = a_resource("ReleaseRequest", name)
    status = structs.replace(request.status, phase="Done", reason="Released", finished_at=text(at))
    return structs.replace(request, status=status)


def test_a_finished_request_goes_after_an_hour() -> None:
    asked = Asked(finished("one", NOON - KEPT_MS))
    assert asked.look().actions == ()
    asked.stage.now += 1
    assert asked.look().actions == (DeleteReleaseRequest(request="team-a/one", uid="uid-ReleaseRequest-one"),)
    asked.stage.more["stopped"] = True
    assert asked.look().actions == ()


def test_of_many_finished_requests_the_oldest_go_at_once() -> None:
    asked = Asked(*(finished(f"r{number:03}", NOON - number * SECOND) for number in range(MOST_FINISHED + 2)))
    gone = [each.resource.name for each in asked.decisions() if each.actions]
    assert gone == [f"r{MOST_FINISHED}", f"r{MOST_FINISHED + 1}"]


def test_of_many_open_requests_the_youngest_are_refused() -> None:
    def numbered(number: int) -> AnyResource:
        name = f"r{number:03}"
        return structs.replace(a_request(), name=name, uid=name, created=NOON - 45 * SECOND + number)

    asked = Asked(*map(numbered, range(MOST_OPEN + 1)), pods=(gated("train-0"),))
    asked.look()
    reasons = [each.status.reason for each in asked.requests.values()]
    assert reasons == ["Releasing"] * MOST_OPEN + ["TooManyRequests"]
