"""A cluster in which nothing happens is seen completely all the time, and nothing is written to it but the lease."""

from __future__ import annotations

import asyncio
import random

import pytest

from headroom.adapters.kube.transport import Transport
from headroom.model.ports import Clock
from headroom.sim import faults as wrong
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from headroom.sim.operators import SimulatedProcess
from tests.adapters.simulated import Cluster, virtual
from tests.builders import NOON, SPECS, a_document

MINUTES = 30


async def never_incomplete(cluster: Cluster) -> None:
    for second in range(MINUTES * 60):
        await cluster.clock.sleep(1)
        assert cluster.port.complete, f"after {second} s: {cluster.port.age_seconds():.0f} s, {cluster.port.problems()}"


@pytest.mark.parametrize("latency", [0, 400])
@virtual
async def test_a_quiet_cluster_is_seen_completely_all_the_time(latency: int) -> None:
    cluster = Cluster(latency_ms=latency)
    cluster.pod()
    cluster.node()
    for kind in SPECS:
        cluster.resource(kind)
    async with cluster:
        await never_incomplete(cluster)


@virtual
async def test_also_where_two_of_five_watches_are_refused_and_streams_break() -> None:
    async with Cluster() as cluster:
        # Within the three seconds that a watch may be away it is tried some 16 times. Of a thousand watches that break, at one half
        # one in thirty runs meets so many refusals in a row; at two fifths, one in two thousand.
        cluster.transport._faults.add(wrong.Refusal(status=500, verb="watch", probability=0.4))
        for minute in range(MINUTES):
            cluster.transport._faults.add(wrong.DroppedStream(since=f"{minute * 60 + 50}s"))
        await never_incomplete(cluster)


@virtual
async def test_the_operator_writes_nothing_but_its_lease() -> None:
    clock = SimClock(NOON)
    server = ApiServer(clock, random.Random(1))
    for kind in SPECS:
        server.put(a_document(kind))
    process = operator(server.transport("operator"), clock)
    running = asyncio.create_task(process.run())
    # The first minute is for the statuses of what is new.
    await clock.sleep(60)
    assert process.leader.may_act()
    before = len(server.trace.writes)
    for _ in range(MINUTES * 60):
        await clock.sleep(1)
        assert process.port.complete, process.port.problems()
    written = server.trace.writes[before:]
    assert written
    assert [each for each in written if "/leases/" not in each.path] == []
    await process.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def operator(transport: Transport, clock: Clock) -> SimulatedProcess:
    return SimulatedProcess(transport, clock, random.Random(2), "operator-1")
