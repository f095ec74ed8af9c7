"""The production operator over a simulated connection: the same port, lease, loop and writer as in a real cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.leases import KubeLeases
from headroom.adapters.kube.store import KubePort
from headroom.adapters.kube.transport import Transport
from headroom.core import PLANS
from headroom.model.changes import Topic
from headroom.model.pace import Pace
from headroom.model.plans import Plan
from headroom.model.ports import Beside, Clock
from headroom.model.world import Caps
from headroom.runtime.leader import Leader
from headroom.runtime.operator import Operator
from headroom.runtime.recording import Recorder
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.sim.clouds import clouds_of
from headroom.sim.ledger import ledger_of
from headroom.sim.power import switches_of

__all__ = ["SimulatedProcess", "ledger_of", "production"]

_CAPS: Final = Caps()
_PACE: Final = Pace()


class SimulatedProcess:
    """One operator process: what `headroom run` starts, less its servers, signals and threads."""

    def __init__(  # noqa: PLR0913  what a process is started with, each named where it is given
        self,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        identity: str,
        plans: Sequence[Plan] = PLANS,
        *,
        caps: Caps = _CAPS,
        lease: str = "headroom",
        pace: Pace = _PACE,
        labels: frozenset[str] = frozenset(),
    ) -> None:
        """One with a `lease` of its own leads whoever else does; `labels` are kept of all usage."""
        settings = Settings(identity=identity, lease_name=lease)
        self.around = around = Runtime(clock=clock, rng=rng, pace=pace)
        kube = Kube(transport, clock, rng)
        leases = KubeLeases(kube, settings.operator_namespace, settings.lease_name)
        self.leader = Leader(leases, clock, identity, rng, pace)
        self.recorder = Recorder(ledger_of(transport), around, may_lead=self.leader.may_act, labels=labels)
        self.switches, self.clouds = switches_of(transport, clock), clouds_of(transport, clock)
        self.port = KubePort(
            kube,
            Events(kube, clock),
            clock=clock,
            rng=rng,
            namespace=settings.operator_namespace,
            recording=self.recorder,
            caps=caps,
            pace=pace,
            beside=Beside(switches=self.switches, clouds=self.clouds),
        )
        if self.switches is not None:
            self.switches.changed = partial(self.port.tell, Topic.MACHINES)
        if self.clouds is not None:
            self.clouds.changed = partial(self.port.tell, Topic.INSTANCES)
            self.clouds.offered = partial(self.port.tell, Topic.OFFERS)
        self.recorder.connect(self.port)
        self.operator = Operator(self.port, self.leader, settings, around, plans)
        self.operator.loop.noted = self.recorder.decided
        self.port.enforced = around.metrics.enforced

    async def run(self) -> None:
        """Watch, stand for election, decide and act, until `stop`."""
        await self.port.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leader.run(), name="leader")
            tasks.create_task(self.operator.run(), name="operator")
            tasks.create_task(self.recorder.run(), name="recorder")
            if self.switches is not None:
                tasks.create_task(self.switches.run(), name="switches")
            if self.clouds is not None:
                tasks.create_task(self.clouds.run(), name="clouds")

    async def stop(self) -> None:
        """End what has begun, then give the lease back, then stop watching."""
        await self.operator.stop()
        await self.recorder.stop()
        await self.leader.release()
        await self.port.stop()


def production(
    transport: Transport, clock: Clock, rng: random.Random, identity: str, *, pace: Pace = _PACE
) -> SimulatedProcess:
    """The production operator; a `scenario.MakeOperator`."""
    return SimulatedProcess(transport, clock, rng, identity, pace=pace)
