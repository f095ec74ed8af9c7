"""What the port sees for enforcement on a simulated API server: holds, suspended owners, Kueue, and whether our policies stand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.store import KubePort
from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.policies import OF_BANDWIDTH, policies
from headroom.api.resources import API_VERSION
from headroom.model.changes import Changes, Topic
from headroom.model.world import Caps, World
from headroom.sim import faults as wrong
from tests.adapters import owners
from tests.adapters.simulated import Cluster, virtual
from tests.builders import NOON

APPLY = "apply the output of `headroom policies`"


def world(cluster: Cluster) -> World:
    return cluster.port.world(NOON)


def listen(cluster: Cluster) -> None:
    cluster.port.subscribe("plan", frozenset(set(Topic) - {Topic.PODS, Topic.NODES, Topic.UNBOUND}))
    cluster.port.take_changes("plan")


async def told(cluster: Cluster) -> Changes:
    await cluster.settle()
    return cluster.port.take_changes("plan")


def hold(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "BudgetHold",
        "metadata": {"name": "team-a.one"},
        "spec": {"budget": "team-a/one"} | spec,
    }


@virtual
async def test_the_caps_that_were_set_are_those_of_the_world() -> None:
    cluster = Cluster()
    assert world(cluster).caps == Caps()
    few = Caps(cluster=2, namespace=1)
    port = KubePort(cluster.kube, cluster.events, clock=cluster.clock, rng=random.Random(1), caps=few)
    assert port.world(NOON).caps == few


@virtual
async def test_holds_come_change_and_go() -> None:
    async with Cluster() as cluster:
        listen(cluster)
        cluster.server.put(hold())
        assert await told(cluster) == Changes(facts={Topic.HOLDS: {"team-a.one"}})
        cluster.server.put(hold(namespaces=["team-a"]))
        assert await told(cluster) == Changes(facts={Topic.HOLDS: {"team-a.one"}})
        found = world(cluster).holds["team-a.one"]
        assert found.spec == BudgetHoldSpec(budget="team-a/one", namespaces=("team-a",))
        cluster.server.do("DELETE", paths.budget_hold("team-a.one"))
        assert await told(cluster) == Changes(facts={Topic.HOLDS: {"team-a.one"}})
        assert world(cluster).holds == {}


SUSPENDED = {"headroom.dev/suspended": "true"}


@virtual
async def test_owners_are_seen_while_they_have_our_label() -> None:
    async with Cluster() as cluster:
        cluster.server.put(owners.owner("Job", "other"))
        listen(cluster)
        cluster.server.put(owners.owner("Job", labels=SUSPENDED, spec={"suspend": True}))
        assert await told(cluster) == Changes(facts={Topic.WORKLOADS: {"Job/team-a/train"}})
        assert list(world(cluster).workloads) == ["Job/team-a/train"]
        assert world(cluster).workloads["Job/team-a/train"].suspended
        off = {"metadata": {"labels": {"headroom.dev/suspended": None}}}
        cluster.server.do("PATCH", paths.owner("Job", "team-a", "train"), off)
        assert await told(cluster) == Changes(facts={Topic.WORKLOADS: {"Job/team-a/train"}})
        assert world(cluster).workloads == {}


@virtual
async def test_kinds_of_others_may_come_and_go_while_we_watch() -> None:
    async with Cluster() as cluster:
        assert not world(cluster).kueue
        assert cluster.port.problems() == []
        listen(cluster)
        for each in owners.definitions():
            cluster.server.put(each)
        cluster.server.put(owners.owner("JobSet", labels=SUSPENDED))
        cluster.server.put(owners.owner("Workload"))
        await cluster.settle(60)
        assert set(world(cluster).workloads) == {"JobSet/team-a/train", "Workload/team-a/train"}
        assert world(cluster).kueue
        assert cluster.port.take_changes("plan").facts.keys() == {Topic.WORKLOADS, Topic.SIGHT}
        kueue = paths.owner("Workload")
        cluster.transport._faults.add(wrong.DroppedStream(path=kueue))
        cluster.transport._faults.add(wrong.Refusal(status=404, path=kueue))
        await cluster.settle(60)
        assert set(world(cluster).workloads) == {"JobSet/team-a/train", "Workload/team-a/train"}
        assert world(cluster).kueue
        assert cluster.port.complete
        assert list(world(cluster).unseen) == ["workloads.kueue.x-k8s.io"]


@virtual
async def test_that_kueue_came_or_went_is_news_even_with_no_workloads() -> None:
    async with Cluster() as cluster:
        listen(cluster)
        definition = owners.definitions()[1]
        cluster.server.put(definition)
        await cluster.settle(60)
        assert world(cluster).kueue
        assert cluster.port.take_changes("plan").facts.keys() == {Topic.SIGHT}
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        cluster.server.do("DELETE", f"{crds}/{definition['metadata']['name']}")
        cluster.transport._faults.add(wrong.DroppedStream(path=paths.owner("Workload")))
        await cluster.settle(60)
        assert world(cluster).kueue
        assert world(cluster).unseen
        await cluster.settle(120)
        assert not world(cluster).kueue
        assert not world(cluster).unseen
        assert cluster.port.take_changes("plan").facts.keys() == {Topic.SIGHT}


@virtual
async def test_a_list_of_one_kind_leaves_the_owners_of_the_others() -> None:
    cluster = Cluster()
    cluster.server.put(owners.definitions()[1])
    cluster.server.put(owners.owner("Job", labels=SUSPENDED))
    cluster.server.put(owners.owner("Workload"))
    async with cluster:
        await cluster.settle()
        cluster.server.do("DELETE", paths.owner("Job", "team-a", "train"))
        cluster.server.compact()
        cluster.transport._faults.add(wrong.DroppedStream(path=paths.owner("Job")))
        await cluster.settle(120)
        assert set(world(cluster).workloads) == {"Workload/team-a/train"}


@virtual
async def test_without_the_right_to_see_owners_nothing_is_decided() -> None:
    """A suspended Job that we may not see would never be resumed."""
    cluster = Cluster()
    cluster.transport._faults.add(wrong.Refusal(status=403, path=paths.owner("Job")))
    await cluster.port.start()
    assert not await cluster.port.synced(5)
    assert any("jobs.batch" in text for text in cluster.port.problems())
    await cluster.port.stop()


# --- whether new pods can be held ---------------------------------------------------------------------------------------------------


def install(cluster: Cluster) -> None:
    for each in policies():
        cluster.server.put(each)


@virtual
async def test_holding_needs_every_policy_in_this_version() -> None:
    async with Cluster() as cluster:
        assert (
            world(cluster).hold_problem == f"The ValidatingAdmissionPolicy headroom-enforce is not installed: {APPLY}."
        )
        listen(cluster)
        install(cluster)
        assert (await told(cluster)).facts.keys() == {Topic.POLICIES}
        assert world(cluster).hold_problem == ""
        path = f"{paths.policies('mutatingadmissionpolicies')}/headroom-hold"
        cluster.server.do("PATCH", path, {"metadata": {"annotations": {"headroom.dev/policy-hash": "old"}}})
        assert (await told(cluster)).facts.keys() == {Topic.POLICIES}
        assert (
            world(cluster).hold_problem == f"The MutatingAdmissionPolicy headroom-hold is of another version: {APPLY}."
        )
        cluster.server.do("DELETE", path)
        await cluster.settle()
        assert world(cluster).hold_problem == f"The MutatingAdmissionPolicy headroom-hold is not installed: {APPLY}."


@virtual
async def test_every_document_is_asked_for() -> None:
    async with Cluster() as cluster:
        install(cluster)
        for each in policies():
            path = f"{paths.policies(PLURALS[each['kind']])}/{each['metadata']['name']}"
            cluster.server.do("DELETE", path)
            await cluster.settle()
            seen = world(cluster)
            is_of_bandwidth = each["metadata"]["name"] in OF_BANDWIDTH
            without, others = seen.hold_problem, seen.bandwidth_problem
            without, others = (others, without) if is_of_bandwidth else (without, others)
            assert f"{each['kind']} {each['metadata']['name']} is not installed" in without
            assert others == ""  # bandwidth and holding do without one another
            cluster.server.put(each)


PLURALS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


@pytest.mark.parametrize("status", [403, 404])
@virtual
async def test_policies_that_were_never_read_are_a_problem_of_holding_only(status: int) -> None:
    cluster = Cluster()
    install(cluster)
    path = paths.policies("mutatingadmissionpolicies")
    cluster.transport._faults.add(wrong.Refusal(status=status, path=path, until="60s"))
    async with cluster:
        assert "watching mutatingadmissionpolicies.admissionregistration.k8s.io" in world(cluster).hold_problem
        assert cluster.port.complete
        await cluster.settle(120)
        assert world(cluster).hold_problem == ""
        cluster.transport._faults.add(wrong.DroppedStream(path=path))
        cluster.transport._faults.add(wrong.Refusal(status=status, path=path))
        await cluster.settle(60)
        # They were there when they were last seen, and nobody said that they went.
        assert world(cluster).hold_problem == ""
        assert list(world(cluster).unseen) == ["mutatingadmissionpolicies.admissionregistration.k8s.io"]
        assert cluster.port.complete
