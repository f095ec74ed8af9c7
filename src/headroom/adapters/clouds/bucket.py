"""A bucket of tokens: how often a cloud is asked, however many ask."""

from __future__ import annotations

import asyncio

from headroom.model.ports import Clock


class TokenBucket:
    """Holds a few tokens for a burst, and gets so many a second."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, float(burst)
        self._left, self._filled = float(burst), clock.monotonic()
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a token; whoever asked first gets it first."""
        async with self._turn:
            now = self._clock.monotonic()
            self._left = min(self._burst, self._left + (now - self._filled) * self._per_second)
            self._filled = now
            self._left -= 1
            if self._left < 0:
                await self._clock.sleep(-self._left / self._per_second)
