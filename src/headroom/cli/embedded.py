"""The production operator over a transport that is handed to it, election included: how the demo and simulations run it."""

from __future__ import annotations

import asyncio
import random

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.leases import KubeLeases
from headroom.adapters.kube.store import KubePort
from headroom.adapters.kube.transport import Transport
from headroom.model.ports import Clock
from headroom.runtime.leader import Leader
from headroom.runtime.logs import Log, Silent
from headroom.runtime.metrics import Metrics
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Surroundings
from headroom.web.view import View


class EmbeddedOperator:
    """One operator in this process, on whatever clock it is given."""

    def __init__(
        self, transport: Transport, clock: Clock, rng: random.Random, identity: str, log: Log | None = None
    ) -> None:
        settings = Settings(identity=identity)
        self.metrics = Metrics()
        around = Surroundings(clock=clock, rng=rng, metrics=self.metrics, log=log or Silent())
        kube = Kube(transport, clock, rng)
        self._port = KubePort(
            kube,
            Events(kube, clock),
            clock=clock,
            rng=rng,
            namespace=settings.namespace,
            cluster=settings.cluster_id,
        )
        self._leader = Leader(KubeLeases(kube, settings.namespace, settings.lease_name), clock, identity, rng)
        self._operator = Operator(self._port, self._leader, settings, around)
        self.view = View(
            port=self._port, loop=self._operator.loop, gate=self._leader, clock=clock, title="Headroom demo"
        )

    async def run(self) -> None:
        """Run until `stop`."""
        await self._port.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._leader.run())
                tasks.create_task(self._operator.run())
        finally:
            await self._port.stop()

    async def stop(self) -> None:
        """Begin nothing more, let what has begun come to its end, and give the lease back."""
        await self._operator.stop()
        await self._leader.release()
