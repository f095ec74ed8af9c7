"""Pods that owners will make: Jobs that budgets resume, and Workloads that Kueue lets start."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.model.batch_facts import Flavor
from headroom.model.facts import Owner, Pod, Workload
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.builders import NOON, a_pod
from tests.core.power_stage import Stage, a_pool, a_round, off, on, waiting
from tests.core.test_capacity_announced import entry, queueing
from tests.core.test_capacity_announcers import BOOT, ONE, a_fleet, a_part, given, over_quota, woken

# --- suspended Jobs -------------------------------------------------------------------------------------------------------------


def a_job(**fields: Any) -> Workload:
    base: dict[str, Any] = {"suspended": True, "suspended_by": "GPUWorkloadBudget/team-a/team", "parts": (a_part(),)}
    return Workload(kind="Job", uid="uid-train", namespace="team-a", name="train", **base | fields)


def soon(minutes: int = 4, state: str = "Reserved") -> AnyResource:
    return queueing(entry(NOON + minutes * MINUTE, unit="Job/team-a/train", state=state, pods=0))


@pytest.mark.parametrize(("minutes", "names"), [(4, ["w1"]), (5, ["w1"]), (6, [])])
def test_a_machine_wakes_for_a_suspended_job_that_its_budget_resumes_soon(minutes: int, names: list[str]) -> None:
    assert woken(ONE, a_job(), budgets=(soon(minutes),)) == names


def test_a_job_that_is_being_resumed_is_announced() -> None:
    releasing = queueing(entry(None, unit="Job/team-a/train", state="Releasing", pods=0))
    assert woken(ONE, a_job(), budgets=(releasing,)) == ["w1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"suspended_by": ""},
        {"admitted": True},
        {"parts": (a_part(left=0),)},
        {"suspended": False},
        {"suspended": False, "released_at": NOON - HOUR},
    ],
)
def test_a_job_that_makes_no_pods_announces_none(fields: dict[str, Any]) -> None:
    assert woken(ONE, a_job(**fields), budgets=(soon(),)) == []


def test_what_its_user_suspended_announces_nothing() -> None:
    assert woken(ONE, a_job(suspended_by="")) == []
    assert woken(ONE, a_job(suspended_by=""), budgets=(soon(),)) == []


def test_only_what_is_left_of_a_job_is_announced() -> None:
    pool = a_pool(machines={f"w{number}": 8 for number in range(4)}, **BOOT)
    assert len(woken(pool, a_job(parts=(a_part(count=4, left=2),)), budgets=(soon(),))) == 2


def test_a_job_that_was_resumed_is_announced_until_its_pods_are_there() -> None:
    job = a_job(suspended=False, released_at=NOON - 10 * SECOND)
    assert woken(ONE, job) == ["w1"]
    there = waiting("p", 8, owner=Owner("Job", "train", "uid-train"))
    assert a_round(a_fleet(ONE, job, pods=[there])).wanted.announced == ()


def test_a_job_whose_budget_is_over_quota_keeps_its_estimated_start() -> None:
    budget = over_quota(soon())
    part = a_part(labels=(("team", "a"),))
    assert woken(ONE, a_job(parts=(part,)), budgets=(budget,)) == ["w1"]


def test_the_estimate_of_a_budget_is_nobodys_fault() -> None:
    stage = Stage(ONE, soon(), nodes=[on("w1")], **given(a_job()))
    stage.pass_time(30 * SECOND, every=5 * SECOND)
    state = next(each.status for ref, each in stage.pools.items() if ref.kind == "PowerPool")
    assert (stage.commands(), state.expected) == ([], ())


# --- Kueue ----------------------------------------------------------------------------------------------------------------------


def a_workload(**fields: Any) -> Workload:
    base: dict[str, Any] = {"parts": (a_part(),), "owner": "Job/team-a/train", "owner_uids": ("uid-train",)}
    base |= {"admitted": True, "reserved_at": NOON - 10 * SECOND}
    return Workload(kind="Workload", uid="uid-w", namespace="team-a", name="w", **base | fields)


def test_a_machine_wakes_for_a_workload_that_has_its_quota() -> None:
    assert woken(ONE, a_workload(), kueue=True) == ["w1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"reserved_at": None},
        {"reserved_at": NOON - 3 * MINUTE},
        {"reserved_at": NOON + HOUR},
        {"suspended": True},
        {"parts": (a_part(flavors=("unknown",)),)},
    ],
)
def test_a_workload_without_quota_or_whose_pods_do_not_come_announces_nothing(fields: dict[str, Any]) -> None:
    assert woken(ONE, a_workload(**fields), kueue=True) == []


def test_the_flavor_says_which_machines() -> None:
    listed = [
        {
            "name": name,
            "gpuCount": 8,
            "labels": {"gpu": kind},
            "scaleUpEndpoint": f"http://a/{name}",
            "scaleDownEndpoint": f"http://b/{name}",
        }
        for name, kind in (("w1", "a100"), ("w2", "h100"))
    ]
    pool = a_pool(listed=listed, **BOOT)
    nodes = [
        off(name, labels=(("gpu", kind), ("kubernetes.io/hostname", name)))
        for name, kind in (("w1", "a100"), ("w2", "h100"))
    ]
    workload = a_workload(parts=(a_part(flavors=("big",)),))
    flavor = Flavor(name="big", labels=(("gpu", "h100"),))
    assert woken(pool, workload, flavor, nodes=nodes, kueue=True) == ["w2"]


def test_a_workload_is_announced_until_its_pods_are_there() -> None:
    parts = (a_part(4, 1), a_part(4, 1, labels=(("role", "worker"),)))
    there = [waiting("p", 4, owner=Owner("Job", "train", "uid-train"))]
    world = a_fleet(ONE, a_workload(parts=parts), pods=there)
    assert [unit.count for unit in a_round(world).wanted.announced] == [1]
    gated = [a_pod("q", gpus=8, uid="uid-q", gates=("kueue.x-k8s.io/admission",))]
    group = a_workload(owner="", owner_uids=("uid-q",))
    assert [unit.count for unit in a_round(a_fleet(ONE, group, pods=gated)).wanted.announced] == [1]
    free = [structs.replace(gated[0], gates=())]
    assert a_round(a_fleet(ONE, group, pods=free)).wanted.announced == ()


def test_a_job_set_is_a_gang() -> None:
    labels = (("jobset.sigs.k8s.io/jobset-name", "train"),)
    parts = (a_part(8, 2, labels=labels), a_part(4, 1, labels=labels))
    workload = a_workload(parts=parts, owner="JobSet/team-a/train", owner_uids=("uid-set",))
    small = a_pool(machines={"w1": 8, "w2": 8}, **BOOT)
    large = a_pool(machines={"w1": 8, "w2": 8, "w3": 4}, **BOOT)
    assert (woken(small, workload), len(woken(large, workload))) == ([], 3)
    pods: list[Pod] = [
        waiting(f"p{number}", 8, labels=labels, owner=Owner("Job", "train-w", "uid-child")) for number in range(3)
    ]
    assert a_round(a_fleet(large, workload, pods=pods)).wanted.announced == ()
