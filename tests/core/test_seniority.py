"""The place in the queue: a pod's own, or its owner's, and never one that a label names."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.enforcement import Stopped, Victim
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.waiting import Matcher, waiting
from headroom.model.facts import Owner, Pod, Workload
from headroom.model.times import HOUR, MINUTE, text
from tests.builders import NOON, a_used_world
from tests.core.stage import TEAM, a_budget, gated, of_job, running

GROUP = ("scheduling.x-k8s.io/pod-group", "old")
JOBSET = ("jobset.sigs.k8s.io/jobset-name", "old")


def order(*pods: Pod, workloads: tuple[Workload, ...] = (), **status: Any) -> list[tuple[str, int]]:
    """The units that wait, the first first, each with how many minutes ago it began to."""
    budget = a_budget()
    budget = structs.replace(budget, status=structs.replace(budget.status, **status))
    world = a_used_world(budget, pods=pods, workloads={each.key: each for each in workloads})
    accounts = [BudgetAccount(world, each) for each in usage.budgets_of(world)]
    found = waiting(world, Matcher(world, accounts), frozenset())
    return [(each.unit.rpartition("/")[2], (NOON - each.since) // MINUTE) for each in found]


def ago(name: str, minutes: int, **fields: Any) -> Pod:
    return gated(name, created=NOON - minutes * MINUTE, **fields)


def grouped(*pair: tuple[str, str]) -> dict[str, Any]:
    return {"labels": tuple(sorted((*TEAM, *pair)))}


@pytest.mark.parametrize(
    "label",
    [
        grouped(GROUP),
        grouped(JOBSET),
        {"annotations": (("scheduling.k8s.io/group-name", "old"),)},
        grouped(GROUP) | {"owner": of_job("another")},
    ],
)
def test_a_label_gives_a_new_pod_no_old_place(label: dict[str, Any]) -> None:
    old = label | {"owner": None}
    assert order(ago("rank", 90, **old), ago("patient", 60)) == [("old", 90), ("patient", 60)]
    late = ago("late", 1, gpus=8, **label)
    assert order(ago("rank", 90, **old), ago("patient", 60), late) == [("patient", 60), ("old", 1)]


def test_ranks_of_one_owner_wait_since_the_first_of_them_in_view() -> None:
    """One that failed and was made anew while the others run has its place back."""
    owner = of_job("fit")
    runs = running("r0", 2 * HOUR, owner=owner)
    assert order(runs, ago("r1", 1, owner=owner), ago("patient", 60)) == [("fit", 120), ("patient", 60)]


def test_a_label_into_a_gang_whose_owner_runs_gives_no_old_place_either() -> None:
    owner = of_job("fit")
    runs = running("r0", 2 * HOUR, owner=owner, **grouped(GROUP))
    again, stranger = ago("r1", 1, owner=owner, **grouped(GROUP)), ago("stranger", 1, **grouped(GROUP))
    assert order(runs, again, ago("patient", 60)) == [("old", 120), ("patient", 60)]
    assert order(runs, again, stranger, ago("patient", 60)) == [("patient", 60), ("old", 1)]


@pytest.mark.parametrize("namespace", ["team-a", "elsewhere"])
def test_a_made_up_owner_gives_a_new_pod_no_old_place(namespace: str) -> None:
    owner = Owner("Ring", "late", "made-up", "example.com")
    cheap = running("cheap", 2 * HOUR, gpus=0, owner=owner, namespace=namespace)
    late = ago("late", 1, gpus=8, owner=owner, annotations=((marks.HELD_BY, "team-a/one"),))
    assert order(cheap, ago("patient", 60), late) == [("patient", 60), ("late", 1)]


@pytest.mark.parametrize("other", [{"gpus": 0}, {"namespace": "elsewhere"}, {"labels": ()}])
def test_a_pod_that_is_like_no_rank_gives_its_owner_no_old_place(other: dict[str, Any]) -> None:
    owner = of_job("late")
    fields: dict[str, Any] = {"gpus": 8, "owner": owner}
    old = running("old", 2 * HOUR, **fields | other)
    assert order(old, ago("patient", 60), ago("late", 1, gpus=8, owner=owner)) == [("patient", 60), ("late", 1)]


def test_the_ranks_of_an_owner_are_looked_at_once() -> None:
    pods = [gated(f"r{number}", owner=of_job("wide")) for number in range(300)]
    world, looked = a_used_world(a_budget(), pods=pods), list[str]()
    get = world.pods.get
    world.pods.get = lambda uid: looked.append(uid) or get(uid)  # type: ignore[method-assign,func-returns-value]  # looks are counted
    waiting(world, Matcher(world, []), frozenset())
    assert len(looked) <= 3 * len(pods)


def a_set(kind: str = "JobSet", uid: str = "uid-old") -> Workload:
    by = "GPUWorkloadBudget/team-a/one"
    ago_ = NOON - 90 * MINUTE
    return Workload(kind=kind, uid=uid, namespace="team-a", name="old", created=ago_, suspended=True, suspended_by=by)


def test_a_suspended_owner_waits_since_it_was_made_and_lends_that_to_its_own_pods_only() -> None:
    assert order(ago("patient", 60), workloads=(a_set(),)) == [("old", 90), ("patient", 60)]
    labelled = ago("late", 1, **grouped(JOBSET))
    assert order(ago("patient", 60), labelled, workloads=(a_set(),)) == [("patient", 60), ("old", 1)]
    own = ago("own", 1, owner=of_job("old"))
    job = a_set("Job")
    assert order(ago("patient", 60), own, workloads=(job,)) == [("old", 90), ("patient", 60)]
    other = ago("other", 1, owner=Owner("Job", "old", "another-uid"))
    assert order(ago("patient", 60), other, workloads=(job,)) == [("patient", 60), ("old", 1)]


def stop(minutes: int, **fields: Any) -> Stopped:
    """A Job that a step has suspended so many minutes ago, as the status of the budget says."""
    base: dict[str, Any] = {"unit": "Job/team-a/old", "action": "Suspend", "at": text(NOON - minutes * MINUTE)}
    return Stopped(**base | fields)


@pytest.mark.parametrize("name", [{}, {"unit": "PodGroup/team-a/ring", "owner": "Job/team-a/old"}])
def test_an_owner_that_has_run_waits_since_it_was_suspended(name: dict[str, str]) -> None:
    """It had its turn: whoever waited then is before it, and whoever came later is behind it."""
    pods, job = (ago("patient", 60), ago("late", 20)), a_set("Job")
    found = [("patient", 60), ("old", 30), ("late", 20)]
    assert order(*pods, workloads=(job,), stopped=(stop(30, **name), stop(70))) == found
    going = Victim(uids=("gone",), unit="Job/team-a/old", action="Suspend", at=text(NOON - 30 * MINUTE))
    assert order(*pods, workloads=(job,), victim=going) == found


@pytest.mark.parametrize(
    "other",
    [
        {"unit": "Job/team-a/other"},
        {"unit": "Job/elsewhere/old"},
        {"action": "Evict"},
        {"outcome": "Blocked"},
        {"at": text(NOON - 3 * HOUR)},
    ],
    ids=["another", "another namespace", "evicted", "would not go", "one of that name before it"],
)
def test_an_owner_of_which_no_suspension_is_told_keeps_its_place(other: dict[str, str]) -> None:
    found = order(ago("patient", 60), workloads=(a_set("Job"),), stopped=(stop(30, **other),))
    assert found == [("old", 90), ("patient", 60)]
