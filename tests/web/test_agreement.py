"""Pages, metrics and commands tell the same of one moment: over hours of the demo's fleet, looked at while things happen."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest

from headroom.model import times
from headroom.sim.fleet import arrivals, fleet
from headroom.sim.operators import SimulatedProcess
from headroom.sim.pacing import PacedClock, run_paced
from headroom.sim.scenario import Scenario, Simulation
from headroom.sim.script import ScenarioStep
from headroom.web import source
from tests.scenarios.ladder import UNHURRIED, bookmarked
from tests.tiers import DEEP
from tests.web.onlooker import Onlooker

MINUTES = 150 if DEEP else 60
"""In an hour machines wake and sleep; budgets go over quota in the third."""
LATER_SECONDS = 3.4
"""After each Job that comes, the cluster is listed: its pods have been made and, if there was room, have started."""


@cache
def played() -> Onlooker:
    """The demo's first hours, looked at all the time."""

    async def play() -> Onlooker:
        scenario = Scenario.of(fleet(1, 0))
        onlookers: list[Onlooker] = []

        def make(*given: Any) -> SimulatedProcess:
            process = SimulatedProcess(*given, pace=UNHURRIED)
            onlookers.append(Onlooker(simulation, process))
            simulation.server.store.subscribe(onlookers[0].happened)
            return process

        simulation = bookmarked(Simulation(scenario, make, PacedClock(scenario.start, 1e9)), UNHURRIED)
        simulation.start()
        for at, job in itertools.takewhile(lambda each: each[0] < MINUTES * times.MINUTE, arrivals(1)):
            await simulation.clock.sleep((scenario.start + at - simulation.clock.now()) / times.SECOND)
            await simulation.do(ScenarioStep(apply=job))
            await simulation.clock.sleep(LATER_SECONDS)
            await onlookers[0].list_it()
        await simulation.stop()
        return onlookers[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "TOGETHER_SECONDS", 60.0)
        return run_paced(play)


def test_everything_that_is_told_of_one_moment_agrees() -> None:
    found = played()
    assert found.found == []
    assert (found.looks > 40, found.lists > 40, found.commands > 1) == (True, True, True)


def test_looks_came_before_the_loop_had_decided_too() -> None:
    """Else nothing would show that pages do not tell of two moments."""
    assert played().fresh > 40
