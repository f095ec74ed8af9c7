"""The production operator over a simulated connection: the same port, lease, loop and writer as in a real cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.leases import KubeLeases
from headroom.adapters.kube.store import KubePort
from headroom.adapters.kube.transport import Transport
from headroom.core import PLANS
from headroom.model.plans import Plan
from headroom.model.ports import Clock
from headroom.runtime.leader import Leader
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Surroundings


class SimulatedProcess:
    """One operator process: what `headroom run` starts, less its servers, signals and threads."""

    def __init__(
        self, transport: Transport, clock: Clock, rng: random.Random, identity: str, plans: Sequence[Plan] = PLANS
    ) -> None:
        settings = Settings(identity=identity)
        self.around = around = Surroundings(clock=clock, rng=rng)
        kube = Kube(transport, clock, rng)
        self.port = KubePort(kube, Events(kube, clock), clock=clock, rng=rng, namespace=settings.namespace)
        leases = KubeLeases(kube, settings.namespace, settings.lease_name)
        self.leader = Leader(leases, clock, identity, rng)
        self.operator = Operator(self.port, self.leader, settings, around, plans)

    async def run(self) -> None:
        """Watch, stand for election, decide and act, until `stop`."""
        await self.port.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leader.run(), name="leader")
            tasks.create_task(self.operator.run(), name="operator")

    async def stop(self) -> None:
        """End what has begun, then give the lease back, then stop watching."""
        await self.operator.stop()
        await self.leader.release()
        await self.port.stop()


def production(transport: Transport, clock: Clock, rng: random.Random, identity: str) -> SimulatedProcess:
    """The production operator; a `scenario.MakeOperator`."""
    return SimulatedProcess(transport, clock, rng, identity)
