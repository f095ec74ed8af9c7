"""What is done to owners of pods on a simulated API server, and the holds that keep new pods from starting."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import errors, paths
from headroom.api.budget_hold import BudgetHoldSpec, hold_name
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.errors import Refused, Unavailable
from headroom.sim import faults as wrong
from tests.adapters import owners
from tests.adapters.doing import BY, CHORES, do, do_twice, notes, told
from tests.adapters.simulated import Cluster, virtual
from tests.builders import a_resource

KINDS = ("Job", "JobSet", "Workload")
OFF = [("Job", {"suspend": True}), ("JobSet", {"suspend": True}), ("Workload", {"active": False})]


def let_go(cluster: Cluster, kind: str) -> dict[str, str]:
    """The marks of an owner that was let go and has not been changed since."""
    generation = cluster.stored(kind, "team-a", "train")["metadata"]["generation"]
    return {"headroom.dev/released-at": "2026-11-15T12:00:00Z", "headroom.dev/released-generation": str(generation)}


MARKS = {"headroom.dev/suspended-by": BY, "headroom.dev/suspended-at": "2026-11-15T12:00:00Z"}


def made(kind: str, namespace: str = "team-a", **spec: Any) -> Cluster:
    cluster = Cluster()
    for each in owners.definitions():
        cluster.server.put(each)
    cluster.server.put(owners.owner(kind, namespace=namespace, spec=spec))
    return cluster


def suspend(kind: str, name: str = "team-a/train") -> actions.SuspendOwner:
    return actions.SuspendOwner(kind=kind, object=name)


def resume(kind: str, name: str = "team-a/train") -> actions.ResumeOwner:
    return actions.ResumeOwner(kind=kind, object=name)


def is_suspended(cluster: Cluster, kind: str) -> bool:
    spec = cluster.stored(kind, "team-a", "train")["spec"]
    return bool(spec.get("suspend")) or spec.get("active") is False


def labels(cluster: Cluster, kind: str) -> dict[str, str]:
    """Those of ours; a Job has more."""
    found: dict[str, str] = cluster.stored(kind, "team-a", "train")["metadata"].get("labels") or {}
    return {name: value for name, value in found.items() if name.startswith("headroom.dev/")}


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_another_owner_of_the_same_name_is_left_alone(kind: str) -> None:
    cluster = made(kind)
    uid = cluster.stored(kind, "team-a", "train")["metadata"]["uid"]
    with pytest.raises(Refused, match="it is gone"):
        await do(cluster, structs.replace(suspend(kind), uid="the one before"))
    assert not is_suspended(cluster, kind)
    await do(cluster, structs.replace(suspend(kind), uid=uid))
    assert is_suspended(cluster, kind)
    await do(cluster, structs.replace(resume(kind), uid="the one before"))
    assert is_suspended(cluster, kind)
    await do(cluster, structs.replace(resume(kind), uid=uid))
    assert not is_suspended(cluster, kind)


@pytest.mark.parametrize("by", [a_resource(), CHORES], ids=["the budget itself", "chores"])
@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_suspend_and_resume(kind: str, by: AnyResource) -> None:
    cluster = made(kind)
    await do_twice(cluster, suspend(kind))
    assert is_suspended(cluster, kind)
    assert notes(cluster, kind, "team-a", "train") == MARKS
    assert labels(cluster, kind) == {"headroom.dev/suspended": "true"}
    await do_twice(cluster, resume(kind), by)
    assert not is_suspended(cluster, kind)
    is_let_go = by is not CHORES
    assert notes(cluster, kind, "team-a", "train") == (let_go(cluster, kind) if is_let_go else {})
    assert labels(cluster, kind) == ({"headroom.dev/suspended": "released"} if is_let_go else {})
    assert sorted(each[:3] for each in told(cluster)) == [
        (f"{kind}/train", "Normal", "Resumed"),
        (f"{kind}/train", "Warning", "Suspended"),
    ]


@pytest.mark.parametrize("by", [a_resource(), CHORES], ids=["the budget itself", "chores"])
@pytest.mark.parametrize(("kind", "spec"), OFF)
@virtual
async def test_what_others_suspended_stays_suspended_and_is_not_marked(
    kind: str, spec: dict[str, Any], by: AnyResource
) -> None:
    cluster = made(kind, **spec)
    await do(cluster, suspend(kind))
    assert notes(cluster, kind, "team-a", "train") == {}
    with pytest.raises(Refused, match="somebody else suspended it"):
        await do(cluster, resume(kind), by)
    assert cluster.writes() == 0


@virtual
async def test_only_a_budget_resumes_what_a_budget_suspended() -> None:
    """Any of them: the one that suspended it may be gone, and whoever counts it now has found that it fits."""
    cluster = made("Job")
    await do(cluster, suspend("Job"))
    await do(cluster, suspend("Job"), a_resource("GPUWorkloadBudget", "two"))
    with pytest.raises(Refused, match=f"{BY} suspended it"):
        await do(cluster, resume("Job"), a_resource("PowerPool"))
    assert notes(cluster, "Job", "team-a", "train") == MARKS
    await do(cluster, resume("Job"), a_resource("GPUWorkloadBudget", "two"))
    assert notes(cluster, "Job", "team-a", "train") == let_go(cluster, "Job")


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_the_mark_of_an_owner_that_was_let_go_is_taken_away_in_the_end(kind: str) -> None:
    cluster = made(kind)
    await do(cluster, suspend(kind))
    await do(cluster, resume(kind))
    events = told(cluster)
    await do_twice(cluster, resume(kind), CHORES)
    assert (labels(cluster, kind), notes(cluster, kind, "team-a", "train")) == ({}, {})
    assert not is_suspended(cluster, kind)
    assert told(cluster) == events, "it went on long before"


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_an_owner_that_was_let_go_is_suspended_again_like_any_other(kind: str) -> None:
    cluster = made(kind)
    for _ in range(2):
        await do(cluster, suspend(kind))
        assert is_suspended(cluster, kind)
        assert notes(cluster, kind, "team-a", "train") == MARKS
        assert labels(cluster, kind) == {"headroom.dev/suspended": "true"}
        await do(cluster, resume(kind))


@pytest.mark.parametrize(("kind", "spec"), OFF)
@virtual
async def test_what_others_suspended_after_we_let_it_go_stays_suspended_and_loses_our_mark(
    kind: str, spec: dict[str, Any]
) -> None:
    cluster = made(kind)
    await do(cluster, suspend(kind))
    await do(cluster, resume(kind))
    marked = let_go(cluster, kind)
    cluster.server.do("PATCH", paths.owner(kind, "team-a", "train"), {"spec": spec})
    with pytest.raises(Refused, match="somebody else suspended it"):
        await do(cluster, resume(kind))
    assert notes(cluster, kind, "team-a", "train") == marked != let_go(cluster, kind), "it was changed since"
    await do(cluster, resume(kind), CHORES)
    assert (labels(cluster, kind), notes(cluster, kind, "team-a", "train")) == ({}, {})
    assert is_suspended(cluster, kind)


@virtual
async def test_marks_go_from_what_somebody_else_has_resumed() -> None:
    cluster = made("Job")
    await do(cluster, suspend("Job"))
    cluster.server.do("PATCH", paths.owner("Job", "team-a", "train"), {"spec": {"suspend": False}})
    await do_twice(cluster, resume("Job"), CHORES)
    assert notes(cluster, "Job", "team-a", "train") == {}
    assert labels(cluster, "Job") == {}


@virtual
async def test_owners_that_are_gone_or_can_never_be_suspended() -> None:
    cluster = made("Job", namespace="kube-system")
    with pytest.raises(Refused, match="it belongs to the cluster itself"):
        await do(cluster, suspend("Job", "kube-system/train"))
    with pytest.raises(Refused, match="only these can be suspended: Job, JobSet, Workload"):
        await do(cluster, suspend("RayCluster"))
    with pytest.raises(Refused, match="it is gone"):
        await do(cluster, suspend("Job", "team-a/never"))
    await do(cluster, resume("Job", "team-a/never"))
    assert cluster.writes() == 0


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_an_owner_of_another_team_is_not_suspended(kind: str) -> None:
    """Anybody may write an owner into their pods. Labels that its template lacks may be added when a pod is made."""
    cluster = made(kind)
    for selector in (
        {"matchLabels": {"team": "b"}},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ):
        with pytest.raises(Refused, match="budget team-a/one covers none of its pods"):
            await do(cluster, suspend(kind), a_resource(name="one", selector=selector))
    assert not is_suspended(cluster, kind)
    await do(cluster, suspend(kind), a_resource(name="one", selector={"matchLabels": {"team": "a", "tier": "gold"}}))
    assert is_suspended(cluster, kind)


@virtual
async def test_nothing_in_headrooms_own_namespace_is_suspended() -> None:
    cluster = made("Job", namespace="headroom-system")
    with pytest.raises(Refused, match="it is in Headroom's own namespace"):
        await do(cluster, suspend("Job", "headroom-system/train"))


@virtual
async def test_a_kind_that_is_not_there_has_no_owners() -> None:
    cluster = Cluster()
    with pytest.raises(Refused, match="it is gone"):
        await do(cluster, suspend("JobSet"))
    await do(cluster, resume("JobSet"))


@virtual
async def test_a_lost_reply_suspends_once() -> None:
    cluster = made("Job")
    cluster.transport._faults.add(wrong.LostReply(verb="patch", times=1))
    with pytest.raises(Unavailable):
        await do(cluster, suspend("Job"))
    await do(cluster, suspend("Job"))
    assert cluster.writes() == 1
    assert notes(cluster, "Job", "team-a", "train") == MARKS


# --- holds -----------------------------------------------------------------------------------------------------------------------

BUDGET = "team-a/one"
DELETE = actions.DeleteBudgetHold(budget=BUDGET)


class Holding(Cluster):
    """A cluster with what a hold of its budget should say."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = BudgetHoldSpec(budget=BUDGET, namespaces=("team-a",), match_labels={"team": "a"})
        self.because = "so"

    async def apply(self) -> None:
        await do(self, actions.ApplyBudgetHold(budget=BUDGET, spec=self.wanted, because=self.because))

    async def budget(self) -> AnyResource:
        """One that is seen, for which a hold may stand."""
        found = self.resource()
        self.wanted = structs.replace(self.wanted, uid=found.uid)
        await self.settle()
        return found

    def hold(self) -> dict[str, Any]:
        return self.stored("BudgetHold", "", hold_name(BUDGET))


@virtual
async def test_a_hold_is_written_once_and_then_only_when_it_covers_something_else() -> None:
    async with Holding() as cluster:
        budget = await cluster.budget()
        await cluster.apply()
        assert cluster.hold()["spec"]["uid"] == budget.uid
        assert cluster.hold()["metadata"]["name"] == "team-a.one"
        assert (cluster.hold()["spec"]["budget"], cluster.hold()["spec"]["because"]) == (BUDGET, "so")
        cluster.because = "other numbers"
        await cluster.apply()
        assert cluster.writes() == 1
        assert cluster.hold()["spec"]["because"] == "so"
        cluster.wanted = structs.replace(cluster.wanted, namespaces=("team-a", "team-b"))
        await cluster.apply()
        await cluster.apply()
        assert cluster.writes() == 2
        assert cluster.hold()["spec"]["namespaces"] == ["team-a", "team-b"]
        await cluster.settle()
        world = cluster.port.world(cluster.clock.now())
        assert {name: hold.spec for name, hold in world.holds.items()} == {
            "team-a.one": structs.replace(cluster.wanted, because="other numbers")
        }


@virtual
async def test_a_hold_that_somebody_else_writes_at_the_same_moment() -> None:
    async with Holding() as cluster:
        await cluster.budget()
        ask, busy = cluster.kube.create, [1]

        async def meanwhile(path: str, body: Any, **more: Any) -> bytes:
            if busy:
                busy.pop()
                cluster.server.put(dict(body) | {"spec": {"budget": BUDGET, "namespaces": []}})
            return await ask(path, body, **more)

        cluster.kube.create = meanwhile  # type: ignore[method-assign]  # the moment between reading and writing
        await cluster.apply()
        assert cluster.hold()["spec"]["namespaces"] == ["team-a"]


@virtual
async def test_a_hold_needs_its_budget() -> None:
    async with Holding() as cluster:
        with pytest.raises(Refused, match="budget team-a/one: it is gone"):
            await cluster.apply()
        await cluster.budget()
        cluster.wanted = structs.replace(cluster.wanted, uid="of one that had the same name")
        with pytest.raises(Refused, match="budget team-a/one: it is gone"):
            await cluster.apply()
        assert cluster.writes() == 0


@virtual
async def test_a_hold_is_deleted_and_one_that_is_not_there_needs_no_deleting() -> None:
    async with Holding() as cluster:
        await cluster.budget()
        await cluster.apply()
        for _ in range(2):
            await do(cluster, DELETE, CHORES)
        assert cluster.server.object("BudgetHold", "", hold_name(BUDGET)) is None
        await cluster.settle()
        assert cluster.port.world(cluster.clock.now()).holds == {}


@virtual
async def test_a_hold_that_cannot_be_written_is_told_of() -> None:
    async with Holding() as cluster:
        await cluster.budget()
        cluster.transport._faults.add(wrong.Refusal(verb="create", status=403, path=paths.budget_hold()))
        with pytest.raises(errors.Forbidden):
            await cluster.apply()


# --- whose Job it is ------------------------------------------------------------------------------------------------------------

SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train", "controller": True}


@pytest.mark.parametrize(
    ("name", "change", "suspended"),
    [
        ("train-workers-0", {}, "JobSet"),
        ("train-workers-1", {}, "Job"),
        ("train-x", {}, "Job"),
        ("train-workers-x", {}, "Job"),
        ("train-workers-0", {"uid": "of another"}, "Job"),
        ("train-workers-0", {"apiVersion": "example.com/v1"}, "Job"),
        ("train-workers-0", {"controller": False}, "Job"),
        ("train-workers-0", {"name": "other"}, "Job"),
        ("train-workers-0", {"kind": "Gang"}, "Job"),
    ],
)
@virtual
async def test_a_job_that_only_says_it_is_of_a_job_set_is_suspended_itself(
    name: str, change: dict[str, Any], suspended: str
) -> None:
    cluster = made("JobSet")
    uid = cluster.stored("JobSet", "team-a", "train")["metadata"]["uid"]
    cluster.server.put(owners.owner("Job", name, ownerReferences=[SET | {"uid": uid} | change]))
    job = cluster.stored("Job", "team-a", name)["metadata"]["uid"]
    await do(cluster, structs.replace(suspend("JobSet"), job=name, job_uid=job))
    assert is_suspended(cluster, "JobSet") == (suspended == "JobSet")
    assert bool(cluster.stored("Job", "team-a", name)["spec"].get("suspend")) == (suspended == "Job")


@virtual
async def test_a_job_of_a_job_set_that_is_not_there_is_suspended_itself() -> None:
    cluster = made("Job")
    job = cluster.stored("Job", "team-a", "train")["metadata"]["uid"]
    with pytest.raises(Refused, match="its Job train is gone"):
        await do(cluster, structs.replace(suspend("JobSet", "team-a/tr"), job="train", job_uid="the one before"))
    await do(cluster, structs.replace(suspend("JobSet", "team-a/tr"), job="train", job_uid=job))
    assert is_suspended(cluster, "Job")
