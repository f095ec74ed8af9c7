"""Whether everything that the demo tells of one moment agrees, at 60 times real time: eleven bodies over HTTP, and what commands print.

    make bench NAME=agreement    (about five minutes)

The demo's fleet and the operator with its dashboard, as `headroom demo` runs them. A hundred times all pages and `/metrics` are asked
for at once, and every number that two of them tell must be the same in both. Then `headroom status` and `headroom explain` read the
cluster: what they print of a budget must be what was decided for the moment that it is of. How old a body was when it was sent is told
beside it, in real seconds.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from bench import results
from bench.results import Row
from headroom.model import times
from headroom.sim.fleet import arrivals, fleet
from headroom.sim.operators import SimulatedProcess
from headroom.sim.pacing import PacedClock, run_paced
from headroom.sim.scenario import Scenario, Simulation
from headroom.sim.script import ScenarioStep
from headroom.web.editions import Editions
from headroom.web.listening import Servers
from headroom.web.rates import Turns
from headroom.web.scope import Scope
from headroom.web.server import EDITIONS, STREAMS, main_app
from headroom.web.source import Address, PageSource, Sheet
from tests.web import agreement
from tests.web.onlooker import OF_BUDGETS, Onlooker

SPEED, SEED = 60.0, 1
POLLS, EVERY_SECONDS, SETTLE_SECONDS = 100, 2.2, 15
OLDEST_SECONDS = 2.0
ADDRESSES = ["overview", "nodes", "power", "power/basement", "spot", *(f"budgets/{each}" for each in OF_BUDGETS)]


@contextlib.asynccontextmanager
async def demo() -> AsyncIterator[Onlooker]:
    """The demo's fleet, which lives on."""
    scenario = Scenario.of(fleet(SEED, 0))
    clock, onlookers = PacedClock(scenario.start, SPEED), list[Onlooker]()

    def make(*given: Any) -> SimulatedProcess:
        process = SimulatedProcess(*given)
        onlookers.append(Onlooker(simulation, process))
        return process

    async def live() -> None:
        for at, job in arrivals(SEED):
            await clock.sleep((scenario.start + at - clock.now()) / times.SECOND)
            await simulation.do(ScenarioStep(apply=job))

    simulation = Simulation(scenario, make, clock)
    simulation.start()
    living = asyncio.create_task(live())
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        yield onlookers[0]
    finally:
        living.cancel()
        await simulation.stop()


class Noted(Editions):
    """Pages of one moment; notes how old each is when it is handed out."""

    def __init__(self, source: PageSource, turns: Turns) -> None:
        super().__init__(source, turns)
        self.ages: list[float] = []

    async def page(self, address: Address, scope: Scope, tenant: str) -> Sheet:
        """As ever."""
        found = await super().page(address, scope, tenant)
        self.ages.append(time.monotonic() - found.made_at)
        return found


async def measured() -> list[Row]:
    """A hundred polls."""
    differ, stale, spans = 0, 0, list[float]()
    servers = Servers()
    async with demo() as onlooker:
        app = main_app(onlooker.local, None)
        app[EDITIONS] = editions = Noted(onlooker.local, app[STREAMS].turns)
        port = await servers.listen(app, "127.0.0.1:0", "metrics_address")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

            async def body(path: str) -> tuple[str, Any]:
                """One body."""
                async with client.get("/metrics" if path == "metrics" else f"/api/{path}") as reply:
                    text = await reply.text()
                    assert reply.status == 200, (path, reply.status, text)
                return path, text if path == "metrics" else json.loads(text)

            for number in range(POLLS):
                began = time.monotonic()
                found = await asyncio.gather(*map(body, [*ADDRESSES, "metrics"]))
                spans.append(time.monotonic() - began)
                said = agreement.differences(dict(found))
                differ += bool(said)
                before = len(onlooker.found)
                await onlooker.list_it()
                said += onlooker.found[before:]
                stale += len(onlooker.found) > before
                for each in said[:3]:
                    print(f"agreement: poll {number}: {each}", file=sys.stderr, flush=True)
                await asyncio.sleep(max(0.0, EVERY_SECONDS - (time.monotonic() - began)))
        await servers.close()
    bodies = len(ADDRESSES) + 1
    return [
        Row(
            figure=f"of {POLLS} polls of {bodies} bodies, those in which two differ", value=differ, unit="polls", goal=0
        ),
        Row(
            figure=f"of {POLLS} readings by commands, those that differ from what was decided",
            value=stale,
            unit="polls",
            goal=0,
        ),
        Row(figure="oldest body when it was sent", value=round(max(editions.ages), 2), unit="s", goal=OLDEST_SECONDS),
        Row(figure="all bodies of one poll, median", value=round(sorted(spans)[POLLS // 2], 3), unit="s"),
    ]


def main() -> int:
    """Measure, print, keep."""
    return 1 if results.write("agreement", run_paced(measured)) else 0


if __name__ == "__main__":
    sys.exit(main())
