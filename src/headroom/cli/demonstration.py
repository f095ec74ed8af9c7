"""The demo as it runs: a simulated cluster in real time, the operator over it, the dashboard, and a line now and then."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from headroom.adapters.kube.transport import Transport
from headroom.cli import capabilities, output, private
from headroom.cli.storyteller import Teller
from headroom.model import times
from headroom.model.decisions import Decision
from headroom.model.errors import Misconfigured
from headroom.model.ports import Clock
from headroom.model.snapshots import save
from headroom.runtime.dashboard_settings import Presentation
from headroom.sim.fleet import arrivals, fleet
from headroom.sim.fleet.work import USER
from headroom.sim.operators import SimulatedProcess
from headroom.sim.pacing import PacedClock
from headroom.sim.scenario import Scenario, Simulation
from headroom.sim.script import ScenarioStep
from headroom.web.addresses import free_port
from headroom.web.listening import Servers
from headroom.web.pages.overview import fleet_of
from headroom.web.server import main_app
from headroom.web.source import Local
from headroom.web.view import OperatorView, Showing

PRESENTATION: Final = Presentation(cluster="simulated", user_key=USER)
FIRST_LINE_SECONDS: Final = 1.0
LINE_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.25
"""How often it is looked for something to tell."""
SLOWER: Final = 0.8
"""Less of the speed that was asked for is worth a word."""


Noted = Callable[[Decision, int], None]


class DemoOptions(NamedTuple):
    """What was asked for."""

    speed: float
    seed: int
    port: int
    scenario: Path | None
    seconds: float | None
    snapshot: Path | None


async def show(wishes: DemoOptions) -> int:
    """Run the demo until somebody ends it; the exit code."""
    private.prepare(wishes.snapshot)
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ends.set)
    stage = DemoStage(Scenario.load(wishes.scenario) if wishes.scenario else _built_in(wishes.seed), wishes.speed)
    playing = asyncio.create_task(stage.simulation.play() if wishes.scenario else stage.go_on(wishes.seed))
    # An error in the scenario ends the demo at once, with its sentence; so does the end of one that somebody gave.
    playing.add_done_callback(
        lambda task: ends.set() if wishes.scenario or task.cancelled() or task.exception() else None
    )
    talking = asyncio.create_task(stage.talk(wishes, ends))
    talking.add_done_callback(lambda task: ends.set() if not task.cancelled() else None)
    await ends.wait()
    saved = stage.saved() if wishes.snapshot is not None else b""
    await stage.close(playing, talking)
    if wishes.snapshot is not None:
        _write(wishes.snapshot, saved)
    if not wishes.scenario:
        return output.OK
    output.line(_verdict(stage.simulation))
    return output.PROBLEMS if stage.simulation.failures else output.OK


def _built_in(seed: int) -> Scenario:
    return Scenario.of(fleet(seed, hours=0), "the built-in fleet")


def _write(file: Path, saved: bytes) -> None:
    if not saved:
        output.say(f"nothing was written to {file}: the demo ended before its fleet was ready")
        return
    try:
        private.write(file, saved + b"\n")
    except OSError as error:
        raise Misconfigured(f"writing {file}: {error.strerror or error}; give another file") from error
    output.say(f"wrote {len(saved) + 1:,} bytes to {file}; `headroom status --from {file}` shows it")


def _said(failure: str) -> None:
    output.say(f"expectation failed: {failure}")


def _verdict(simulation: Simulation) -> str:
    """How many expectations held, in words."""
    all_ = len(simulation.scenario.expect)
    left = all_ - simulation.judged
    said = f"{simulation.held} of {all_} expectation{'' if all_ == 1 else 's'} held"
    return f"{said}, {left} not reached yet" if left else said


class DemoStage:
    """One scenario with its operators and the dashboard."""

    def __init__(self, scenario: Scenario, speed: float) -> None:
        self._managed = speed
        """The speed that this machine reaches."""
        self._clock = PacedClock(scenario.start, speed)
        self._teller = Teller()
        self.simulation = Simulation(scenario, self._operator, self._clock)
        self.simulation.on_failure = _said
        self._servers = Servers()
        self._showing: Showing | None = None
        self._begun = asyncio.Event()

    def _operator(self, transport: Transport, clock: Clock, rng: random.Random, identity: str) -> SimulatedProcess:
        """A new operator process; the dashboard shows the newest."""
        made = SimulatedProcess(transport, clock, rng, identity, labels=frozenset({USER}))
        made.operator.loop.noted = self._heard(made.operator.loop.noted)
        view = OperatorView(
            port=made.port,
            loop=made.operator.loop,
            gate=made.leader,
            clock=clock,
            journal=made.recorder.journal,
            title="Headroom demo",
            presentation=PRESENTATION,
            speed=lambda: self._managed,
        )
        metrics = capabilities.measured(made.around.metrics)
        if self._showing is None:
            self._showing = Showing(view=view, metrics=metrics, pages=capabilities.pages())
            self._begun.set()
        else:
            self._showing.view, self._showing.metrics = view, metrics
        return made

    def _heard(self, noted: Noted) -> Noted:
        """Whoever takes note of decisions, and the story's teller too."""

        def both(decision: Decision, now: int) -> None:
            noted(decision, now)
            self._teller.decided(decision, now)

        return both

    async def go_on(self, seed: int) -> None:
        """The life of the built-in fleet, for as long as somebody watches."""
        simulation = self.simulation
        simulation.start()
        for at, job in arrivals(seed):
            await self._clock.sleep((simulation.scenario.start + at - self._clock.now()) / times.SECOND)
            await simulation.do(ScenarioStep(apply=job))
            # Nobody judges this run by what it wrote, and it may be a long one.
            simulation.server.trace.writes.clear()

    async def talk(self, wishes: DemoOptions, ends: asyncio.Event) -> None:
        """Serve the dashboard and say how the fleet is doing, for as long as was wished from the first look on."""
        await self._begun.wait()
        assert self._showing is not None
        app = main_app(Local(self._showing), None)
        free = free_port(wishes.port)
        if free != wishes.port:
            output.say(f"port {wishes.port} is taken, using {free}")
        port = await self._servers.listen(app, f"127.0.0.1:{free}", "--port")
        output.line(f"Headroom runs on a simulated cluster at {wishes.speed:g}× real time.")
        output.line(f"The dashboard is at http://127.0.0.1:{port}/ and Ctrl-C ends the demo.")
        if wishes.seconds is not None:
            asyncio.get_running_loop().call_later(wishes.seconds, ends.set)
        await asyncio.sleep(FIRST_LINE_SECONDS)
        day = ""
        while True:
            if day != (day := _day(self._clock.now())):
                output.line(f"Simulated day: {day}.")
            output.line(_line(self._showing.view) + self._slower(wishes.speed))
            for _ in range(round(LINE_SECONDS / LOOK_SECONDS)):
                self._tell(self._showing.view)
                await asyncio.sleep(LOOK_SECONDS)

    def _tell(self, view: OperatorView) -> None:
        """What has happened to budgets since it was last told."""
        for said in self._teller.news(view.loop.decisions, view.world().resources, view.clock.now()):
            output.line(said)

    def _slower(self, wished: float) -> str:
        """A word, if this machine cannot keep up."""
        managed = self._clock.managed()
        self._managed = managed if managed < SLOWER * wished else wished
        return f"; this machine reaches {managed:.0f}×" if managed < SLOWER * wished else ""

    def saved(self) -> bytes:
        """What the operator knows now, with the usage of its ledger; nothing if it has not seen the fleet yet."""
        world = self._showing.view.world() if self._showing is not None else None
        return save(world) if world is not None and world.complete and world.ledger.loaded else b""

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


def _day(now: int) -> str:
    return f"{datetime.fromtimestamp(now / times.SECOND, UTC):%A, %d %B %Y}"


def _line(view: OperatorView) -> str:
    world, ready = view.world(), view.ready()
    fleet_ = fleet_of(world)
    running = fleet_["running"]
    good = sum(count for (_, verdict), count in ready.items() if verdict == "True")
    return (
        f"{times.text(world.now)[11:16]}  "
        f"{fleet_['held']} of {fleet_['gpus']} GPUs allocated, {running} pod{'' if running == 1 else 's'} running, "
        f"{fleet_['waiting']} queued or pending; {good} of {ready.total()} resources Ready"
    )
