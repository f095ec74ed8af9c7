"""What a release request is for: nobody's pod is released by what its tenant writes on it, or for coming later."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.model.facts import Owner, Pod
from headroom.model.times import MINUTE, SECOND
from tests.builders import NOON
from tests.core.stage import TEAM, gated, of_job
from tests.core.test_requests import Asked, a_request, freed, suspended

FIT = of_job("fit")
JOB_SET = (*TEAM, ("jobset.sigs.k8s.io/jobset-name", "set-a"))


def unproven(name: str, owner: Owner | None = FIT, **fields: Any) -> Pod:
    """A pod of the same tenant that names an owner; nobody vouches for that."""
    return gated(name, gpus=64, owner=owner, annotations=((marks.HELD_BY, "team-a/one"),), **fields)


@pytest.mark.parametrize(
    "stranger",
    [
        unproven("x"),
        unproven("x", structs.replace(FIT, uid="uid-of-nobody")),
        unproven("x", structs.replace(FIT, group="example.com")),
        unproven("x", labels=(*TEAM, ("batch.kubernetes.io/controller-uid", "uid-fit"), ("job-name", "fit"))),
        gated("x", owner=FIT, annotations=((marks.CONTROLLER_UID, "uid-other"),)),
        gated("x", owner=FIT, annotations=((marks.CONTROLLER_UID, ""),)),
    ],
    ids=["real uid", "no uid", "other group", "labels", "made by another", "made by none"],
)
@pytest.mark.parametrize("uid", ["", "uid-fit"])
def test_a_pod_that_the_owners_controller_did_not_make_is_not_released_with_it(stranger: Pod, uid: str) -> None:
    request = a_request("Job", "fit", target={"uid": uid})
    asked = Asked(request, pods=(gated("f0", owner=FIT), gated("f1", owner=FIT), stranger))
    assert freed(asked.look()) == ["f0", "f1"]
    asked.look()
    assert (asked.said, asked.status.pods_released) == (("Done", "Released"), 2)
    assert marks.GATE in asked.stage.pods["uid-x"].gates
    asked = Asked(a_request("Pod", "x"), pods=(stranger,))
    assert freed(asked.look()) == ["x"]  # it has a name of its own


def test_that_only_such_pods_are_queued_is_said() -> None:
    asked = Asked(a_request("Job", "fit"), pods=(unproven("x"), unproven("y")))
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "NothingQueued")
    assert asked.status.message.endswith(
        " Queued pods that name it as their owner but were not created by its controller: 2."
    )


def test_of_a_job_set_only_pods_that_some_job_made_are_released() -> None:
    pods = (
        gated("r0", labels=JOB_SET, owner=of_job("set-a-0")),
        gated("other", labels=JOB_SET, owner=of_job("other-0")),
        unproven("bare", None, labels=JOB_SET),
        unproven("named", of_job("set-a-1"), labels=JOB_SET),
    )
    assert freed(Asked(a_request("JobSet", "set-a"), pods=pods).look()) == ["r0"]


def test_no_job_of_another_namespace_or_of_later_is_released_with_a_job_set() -> None:
    """Names and labels say which Jobs are a JobSet's: whoever could write one could have made the JobSet itself larger by then."""
    made: dict[str, Any] = {"labels": JOB_SET, "created": NOON - 10 * MINUTE}
    pods = (
        gated("r0", owner=of_job("set-a-w-0"), **made),
        gated("elsewhere", owner=of_job("set-a-w-1"), namespace="team-b", uid="uid-elsewhere", **made),
        gated("late", owner=of_job("set-a-x-0"), labels=JOB_SET, created=NOON - MINUTE),
    )
    asked = Asked(a_request("JobSet", "set-a", age=5 * MINUTE), pods=pods)
    assert freed(asked.look()) == ["r0"]
    assert [each.release.owner for each in asked.status.released] == ["Job/team-a/set-a-w-0"]


def test_two_owners_of_one_name_are_told_apart_by_uid() -> None:
    other = Owner("Job", "fit", "uid-volcano", "batch.volcano.sh")
    pods = (gated("f0", owner=FIT), gated("v0", owner=other))
    asked = Asked(a_request("Job", "fit"), pods=pods)
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "SeveralOwners")
    assert freed(Asked(a_request("Job", "fit", target={"uid": "uid-volcano"}), pods=pods).look()) == ["v0"]


# --- what came later ----------------------------------------------------------------------------------------------------------------


def test_what_is_made_after_the_request_is_not_released() -> None:
    """More parallelism, while the request waits for something."""
    old, new = NOON - 10 * MINUTE, NOON - 2 * MINUTE
    pods = [gated("f0", owner=FIT, created=old), *(gated(f"n{n}", owner=FIT, created=new) for n in range(3))]
    asked = Asked(a_request("Job", "fit", age=5 * MINUTE), pods=tuple(pods))
    assert freed(asked.look()) == ["f0"]


def test_a_pod_made_anew_under_the_same_name_before_the_request_is_looked_at_is_not_released() -> None:
    asked = Asked(a_request(age=5 * MINUTE), pods=(gated("train-0", gpus=64, created=NOON - 4 * MINUTE),))
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "NothingQueued")
    assert asked.status.message.endswith(" Created after the request: 1.")


def test_an_owner_made_anew_under_the_same_name_is_not_resumed() -> None:
    asked = Asked(a_request("Job", "fit", age=5 * MINUTE), owners=(suspended(created=NOON - MINUTE),))
    assert asked.look().actions == ()
    assert asked.said == ("Refused", "NothingQueued")


def test_the_last_ranks_of_a_gang_that_was_just_coming_are_released_with_it() -> None:
    pods = tuple(gated(f"f{age}", owner=FIT, created=NOON - age * SECOND) for age in (50, 44, 21, 19))
    assert freed(Asked(a_request("Job", "fit"), pods=pods).look()) == ["f21", "f44", "f50"]


def test_pods_that_all_came_later_are_not_taken_for_a_gang_that_was_coming() -> None:
    pods = tuple(gated(f"f{age}", owner=FIT, created=NOON - age * SECOND) for age in (44, 43))
    assert Asked(a_request("Job", "fit"), pods=pods).look().actions == ()


@pytest.mark.parametrize("uid", ["", "uid-fit"])
@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_a_job_of_kueues_is_released_by_its_workload(kind: str, uid: str) -> None:
    """It is Kueue that keeps the Job suspended; what waits for us is the Workload."""
    workload = suspended("Workload", "job-fit-1", owner=f"{kind}/team-a/fit", owner_uids=("uid-fit",))
    other = suspended("Workload", "job-z-1", owner=f"{kind}/team-a/z", owner_uids=("uid-z",))
    asked = Asked(a_request(kind, "fit", target={"uid": uid}), owners=(workload, other))
    assert freed(asked.look()) == ["Workload team-a/job-fit-1"]
    changed = a_request(kind, "fit", target={"uid": uid, "generation": 7})  # that of the Job, and not of the Workload
    assert freed(Asked(changed, owners=(workload,)).look()) == ["Workload team-a/job-fit-1"]
    stranger = a_request(kind, "fit", target={"uid": "uid-of-another"})
    assert freed(Asked(stranger, owners=(workload,)).look()) == []


@pytest.mark.parametrize(("asked_for", "said"), [(3, "Releasing"), (None, "Releasing"), (2, "NothingQueued")])
def test_an_owner_that_was_changed_since_is_not_resumed(asked_for: int | None, said: str) -> None:
    """Made larger while the request waits for something."""
    target = {} if asked_for is None else {"generation": asked_for}
    asked = Asked(a_request("Job", "fit", target=target), owners=(suspended(generation=3),))
    asked.look(does=False)
    assert asked.status.reason == said
    assert ("changed since" in asked.status.message) == (said == "NothingQueued")
