"""Uninstalling asks first whether an operator still leads, by the lease alone and by no clock but our own."""

from __future__ import annotations

import asyncio

import pytest

from headroom.adapters.kube.leases import KubeLeases
from headroom.api.kinds import DEFINITIONS
from headroom.cli.uninstall import leftovers, refuse_while_led
from headroom.model.errors import Refused
from headroom.runtime.settings import Settings
from tests.adapters.simulated import Cluster, virtual

SETTINGS = Settings(identity="me")


def leases(cluster: Cluster) -> KubeLeases:
    return KubeLeases(cluster.kube, SETTINGS.namespace, SETTINGS.lease_name)


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
    metadata = {"name": "headroom", "namespace": SETTINGS.namespace}
    cluster.server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"stop": "true"}})
    await leases(cluster).write("", 1, None)
    found = [each.what async for each in leftovers(cluster.kube, SETTINGS, crds=True)]
    assert found[0] == "Lease headroom-system/headroom"
    assert found[-1] == "ConfigMap headroom-system/headroom"
    assert sum(each.startswith("kind ") for each in found) == len(DEFINITIONS)
    assert len(found) == 2 + len(DEFINITIONS)
