"""Simulated time beside real time: the demo's clock, at a speed, with the exact order of events of the virtual one.

Simulated time moves from one event to the next, never while something is still to be done for the moment that it stands at. So the demo
takes the same course as a scenario on a `VirtualLoop`. A machine that is too slow for the speed makes time pass more slowly,
instead of letting leases run out and answers come late.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from headroom.sim.clock import SimClock

T = TypeVar("T")

MOST_BEHIND_SECONDS: Final = 0.2
"""Real time; what is lost beyond that is not made up for."""


class _PacingSelector(selectors.DefaultSelector):
    """Waits for sockets, but no longer than until something simulated is due. It is asked to wait only when all work is done."""

    def __init__(self) -> None:
        super().__init__()
        self.advance: Callable[[], float | None] = lambda: None
        """Lets what is due happen; the real seconds until the next such moment, 0 if this was one, None if none is known."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            wait = self.advance()
            if wait is not None:
                timeout = wait if timeout is None else min(wait, timeout)
        return super().select(timeout)


class PacedLoop(asyncio.SelectorEventLoop):
    """An event loop in real time, on which a `PacedClock` lets simulated time pass too."""

    def __init__(self) -> None:
        self.pacing = _PacingSelector()
        super().__init__(self.pacing)


class _Timer(asyncio.TimerHandle):
    """A simulated moment at which something is due; of one moment, those that were asked for first come first."""

    def __init__(self, when: float, number: int, what: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(when, what, (), loop)
        self.number, self.what = number, what

    def __lt__(self, other: object) -> bool:
        if isinstance(other, _Timer):
            return (self.when(), self.number) < (other.when(), other.number)
        return NotImplemented


class PacedClock(SimClock):
    """A `SimClock` that runs on a `PacedLoop`, so many simulated seconds for each real one at most."""

    def __init__(self, start_ms: int, speed: float) -> None:
        super().__init__(start_ms, speed)
        self._seconds = 0.0
        self._timers: list[_Timer] = []
        self._numbers = itertools.count()
        self._began: float | None = None
        """The real moment that the beginning would have had, at this speed."""
        self._seen = (0.0, 0.0)

    def _elapsed(self) -> float:
        return self._seconds

    def managed(self) -> float:
        """The speed at which time has passed since this was last asked."""
        seen, self._seen = self._seen, (time.monotonic(), self._seconds)
        real = self._seen[0] - seen[0]
        return (self._seconds - seen[1]) / real if seen[0] and real > 0 else self._speed

    async def sleep(self, seconds: float) -> None:
        """Wait so many simulated seconds."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    def call_later(self, seconds: float, what: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `what` after so many simulated seconds."""
        loop = asyncio.get_running_loop()
        if self._began is None:
            assert isinstance(loop, PacedLoop)
            self._began, loop.pacing.advance = time.monotonic(), lambda: self._advance(loop)
        timer = _Timer(self._seconds + max(0.0, seconds), next(self._numbers), what, loop)
        heapq.heappush(self._timers, timer)
        return timer

    def _advance(self, loop: asyncio.AbstractEventLoop) -> float | None:
        """Move on to the next moment at which something is due, if it has come."""
        timers = self._timers
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not timers or self._began is None:
            return None
        moment, now = timers[0].when(), time.monotonic()
        wait = self._began + moment / self._speed - now
        if wait > 0:
            return wait
        self._began += max(0.0, -wait - MOST_BEHIND_SECONDS)
        self._seconds = max(self._seconds, moment)
        while timers and timers[0].when() <= moment:
            due = heapq.heappop(timers)
            loop.call_soon(self._fire, due)
        return 0.0

    def _fire(self, due: _Timer) -> None:
        if not due.cancelled():
            due.what()


def run_paced(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that `make` gives on a fresh `PacedLoop`, to its end."""
    with asyncio.Runner(loop_factory=PacedLoop) as runner:
        return runner.run(make())
