"""What the simulator's false answers look like to a client: as they do from a proxy before a real API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headroom.adapters.kube.config import ClientConfig, Pem
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.transport import StreamRefused, Transport
from headroom.model.errors import Unavailable
from headroom.sim.faults import Faults, fault
from tests.contracts.cluster import Cluster
from tests.contracts.objects import config_map
from tests.contracts.server import ServerCluster
from tests.contracts.simulated import SimulatedCluster
from tests.fault_proxy import Fault, FaultProxy

SIMULATED: dict[Fault, str] = {"html": "Garbage", "hang": "Hang", "empty": "EmptyList", "endless": "EndlessList"}
INITIAL = {
    "watch": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


@asynccontextmanager
async def lying(cluster: Cluster, answer: Fault) -> AsyncIterator[Transport]:
    """A connection on which everything is answered so."""
    if isinstance(cluster, SimulatedCluster):
        faults = Faults(cluster.server.clock, cluster.server.clock.now(), faults=[fault({"type": SIMULATED[answer]})])
        yield cluster.server.transport("admin", faults=faults)
        return
    assert isinstance(cluster, ServerCluster)
    with FaultProxy(cluster.plane) as proxy:
        proxy.answer_with(answer, lambda _: True)
        config = ClientConfig(
            source="the contract tests",
            server=f"https://127.0.0.1:{proxy.port}",
            authority=Pem("the test authority", file=cluster.plane.ca_file),
            token=cluster.token("admin"),
        )
        transport = HttpTransport(config, cluster.clock)
        try:
            yield transport
        finally:
            await transport.close()


async def listed(transport: Transport, path: str, **query: str) -> tuple[int, Any]:
    reply = await transport.request("GET", path, query=query)
    return reply.status, reply.body if reply.body.startswith(b"<") else json.loads(reply.body)


async def test_a_page_for_people_is_no_json(cluster: Cluster) -> None:
    async with lying(cluster, "html") as transport:
        status, body = await listed(transport, cluster.path("ConfigMap"))
        assert (status, body[:15]) == (200, b"<!DOCTYPE html>")
        lines = [line async for line in transport.stream(cluster.path("ConfigMap"), query=INITIAL, idle=5)]
        assert lines[0].startswith(b"<")


async def test_an_empty_list_looks_like_any_other(cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    async with lying(cluster, "empty") as transport:
        status, body = await listed(transport, cluster.path("ConfigMap"))
        assert (status, body["kind"], body["items"]) == (200, "ConfigMapList", [])
        assert int(body["metadata"]["resourceVersion"]) > 0
        async for line in transport.stream(cluster.path("ConfigMap"), query=INITIAL, idle=5):
            first = json.loads(line)
            break
        assert first["type"] == "BOOKMARK"
        assert first["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_an_endless_list_always_goes_on(cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    async with lying(cluster, "endless") as transport:
        _, first = await listed(transport, cluster.path("ConfigMap"), limit="500")
        _, second = await listed(
            transport, cluster.path("ConfigMap"), limit="500", **{"continue": first["metadata"]["continue"]}
        )
        assert second["metadata"]["continue"]
        with pytest.raises(StreamRefused):
            async for _ in transport.stream(cluster.path("ConfigMap"), query=INITIAL, idle=5):
                pass


async def test_no_answer_is_told_when_the_time_is_up(cluster: Cluster) -> None:
    async with lying(cluster, "hang") as transport:
        with pytest.raises(Unavailable, match="no answer within"):
            await transport.request("GET", cluster.path("ConfigMap"), timeout=0.3)
