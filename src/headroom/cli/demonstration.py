"""The demo as it runs: a simulated cluster in real time, the operator over it, the dashboard, and a line now and then."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path
from typing import Any, Final, NamedTuple

from headroom.adapters.kube.transport import Transport
from headroom.cli import output
from headroom.model import times
from headroom.model.ports import Clock
from headroom.sim.clock import SimClock
from headroom.sim.fleet import fleet
from headroom.sim.operators import SimulatedProcess
from headroom.sim.scenario import Scenario, Simulation
from headroom.web.server import Servers, free_port, main_app
from headroom.web.view import Showing, View

HOURS: Final = 72
"""How much of the built-in fleet's life is written in advance; at the usual speed it lasts longer than an hour."""
FIRST_LINE_SECONDS: Final = 1.0
LINE_SECONDS: Final = 10.0


class Wishes(NamedTuple):
    """What was asked for."""

    speed: float
    seed: int
    port: int
    scenario: Path | None
    seconds: float | None


async def show(wishes: Wishes) -> int:
    """Run the demo until somebody ends it; the exit code."""
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ends.set)
    if wishes.seconds is not None:
        loop.call_later(wishes.seconds, ends.set)
    stage = Stage(Scenario.load(wishes.scenario) if wishes.scenario else _built_in(wishes.seed), wishes.speed)
    playing = asyncio.create_task(stage.simulation.play())
    # An error in the scenario ends the demo at once, with its sentence; so does the end of one that somebody gave.
    playing.add_done_callback(
        lambda task: ends.set() if wishes.scenario or task.cancelled() or task.exception() else None
    )
    talking = asyncio.create_task(stage.talk(wishes))
    talking.add_done_callback(lambda task: ends.set() if not task.cancelled() else None)
    await ends.wait()
    await stage.close(playing, talking)
    if not wishes.scenario:
        return output.OK
    output.line(_verdict(stage.simulation))
    return output.PROBLEMS if stage.simulation.failures else output.OK


def _built_in(seed: int) -> Scenario:
    return Scenario.of(fleet(seed, hours=HOURS), "the built-in fleet")


def _said(failure: str) -> None:
    output.say(f"not as the scenario expects: {failure}")


def _verdict(simulation: Simulation) -> str:
    """How many expectations held, in words."""
    all_ = len(simulation.scenario.expect)
    left = all_ - simulation.judged
    said = f"{simulation.held} of {all_} expectation{'' if all_ == 1 else 's'} held"
    return f"{said}, {left} not reached yet" if left else said


class Stage:
    """One scenario with its operators and the dashboard."""

    def __init__(self, scenario: Scenario, speed: float) -> None:
        self.simulation = Simulation(scenario, self._operator, SimClock(scenario.start, speed))
        self.simulation.on_failure = _said
        self._servers = Servers()
        self._showing: Showing | None = None
        self._begun = asyncio.Event()

    def _operator(self, transport: Transport, clock: Clock, rng: random.Random, identity: str) -> SimulatedProcess:
        """A new operator process; the dashboard shows the newest."""
        made = SimulatedProcess(transport, clock, rng, identity)
        view = View(port=made.port, loop=made.operator.loop, gate=made.leader, clock=clock, title="Headroom demo")
        if self._showing is None:
            self._showing = Showing(view=view, metrics=made.around.metrics)
            self._begun.set()
        else:
            self._showing.view, self._showing.metrics = view, made.around.metrics
        return made

    async def talk(self, wishes: Wishes) -> None:
        """Serve the dashboard and say how the fleet is doing."""
        await self._begun.wait()
        assert self._showing is not None
        app = main_app(self._showing, None)
        free = free_port(wishes.port)
        if free != wishes.port:
            output.say(f"port {wishes.port} is taken, using {free}")
        port = await self._servers.listen(app, f"127.0.0.1:{free}", "--port")
        output.line(f"Headroom runs on a simulated cluster, {wishes.speed:g} times as fast as life.")
        output.line(f"The dashboard is at http://127.0.0.1:{port}/ and Ctrl-C ends the demo.")
        pause = FIRST_LINE_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = LINE_SECONDS
            output.line(_line(self._showing.view.state()))

    async def close(self, playing: asyncio.Task[Any], talking: asyncio.Task[None]) -> None:
        """End everything in good order. Raises what ended the demo, if it was a failure."""
        for task in (talking, playing):
            if not task.done():
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((talking, playing))
            await self.simulation.stop()
            await self._servers.close()
        for task in (playing, talking):
            if not task.cancelled() and (error := task.exception()):
                raise error


def _line(state: dict[str, Any]) -> str:
    fleet_, resources = state["fleet"], state["resources"]
    moment = times.moment(state["now"]) or 0
    running = fleet_["podsRunning"]
    good = sum(each["ready"] == "True" for each in resources)
    return (
        f"{times.text(moment - moment % times.SECOND)}  "
        f"{fleet_['gpusHeld']} of {fleet_['gpus']} GPUs held, {running} pod{'' if running == 1 else 's'} running, "
        f"{fleet_['podsUnbound']} waiting; {good} of {len(resources)} resources Ready"
    )
