"""Simulated time beside real time: never too fast, always in order, and the same course at every speed."""

import asyncio
import time
from pathlib import Path

import pytest

from headroom.sim.operators import production
from headroom.sim.pacing import PacedClock, run_paced
from headroom.sim.scenario import Report, Scenario, Simulation

START = 1_767_225_600_000
QUIET = Path(__file__).parent.parent / "scenarios" / "quiet-lab.yaml"


def test_it_is_not_faster_than_asked_for() -> None:
    async def wait() -> tuple[int, float]:
        clock = PacedClock(START, 100)
        await clock.sleep(20)
        return clock.now(), clock.monotonic()

    began = time.monotonic()
    assert run_paced(wait) == (START + 20_000, 20.0)
    assert time.monotonic() - began >= 0.2


def test_things_happen_at_their_moment_and_in_the_order_they_were_asked_for() -> None:
    async def many() -> list[tuple[float, str]]:
        clock, seen = PacedClock(START, 1e6), list[tuple[float, str]]()
        for name, seconds in (("late", 3.0), ("first", 1.0), ("second", 1.0), ("never", 2.0)):
            timer = clock.call_later(seconds, lambda name=name: seen.append((clock.monotonic(), name)))  # type: ignore[misc]  # bound now
            if name == "never":
                timer.cancel()
        await clock.sleep(5)
        return seen

    assert run_paced(many) == [(1.0, "first"), (1.0, "second"), (3.0, "late")]


def test_time_stands_still_while_there_is_work_for_the_moment() -> None:
    async def busy() -> float:
        clock = PacedClock(START, 1e6)
        clock.call_later(0.001, lambda: None)
        for _ in range(100):
            await asyncio.sleep(0)
        return clock.monotonic()

    assert run_paced(busy) == 0.0


def test_a_slow_machine_makes_time_pass_more_slowly() -> None:
    async def slow() -> tuple[float, float]:
        clock = PacedClock(START, 1000)
        clock.managed()
        for _ in range(3):
            await clock.sleep(100)
            time.sleep(0.5)  # noqa: ASYNC251  the machine is busy, five times as long as it should be
        return clock.monotonic(), clock.managed()

    elapsed, managed = run_paced(slow)
    assert elapsed == 300.0
    assert managed < 500


def test_a_task_that_is_cancelled_waits_no_more() -> None:
    async def cancelled() -> float:
        clock = PacedClock(START, 1e6)
        task = asyncio.create_task(clock.sleep(3600))
        await clock.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await clock.sleep(1)
        return clock.monotonic()

    assert run_paced(cancelled) == 2.0


def test_real_timers_stay_real() -> None:
    async def both() -> float:
        clock = PacedClock(START, 1000)
        waiting = asyncio.create_task(clock.sleep(3600))
        began = time.monotonic()
        await asyncio.sleep(0.05)
        waiting.cancel()
        return time.monotonic() - began

    assert run_paced(both) >= 0.05


def test_every_speed_takes_the_same_course() -> None:
    scenario = Scenario.load(QUIET)

    def played(speed: float) -> Report:
        return run_paced(lambda: Simulation(scenario, production, PacedClock(scenario.start, speed)).play())

    first, second = played(1e9), played(5000)
    assert first.passed
    assert first.trace.text() == second.trace.text()
