"""One operator: the loop and the writer over a port, started and stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headroom.core import PLANS
from headroom.model.plans import Plan
from headroom.model.ports import Port
from headroom.runtime.loop import Loop
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Surroundings
from headroom.runtime.writes import Gate, WriteBudget, Writer


class Operator:
    """Decides and acts while its gate lets it."""

    def __init__(
        self, port: Port, gate: Gate, settings: Settings, around: Surroundings, plans: Iterable[Plan] = PLANS
    ) -> None:
        plans = tuple(plans)
        for plan in plans:
            port.subscribe(plan.name, plan.wakes_on)
        budget = WriteBudget(around.clock, settings.writes_per_second, settings.write_burst)
        self.port = port
        self.writer = Writer(port, gate, budget, around)
        self.loop = Loop(port, plans, self.writer, gate, around)

    async def run(self) -> None:
        """Run until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.loop.run())
            tasks.create_task(self.writer.run())

    async def stop(self) -> None:
        """Begin nothing more and let what has begun come to its end."""
        self.loop.stop()
        await self.writer.stop()
