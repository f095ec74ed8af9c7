"""A view over a made-up world: the port, the loop, the gate and the clock in one, with the decisions of the real plans."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from msgspec import structs

from headroom.cli import capabilities
from headroom.core import PLANS
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision, Ref
from headroom.model.world import World
from headroom.runtime.journal import Journal
from headroom.runtime.loop import Bell
from headroom.runtime.metrics import Metrics
from headroom.sim.ledger import MemoryLedger
from headroom.web.listening import Servers
from headroom.web.pages import Maker, Pages
from headroom.web.scope import Scope
from headroom.web.view import OperatorView, Showing


class Made:
    """One operator over one world, which a test may replace."""

    def __init__(self, world: World) -> None:
        self.bell, self.ticks, self.why = Bell(), 1, list[str]()
        self.journal = Journal(MemoryLedger())
        self.decisions: dict[Ref, Decision] = {}
        self.leads = True
        self.become(world)

    def become(self, world: World) -> None:
        """Another world; it is decided on, as the loop would."""
        self._world = world
        self.decisions = {each.resource: each for plan in PLANS for each in plan.decide(world, EVERYTHING)}
        for decision in self.decisions.values():
            if not decision.routine:
                self.journal.decided(decision, world.now, world.cluster)
        self.bell.ring()

    def world(self, now: int) -> World:
        return structs.replace(self._world, now=now)

    def problems(self) -> list[str]:
        return self.why

    def watched(self) -> dict[str, bool]:
        return {"pods": True} | dict.fromkeys(self._world.unseen, False)

    def age_seconds(self) -> float:
        return 1.5

    def may_act(self) -> bool:
        return self.leads

    def now(self) -> int:
        return self._world.now

    def view(self, **more: Any) -> OperatorView:
        return OperatorView(port=self, loop=self, gate=self, clock=self, journal=self.journal, **more)

    def showing(self, **more: Any) -> Showing:
        return Showing(view=self.view(**more), metrics=capabilities.measured(Metrics()), pages=capabilities.pages())


def page_at(*address: Any) -> Maker:
    """The page at an address."""
    return Pages(capabilities.pages()).of(address)


class Team:
    """Somebody who sees the namespaces of a team."""

    name = tenant = "alice"

    def __init__(self, *namespaces: str, nodes: bool = False) -> None:
        self.sees = Scope(namespaces=frozenset(namespaces), nodes=nodes)

    async def scope(self) -> Scope:
        return self.sees


@asynccontextmanager
async def served(app: aiohttp.web.Application) -> AsyncIterator[aiohttp.ClientSession]:
    """An app on a free port of the loopback."""
    servers = Servers()
    port = await servers.listen(app, "127.0.0.1:0", "metrics_address")
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        await servers.close()
