"""Owners of pods, holds, and what enforcement needs of pods, as facts; odd ones cost nobody anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headroom.adapters.kube import operator_kinds, parse, raw, sources, workloads
from headroom.api.budget_hold import BudgetHoldSpec
from headroom.model.facts import Hold, Shape, Workload, WorkloadPart
from headroom.model.times import HOUR, MINUTE
from tests.adapters.owners import owner, template
from tests.builders import NOON

READERS: dict[str, Any] = {each.kind: each.decoder for each in sources.of_field("workloads")}
GPU = (("nvidia.com/gpu", 1_000_000),)
SEEN: dict[str, Any] = {"uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-11-15T12:00:00Z"}
OURS: dict[str, Any] = {"annotations": {"headroom.dev/suspended-by": "GPUWorkloadBudget/team-a/one"}}


def read(document: dict[str, Any]) -> Workload:
    """Through the decoder of a watch."""
    line = json.dumps({"type": "ADDED", "object": document}).encode()
    fact = READERS[document["kind"]]().event(line).fact
    assert isinstance(fact, Workload)
    return fact


@pytest.mark.parametrize("kind", READERS)
def test_an_owner_with_all_that_is_read_of_it(kind: str) -> None:
    spec = {"active": False, "priority": 5} if kind == "Workload" else {"suspend": True}
    assert read(owner(kind, spec=spec, **SEEN, **OURS)) == Workload(
        kind=kind,
        uid="u1",
        namespace="team-a",
        name="train",
        resource_version="7",
        created=NOON,
        parts=(WorkloadPart(labels=(("team", "a"),), requests=GPU, shape=Shape(requests=GPU), count=2),),
        priority=5 if kind == "Workload" else 0,
        suspended=True,
        suspended_by="GPUWorkloadBudget/team-a/one",
    )


@pytest.mark.parametrize("kind", READERS)
def test_an_owner_that_says_little(kind: str) -> None:
    found = read(owner(kind))
    assert (found.key, found.uid) == (f"{kind}/team-a/train", "team-a/train")
    assert (found.suspended, found.suspended_by, found.admitted) == (False, "", False)
    assert read({"kind": kind, "metadata": None, "spec": None, "status": None}).name == ""


@pytest.mark.parametrize(
    ("label", "at", "released_at"),
    [
        ("released", "2026-11-15T12:00:00Z", NOON),
        ("released", "yesterday", 0),
        ("released", None, 0),
        ("true", "2026-11-15T12:00:00Z", None),
        (None, "2026-11-15T12:00:00Z", None),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("kind", READERS)
def test_when_an_owner_was_let_go(kind: str, label: str | None, at: str | None, released_at: int | None) -> None:
    marked: dict[str, Any] = {"labels": {"headroom.dev/suspended": label} if label else {}}
    marked["annotations"] = {"headroom.dev/released-at": at} if at else {}
    assert read(owner(kind, **marked)).released_at == released_at


@pytest.mark.parametrize(
    ("noted", "generation", "expected"), [("3", 3, True), ("3", 4, False), (None, 3, False), ("x", None, False)]
)
@pytest.mark.parametrize("kind", READERS)
def test_an_owner_is_as_it_was_released_by_its_generation(
    kind: str, noted: str | None, generation: int | None, expected: bool
) -> None:
    annotations = {"headroom.dev/released-generation": noted} if noted else {}
    assert read(owner(kind, annotations=annotations, generation=generation)).is_as_released is expected


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 8}, 8),
        ({"parallelism": 8, "completions": 3}, 3),
        ({"completions": 3}, 1),
        ({"parallelism": 0}, 0),
        ({"parallelism": -1}, 0),
    ],
)
def test_how_many_pods_a_job_has(spec: dict[str, Any], count: int) -> None:
    document = owner("Job") | {"spec": {"template": template()} | spec}
    assert [each.count for each in read(document).parts] == [count]
    replicated = [{"name": "a", "replicas": 3, "template": {"spec": document["spec"]}}, {"name": "b", "template": None}]
    of_set = read(owner("JobSet", spec={"replicatedJobs": replicated}))
    assert [each.count for each in of_set.parts] == [3 * count, 1]


def test_the_parts_of_a_workload_have_their_own_labels_and_amounts() -> None:
    sets = [
        {"name": "leader", "template": template({"role": "leader"}, containers=[{"name": "c"}])},
        {"name": "workers", "count": 7, "template": template({"role": "worker"})},
    ]
    assert read(owner("Workload", spec={"podSets": sets})).parts == (
        WorkloadPart(labels=(("role", "leader"),), count=1),
        WorkloadPart(labels=(("role", "worker"),), requests=GPU, shape=Shape(requests=GPU), count=7),
    )


@pytest.mark.parametrize(("succeeded", "left"), [(None, None), (4, None), (8, 2), (12, 0), ("many", None)])
def test_how_many_pods_of_a_job_are_left(succeeded: Any, left: int | None) -> None:
    job = owner("Job", spec={"parallelism": 4, "completions": 10}) | {"status": {"succeeded": succeeded}}
    [part] = read(job).parts
    assert (part.count, part.left) == (4, left)


MOMENTS = {"QuotaReserved": "2026-11-15T12:00:00Z", "Admitted": "2026-11-15T12:00:05Z"}


@pytest.mark.parametrize(
    ("holds", "reserved_at"),
    [
        ((), None),
        (("QuotaReserved",), NOON),
        (("QuotaReserved", "Admitted"), NOON + 5_000),
        (("QuotaReserved", "Finished"), None),
        (("QuotaReserved", "Evicted"), None),
        (("Evicted",), None),
    ],
)
def test_when_a_workload_got_its_quota(holds: tuple[str, ...], reserved_at: int | None) -> None:
    conditions = [
        {"type": each, "status": "True" if each in holds else "False", "lastTransitionTime": MOMENTS.get(each)}
        for each in ("QuotaReserved", "Admitted", "Finished", "Evicted")
    ]
    assert read(owner("Workload") | {"status": {"conditions": conditions}}).reserved_at == reserved_at


def test_the_flavors_of_a_workload_are_those_of_each_pod_set() -> None:
    sets = [{"name": name, "template": template()} for name in ("leader", "workers")]
    given = [{"name": "workers", "flavors": {"cpu": "plain", "nvidia.com/gpu": "h100", "memory": "plain"}}]
    document = owner("Workload", spec={"podSets": sets}) | {"status": {"admission": {"podSetAssignments": given}}}
    assert [each.flavors for each in read(document).parts] == [(), ("h100", "plain")]


def test_where_the_pods_of_an_owner_go_is_kept_only_if_they_ask_for_devices() -> None:
    plain = template(containers=[{"name": "c", "resources": {"requests": {"cpu": "8"}}}], nodeSelector={"a": "b"})
    assert read(owner("Job", spec={"template": plain})).parts[0].shape is None
    one, two = (read(owner("Job", spec={"template": template(nodeSelector={"a": "b"})})).parts[0] for _ in range(2))
    assert one.shape == Shape(requests=GPU, node_selector=(("a", "b"),))
    assert one.shape is two.shape


@pytest.mark.parametrize(
    ("limit", "declared", "deadline"),
    [
        (None, None, None),
        (600, None, 10 * MINUTE),
        (None, "1h", HOUR),
        (600, "1h", 10 * MINUTE),
        (7200, "1h", HOUR),
        (None, "for a while", None),
        (0, None, None),
    ],
)
def test_how_long_the_pods_of_an_owner_may_run(limit: int | None, declared: str | None, deadline: int | None) -> None:
    pods = template(activeDeadlineSeconds=limit)
    if declared:
        pods["metadata"]["annotations"] = {"headroom.dev/expected-duration": declared}
    assert read(owner("Job", spec={"template": pods})).parts[0].deadline == deadline


@pytest.mark.parametrize(
    ("grace", "longer"), [(None, 0), (0, 0), (30, 0), (90, MINUTE), (10**30, 2**31 * 1000 - 30_000)]
)
def test_a_long_grace_period_lets_the_pods_of_an_owner_run_longer(grace: int | None, longer: int) -> None:
    pods = template(activeDeadlineSeconds=600, terminationGracePeriodSeconds=grace)
    assert read(owner("Job", spec={"template": pods})).parts[0].deadline == 10 * MINUTE + longer
    unlimited = template(terminationGracePeriodSeconds=grace)
    assert read(owner("Job", spec={"template": unlimited})).parts[0].deadline is None


@pytest.mark.parametrize(
    ("kind", "type_", "admitted"),
    [
        ("Workload", "Admitted", True),
        ("Workload", "QuotaReserved", True),
        ("Workload", "Finished", True),
        ("Workload", "Evicted", False),
        ("Job", "Complete", True),
        ("Job", "Failed", True),
        ("Job", "Suspended", False),
        ("JobSet", "Completed", True),
        ("JobSet", "Suspended", False),
    ],
)
def test_what_kueue_let_start_and_what_is_over(kind: str, type_: str, admitted: bool) -> None:
    document = owner(kind)
    for status, verdict in (("True", admitted), ("False", False)):
        document["status"] = {"conditions": [{"type": "Other", "status": "True"}, {"type": type_, "status": status}]}
        assert read(document).admitted is verdict


@pytest.mark.parametrize("kind", READERS)
def test_an_odd_owner_costs_itself_some_fields_only(kind: str) -> None:
    document = owner(
        kind, spec={"suspend": "yes", "parallelism": [], "podSets": {}, "replicatedJobs": 5, "priority": "high"}
    )
    assert (read(document).name, read(document).suspended, read(document).priority) == ("train", False, 0)


# --- holds -----------------------------------------------------------------------------------------------------------------------


def test_a_hold() -> None:
    spec = {
        "budget": "team-a/one",
        "namespaces": ["team-a"],
        "matchLabels": {"team": "a"},
        "because": "so",
    }
    document = {"metadata": {"name": "team-a.one"} | SEEN, "spec": spec}
    assert operator_kinds.hold_of(document) == Hold(
        name="team-a.one",
        uid="u1",
        resource_version="7",
        created=NOON,
        spec=BudgetHoldSpec(budget="team-a/one", namespaces=("team-a",), match_labels={"team": "a"}, because="so"),
    )


@pytest.mark.parametrize("spec", [None, [], {"namespaces": "all"}, {"budget": 5}])
def test_a_hold_that_nobody_can_read_is_there_all_the_same(spec: Any) -> None:
    assert operator_kinds.hold_of({"metadata": {"name": "x"}, "spec": spec}) == Hold(name="x", uid="x")


def test_the_wire_types_are_read_piece_by_piece() -> None:
    assert workloads.job_of(raw.fitted(owner("Job"), raw.Job)) == read(owner("Job"))


# --- pods ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "deadline", "grace"),
    [
        ({}, None, 30),
        ({"activeDeadlineSeconds": 3600, "terminationGracePeriodSeconds": 120}, HOUR, 120),
        ({"activeDeadlineSeconds": None, "terminationGracePeriodSeconds": 0}, None, 0),
        ({"activeDeadlineSeconds": -1, "terminationGracePeriodSeconds": -1}, None, 0),
        ({"activeDeadlineSeconds": "soon", "terminationGracePeriodSeconds": []}, None, 30),
        ({"activeDeadlineSeconds": 10**30, "terminationGracePeriodSeconds": 10**30}, 2**31 * 1000, 2**31),
    ],
)
def test_how_long_a_pod_may_run_and_take_to_end(spec: dict[str, Any], deadline: int | None, grace: int) -> None:
    found = parse.pod({"metadata": {"name": "x"}, "spec": spec})
    assert (found.deadline, found.grace_seconds) == (deadline, grace)


def test_the_gang_of_a_pod_under_volcano_is_kept() -> None:
    notes = {"scheduling.k8s.io/group-name": "gang", "of/others": "not"}
    assert parse.pod({"metadata": {"annotations": notes}}).annotations == (("scheduling.k8s.io/group-name", "gang"),)
