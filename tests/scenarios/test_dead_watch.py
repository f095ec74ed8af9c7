"""A watch that ends by a mistake of ours ends the whole process, so that the standby takes over."""

from __future__ import annotations

import asyncio
import random

from headroom.adapters.kube import paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import ClientConfig
from headroom.cli import output
from headroom.cli.serving import Process
from headroom.core import PLANS
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from tests.builders import NOON

CONFIG = ClientConfig(source="the simulator", server="https://simulated")
SETTINGS = Settings(identity="me", elect_leader=False, metrics_address="", health_address="")


async def test_a_dead_watch_ends_the_process() -> None:
    clock = SimClock(NOON)
    server = ApiServer(clock, random.Random(1))
    kube = Kube(server.transport("operator"), clock)
    process = Process(SETTINGS, Runtime(clock=clock), kube, CONFIG, PLANS)
    running = asyncio.create_task(process.run())
    assert await process._port.synced(10)
    process._port._reflectors[paths.nodes()]._sink = None  # type: ignore[assignment]  # a bug of ours, as bad as any
    server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert await asyncio.wait_for(running, 120) == output.COULD_NOT_RUN
