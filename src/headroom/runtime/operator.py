"""One operator: the loop and the writer over a port, started and stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from headroom.core import PLANS
from headroom.model.plans import Plan
from headroom.model.ports import Port
from headroom.runtime.loop import Loop
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.runtime.writes import Gate, WriteBudget, Writer

FINALIZERS_PER_SECOND: Final = 150.0
"""As many pods as may end a second; pods that have ended wait for nothing else."""
BURST: Final = 300
REPEAT: Final = 2.0
"""A pod of the same name may follow soon."""


class Operator:
    """Decides and acts while its gate lets it."""

    def __init__(
        self, port: Port, gate: Gate, settings: Settings, around: Runtime, plans: Iterable[Plan] = PLANS
    ) -> None:
        plans = tuple(plans)
        for plan in plans:
            port.subscribe(plan.name, plan.parts)
        budget = WriteBudget(around.clock, settings.writes_per_second, settings.write_burst)
        self.port = port
        self.writer = Writer(port, gate, budget, around)
        self.finalizing = Writer(
            port, gate, WriteBudget(around.clock, FINALIZERS_PER_SECOND, BURST), around, repeat=REPEAT
        )
        self.loop = Loop(port, plans, (self.writer, self.finalizing), gate, around)

    async def run(self) -> None:
        """Run until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.loop.run())
            tasks.create_task(self.writer.run())
            tasks.create_task(self.finalizing.run())

    async def stop(self) -> None:
        """Begin nothing more and let what has begun come to its end."""
        self.loop.stop()
        await self.writer.stop()
        await self.finalizing.stop()
