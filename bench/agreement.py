"""Whether everything that the demo tells of one moment agrees, at 60 times real time: eleven bodies over HTTP, and what commands print.

    make bench NAME=agreement    (about five minutes)

The demo's fleet and the operator with its dashboard, as `headroom demo` runs them. A hundred times all pages and `/metrics` are asked
for at once, and every number that two of them tell must be the same in both. Then `headroom status` and `headroom explain` read the
cluster: what they print of a budget must be what was decided for the moment that it is of. How old a body was when it came is told
beside it, in real seconds.
"""

import asyncio
import bisect
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
from headroom.web.listening import Servers
from headroom.web.server import main_app
from tests.web import agreement
from tests.web.onlooker import OF_BUDGETS, Onlooker

SPEED, SEED = 60.0, 1
POLLS, EVERY_SECONDS, SETTLE_SECONDS = 100, 2.2, 15
OLDEST_SECONDS, NOTED_SECONDS = 2.0, 0.01
ADDRESSES = ["overview", "nodes", "power", "power/basement", "spot", *(f"budgets/{each}" for each in OF_BUDGETS)]


@contextlib.asynccontextmanager
async def demo() -> AsyncIterator[tuple[Onlooker, PacedClock]]:
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
        yield onlookers[0], clock
    finally:
        living.cancel()
        await simulation.stop()


class RealTime:
    """When simulated moments were, in real time: a busy machine lets simulated time pass more slowly."""

    def __init__(self, clock: PacedClock) -> None:
        self._clock = clock
        self._moments: list[int] = []
        self._seconds: list[float] = []

    async def follow(self) -> None:
        """Go on noting, until cancelled."""
        while True:
            self._moments.append(self._clock.now())
            self._seconds.append(time.monotonic())
            await asyncio.sleep(NOTED_SECONDS)

    def at(self, moment: int) -> float:
        """The last time at which that moment had not passed."""
        return self._seconds[max(0, bisect.bisect_right(self._moments, moment) - 1)]


async def measured() -> list[Row]:
    """A hundred polls."""
    differ, stale, ages, spans = 0, 0, list[float](), list[float]()
    servers = Servers()
    async with demo() as (onlooker, clock):
        real = RealTime(clock)
        following = asyncio.create_task(real.follow())
        port = await servers.listen(main_app(onlooker.local, None), "127.0.0.1:0", "metrics_address")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

            async def body(path: str) -> tuple[str, Any, float]:
                """One body, and how old it was when it came."""
                async with client.get("/metrics" if path == "metrics" else f"/api/{path}") as reply:
                    text = await reply.text()
                    assert reply.status == 200, (path, reply.status, text)
                found = text if path == "metrics" else json.loads(text)
                return path, found, time.monotonic() - real.at(agreement.moment_of(found))

            for number in range(POLLS):
                began = time.monotonic()
                found = await asyncio.gather(*map(body, [*ADDRESSES, "metrics"]))
                spans.append(time.monotonic() - began)
                ages.append(max(age for _, _, age in found))
                said = agreement.differences({path: each for path, each, _ in found})
                differ += bool(said)
                before = len(onlooker.found)
                await onlooker.list_it()
                said += onlooker.found[before:]
                stale += len(onlooker.found) > before
                for each in said[:3]:
                    print(f"agreement: poll {number}: {each}", file=sys.stderr, flush=True)
                await asyncio.sleep(max(0.0, EVERY_SECONDS - (time.monotonic() - began)))
        following.cancel()
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
        Row(figure="oldest body when it came", value=round(max(ages), 2), unit="s", goal=OLDEST_SECONDS),
        Row(figure="all bodies of one poll, median", value=round(sorted(spans)[POLLS // 2], 3), unit="s"),
    ]


def main() -> int:
    """Measure, print, keep."""
    return 1 if results.write("agreement", run_paced(measured)) else 0


if __name__ == "__main__":
    sys.exit(main())
