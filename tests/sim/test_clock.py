"""Simulated time: it jumps, it is exact, it keeps its order, and it says so when nothing can ever happen again."""

import asyncio
import time

import pytest

from headroom.sim.clock import Deadlock, SimClock, run_virtual

START = 1_767_225_600_000


def test_days_pass_in_no_time_and_to_the_millisecond() -> None:
    async def days() -> tuple[int, float]:
        clock = SimClock(START)
        clock.now()
        for _ in range(72):
            await clock.sleep(3600)
        await clock.sleep(0.001)
        return clock.now(), clock.monotonic()

    began = time.process_time()
    now, elapsed = run_virtual(days)
    assert now == START + 3 * 86_400_000 + 1
    assert elapsed == pytest.approx(3 * 86_400 + 0.001)
    assert time.process_time() - began < 1


def test_timers_of_one_moment_fire_in_the_order_they_were_made() -> None:
    async def many() -> list[int]:
        clock, seen = SimClock(START), []

        async def note(number: int) -> None:
            await clock.sleep(1)
            seen.append(number)

        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(note(number))
        return seen

    assert run_virtual(many) == list(range(50))


def test_timeouts_are_simulated_too() -> None:
    async def late() -> float:
        clock = SimClock(START)
        clock.now()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await asyncio.Event().wait()
        return clock.monotonic()

    assert run_virtual(late) == pytest.approx(90)


def test_a_deadlock_is_an_error_that_says_what_it_is() -> None:
    with pytest.raises(Deadlock, match="every task waits for another one"):
        run_virtual(lambda: asyncio.Event().wait())


def test_threads_are_not_needed() -> None:
    async def work() -> int:
        return await asyncio.to_thread(lambda: 7)

    async def fail() -> None:
        await asyncio.to_thread(lambda: 1 // 0)

    assert run_virtual(work) == 7
    with pytest.raises(ZeroDivisionError):
        run_virtual(fail)


async def test_with_a_speed_a_real_loop_is_simulated_faster() -> None:
    clock = SimClock(START, speed=1000)
    assert clock.now() == START
    began = time.monotonic()
    await clock.sleep(20)
    assert time.monotonic() - began < 20
    assert clock.now() >= START + 20_000
    assert clock.monotonic() >= 20


def test_call_later_counts_simulated_seconds() -> None:
    async def later() -> int:
        clock, called = SimClock(START), asyncio.Event()
        clock.now()
        clock.call_later(30, called.set)
        await called.wait()
        return clock.now()

    assert run_virtual(later) == START + 30_000
