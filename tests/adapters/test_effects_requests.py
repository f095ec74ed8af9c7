"""What is done for a ReleaseRequest: pods and owners are let go in the name of who asked, and nothing once it is deleted."""

from __future__ import annotations

import pytest

from headroom.adapters.kube import paths
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.errors import Refused
from tests.adapters import owners
from tests.adapters.doing import do, forget, on, told
from tests.adapters.simulated import Cluster, virtual

GATE = {"name": "headroom.dev/budget"}
THEIRS = {"name": "example.com/theirs"}
REQUEST = paths.resource("ReleaseRequest", "team-a", "one")


async def asked(cluster: Cluster, **spec: str) -> AnyResource:
    request = cluster.resource("ReleaseRequest", **spec)
    await cluster.settle()
    return request


@virtual
async def test_a_pod_loses_our_gate_and_says_who_asked() -> None:
    async with Cluster() as cluster:
        pod = cluster.pod(spec={"schedulingGates": [THEIRS, GATE]})
        await do(cluster, on(actions.ReleasePod, pod), await asked(cluster, reason="a deadline"))
        stored = cluster.stored("Pod", "team-a", "train-0")
        assert stored["spec"]["schedulingGates"] == [THEIRS]
        assert told(cluster) == [("Pod/train-0", "Normal", "Released", "Released by request of alice (a deadline).")]


@pytest.mark.parametrize("kind", ["Job", "JobSet", "Workload"])
@virtual
async def test_an_owner_goes_on_that_a_budget_suspended(kind: str) -> None:
    cluster = Cluster()
    for each in owners.definitions():
        cluster.server.put(each)
    async with cluster:
        cluster.server.put(owners.owner(kind))
        await do(cluster, actions.SuspendOwner(kind=kind, object="team-a/train"))
        request = await asked(cluster)
        await do(cluster, actions.ResumeOwner(kind=kind, object="team-a/train"), request)
        stored = cluster.stored(kind, "team-a", "train")
        assert not stored["spec"].get("suspend")
        assert stored["spec"].get("active") is not False
        assert "headroom.dev/released-at" in stored["metadata"]["annotations"]
        assert ("Resumed", "Released by request of alice.") in [each[2:] for each in told(cluster)]


@virtual
async def test_an_owner_stays_suspended_that_somebody_else_suspended() -> None:
    async with Cluster() as cluster:
        suspended = owners.owner("Job")
        suspended["spec"]["suspend"] = True
        cluster.server.put(suspended)
        with pytest.raises(Refused, match="somebody else suspended it"):
            await do(cluster, actions.ResumeOwner(kind="Job", object="team-a/train"), await asked(cluster))


@virtual
async def test_nothing_is_done_for_a_request_that_is_gone_or_another() -> None:
    async with Cluster() as cluster:
        pod = cluster.pod(spec={"schedulingGates": [GATE]})
        request = await asked(cluster)
        forget(cluster, REQUEST)
        await cluster.settle()
        with pytest.raises(Refused, match="it has been deleted"):
            await do(cluster, on(actions.ReleasePod, pod), request)
        await asked(cluster)
        with pytest.raises(Refused, match="it has been deleted"):
            await do(cluster, on(actions.ReleasePod, pod), request)
        assert cluster.stored("Pod", "team-a", "train-0")["spec"]["schedulingGates"] == [GATE]


@virtual
async def test_a_finished_request_is_removed_once_and_no_other_of_its_name() -> None:
    async with Cluster() as cluster:
        request = await asked(cluster)
        removal = actions.DeleteReleaseRequest(request="team-a/one", uid=request.uid)
        await do(cluster, actions.DeleteReleaseRequest(request="team-a/one", uid="another"), request)
        assert cluster.server.object("ReleaseRequest", "team-a", "one")
        await do(cluster, removal, request)
        assert not cluster.server.object("ReleaseRequest", "team-a", "one")
