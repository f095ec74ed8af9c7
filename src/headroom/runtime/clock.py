"""The real clock."""

from __future__ import annotations

import asyncio
import time


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
