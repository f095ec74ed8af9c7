"""What pods with claims ask for before they have it: counted as a whole, queued and released like any other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core import usage
from headroom.core.budgets.explaining import explained
from headroom.model.actions import EvictPod, ReleasePod, ResumeOwner
from headroom.model.decisions import Ref
from headroom.model.device_facts import (
    Claim,
    ClaimTemplate,
    Device,
    DeviceChoice,
    DeviceClass,
    DeviceRequest,
    DeviceSlice,
)
from headroom.model.devices import DeviceTable
from headroom.model.facts import ExtendedClaim, Pod, Shape, Workload, WorkloadPart
from headroom.model.times import HOUR
from tests.builders import NOON, a_claim, a_pod, a_request, a_resource, a_used_world
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running

NIC = DeviceClass(name="nic.example.com", selectors=('device.driver == "nic"',))


def a_template(name: str = "eight", count: int = 8, **fields: Any) -> ClaimTemplate:
    base: dict[str, Any] = {"requests": (a_request(count=count),)}
    return ClaimTemplate(uid=f"uid-{name}", namespace="team-a", name=name, **base | fields)


def choices(*alternatives: tuple[str, int]) -> tuple[DeviceRequest, ...]:
    every = (
        DeviceChoice(name=f"c{place}", device_class=kind, count=count)
        for place, (kind, count) in enumerate(alternatives)
    )
    return (DeviceRequest(name="r", choices=tuple(every)),)


def takes_all(kind: str = "gpu.nvidia.com") -> tuple[DeviceRequest, ...]:
    return (DeviceRequest(name="r", choices=(DeviceChoice(device_class=kind, takes_all=True),)),)


def on_node(node: str, count: int) -> DeviceSlice:
    devices = tuple(Device(name=f"gpu-{number}") for number in range(count))
    return DeviceSlice(name=node, driver="gpu.nvidia.com", pool=node, node=node, devices=devices)


def asked(pod: Pod, *claims: Claim, table: DeviceTable | None = None, resource: str = "nvidia.com/gpu") -> float:
    """GPUs that a budget takes a pod to ask for."""
    world = a_used_world(pods=[pod], claims={each.key: each for each in claims}, devices=table or DeviceTable())
    scope = usage.scope_of(world, a_resource(gpuResources=[{"name": resource}]))
    return usage.asked_rate(usage.asked_by(pod, usage.view_of(world)), scope.weights) / 1_000_000


WITH_CLAIM = a_pod(gpus=0, claims=("claim",))


@pytest.mark.parametrize(
    ("claim", "gpus"),
    [
        (a_claim(requests=(a_request(count=64),)), 64),
        (a_claim(requests=(a_request(count=2), a_request(count=3))), 5),
        (a_claim(requests=(a_request(count=8, is_admin=True),)), 0),
        (a_claim(requests=(a_request("nic.example.com", 8),)), 0),
        (a_claim(requests=choices(("gpu.nvidia.com", 2), ("gpu.nvidia.com", 8), ("nic.example.com", 32))), 8),
        (a_claim(requests=choices(("gpu.nvidia.com", 8), ("gpu.nvidia.com", 2)), devices=2, is_allocated=True), 2),
        (a_claim(requests=()), 0),
    ],
    ids=["many", "several", "admin", "nic", "first-available", "given", "nothing"],
)
def test_a_claim_asks_for_what_it_says(claim: Claim, gpus: int) -> None:
    assert asked(WITH_CLAIM, claim, table=DeviceTable([NIC])) == gpus


def test_the_largest_alternative_is_the_largest_for_the_budget() -> None:
    claim = a_claim(requests=choices(("gpu.nvidia.com", 8), ("fpga.example.com", 2)))
    assert asked(WITH_CLAIM, claim) == 8
    assert asked(WITH_CLAIM, claim, resource="fpga.example.com") == 2


def test_all_devices_are_as_many_as_the_largest_node_has() -> None:
    claim = a_claim(requests=takes_all())
    assert asked(WITH_CLAIM, claim, table=DeviceTable(slices=[on_node("a", 4), on_node("b", 8)])) == 8
    assert asked(WITH_CLAIM, claim) == 32  # what a claim can have at most
    assert asked(WITH_CLAIM, a_claim(requests=takes_all("nic.example.com"))) == 0


def test_a_template_asks_for_what_its_claims_will() -> None:
    pod = a_pod(gpus=1, claim_templates=("eight", "eight"))
    assert asked(pod, table=DeviceTable(templates=[a_template()])) == 17


def test_a_claim_or_template_that_is_not_there_says_nothing() -> None:
    for pod in (WITH_CLAIM, a_pod(gpus=0, claim_templates=("eight",))):
        world = a_used_world(pods=[pod])
        assert usage.asked_by(pod, usage.view_of(world)) == usage.PodDevices(is_known=False)


# --- queued and released ----------------------------------------------------------------------------------------------------------

USED_UP = running("before", 12 * HOUR, phase="Succeeded", ended=NOON, ended_by="ContainerFinish")
"""12 GPU-hours."""
FOR_AN_HOUR = ((marks.EXPECTED_DURATION, "1h"), (marks.HELD_BY, "team-a/one"))


def queued(*pods: Pod, claims: tuple[Claim, ...] = (), hours: int = 14, **more: Any) -> Stage:
    stage = Stage(
        a_budget(hours=str(hours), enforce="Hold"),
        pods=[USED_UP, *pods],
        claims={each.key: each for each in claims},
        **more,
    )
    stage.look()
    return stage


def asked_in_queue(stage: Stage) -> str:
    status: Any = stage.decisions["one"].status
    [unit] = status.held.queue
    return str(unit.gpus)


def released(stage: Stage) -> set[str]:
    return {each.pod for _, each in stage.done if isinstance(each, ReleasePod)}


@pytest.mark.parametrize(("count", "starts"), [(1, True), (64, False)])
def test_a_pod_is_released_if_its_claim_fits(count: int, starts: bool) -> None:
    pod = gated("dra", gpus=0, claims=("claim",), annotations=FOR_AN_HOUR)
    stage = queued(pod, claims=(a_claim(requests=(a_request(count=count),)),))
    assert released(stage) == ({"team-a/dra"} if starts else set())
    assert asked_in_queue(stage) == str(count)


def test_what_no_budget_counts_is_released_at_once() -> None:
    pod = gated("nic", gpus=0, claims=("claim",))
    claims = (a_claim(requests=(a_request("nic.example.com", 32),)),)
    assert released(queued(pod, claims=claims, hours=1, devices=DeviceTable([NIC]))) == {"team-a/nic"}


@pytest.mark.parametrize("through", [{"claims": ("claim",)}, {"claim_templates": ("nope",)}], ids=["claim", "template"])
def test_a_class_that_is_not_there_may_give_anything_later(through: dict[str, Any]) -> None:
    pod = gated("odd", gpus=0, **through)
    requests = (a_request("nope.example.com", 64),)
    templates = [a_template("nope", requests=requests)]
    stage = queued(pod, claims=(a_claim(requests=requests),), hours=1, devices=DeviceTable(templates=templates))
    assert released(stage) == set()
    stage.more["devices"] = DeviceTable([structs.replace(NIC, name="nope.example.com")], templates=templates)
    stage.look()
    assert released(stage) == {"team-a/odd"}


def test_a_pod_waits_until_its_claim_is_there() -> None:
    stage = queued(gated("dra", gpus=0, claims=("claim",), annotations=FOR_AN_HOUR))
    assert released(stage) == set()
    claim = a_claim()
    stage.more["claims"] = {claim.key: claim}
    stage.look()
    assert released(stage) == {"team-a/dra"}


def test_it_is_explained_what_a_queued_pod_waits_for() -> None:
    stage = queued(gated("dra", gpus=0, claims=("claim",)))
    found = explained(stage.world(), {}, Ref("Pod", "team-a", "dra"))
    assert found is not None
    assert any("claims" in each and "stays queued" in each for each in found.details)


@pytest.mark.parametrize("kind", ["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"])
def test_nothing_is_released_because_devices_are_not_seen(kind: str) -> None:
    """What does not count by what is seen may count by what is not."""
    shape = Shape(requests=(("example.com/h100", 1_000_000),))
    pods = [gated("nic", gpus=0, claims=("claim",)), gated("odd", shape=shape), gated("plain", gpus=0)]
    claims = (a_claim(requests=(a_request("nic.example.com", 32),)),)
    more: dict[str, Any] = {"devices": DeviceTable([NIC]), "unseen": {f"{kind}.resource.k8s.io": "403"}}
    stage = queued(*pods, claims=claims, hours=1, **more)
    assert released(stage) == {"team-a/plain"}
    stage.more["unseen"] = {"jobsets.jobset.x-k8s.io": "403"}
    stage.look()
    assert released(stage) == {"team-a/plain", "team-a/nic", "team-a/odd"}


def test_a_claim_that_a_gang_shares_is_asked_for_once() -> None:
    pods = [
        gated(f"rank-{number}", gpus=0, claims=("claim",), owner=of_job("fit"), annotations=FOR_AN_HOUR)
        for number in range(8)
    ]
    stage = queued(*pods, claims=(a_claim(),))
    assert len(released(stage)) == 8
    assert asked_in_queue(stage) == "1"


def a_suspended_job(count: int = 8, **fields: Any) -> Workload:
    return Workload(
        kind="Job",
        uid="uid-fit",
        namespace="team-a",
        name="fit",
        created=NOON - HOUR,
        parts=(WorkloadPart(labels=TEAM, count=count, deadline=HOUR, **fields),),
        suspended=True,
        suspended_by="GPUWorkloadBudget/team-a/one",
    )


@pytest.mark.parametrize(("hours", "resumes"), [(75, False), (77, True)])
def test_a_suspended_job_asks_for_what_its_templates_give(hours: int, resumes: bool) -> None:
    job = a_suspended_job(claim_templates=("eight",))
    stage = queued(workloads={job.key: job}, hours=hours, devices=DeviceTable(templates=[a_template()]))
    assert any(isinstance(each, ResumeOwner) for _, each in stage.done) == resumes


def test_a_suspended_job_whose_pods_share_a_claim_asks_for_it_once() -> None:
    job = a_suspended_job(claims=("claim",))
    stage = queued(workloads={job.key: job}, hours=14, claims=(a_claim(),))
    assert any(isinstance(each, ResumeOwner) for _, each in stage.done)


def test_a_suspended_job_waits_until_its_template_is_there() -> None:
    job = a_suspended_job(claim_templates=("eight",))
    stage = queued(workloads={job.key: job}, hours=1000)
    assert not any(isinstance(each, ResumeOwner) for _, each in stage.done)


# --- nobody's victims -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device_class", "goes"), [("nic.example.com", False), ("gpu.nvidia.com", True)])
def test_only_what_a_budget_counts_is_swept(device_class: str, goes: bool) -> None:
    pod = a_pod("web", gpus=0, labels=TEAM, claims=("claim",), owner=of_job("web", "ReplicaSet"), created=NOON - 1)
    claim = a_claim(requests=(a_request(device_class),))
    stage = queued(pod, claims=(claim,), hours=10, devices=DeviceTable([NIC]))
    stage.look()
    assert any(isinstance(each, EvictPod) and each.uid == pod.uid for _, each in stage.done) == goes


def test_a_nic_by_an_extended_resource_is_no_gpu_once_it_is_bound() -> None:
    shape = Shape(requests=(("example.com/nic", 1_000_000),))
    pod = a_pod(
        "web", labels=TEAM, shape=shape, node="n", owner=of_job("web", "ReplicaSet"), extended=ExtendedClaim("claim")
    )
    claim = a_claim(devices=1, device_class="nic.example.com", driver="nic", reserved_for=(pod.uid,))
    stage = queued(pod, claims=(claim,), hours=10)
    stage.look()
    assert not [each for _, each in stage.done if isinstance(each, EvictPod)]


def test_pods_with_claims_request_what_the_budget_counts() -> None:
    pods = [running("p", HOUR, gpus=0, claims=("claim",)), running("q", HOUR, gpus=0, claims=("nic",))]
    claims = [a_claim(), a_claim("nic", requests=(a_request("nic.example.com"),))]
    world = a_used_world(pods=pods, claims={each.key: each for each in claims})
    assert usage.pods_matching(world, usage.scope_of(world, a_resource())) == (2, 1)
    both = structs.replace(pods[0], shape=Shape(requests=(("nvidia.com/gpu", 1),)))
    world = a_used_world(pods=[both], claims={each.key: each for each in claims})
    assert usage.pods_matching(world, usage.scope_of(world, a_resource())) == (1, 1)
