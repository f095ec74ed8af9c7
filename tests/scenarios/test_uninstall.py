"""Uninstalling asks first whether an operator still leads, by the lease alone, and then leaves nothing of ours."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.leases import KubeLeases
from headroom.api.kinds import DEFINITIONS
from headroom.api.marks import BANDWIDTH_UNAVAILABLE, CORDONED_BY, POOL_FINALIZER
from headroom.api.policies import policies
from headroom.api.resources import API_VERSION
from headroom.cli import leftovers, leftovers_spot
from headroom.cli.uninstall import refuse_while_led, take_all
from headroom.model import actions
from headroom.model.errors import Refused
from headroom.runtime.settings import Settings
from tests.adapters import owners
from tests.adapters.doing import do, on
from tests.adapters.simulated import Cluster, virtual
from tests.builders import a_resource

SETTINGS = Settings(identity="me")


def leases(cluster: Cluster) -> KubeLeases:
    return KubeLeases(cluster.kube, SETTINGS.operator_namespace, SETTINGS.lease_name)


@virtual
async def test_a_lease_that_is_renewed_is_held() -> None:
    cluster = Cluster()
    lease = await leases(cluster).write("operator-1", 15, None)
    asking = asyncio.create_task(refuse_while_led(cluster.kube, SETTINGS))
    await cluster.clock.sleep(2.5)
    await leases(cluster).write("operator-1", 15, lease)
    with pytest.raises(Refused, match=r"operator-1 holds the lease .*; stop the operator first, or give --force"):
        await asking
    assert cluster.clock.monotonic() < 4


@virtual
async def test_a_lease_of_a_dead_operator_or_of_nobody_is_not() -> None:
    cluster = Cluster()
    await refuse_while_led(cluster.kube, SETTINGS)
    lease = await leases(cluster).write("operator-1", 15, None)
    await refuse_while_led(cluster.kube, SETTINGS)
    waited = cluster.clock.monotonic()
    assert waited >= 20, "longer than a standby would wait for it"
    await leases(cluster).write("", 1, lease)
    await refuse_while_led(cluster.kube, SETTINGS)
    assert cluster.clock.monotonic() - waited < 1


@virtual
async def test_a_standby_that_takes_a_dead_operators_lease_is_seen() -> None:
    cluster = Cluster()
    lease = await leases(cluster).write("operator-1", 15, None)

    async def take_over() -> None:
        await cluster.clock.sleep(17)
        await leases(cluster).write("operator-2", 15, lease)

    standby = asyncio.create_task(take_over())
    with pytest.raises(Refused, match="operator-2 holds the lease"):
        await refuse_while_led(cluster.kube, SETTINGS)
    await standby


@virtual
async def test_the_kill_switch_goes_last() -> None:
    cluster = Cluster()
    metadata = {"name": "headroom", "namespace": SETTINGS.operator_namespace}
    cluster.server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"stop": "true"}})
    await leases(cluster).write("", 1, None)
    assert [each async for each in leftovers.rules(cluster.kube)] == []
    assert [each async for each in leftovers.marks(cluster.kube)] == []
    found = [each.what async for each in leftovers.rest(cluster.kube, SETTINGS, crds=True)]
    assert found[0] == "Lease headroom-system/headroom"
    assert found[-1] == "ConfigMap headroom-system/headroom"
    assert sum(each.startswith("kind ") for each in found) == len(DEFINITIONS)
    assert len(found) == 2 + len(DEFINITIONS)


GATES = [{"name": "example.com/theirs"}, {"name": "headroom.dev/budget"}]
THEIR_NOTES = {"headroom.dev/expected-duration": "1h", "headroom.dev/protected": "true", "theirs": "stays"}
OWNERS = ("Job", "JobSet", "Workload")


async def enforced(pods: int) -> Cluster:
    """A cluster in which every effect of enforcement stands."""
    cluster = Cluster()
    for each in (*policies(), *owners.definitions()):
        cluster.server.put(each)
    hold = {"metadata": {"name": "team-a.one"}, "spec": {"budget": "team-a/one"}}
    cluster.server.put({"apiVersion": "headroom.dev/v1alpha1", "kind": "BudgetHold"} | hold)
    for number in range(pods):
        held = {"headroom.dev/held-by": "team-a/one", "headroom.dev/held-because": "so"} | THEIR_NOTES
        metadata = {"annotations": held, "finalizers": ["headroom.dev/usage", "example.com/theirs"]}
        cluster.pod(f"held-{number}", spec={"schedulingGates": GATES}, metadata=metadata)
    paused, released = cluster.pod("paused"), cluster.pod("released", spec={"schedulingGates": GATES[1:]})
    await do(cluster, on(actions.PausePod, paused, pod="team-a/paused"))
    await do(cluster, on(actions.ReleasePod, released, pod="team-a/released"))
    await do(cluster, on(actions.TouchPod, released, pod="team-a/released"))
    for kind in OWNERS:
        cluster.server.put(owners.owner(kind))
        cluster.server.put(owners.owner(kind, "let-go"))
        for name in ("train", "let-go"):
            await do(cluster, actions.SuspendOwner(kind=kind, object=f"team-a/{name}"))
        await do(cluster, actions.ResumeOwner(kind=kind, object="team-a/let-go"))
    return cluster


@virtual
async def test_nothing_of_ours_is_left_and_nothing_of_others_is_lost() -> None:
    cluster = await enforced(pods=1)
    cluster.server.put(owners.owner("Job", "theirs", spec={"suspend": True}))
    count = await take_all(cluster.kube, SETTINGS, set(), crds=False)
    assert count == len(policies()) + 1 + 3 + 2 * len(OWNERS)
    for kind in {each["kind"] for each in policies()} | {"BudgetHold", "BudgetIndex"}:
        assert cluster.server.objects(kind) == []
    held = cluster.stored("Pod", "team-a", "held-0")
    assert held["spec"]["schedulingGates"] == [{"name": "example.com/theirs"}]
    assert held["metadata"]["annotations"] == THEIR_NOTES
    assert held["metadata"]["finalizers"] == ["example.com/theirs"]
    for name in ("paused", "released"):
        assert "headroom.dev" not in str(cluster.stored("Pod", "team-a", name))
    for kind, name in itertools.product(OWNERS, ("train", "let-go")):
        found = cluster.stored(kind, "team-a", name)
        assert "headroom.dev" not in str(found["metadata"].get("labels")) + str(found["metadata"].get("annotations"))
        assert not found["spec"].get("suspend")
        assert found["spec"].get("active") is not False
    assert cluster.stored("Job", "team-a", "theirs")["spec"]["suspend"] is True
    assert await take_all(cluster.kube, SETTINGS, set(), crds=False) == 0


@virtual
async def test_what_the_policies_still_gate_for_a_moment_is_let_go_too(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = await enforced(pods=0)
    late: dict[str, Any] = {
        "spec": {"schedulingGates": GATES[1:]},
        "metadata": {"annotations": {"headroom.dev/held-by": "team-a/one"}},
    }
    cluster.clock.call_later(1.0, lambda: cluster.pod("late", **late))
    await take_all(cluster.kube, SETTINGS, set(), crds=False)
    assert "headroom.dev" not in str(cluster.stored("Pod", "team-a", "late"))
    assert "removing our gate and annotations from pod team-a/late" in capsys.readouterr().out


@virtual
async def test_of_very_many_pods_only_some_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = await enforced(pods=510)
    await take_all(cluster.kube, SETTINGS, set(), crds=False)
    said = capsys.readouterr()
    assert said.out.count("from pod team-a/") == 20
    assert "removing gates and marks from 492 more pods" in said.out
    assert said.err == "", "how far it is, is for terminals"
    assert [each async for each in leftovers.marks(cluster.kube)] == []


@virtual
async def test_nodes_that_we_cordoned_take_pods_again_and_those_of_others_do_not() -> None:
    cluster = Cluster()
    pool = a_resource("PowerPool")
    for name in ("asleep", "lifted-by-hand"):
        cluster.node(name)
        await do(cluster, actions.CordonNode(node=name), pool)
    cluster.server.do("PATCH", paths.node("lifted-by-hand"), {"spec": {"unschedulable": None}})
    cluster.node("theirs", unschedulable=True)
    found = [each.what async for each in leftovers.marks(cluster.kube)]
    assert found == ["our cordon of node asleep", "our cordon of node lifted-by-hand"]
    assert await take_all(cluster.kube, SETTINGS, set(), crds=False) == 2
    nodes = {name: cluster.stored("Node", "", name) for name in ("asleep", "lifted-by-hand", "theirs")}
    assert [name for name, node in nodes.items() if node["spec"].get("unschedulable")] == ["theirs"]
    assert not any("headroom.dev" in str(node["metadata"].get("annotations")) for node in nodes.values())
    assert [each async for each in leftovers.marks(cluster.kube)] == []


@virtual
async def test_nodes_publish_no_bandwidth_and_lose_our_taint_and_nothing_else() -> None:
    cluster = Cluster()
    size = {"cpu": "8", "nvidia.com/gpu": "4"}
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    metadata = {"name": "native"}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [theirs]}}
    cluster.server.put(document | {"status": {"capacity": size, "allocatable": size}})
    await do(cluster, actions.TaintNode(node="native", taint=f"{BANDWIDTH_UNAVAILABLE}:NoSchedule"))
    published = {"headroom.dev/egress-mbps": "1000", "headroom.dev/local-ingress-mbps": "20000"}
    await do(cluster, actions.SetNodeResources(node="native", resources=published))
    found = [each.what async for each in leftovers.marks(cluster.kube)]
    assert found == ["our taint of and bandwidth published on node native"]
    assert await take_all(cluster.kube, SETTINGS, set(), crds=False) == 1
    node = cluster.stored("Node", "", "native")
    assert "headroom.dev" not in str(node)
    assert theirs in node["spec"]["taints"]
    assert (node["status"]["capacity"], node["status"]["allocatable"]) == (size, size)
    assert [each async for each in leftovers.marks(cluster.kube)] == []


def a_pool_with(*slots: dict[str, Any], name: str = "inference") -> dict[str, Any]:
    spec = {"region": "ap-singapore", "instanceType": "GN7.2XLARGE32", "minimum": 1, "maximum": 3}
    metadata = {"name": name, "namespace": "team-a", "finalizers": [POOL_FINALIZER]}
    return {
        "apiVersion": API_VERSION,
        "kind": "Spotpool",
        "metadata": metadata,
        "spec": spec,
        "status": {"slots": list(slots)},
    }


@virtual
async def test_machines_of_spot_pools_are_named_and_never_ended() -> None:
    cluster = Cluster()
    assert await leftovers_spot.machines_left(cluster.kube) == []
    running = {"slot": 0, "state": "Running", "instanceId": "ins-1"}
    launching = {"slot": 1, "state": "Launching", "token": "t"}
    cluster.server.put(a_pool_with(running, launching))
    cluster.server.put(a_pool_with(name="empty"))
    said, how = await leftovers_spot.machines_left(cluster.kube)
    assert said == ("not ended: 1 machine of Spotpool/team-a/inference: ins-1; 1 launch may have brought more")
    assert "`kubectl delete spotpool -n team-a inference`" in how
    assert "headroom.dev/cluster" in how
    named = [each.what async for each in leftovers.marks(cluster.kube)]
    assert named == ["our finalizer from Spotpool/team-a/empty", "our finalizer from Spotpool/team-a/inference"]
    await take_all(cluster.kube, SETTINGS, set(named), crds=False)
    pool = cluster.server.object("Spotpool", "team-a", "inference")
    assert pool is not None
    assert not pool["metadata"].get("finalizers"), "so that nothing is stuck"
    assert pool["status"]["slots"][0]["instanceId"] == "ins-1", "and who looks later still finds it"


@virtual
async def test_a_cordon_of_a_spot_pool_goes() -> None:
    cluster = Cluster()
    metadata = {"name": "spot-0", "annotations": {CORDONED_BY: "Spotpool/team-a/inference"}}
    cluster.server.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}})
    found = [each async for each in leftovers.marks(cluster.kube)]
    assert [each.what for each in found] == ["our cordon of node spot-0"]
    await leftovers.remove_many(cluster.kube, found)
    after = cluster.server.object("Node", "", "spot-0")
    assert after is not None
    assert not after["spec"].get("unschedulable")
    assert CORDONED_BY not in after["metadata"].get("annotations", {})
