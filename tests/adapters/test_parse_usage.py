"""What accounting reads of pods and claims: first starts that are no longer shown, and devices."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube import devices, operator_kinds, parse, raw, sources
from headroom.api.budget_index import IndexEntry
from headroom.model import times
from headroom.model.facts import ExtendedClaim

Document = dict[str, Any]


def moment(minute: int) -> int:
    found = times.moment(at(minute))
    assert found is not None
    return found


def at(minute: int) -> str:
    return f"2026-11-15T12:{minute:02}:00Z"


def ran(start: int, end: int) -> Document:
    return {"terminated": {"startedAt": at(start), "finishedAt": at(end)}}


def runs(start: int) -> Document:
    return {"running": {"startedAt": at(start)}}


BACKOFF: Document = {"waiting": {"reason": "CrashLoopBackOff"}}


def container(restarts: int, state: Document, last: Document | None = None) -> Document:
    return {"restartCount": restarts, "state": state, "lastState": last or {}}


@pytest.mark.parametrize(
    ("main", "init", "started", "after"),
    [
        ([], [], None, None),
        ([container(0, BACKOFF)], [], None, None),
        ([container(0, runs(5))], [], 5, None),
        ([container(1, runs(9), ran(5, 8))], [], 5, None),
        ([container(2, runs(9), ran(7, 8))], [], 7, 1),
        ([container(1, BACKOFF, ran(7, 8))], [], 7, 1),  # the run before that one is not shown any more
        ([container(0, BACKOFF, ran(5, 8))], [], 5, None),
        ([container(0, runs(5)), container(3, runs(9), ran(7, 8))], [], 5, 1),
        # An init container that is shown whole began before all others.
        ([container(3, runs(9), ran(7, 8))], [container(0, ran(4, 5))], 4, None),
        ([container(3, runs(9), ran(7, 8))], [container(0, runs(4)), container(5, runs(8))], 4, None),
        ([container(0, BACKOFF)], [container(4, BACKOFF, ran(7, 8)), container(0, BACKOFF)], 7, 1),
        ([container(0, runs(9))], [container(0, {})], 9, None),
    ],
)
def test_a_start_that_is_no_longer_shown(
    main: list[Document], init: list[Document], started: int | None, after: int | None
) -> None:
    status = {"startTime": at(1), "containerStatuses": main, "initContainerStatuses": init}
    pod = parse.pod({"metadata": {"name": "p"}, "status": status})
    assert pod.started == (None if started is None else moment(started))
    assert pod.started_after == (None if after is None else moment(after))


def test_the_claims_of_a_pod_as_its_status_tells_them() -> None:
    document: Document = {
        "metadata": {"name": "p"},
        "spec": {
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "mine"},
                {"name": "again", "resourceClaimName": "mine"},
                {"name": "b", "resourceClaimTemplateName": "two"},
                {"name": "c", "resourceClaimTemplateName": "four"},
                {"name": "d", "resourceClaimTemplateName": "none"},
            ]
        },
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x7"}, {"name": "d"}, {"name": "a"}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "p-extended",
                "requestMappings": [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}],
            },
        },
    }
    pod = parse.pod(document)
    assert (pod.claims, pod.claim_templates) == (("mine", "p-b-x7"), ("four",))
    assert pod.extended == ExtendedClaim("p-extended", ("example.com/gpu",))
    del document["spec"]
    assert parse.pod(document).claims == ()
    assert parse.pod(document).has_claims


def claim(*results: Document, **more: Any) -> Document:
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}},
        {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "big.example.com"}, {"name": "small"}]},
    ]
    return {
        "metadata": {"name": "c", "namespace": "team-a", "uid": "u", "resourceVersion": "7", **more},
        "spec": {"devices": {"requests": requests}},
        "status": {
            "allocation": {"devices": {"results": [{"driver": "d.example.com", **each} for each in results]}},
            "reservedFor": [
                {"resource": "pods", "name": "b", "uid": "u2"},
                {"resource": "pods", "name": "a", "uid": "u1"},
                {"resource": "workloads", "apiGroup": "e.com", "name": "w", "uid": "u3"},
            ],
        },
    }


def read(document: Document) -> Any:
    return devices.claim_of(raw.fitted(document, devices.ClaimWire))


def test_devices_are_known_by_class_and_those_of_administrators_are_left_out() -> None:
    found = read(
        claim(
            {"request": "gpu"},
            {"request": "gpu"},
            {"request": "any/big"},
            {"request": "any/small"},  # its class is not said
            {"request": "odd"},
            {"request": "gpu", "adminAccess": True},
            {"request": "gpu", "adminAccess": False},
        )
    )
    assert found.key == "team-a/c"
    classes = [each.device_class for each in found.allocated]
    assert classes == ["gpu.example.com", "gpu.example.com", "big.example.com", "", "", "gpu.example.com"]
    assert {each.driver for each in found.allocated} == {"d.example.com"}
    assert found.reserved_for == ("u1", "u2")
    assert (found.uid, found.resource_version, found.is_allocated) == ("u", "7", True)


def test_what_a_tenant_writes_onto_a_claim_changes_nothing() -> None:
    name = "resource.kubernetes.io/extended-resource-claim"
    assert read(claim({"request": "gpu"}, annotations={name: "true"})) == read(claim({"request": "gpu"}))


@pytest.mark.parametrize("document", [{}, {"metadata": {"name": "c"}}, {"spec": None, "status": {}}, {"status": 7}])
def test_a_claim_without_devices_has_none(document: Document) -> None:
    assert read(document).allocated == ()
    assert read(document).reserved_for == ()
    assert not read(document).is_allocated


def test_an_odd_claim_does_not_stop_the_watch() -> None:
    event = (
        sources.of("ResourceClaim")
        .decoder()
        .event(b'{"type":"ADDED","object":{"metadata":{"name":"c"},"status":{"allocation":[7]}}}')
    )
    assert event.fact is not None
    assert event.fact.allocated == ()


@pytest.mark.parametrize(
    ("document", "budgets"),
    [
        ({"spec": {"budgets": [{"budget": "a/b", "resources": ["x"]}]}}, (IndexEntry(budget="a/b", resources=("x",)),)),
        ({"spec": {}}, ()),
        ({"spec": {"budgets": [{"budget": 7}]}}, None),
        ({"spec": {"budgets": "x"}}, None),
        ({}, None),
    ],
)
def test_an_index(document: Document, budgets: tuple[IndexEntry, ...] | None) -> None:
    found = operator_kinds.index_of(document | {"metadata": {"name": "headroom", "uid": "u", "resourceVersion": "7"}})
    assert (found.name, found.uid, found.resource_version, found.budgets) == ("headroom", "u", "7", budgets)
