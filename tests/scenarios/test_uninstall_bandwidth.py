"""Uninstalling what bandwidth left: Bandwidths, what the policies were told, the extender's lease and Secret; pods that cannot be mended are named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.leases import KubeLeases
from headroom.api.bandwidth import NODE_UID
from headroom.api.resources import API_VERSION
from headroom.cli import leftovers, leftovers_bandwidth
from headroom.cli.uninstall import refuse_while_led, take_all
from headroom.model.errors import Refused
from headroom.runtime.settings import Settings
from tests.adapters.simulated import Cluster, virtual

SETTINGS = Settings(identity="me")
SYSTEM = "headroom-system"


def extenders_lease(cluster: Cluster) -> KubeLeases:
    return KubeLeases(cluster.kube, SYSTEM, "headroom-extender")


def ours(kind: str, name: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": kind, "spec": more.pop("spec", {})}
    return made | {"metadata": {"name": name} | more}


async def used() -> Cluster:
    """A cluster in which bandwidth was accounted and the extender ran."""
    cluster = Cluster()
    cluster.server.put(ours("Bandwidth", "made", annotations={NODE_UID: "u"}, spec={"capacity": {}}))
    cluster.server.put(ours("Bandwidth", "theirs", spec={"capacity": {}}))
    cluster.server.put(ours("BandwidthConfig", "headroom"))
    secret = {"metadata": {"name": "headroom-extender-tls", "namespace": SYSTEM}, "data": {}}
    cluster.server.put({"apiVersion": "v1", "kind": "Secret"} | secret)
    other = {"metadata": {"name": "theirs", "namespace": SYSTEM}, "data": {}}
    cluster.server.put({"apiVersion": "v1", "kind": "Secret"} | other)
    await extenders_lease(cluster).write("", 1, None)
    return cluster


async def is_there(kube: Kube, path: str) -> bool:
    try:
        await kube.get(path)
    except errors.NotFound:
        return False
    return True


@virtual
async def test_what_headroom_made_goes_and_what_people_made_stays() -> None:
    cluster = await used()
    found = [each.what async for each in leftovers.rest(cluster.kube, SETTINGS, crds=False)]
    assert found == [
        "BandwidthConfig headroom",
        f"Lease {SYSTEM}/headroom-extender",
        f"Secret {SYSTEM}/headroom-extender-tls",
    ]
    assert await take_all(cluster.kube, SETTINGS, set(), crds=False) == 4
    kept = {
        name: await is_there(cluster.kube, path)
        for name, path in {
            "made": paths.resource("Bandwidth", "", "made"),
            "theirs": paths.resource("Bandwidth", "", "theirs"),
            "secret": paths.secret(SYSTEM, "headroom-extender-tls"),
            "their secret": paths.secret(SYSTEM, "theirs"),
            "lease": paths.lease(SYSTEM, "headroom-extender"),
        }.items()
    }
    assert kept == {"made": False, "theirs": True, "secret": False, "their secret": True, "lease": False}


@virtual
async def test_other_names_of_the_extender_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_EXTENDER_KEPT_IN", "theirs")
    cluster = await used()
    found = [each.what async for each in leftovers.rest(cluster.kube, SETTINGS, crds=False)]
    assert f"Secret {SYSTEM}/theirs" in found
    assert f"Secret {SYSTEM}/headroom-extender-tls" not in found


@virtual
async def test_while_an_extender_answers_nothing_is_taken() -> None:
    cluster = Cluster()
    name, lease = leftovers_bandwidth.lease_name(), await extenders_lease(cluster).write("extender-1", 15, None)
    await refuse_while_led(cluster.kube, SETTINGS)
    asking = asyncio.create_task(refuse_while_led(cluster.kube, SETTINGS, name, "extender"))
    await cluster.clock.sleep(2.5)
    await extenders_lease(cluster).write("extender-1", 15, lease)
    with pytest.raises(Refused, match=r"extender-1 holds the lease .*extender; stop the extender first"):
        await asking


@virtual
async def test_pending_pods_that_request_what_no_node_will_have_are_named() -> None:
    cluster = Cluster()
    assert await leftovers_bandwidth.pods_left(cluster.kube) == []
    for name, resource, node in (
        ("marked", "headroom.dev/bandwidth", ""),
        ("native", "headroom.dev/egress-mbps", ""),
        ("bound", "headroom.dev/egress-mbps", "n"),
        ("plain", "cpu", ""),
    ):
        main = {"name": "main", "image": "x", "resources": {"requests": {resource: "1"}, "limits": {resource: "1"}}}
        cluster.pod(name, spec={"containers": [main]} | ({"nodeName": node} if node else {}))
    [said] = await leftovers_bandwidth.pods_left(cluster.kube)
    assert said.startswith(
        "not removed: the bandwidth that 2 pending pods request of kube-scheduler: team-a/marked, team-a/native. "
        "No node will have it: delete them, and their controllers make new ones without."
    )


@virtual
async def test_of_very_many_pods_only_some_are_named() -> None:
    cluster = Cluster()
    for number in range(25):
        one = {"headroom.dev/bandwidth": "1"}
        main = {"name": "main", "image": "x", "resources": {"requests": one, "limits": one}}
        cluster.pod(f"p{number:02}", spec={"containers": [main]})
    [said] = await leftovers_bandwidth.pods_left(cluster.kube)
    assert "team-a/p19 and 5 more. No node" in said
