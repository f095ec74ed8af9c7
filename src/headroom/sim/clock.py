"""Simulated time: an event loop that jumps to its next timer instead of waiting, and the clock that reads it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_NOBODY: Final = (
    "the simulation stands still: every task waits for another one, and no timer is left to wake any of them"
)


class Deadlock(RuntimeError):
    """Nothing is ready and nothing ever will be."""


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: what would have been a wait becomes a jump of the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Deadlock(_NOBODY)
        self.seconds += max(0.0, timeout)
        return ready


class _Timer(asyncio.TimerHandle):
    """A timer that comes after those of the same moment that were made before it; asyncio's own have no such order."""

    def __init__(self, when: float, number: int, what: tuple[Any, ...], loop: VirtualLoop, context: Any) -> None:
        callback, *args = what
        super().__init__(when, callback, args, loop, context)
        self._number = number
        self._scheduled = True

    def __lt__(self, other: object) -> bool:
        if isinstance(other, _Timer):
            return (self.when(), self._number) < (other.when(), other._number)
        return NotImplemented


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop for simulations: hours pass in milliseconds, and the same program always runs in the same order."""

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        self._numbers = itertools.count()
        self._scheduled: list[_Timer]
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds since the loop was made, as far as the simulation is concerned."""
        return self._virtual.seconds

    def call_at(  # type: ignore[override]  # asyncio ties the arguments to the callback; here they only pass through
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call it at that moment, after all that was asked for the same moment before."""
        timer = _Timer(when, next(self._numbers), (callback, *args), self, context)
        heapq.heappush(self._scheduled, timer)
        return timer

    def run_in_executor(self, _: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # as above
        """Call it at once and here: a thread would run in real time and in an order of its own."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as failure:  # noqa: BLE001  whoever waits for the result shall see it, as with a thread
            future.set_exception(failure)
        return future


class SimClock:
    """The time of a simulation: a `model.ports.Clock`.

    Without a speed it is the loop's own time, as `VirtualLoop` makes it. With a speed it is the real loop's time, so many
    simulated seconds for each real one.
    """

    def __init__(self, start_ms: int, speed: float | None = None) -> None:
        self.start_ms = start_ms
        self._speed = speed or 1.0
        self._time: Callable[[], float] | None = None
        self._origin = 0.0

    def _elapsed(self) -> float:
        if self._time is None:
            # Asked millions of times a week: the loop is looked up once.
            self._time = asyncio.get_running_loop().time
            self._origin = self._time()
        return (self._time() - self._origin) * self._speed

    def now(self) -> int:
        """Milliseconds since 1970 in simulated time."""
        return self.start_ms + round(self._elapsed() * 1000)

    def monotonic(self) -> float:
        """Simulated seconds since the clock was first asked."""
        return self._elapsed()

    async def sleep(self, seconds: float) -> None:
        """Wait so many simulated seconds."""
        await asyncio.sleep(max(0.0, seconds) / self._speed)

    def call_later(self, seconds: float, what: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `what` after so many simulated seconds."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds) / self._speed, what)


def run_virtual(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that `make` gives on a fresh `VirtualLoop`, to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(make())
