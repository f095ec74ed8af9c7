"""CronJobs, PriorityClasses and ResourceFlavors as facts; odd ones cost nobody anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headroom.adapters.kube import sources
from headroom.model.batch_facts import CronJob, Flavor, PriorityClass
from headroom.model.facts import Shape, WorkloadPart
from tests.adapters.owners import template
from tests.adapters.simulated import Cluster, virtual
from tests.builders import NOON

GPU = (("nvidia.com/gpu", 1_000_000),)


def read(kind: str, document: dict[str, Any]) -> Any:
    """Through the decoder of a watch."""
    line = json.dumps({"type": "ADDED", "object": document}).encode()
    return sources.of(kind).decoder().event(line).fact


def a_cron_job(spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    job = {"spec": {"parallelism": 2, "completions": 2, "template": template()}}
    given = {"schedule": "0 3 * * *", "jobTemplate": job} | (spec or {})
    meta = {"name": "nightly", "namespace": "lab", "uid": "u1", "creationTimestamp": "2026-11-15T12:00:00Z"}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": given} | more


def test_a_cron_job_with_all_that_is_read_of_it() -> None:
    job = {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"parallelism": 2, "template": template(priorityClassName="high", schedulingGates=[{"name": "x"}])},
    }
    spec = {
        "timeZone": "Europe/Berlin",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 60,
        "jobTemplate": job,
    }
    status = {"lastScheduleTime": "2026-11-15T12:00:00Z", "active": [{"name": "nightly-1", "uid": "u2"}]}
    assert read("CronJob", a_cron_job(spec, status=status)) == CronJob(
        uid="u1",
        namespace="lab",
        name="nightly",
        created=NOON,
        schedule="0 3 * * *",
        time_zone="Europe/Berlin",
        deadline=60_000,
        is_alone=True,
        ran_at=NOON,
        active=(("nightly-1", "u2"),),
        queue="team",
        part=WorkloadPart(
            requests=GPU,
            shape=Shape(requests=GPU),
            count=2,
            priority_class="high",
            is_gated=True,
        ),
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"suspend": True},
        {"jobTemplate": {"spec": {"suspend": True, "template": template()}}},
        {"jobTemplate": {"spec": {"managedBy": "kueue.x-k8s.io/multikueue", "template": template()}}},
    ],
)
def test_a_cron_job_that_makes_no_pods_here_is_suspended(spec: dict[str, Any]) -> None:
    assert read("CronJob", a_cron_job(spec)).suspended
    own = {"jobTemplate": {"spec": {"managedBy": "kubernetes.io/job-controller", "template": template()}}}
    assert not read("CronJob", a_cron_job(own)).suspended


@pytest.mark.parametrize(
    "document",
    [
        {"metadata": None, "spec": None, "status": None},
        {"spec": {"schedule": 5, "timeZone": [], "startingDeadlineSeconds": "soon", "jobTemplate": "x"}},
        {"spec": {"schedule": "x" * 5_000}, "status": {"active": [{"name": "a"}, {}, 7], "lastScheduleTime": "never"}},
        {"spec": {"startingDeadlineSeconds": -(10**30)}, "status": {"active": {}}},
    ],
)
def test_a_cron_job_that_says_nonsense(document: dict[str, Any]) -> None:
    found = read("CronJob", {"kind": "CronJob"} | document)
    assert (found.time_zone, found.ran_at, found.active) == ("", None, ())
    assert found.schedule in ("", "5")


def test_a_priority_class_and_a_flavor() -> None:
    meta = {"metadata": {"name": "x", "uid": "u"}}
    found = read("PriorityClass", {"kind": "PriorityClass", "value": -5, "globalDefault": True} | meta)
    assert found == PriorityClass(name="x", uid="u", value=-5, is_default=True)
    spec = {"nodeLabels": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    flavor = read("ResourceFlavor", {"kind": "ResourceFlavor", "spec": spec} | meta)
    assert flavor == Flavor(
        name="x", uid="u", labels=(("gpu", "h100"),), tolerations='[{"key":"gpu","operator":"Exists"}]'
    )


@virtual
async def test_only_cron_jobs_whose_pods_may_ask_for_gpus_are_kept() -> None:
    plain = template(containers=[{"name": "c", "resources": {"requests": {"cpu": "8"}}}])
    async with Cluster() as cluster:
        cluster.server.put(a_cron_job({"jobTemplate": {"spec": {"template": plain}}}))
        await cluster.settle()
        assert not cluster.port.world(cluster.clock.now()).cron_jobs
        cluster.server.put(a_cron_job())
        await cluster.settle()
        assert list(cluster.port.world(cluster.clock.now()).cron_jobs) == ["CronJob/lab/nightly"]
        cluster.server.put(a_cron_job({"jobTemplate": {"spec": {"template": plain}}}))
        await cluster.settle()
        assert not cluster.port.world(cluster.clock.now()).cron_jobs
