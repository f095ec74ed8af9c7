"""Gangs: who belongs together, when all of a gang are there, and that all of it counts or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.core.demand import wanted
from headroom.model.facts import Owner, Pod
from headroom.model.gangs import gang_of, size_of
from tests.builders import NOON, a_node, a_pod
from tests.core.demand_stage import MINUTE, a_view, alike, gang, units_of, waits

KUEUE = ("kueue.x-k8s.io/pod-group-name", "x")
TOTAL, FAST = "kueue.x-k8s.io/pod-group-total-count", "kueue.x-k8s.io/pod-group-fast-admission"
LWS = "leaderworkerset.sigs.k8s.io"
COSCHEDULING = "pod-group.scheduling.sigs.k8s.io"
KUBEFLOW = ("training.kubeflow.org/job-name", "x")
VOLCANO, VOLCANO_TOO = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"
LEAST_OF_VOLCANO = "scheduling.volcano.sh/group-min-member"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"labels": (("jobset.sigs.k8s.io/jobset-name", "x"),)}, "JobSet/team-a/x"),
        ({"labels": (("scheduling.x-k8s.io/pod-group", "x"),)}, "PodGroup/team-a/x"),
        ({"labels": (("pod-group.scheduling.sigs.k8s.io", "x"),)}, "PodGroup/team-a/x"),
        ({"labels": ((f"{COSCHEDULING}/name", "x"),)}, "PodGroup/team-a/x"),
        ({"labels": (KUEUE,)}, "PodGroup/team-a/x"),
        ({"labels": (KUEUE, (f"{LWS}/group-index", "0"), (f"{LWS}/name", "l"))}, "PodGroup/team-a/x"),
        ({"labels": ((f"{LWS}/group-index", "3"), (f"{LWS}/name", "x"))}, "LeaderWorkerSet/team-a/x-3"),
        ({"labels": ((f"{LWS}/group-key", "x"),)}, "PodGroup/team-a/x"),
        ({"labels": (("volcano.sh/job-name", "x"),)}, "PodGroup/team-a/x"),
        ({"labels": (("volcano.sh/job-name", "j"),), "annotations": ((VOLCANO, "x"),)}, "PodGroup/team-a/x"),
        ({"annotations": ((VOLCANO, "x"),)}, "PodGroup/team-a/x"),
        ({"annotations": ((VOLCANO_TOO, "x"),)}, "PodGroup/team-a/x"),
        ({"labels": (KUBEFLOW,), "annotations": ((VOLCANO, "x"),)}, "PodGroup/team-a/x"),
    ],
)
def test_a_gang_is_one_unit_with_a_part_for_each_shape(fields: dict[str, Any], name: str) -> None:
    pods = [waits("leader", 1, priority=3, created=8, **fields), *alike(2, 4, created=9, **fields), waits("other", 4)]
    unit = next(each for each in units_of(*pods) if each.gang)
    assert (unit.gang, unit.priority, unit.oldest, unit.first) == (name, 3, 8, "team-a/leader")
    assert sorted(part.pods for part in unit.parts) == [("uid-leader",), ("uid-p0", "uid-p1")]


def test_half_a_gang_does_not_count_while_the_other_half_is_gated() -> None:
    pods = [*gang("x", 2), *gang("x", 1, prefix="late", gates=("headroom.dev/budget",)), waits("alone")]
    found = wanted(a_view(*pods))
    assert [unit.first for unit in found.units] == ["team-a/alone"]
    assert {uid: each.reason for uid, each in found.left_out.items()} == {
        "uid-x-0": "GangIncomplete",
        "uid-x-1": "GangIncomplete",
        "uid-late0": "Gated",
    }
    assert found.left_out["uid-x-0"].message == (
        "Its gang PodGroup/team-a/x is not complete: team-a/late0 is not ready to be placed: "
        "It has a scheduling gate (headroom.dev/budget)."
    )


def test_a_gang_waits_until_its_scheduler_has_seen_all_of_it() -> None:
    pods = [*gang("x", 2), *gang("x", 1, prefix="new", unschedulable_since=None)]
    found = wanted(a_view(*pods))
    assert found.units == ()
    assert found.left_out["uid-x-1"].reason == "GangIncomplete"


def test_a_gang_whose_pods_are_just_being_made_waits_a_moment() -> None:
    pods = [*gang("x", 2, created=NOON - 3_000), *gang("x", 1, prefix="new", created=NOON - 1_000)]
    found = wanted(a_view(*pods))
    assert found.units == ()
    assert found.left_out["uid-x-0"].message == (
        "Its gang PodGroup/team-a/x may still be growing: its newest pod is less than 5s old."
    )
    assert found.recheck_at == NOON + 4_000
    assert wanted(a_view(*pods, now=NOON + 4_000)).units[0].count == 3


def test_a_gang_that_has_waited_for_long_does_not_wait_for_a_pod_that_is_made_anew() -> None:
    pods = [*gang("x", 2, created=NOON - MINUTE), *gang("x", 1, prefix="new", created=NOON - 1_000)]
    assert wanted(a_view(*pods)).units[0].count == 3
    assert wanted(a_view(*pods, now=NOON - 1)).recheck_at == NOON


@pytest.mark.parametrize("beside", [{"gpus": 0}, {"node": "n"}, {"nominated_node": "n", "nominated_since": NOON}])
def test_what_has_a_place_or_needs_no_gpu_does_not_keep_its_gang_from_counting(beside: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"prefix": "o"} | beside
    [unit] = wanted(a_view(*gang("x", 2), *gang("x", 1, **fields), nodes=[a_node("n")])).units
    assert (unit.gang, unit.count) == ("PodGroup/team-a/x", 2)


def test_pods_of_a_daemon_set_are_nobodys_rank() -> None:
    pods = [*gang("x", 1), *gang("x", 1, prefix="d", owner=Owner("DaemonSet", "d", "u"), gates=("g",))]
    assert [unit.count for unit in wanted(a_view(*pods)).units] == [1]


# --- who is no gang -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": (KUBEFLOW,), "owner": Owner("PyTorchJob", "x", "u")},
        {"labels": ((f"{LWS}/name", "x"),)},
        {"labels": ((f"{LWS}/group-index", "0"),)},
        {"labels": (("scheduling.x-k8s.io/pod-group", ""),)},
        {"annotations": ((VOLCANO, "podgroup-u"),), "owner": Owner("ReplicaSet", "r", "u")},
        {"annotations": ((LEAST_OF_VOLCANO, "1"), (VOLCANO, "podgroup-u")), "owner": Owner("Job", "j", "u")},
        {"annotations": ((TOTAL, "4"),)},
    ],
)
def test_pods_that_do_without_one_another_are_no_gang(fields: dict[str, Any]) -> None:
    [unit] = units_of(*alike(3, **fields))
    assert (unit.gang, unit.count) == ("", 3)


def test_what_volcano_puts_into_a_group_by_itself_is_a_gang_only_where_that_is_asked_for() -> None:
    alone = waits(annotations=((VOLCANO, "podgroup-uid-p"),))
    assert gang_of(alone) == ""
    owner = Owner("Job", "j", "u")
    asked = waits(annotations=((LEAST_OF_VOLCANO, "2"), (VOLCANO, "podgroup-u")), owner=owner)
    assert gang_of(asked) == "PodGroup/team-a/podgroup-u"
    assert size_of(asked) == 2
    assert gang_of(waits(annotations=((VOLCANO, "podgroup-mine"),), owner=owner)) == "PodGroup/team-a/podgroup-mine"


def test_each_group_of_a_leader_worker_set_is_served_for_itself() -> None:
    pods = [
        pod
        for index in "01"
        for pod in alike(2, 4, f"l{index}", labels=((f"{LWS}/group-index", index), (f"{LWS}/name", "l")))
    ]
    assert [(unit.gang, unit.count) for unit in units_of(*pods)] == [
        ("LeaderWorkerSet/team-a/l-0", 2),
        ("LeaderWorkerSet/team-a/l-1", 2),
    ]


# --- all of them ----------------------------------------------------------------------------------------------------------------


def of_group(count: int, total: str = "4", prefix: str = "p", **fields: Any) -> list[Pod]:
    """Pods of a Kueue group that says of how many it is."""
    return alike(count, 1, prefix, labels=(KUEUE,), **{"annotations": ((TOTAL, total),)} | fields)


@pytest.mark.parametrize(
    ("pods", "there"),
    [
        (of_group(1), "1 of its 4 pods is there"),
        (of_group(3), "3 of its 4 pods are there"),
        ([*of_group(3), *of_group(1, prefix="f", phase="Failed", node="n")], "3 of its 4 pods are there"),
        ([*of_group(3), *of_group(1, prefix="d", deleting=NOON)], "3 of its 4 pods are there"),
        ([*of_group(3), *of_group(1, prefix="o", namespace="other")], "3 of its 4 pods are there"),
        ([*of_group(2), *of_group(1, prefix="b", node="n", phase="Running")], "3 of its 4 pods are there"),
    ],
)
def test_a_group_that_is_still_being_made_wakes_nothing(pods: list[Pod], there: str) -> None:
    found = wanted(a_view(*pods, nodes=[a_node("n")]))
    assert found.units == ()
    assert found.left_out["uid-p0"].reason == "GangIncomplete"
    assert found.left_out["uid-p0"].message == f"Its gang PodGroup/team-a/x is not complete: {there}."


@pytest.mark.parametrize(
    "pods",
    [
        of_group(4),
        of_group(5),
        [*of_group(3), *of_group(1, prefix="b", node="n", phase="Running")],
        [*of_group(3), *of_group(1, prefix="s", node="n", phase="Succeeded", deleting=NOON)],
        [*of_group(3), *alike(1, 0, "leader", labels=(KUEUE,))],
        of_group(1, annotations=((FAST, "true"), (TOTAL, "4"))),
        of_group(1, ""),
        of_group(1, "-4"),
        of_group(1, "four"),
        of_group(1, "9" * 5000),
        alike(2, labels=((f"{COSCHEDULING}/min-available", "2"), (f"{COSCHEDULING}/name", "x"))),
    ],
)
def test_a_group_of_which_all_are_there_counts(pods: list[Pod]) -> None:
    [unit] = wanted(a_view(*pods, nodes=[a_node("n")])).units
    assert unit.gang == "PodGroup/team-a/x"


def test_a_group_waits_for_the_least_that_must_be_there() -> None:
    labels = ((f"{COSCHEDULING}/min-available", "3"), (f"{COSCHEDULING}/name", "x"))
    pods = [*alike(2, labels=labels), a_pod("other", labels=labels, namespace="elsewhere", uid="o")]
    assert wanted(a_view(*pods)).left_out["uid-p0"].reason == "GangIncomplete"


def test_of_what_volcano_grouped_those_that_run_are_there() -> None:
    fields: dict[str, Any] = {
        "annotations": ((LEAST_OF_VOLCANO, "3"), (VOLCANO, "podgroup-u")),
        "owner": Owner("Job", "j", "u"),
    }
    pods = [*alike(2, **fields), *alike(1, prefix="b", node="n", phase="Running", **fields)]
    assert [unit.count for unit in wanted(a_view(*pods)).units] == [2]
    assert wanted(a_view(*pods[:2])).units == ()
