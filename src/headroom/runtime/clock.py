"""The real clock, and whether the time it tells can be trusted."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from msgspec import Struct

from headroom.model.ports import Clock
from headroom.model.times import MINUTE

SUSPECT_MS: Final = MINUTE
"""An offset or a step of more than this is no drift."""
STEP_SECONDS: Final = 600.0
"""For so long a step is remembered: whoever set the clock may set it back."""


class RealClock:
    """Wall-clock time for timestamps, the monotonic clock for durations."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Due:
    """When which work was last done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._done_at: dict[str, float] = {}

    def is_time(self, what: str, every: float) -> bool:
        """Whether so many seconds have passed since, or it was never done."""
        return self._clock.monotonic() - self._done_at.get(what, -1e9) >= every

    def was_done(self, what: str) -> bool:
        """Whether it ever was."""
        return what in self._done_at

    def did(self, what: str) -> None:
        """It was done now."""
        self._done_at[what] = self._clock.monotonic()

    def now(self, what: str) -> None:
        """It is due now, whenever it was done."""
        self._done_at.pop(what, None)


class Doubt(Struct, frozen=True, kw_only=True):
    """What speaks against a clock; all zero while nothing does."""

    offset_ms: int = 0
    """By how much it is ahead of the API server's, or behind if negative."""
    step_ms: int = 0
    """By how much it was set forward or back of late."""

    def __bool__(self) -> bool:
        return bool(self.offset_ms or self.step_ms)


NO_DOUBT: Final = Doubt()


class ClockWatch:
    """Compares the clock with the API server's and with the monotonic one, whenever it is asked to look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[int, float] | None = None
        self._stepped: tuple[float, int] | None = None
        self.doubt = NO_DOUBT

    def look(self, server: int | None) -> Doubt:
        """What speaks against the clock now; `server` is the API server's time, None if that is not known."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if self._last is not None:
            step = now - self._last[0] - round((monotonic - self._last[1]) * 1000)
            if abs(step) > SUSPECT_MS:
                self._stepped = monotonic, step
        self._last = now, monotonic
        if self._stepped is not None and monotonic - self._stepped[0] > STEP_SECONDS:
            self._stepped = None
        offset = 0 if server is None else now - server
        self.doubt = Doubt(
            offset_ms=_in_minutes(offset) if abs(offset) > SUSPECT_MS else 0,
            step_ms=_in_minutes(self._stepped[1]) if self._stepped else 0,
        )
        return self.doubt


def _in_minutes(length: int) -> int:
    """So that it is no news with every look."""
    return round(length / MINUTE) * MINUTE
